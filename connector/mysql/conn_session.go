package mysql

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
)

const (
	maxPacket    = 1<<24 - 1 // a longer payload goes on in the next packet
	maxEventSize = 1<<31 - 1 // far above the server's max_allowed_packet of 1 GiB
)

var errMalformed = errors.New("malformed packet")

// deadlineReader gives reads of the socket a deadline; 0 means none. It is what
// makes a dead link an error. The deadline is renewed once an eighth of it is over.
type deadlineReader struct {
	conn  net.Conn
	limit time.Duration
	set   time.Time
}

func (d *deadlineReader) Read(p []byte) (int, error) {
	if d.limit == 0 {
		return d.conn.Read(p)
	}
	// Whoever works off what was read so far goes first: meanwhile more arrives, and
	// one call fetches it.
	runtime.Gosched()
	if now := time.Now(); now.Sub(d.set) > d.limit/8 {
		if err := d.conn.SetReadDeadline(now.Add(d.limit)); err != nil {
			return 0, fmt.Errorf("set read deadline: %w", err)
		}
		d.set = now
	}
	return d.conn.Read(p)
}

// packetReader reads payloads of the client protocol, joined where they span
// packets.
type packetReader struct {
	src *deadlineReader
	br  *bufio.Reader
	buf []byte
}

func newPacketReader(conn net.Conn, size int) *packetReader {
	src := &deadlineReader{conn: conn}
	return &packetReader{src: src, br: bufio.NewReaderSize(src, size)}
}

// next returns the next payload, valid until the call after.
func (r *packetReader) next() ([]byte, error) {
	n, err := r.header()
	if err != nil {
		return nil, err
	}
	if n <= r.br.Buffered() { // the common case: no copy
		b, err := r.br.Peek(n)
		if err != nil {
			return nil, fmt.Errorf("read packet: %w", err)
		}
		if n < maxPacket {
			_, err = r.br.Discard(n)
			return b, err
		}
	}
	r.buf = r.buf[:0]
	for {
		if len(r.buf)+n > maxEventSize {
			return nil, fmt.Errorf("read packet of over %d bytes: %w", maxEventSize, errMalformed)
		}
		at := len(r.buf)
		if cap(r.buf) < at+n {
			grown := make([]byte, at, max(at+n, 2*cap(r.buf)))
			copy(grown, r.buf)
			r.buf = grown
		}
		r.buf = r.buf[:at+n]
		if _, err := io.ReadFull(r.br, r.buf[at:]); err != nil {
			return nil, fmt.Errorf("read packet: %w", err)
		}
		if n < maxPacket {
			return r.take(), nil
		}
		if n, err = r.header(); err != nil {
			return nil, err
		}
	}
}

// take hands out the joined payload and does not keep a buffer that one huge
// packet blew up.
func (r *packetReader) take() []byte {
	b := r.buf
	if cap(r.buf) > 4<<20 {
		r.buf = nil
	}
	return b
}

func (r *packetReader) header() (int, error) {
	h, err := r.br.Peek(4)
	if err != nil {
		return 0, fmt.Errorf("read packet header: %w", err)
	}
	n := int(h[0]) | int(h[1])<<8 | int(h[2])<<16
	if _, err := r.br.Discard(4); err != nil {
		return 0, fmt.Errorf("read packet header: %w", err)
	}
	return n, nil
}

// session runs text queries on a connection and hands out the result as raw
// bytes, without a copy per row. One goroutine uses it. It may share the
// connection with the client library as long as no result is half read.
type session struct {
	c    *client.Conn
	r    *packetReader
	info *serverInfo // of chunk sessions
	// broken is true once the connection was closed over an unread answer.
	broken bool
}

func newSession(c *client.Conn) *session {
	return &session{c: c, r: newPacketReader(c.Conn.Conn, 64<<10)}
}

func (s *session) close() { s.c.Close() }

// command sends one command packet.
func (s *session) command(code byte, body ...string) error {
	n := 5
	for _, b := range body {
		n += len(b)
	}
	p := make([]byte, 4, n)
	p = append(p, code)
	for _, b := range body {
		p = append(p, b...)
	}
	s.c.ResetSequence()
	if err := s.c.WritePacket(p); err != nil {
		return fmt.Errorf("send command: %w", err)
	}
	return nil
}

// exec runs statements that return no rows.
func (s *session) exec(ctx context.Context, sql ...string) error {
	for _, q := range sql {
		if err := s.each(ctx, q, func([][]byte) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// each runs a query and calls fn for each row. A NULL is nil, an empty value is
// not. The row is valid until fn returns. After fn's error the connection is
// closed, since the rest of the result is unread.
func (s *session) each(ctx context.Context, sql string, fn func(row [][]byte) error) error {
	return guarded(ctx, s.c, func() error {
		err := s.query(sql, fn)
		if err != nil && serverCode(err) == 0 {
			s.broken = true
			s.c.Close()
		}
		return err
	})
}

func (s *session) query(sql string, fn func(row [][]byte) error) error {
	if err := s.command(mysql.COM_QUERY, sql); err != nil {
		return err
	}
	first, err := s.payload()
	if err != nil {
		return err
	}
	if first[0] == mysql.OK_HEADER {
		return nil
	}
	if first[0] == mysql.LocalInFile_HEADER {
		return fmt.Errorf("read result: the server asks for a local file: %w", errMalformed)
	}
	columns, n := lengthEncoded(first)
	if n == 0 || columns == 0 || columns > 1<<16 {
		return fmt.Errorf("read result: column count: %w", errMalformed)
	}
	for range columns { // definitions: the caller knows what it asked for
		if _, err := s.payload(); err != nil {
			return err
		}
	}
	if p, err := s.payload(); err != nil {
		return err
	} else if !isEOF(p) {
		return fmt.Errorf("read result: end of column definitions: %w", errMalformed)
	}
	return s.rows(make([][]byte, columns), fn)
}

func (s *session) rows(row [][]byte, fn func(row [][]byte) error) error {
	for {
		p, err := s.payload()
		if err != nil {
			return err
		}
		if isEOF(p) {
			return nil
		}
		for i := range row {
			if len(p) == 0 {
				return fmt.Errorf("read result row: %w", errMalformed)
			}
			if p[0] == 0xfb {
				row[i], p = nil, p[1:]
				continue
			}
			n, k := lengthEncoded(p)
			if k == 0 || n > uint64(len(p)-k) {
				return fmt.Errorf("read result row: %w", errMalformed)
			}
			row[i], p = p[k:k+int(n):k+int(n)], p[k+int(n):]
		}
		if err := fn(row); err != nil {
			return err
		}
	}
}

// payload reads one payload; the server's error packet is an error.
func (s *session) payload() ([]byte, error) {
	p, err := s.r.next()
	if err != nil {
		return nil, err
	}
	if len(p) == 0 {
		return nil, fmt.Errorf("read answer: empty packet: %w", errMalformed)
	}
	if p[0] == mysql.ERR_HEADER {
		return nil, serverError(p)
	}
	return p, nil
}

// serverError reads an error packet.
func serverError(p []byte) error {
	if len(p) < 3 {
		return fmt.Errorf("read error packet: %w", errMalformed)
	}
	e := &mysql.MyError{Code: binary.LittleEndian.Uint16(p[1:])}
	text := p[3:]
	if len(text) >= 6 && text[0] == '#' {
		e.State, text = string(text[1:6]), text[6:]
	}
	e.Message = string(text)
	return e
}

func isEOF(p []byte) bool { return p[0] == mysql.EOF_HEADER && len(p) <= 5 }

// text runs a query and returns all rows as strings; NULL is "".
func (s *session) text(ctx context.Context, sql string) ([][]string, error) {
	var out [][]string
	err := s.each(ctx, sql, func(row [][]byte) error {
		r := make([]string, len(row))
		for i, v := range row {
			r[i] = string(v)
		}
		out = append(out, r)
		return nil
	})
	return out, err
}

// lengthEncoded reads an integer of 1, 3, 4 or 9 bytes; n is 0 when b is too
// short or starts with a byte that begins no number.
func lengthEncoded(b []byte) (v uint64, n int) {
	if len(b) == 0 {
		return 0, 0
	}
	switch c := b[0]; {
	case c < 0xfb:
		return uint64(c), 1
	case c == 0xfc && len(b) >= 3:
		return uint64(b[1]) | uint64(b[2])<<8, 3
	case c == 0xfd && len(b) >= 4:
		return uint64(b[1]) | uint64(b[2])<<8 | uint64(b[3])<<16, 4
	case c == 0xfe && len(b) >= 9:
		return binary.LittleEndian.Uint64(b[1:]), 9
	}
	return 0, 0
}

package mysql

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/runnel-dev/runnel/change"
)

// sinkMode is the sql_mode of sessions that write rows: whatever a source can
// hold is taken as it is (zero and invalid dates, id 0), and whatever does not
// fit is an error.
const sinkMode = "STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"

// lenientMode is sinkMode for a row that strict mode could not have stored.
const lenientMode = "ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"

const (
	optionMultiStatements = "\x00\x00" // COM_SET_OPTION: several statements in a packet
	moreResults           = 0x0008     // status flag: another result follows
	idleCheck             = 10 * time.Second
)

// targetInfo is what a session learned about its server.
type targetInfo struct {
	version    string
	mariadb    bool
	maxPacket  int  // max_allowed_packet, bytes
	foldNames  bool // table names compare in lower case
	lowerNames bool // and are stored so
}

// sinkConn is a session that is set up for writing. One goroutine uses it.
type sinkConn struct {
	*session
	info targetInfo
	used time.Time // when it was last given back
	lost bool      // the protocol state is unknown: of no further use

	// during runs a statement that may take long; nil for run alone.
	during func(run func(context.Context) error) error
}

// answer is the result of one statement.
type answer struct {
	affected uint64     // rows changed
	rows     [][][]byte // nil for a statement without a result; NULL is a nil cell
}

// open makes a new connection that is not part of the pool.
func (s *Sink) open(ctx context.Context) (*sinkConn, error) {
	c, err := connect(ctx, s.cfg, change.TargetWide)
	if err != nil {
		return nil, err
	}
	conn := &sinkConn{session: newSession(c), used: time.Now()}
	conn.info.version = strings.TrimRight(c.GetServerVersion(), "\x00")
	conn.info.mariadb = strings.Contains(strings.ToLower(conn.info.version), "mariadb")
	conn.r.src.limit = s.opts.AnswerTimeout
	if err := conn.setUp(ctx); err != nil {
		conn.close()
		return nil, fmt.Errorf("set up session at %s: %w", s.cfg.subject(), classed(err))
	}
	return conn, nil
}

// close says goodbye, so that the server does not count the connection as aborted,
// and closes it.
func (c *sinkConn) close() {
	const patience = time.Second
	if raw := c.c.Conn.Conn; !c.lost && raw.SetWriteDeadline(time.Now().Add(patience)) == nil {
		_ = c.command(mysql.COM_QUIT) // the connection goes either way
	}
	c.session.close()
}

// severalStatements makes the server take several statements in a packet.
func (c *sinkConn) severalStatements(ctx context.Context) error {
	err := guarded(ctx, c.c, func() error {
		if err := c.command(mysql.COM_SET_OPTION, optionMultiStatements); err != nil {
			return err
		}
		_, err := c.payload()
		return err
	})
	if err != nil {
		return fmt.Errorf("allow several statements in a packet: %w", err)
	}
	return nil
}

func (c *sinkConn) setUp(ctx context.Context) error {
	if err := c.severalStatements(ctx); err != nil {
		return err
	}
	got, err := c.queryOne(ctx, "SELECT @@max_allowed_packet, @@lower_case_table_names, @@log_bin, @@binlog_format")
	if err != nil {
		return err
	}
	if c.info.maxPacket, err = strconv.Atoi(got[0]); err != nil {
		return fmt.Errorf("read max_allowed_packet: %w", err)
	}
	c.info.foldNames, c.info.lowerNames = got[1] != "0", got[1] == "1"
	set := "SET NAMES utf8mb4, time_zone='+00:00', sql_mode='" + sinkMode + "', foreign_key_checks=0, unique_checks=1," +
		" innodb_lock_wait_timeout=1, lock_wait_timeout=1, autocommit=1, sql_safe_updates=0, sql_big_selects=1," +
		" sql_quote_show_create=1, net_read_timeout=15"
	// A transaction whose owner is gone must end soon: the next owner waits for it.
	if c.info.mariadb {
		set += ", idle_transaction_timeout=5, max_statement_time=0"
	} else {
		set += ", wait_timeout=30"
	}
	// Read committed takes no gap locks. A server that logs statements refuses it.
	if got[2] == "0" || got[3] != "STATEMENT" {
		set += "; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
	}
	_, err = c.run(ctx, []byte(set), nil)
	return err
}

// run sends statements in one packet and reads their results in order. It
// returns the number of statements that succeeded: the next one is the one that
// failed with err, and those after it were not run. each may be nil; a's rows
// may be kept.
func (c *sinkConn) run(ctx context.Context, sql []byte, each func(i int, a answer) error) (done int, err error) {
	return c.runPacket(ctx, append(make([]byte, packetHead, packetHead+len(sql)), sql...), each)
}

// runPacket is run with statements that have room in front of them; raw is used up.
func (c *sinkConn) runPacket(ctx context.Context, raw []byte, each func(i int, a answer) error) (done int, err error) {
	raw[packetHead-1] = mysql.COM_QUERY
	err = guarded(ctx, c.c, func() error {
		c.c.ResetSequence()
		if err := c.c.WritePacket(raw); err != nil {
			return fmt.Errorf("send statements: %w", err)
		}
		for {
			a, more, err := c.answer()
			if err != nil {
				return err
			}
			if each != nil {
				if err := each(done, a); err != nil {
					c.lost = c.lost || more // results are left unread
					return err
				}
			}
			done++
			if !more {
				return nil
			}
		}
	})
	if err != nil && (serverCode(err) == 0 && !ended(err) || ctx.Err() != nil) {
		c.lost = true
	}
	return done, err
}

// table reads a layout by the name that a target has, which the server may store
// in lower case.
func (c *sinkConn) table(ctx context.Context, t change.TableID) (*change.Layout, error) {
	if c.info.lowerNames {
		t = lower(t)
	}
	return c.layout(ctx, t)
}

func lower(t change.TableID) change.TableID {
	return change.TableID{Schema: strings.ToLower(t.Schema), Name: strings.ToLower(t.Name)}
}

// runLong runs one statement that may take long.
func (c *sinkConn) runLong(ctx context.Context, sql string) error {
	run := func(ctx context.Context) error {
		_, err := c.run(ctx, []byte(sql), nil)
		return err
	}
	if c.during == nil {
		return run(ctx)
	}
	return c.during(run)
}

// answer reads one statement's result.
func (c *sinkConn) answer() (a answer, more bool, err error) {
	first, err := c.payload()
	if err != nil {
		return a, false, err
	}
	switch first[0] {
	case mysql.OK_HEADER:
		affected, n := lengthEncoded(first[1:])
		_, m := lengthEncoded(first[1+n:])
		at := 1 + n + m
		if n == 0 || m == 0 || len(first) < at+2 {
			return a, false, fmt.Errorf("read result: %w", errMalformed)
		}
		a.affected = affected
		return a, binary.LittleEndian.Uint16(first[at:])&moreResults != 0, nil
	case mysql.LocalInFile_HEADER:
		return a, false, fmt.Errorf("read result: the server asks for a local file: %w", errMalformed)
	}
	columns, n := lengthEncoded(first)
	if n == 0 || columns == 0 || columns > 1<<16 {
		return a, false, fmt.Errorf("read result: column count: %w", errMalformed)
	}
	for range columns + 1 { // definitions and the mark behind them
		if _, err := c.payload(); err != nil {
			return a, false, err
		}
	}
	a.rows = [][][]byte{}
	for {
		p, err := c.payload()
		if err != nil {
			return a, false, err
		}
		if isEOF(p) {
			return a, len(p) == 5 && binary.LittleEndian.Uint16(p[3:])&moreResults != 0, nil
		}
		row, err := readCells(p, int(columns))
		if err != nil {
			return a, false, err
		}
		a.rows = append(a.rows, row)
	}
}

// readCells copies a row out of its packet.
func readCells(p []byte, columns int) ([][]byte, error) {
	p = append([]byte(nil), p...)
	row := make([][]byte, columns)
	for i := range row {
		if len(p) > 0 && p[0] == 0xfb {
			p = p[1:]
			continue
		}
		n, k := lengthEncoded(p)
		if k == 0 || n > uint64(len(p)-k) {
			return nil, fmt.Errorf("read result row: %w", errMalformed)
		}
		row[i], p = p[k:k+int(n):k+int(n)], p[k+int(n):]
	}
	return row, nil
}

// queryAll runs statements and returns the answer of the last.
func (c *sinkConn) queryAll(ctx context.Context, sql string) (answer, error) {
	var last answer
	_, err := c.run(ctx, []byte(sql), func(_ int, a answer) error { last = a; return nil })
	return last, err
}

// queryOne returns the only row as strings, NULL as "".
func (c *sinkConn) queryOne(ctx context.Context, sql string) ([]string, error) {
	a, err := c.queryAll(ctx, sql)
	if err != nil {
		return nil, err
	}
	if len(a.rows) != 1 {
		return nil, fmt.Errorf("%s: got %d rows, want 1", sql, len(a.rows))
	}
	out := make([]string, len(a.rows[0]))
	for i, v := range a.rows[0] {
		out[i] = string(v)
	}
	return out, nil
}

// rollback ends an open transaction; a connection on which that fails is lost.
func (c *sinkConn) rollback(ctx context.Context) {
	if c.lost {
		return
	}
	if _, err := c.run(ctx, []byte("ROLLBACK"), nil); err != nil {
		c.lost = true
	}
}

// acquire takes a connection from the pool, or opens one, once tokens allows it.
// The caller gives both back with release.
func (s *Sink) acquire(ctx context.Context, tokens chan struct{}) (*sinkConn, error) {
	select {
	case tokens <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a connection to %s: %w", s.cfg.subject(), context.Cause(ctx))
	}
	for {
		c, err := s.takeIdle()
		if c == nil && err == nil {
			c, err = s.open(ctx)
		}
		if err != nil {
			<-tokens
			return nil, err
		}
		if time.Since(c.used) < idleCheck {
			return c, nil
		}
		c.used = time.Now()
		if _, err := c.run(ctx, []byte("DO 0"), nil); err == nil {
			return c, nil
		}
		c.close() // the server dropped it while idle
	}
}

func (s *Sink) takeIdle() (*sinkConn, error) {
	s.pool.Lock()
	defer s.pool.Unlock()
	if s.pool.closed {
		return nil, errSinkClosed
	}
	n := len(s.pool.idle)
	if n == 0 {
		return nil, nil
	}
	c := s.pool.idle[n-1]
	s.pool.idle = s.pool.idle[:n-1]
	return c, nil
}

// release gives a connection, which holds no transaction, and its token back.
func (s *Sink) release(c *sinkConn, tokens chan struct{}) {
	s.pool.Lock()
	keep := !c.lost && !s.pool.closed && len(s.pool.idle) < s.opts.Connections+s.opts.CopyConnections
	if keep {
		c.used = time.Now()
		s.pool.idle = append(s.pool.idle, c)
	}
	s.pool.Unlock()
	if !keep {
		c.close()
	}
	<-tokens
}

// with runs fn on a pooled connection of the control kind.
func (s *Sink) with(ctx context.Context, fn func(c *sinkConn) error) error {
	c, err := s.acquire(ctx, s.control)
	if err != nil {
		return err
	}
	defer s.release(c, s.control)
	return fn(c)
}

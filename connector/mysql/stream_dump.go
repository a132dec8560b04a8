package mysql

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/runnel-dev/runnel/change"
)

// silentHeartbeats is how many heartbeats may stay out before a link is dead.
const silentHeartbeats = 10

// dump is a connection on which the server sends its log.
type dump struct {
	conn     net.Conn
	client   *client.Conn
	packets  *packetReader
	subject  string
	serverID uint32
	once     sync.Once
}

func (d *dump) close() { d.once.Do(func() { d.conn.Close() }) }

// dump verifies a position and asks the server to send its log from there.
func (s *Source) dump(ctx context.Context, from change.Position, f change.Filter) (*dump, *assembler, error) {
	if from.IsZero() {
		return nil, nil, errors.New("the position is empty: ask Now for one")
	}
	at, err := parseToken(dumpToken(from.Token))
	if err != nil {
		return nil, nil, err
	}
	c, err := s.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	info, err := c.identify(ctx, s.cfg.subject())
	if err == nil {
		err = c.readCharsets(ctx, &info)
	}
	if err == nil {
		err = c.verify(ctx, &info, from, at)
	}
	var d *dump
	if err == nil {
		d, err = s.send(ctx, c, &info, at)
	}
	if err != nil {
		c.close()
		return nil, nil, err
	}
	at.gtid = strings.TrimSuffix(at.gtid, "+")
	return d, newAssembler(info, f, s.options, at), nil
}

// send starts the dump on the session's connection, which then serves nothing
// else.
func (s *Source) send(ctx context.Context, c *session, info *serverInfo, at dumpStart) (*dump, error) {
	id, err := replicaID()
	if err != nil {
		return nil, err
	}
	period := strconv.FormatInt(s.options.Heartbeat.Nanoseconds(), 10)
	setup := []string{
		"SET @master_binlog_checksum='CRC32', @source_binlog_checksum='CRC32'",
		"SET @master_heartbeat_period=" + period + ", @source_heartbeat_period=" + period,
		"SET SESSION net_write_timeout=600",
	}
	if info.mariaDB {
		setup = append(setup, "SET @mariadb_slave_capability=4, @slave_connect_state=NULL")
	}
	if err := c.exec(ctx, setup...); err != nil {
		return nil, fmt.Errorf("prepare dump: %w", err)
	}
	body := binary.LittleEndian.AppendUint32(nil, uint32(at.offset))
	body = binary.LittleEndian.AppendUint16(body, 0)
	body = binary.LittleEndian.AppendUint32(body, id)
	if err := c.command(mysql.COM_BINLOG_DUMP, string(body), at.file); err != nil {
		return nil, fmt.Errorf("ask for the log: %w", err)
	}
	d := &dump{conn: c.c.Conn.Conn, client: c.c, subject: info.subject, serverID: id}
	d.packets = newPacketReader(d.conn, 1<<20)
	d.packets.src.limit = silentHeartbeats * s.options.Heartbeat
	return d, nil
}

// replicaID chooses the number by which the server knows a reader of its log. It
// ends the dump of an older reader with the same number, so this one is random and
// far above those that people give to servers.
func replicaID() (uint32, error) {
	var raw [4]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return 0, fmt.Errorf("choose replica id: %w", err)
	}
	return binary.BigEndian.Uint32(raw[:])&(1<<30-1) | 1<<30, nil
}

// next returns the next event, valid until the call after.
func (d *dump) next() ([]byte, error) {
	p, err := d.packets.next()
	switch {
	case err != nil:
		return nil, d.broken(err)
	case len(p) > 0 && p[0] == mysql.OK_HEADER:
		return p[1:], nil
	case len(p) > 0 && p[0] == mysql.ERR_HEADER:
		return nil, d.refused(serverError(p))
	case len(p) > 0 && isEOF(p):
		return nil, fmt.Errorf("read log of %s: the server ended the dump", d.subject)
	}
	return nil, change.WithClass(change.SourceWide, fmt.Errorf("read log of %s: packet of %d bytes that is no event: %w", d.subject, len(p), errMalformed))
}

func (d *dump) broken(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("read log of %s: silent for %v, although it sends heartbeats: the link is dead: %w", d.subject, d.packets.src.limit, err)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("read log of %s: the server closed the connection (stopped, or a KILL, or another reader with id %d): %w", d.subject, d.serverID, err)
	}
	return fmt.Errorf("read log of %s: %w", d.subject, err)
}

// refused gives the error that the server sent a meaning.
func (d *dump) refused(err error) error {
	text := err.Error()
	has := func(s string) bool { return strings.Contains(text, s) }
	wrap := fmt.Errorf("read log of %s: %w", d.subject, err)
	switch {
	case has("Could not find first log file") || has("purged"):
		return change.WithClass(change.SourceWide, fmt.Errorf("%w: %w", change.ErrLogGone, wrap))
	case has("impossible position"):
		return change.WithClass(change.SourceWide, fmt.Errorf("%w: %w", change.ErrHistory, wrap))
	case has("max_allowed_packet"):
		return change.WithClass(change.SourceWide, &change.Problem{Code: "log-packet-limit", Subject: d.subject,
			Cause:  "an event of the log is larger than the server may send: " + text,
			Remedy: "run SET GLOBAL max_allowed_packet=1073741824, SET GLOBAL slave_max_allowed_packet=1073741824"})
	case has("same server_uuid/server_id") || has("same server_id"):
		return fmt.Errorf("read log of %s: another reader took our replica id %d: %w", d.subject, d.serverID, err)
	case serverCode(err) == 1227:
		return change.WithClass(change.SourceWide, privilegeProblem(d.subject, "REPLICATION SLAVE", text))
	}
	return wrap
}

// verify checks that the server's log is the one that the position is in: the
// same server, a file it still has, an offset inside it, and the group in front.
func (s *session) verify(ctx context.Context, info *serverInfo, from change.Position, at dumpStart) error {
	if from.History != info.history {
		return historyError("the position is in the log %q, and the server's log is %q: another server answers at this address, "+
			"or its server id or log name changed", from.History, info.history)
	}
	first, last, size, err := s.logFiles(ctx, at)
	if err != nil {
		return err
	}
	switch {
	case at.fileNo < first:
		return change.WithClass(change.SourceWide, fmt.Errorf("%s is purged, the oldest log file is number %d: %w", at.file, first, change.ErrLogGone))
	case size < 0 && at.fileNo > last:
		return historyError("%s does not exist yet, the newest log file is number %d: the log was reset", at.file, last)
	case size < 0:
		return change.WithClass(change.SourceWide, fmt.Errorf("%s is missing from the log: %w", at.file, change.ErrLogGone))
	case int64(at.offset) > size:
		return historyError("%s has only %d bytes, the position is at %d: the log was reset", at.file, size, at.offset)
	case !info.mariaDB:
		return nil
	}
	const noEvent = "no event begins there"
	rows, err := s.text(ctx, "SELECT IFNULL(BINLOG_GTID_POS("+textLiteral(at.file)+","+strconv.FormatUint(at.offset, 10)+"),"+textLiteral(noEvent)+")")
	if err != nil {
		return fmt.Errorf("verify position %s:%d: %w", at.file, at.offset, err)
	}
	if len(rows) != 1 || rows[0][0] == noEvent || at.gtid != "" && !containsGTIDs(rows[0][0], at.gtid) {
		return historyError("the log in front of %s:%d has %q, the position was made behind %q: the log was reset, "+
			"or another server with the same id answers", at.file, at.offset, rows, at.gtid)
	}
	return nil
}

func historyError(format string, args ...any) error {
	return change.WithClass(change.SourceWide, fmt.Errorf("%w: "+format, append([]any{change.ErrHistory}, args...)...))
}

// logFiles lists the server's log; size is that of the position's file, -1 when
// it is not there.
func (s *session) logFiles(ctx context.Context, at dumpStart) (first, last uint64, size int64, err error) {
	size, first = -1, math.MaxUint64
	err = s.each(ctx, "SHOW BINARY LOGS", func(r [][]byte) error {
		n, ok := fileNumber(string(r[0]))
		if !ok || len(r) < 2 {
			return fmt.Errorf("log file name %q has no number: %w", r[0], errMalformed)
		}
		first, last = min(first, n), max(last, n)
		if bytes.Equal(r[0], []byte(at.file)) {
			size = number(r[1])
		}
		return nil
	})
	if err != nil {
		return 0, 0, 0, fmt.Errorf("list log files: %w", err)
	}
	return first, last, size, nil
}

// containsGTIDs reports whether a log state holds every wanted GTID as the last of
// its domain; with a plus at the end, or something newer.
func containsGTIDs(state, want string) bool {
	want, newer := strings.CutSuffix(want, "+")
	have := map[string]string{}
	for g := range strings.SplitSeq(state, ",") {
		domain, rest, _ := strings.Cut(g, "-")
		have[domain] = rest
	}
	for g := range strings.SplitSeq(want, ",") {
		domain, rest, _ := strings.Cut(g, "-")
		got, ok := have[domain]
		if !ok || got != rest && !(newer && gtidSequence(got) >= gtidSequence(rest)) {
			return false
		}
	}
	return true
}

func gtidSequence(serverAndSeq string) uint64 {
	_, seq, _ := strings.Cut(serverAndSeq, "-")
	n, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

package mysql

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/runnel-dev/runnel/change"
)

// chunkSession makes the server send text in the columns' own character sets, and
// wait for a slow reader.
const chunkSession = "SET SESSION character_set_results=NULL, net_write_timeout=600"

const (
	maxIdle       = 4 // sessions kept for the next chunk
	snapshotTries = 8
	// maxChunkBytes ends a chunk of wide rows before its limit.
	maxChunkBytes = 32 << 20
)

var errFull = errors.New("the chunk has enough bytes")

// Upper implements change.ChunkReader.
func (s *Source) Upper(ctx context.Context, l *change.Layout) ([]byte, error) {
	q, err := newChunkQuery(l)
	if err != nil {
		return nil, err
	}
	var upper []byte
	err = s.withSession(ctx, func(c *session, _ *serverInfo) error {
		def, err := c.definition(ctx, l.Table)
		if err != nil {
			return err
		}
		return c.each(ctx, q.upper(def), func(row [][]byte) (err error) {
			upper, err = q.bound(row)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read greatest key of %s: %w", l.Table, tableGone(err))
	}
	return upper, nil
}

func tableGone(err error) error {
	if code := serverCode(err); code == 1146 || code == 1049 {
		return fmt.Errorf("%w (%v)", change.ErrNoTable, err)
	}
	return err
}

// ReadChunk implements change.ChunkReader.
func (s *Source) ReadChunk(ctx context.Context, l *change.Layout, lower, upper []byte, limit int) (*change.Chunk, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("read chunk of %s: the limit is %d rows", l.Table, limit)
	}
	q, err := newChunkQuery(l)
	if err != nil {
		return nil, err
	}
	var out *change.Chunk
	err = s.withSession(ctx, func(c *session, info *serverInfo) error {
		if err := notMariaDB(info); err != nil {
			return err
		}
		for range snapshotTries {
			out, err = c.chunk(ctx, info, q, lower, upper, limit)
			if serverCode(err) != 1412 { // the definition changed after the snapshot
				return err
			}
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("read chunk of %s: %w", l.Table, tableGone(err))
		if errors.Is(err, change.ErrLayout) {
			return out, err
		}
		return nil, err
	}
	return out, nil
}

// chunk reads one chunk in a transaction of its own: snapshot and mark, metadata
// lock, definition, rows. The definition is checked once the lock is held, since
// an instant change between snapshot and lock raises no error.
func (s *session) chunk(ctx context.Context, info *serverInfo, q *chunkQuery, lower, upper []byte, limit int) (*change.Chunk, error) {
	m, err := s.snapshot(ctx, info)
	if err != nil {
		return nil, err
	}
	l := q.layout
	if err := s.touch(ctx, l.Table); err != nil {
		return nil, err
	}
	def, err := s.definition(ctx, l.Table)
	if err != nil {
		return nil, err
	}
	if def != l.Definition {
		fresh, err := s.layout(ctx, l.Table)
		if err != nil {
			return nil, err
		}
		if fresh.Fingerprint() != l.Fingerprint() {
			return &change.Chunk{Layout: fresh, Mark: m}, fmt.Errorf("the table's definition changed: %w", change.ErrLayout)
		}
	}
	sql, err := q.rows(def, lower, upper, limit)
	if err != nil {
		return nil, err
	}
	out := &change.Chunk{Arena: new(change.Arena), Layout: l, Mark: m, Rows: make([]change.Row, 0, min(limit, 1<<14))}
	err = s.each(ctx, sql, func(row [][]byte) error {
		values := out.Arena.Values(len(l.Columns))
		if err := q.values(values, row, out.Arena); err != nil {
			return err
		}
		out.Rows = append(out.Rows, values)
		if full := out.Arena.UsedBytes() > maxChunkBytes; full || len(out.Rows) == limit {
			if out.Last, err = q.bound(row[len(l.Columns):]); err == nil && full {
				err = errFull
			}
		}
		return err
	})
	if errors.Is(err, errFull) { // the rest of the answer is unread: the session is closed
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	out.Done = len(out.Rows) < limit || string(out.Last) == string(upper)
	return out, s.exec(ctx, "COMMIT")
}

// withSession runs fn on a session for chunk reads, one used before where there is
// one. A session whose fn failed is closed: its transaction ends with it.
func (s *Source) withSession(ctx context.Context, fn func(*session, *serverInfo) error) error {
	c, err := s.session(ctx)
	if err != nil {
		return err
	}
	if err := fn(c, c.info); err != nil {
		c.close()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed || c.broken || len(s.mu.idle) >= maxIdle {
		c.close()
		return nil
	}
	s.mu.idle = append(s.mu.idle, c)
	return nil
}

// session gives a session whose statements end with ctx's deadline, at the server
// too. One that is kept may have been closed by the server: then another is tried.
func (s *Source) session(ctx context.Context) (*session, error) {
	for {
		s.mu.Lock()
		var c *session
		if n := len(s.mu.idle); n > 0 {
			c, s.mu.idle = s.mu.idle[n-1], s.mu.idle[:n-1]
		}
		s.mu.Unlock()
		used := c != nil
		if !used {
			var err error
			if c, err = s.chunkConnect(ctx); err != nil {
				return nil, err
			}
		}
		err := c.exec(ctx, statementLimit(ctx, c.info))
		if err == nil {
			return c, nil
		}
		c.close()
		if !used || ctx.Err() != nil {
			return nil, fmt.Errorf("set statement limit: %w", err)
		}
	}
}

func (s *Source) chunkConnect(ctx context.Context) (*session, error) {
	c, err := s.connect(ctx, chunkSession)
	if err != nil {
		return nil, err
	}
	info, err := c.identify(ctx, s.cfg.subject())
	if err != nil {
		c.close()
		return nil, err
	}
	c.info = &info
	return c, nil
}

// statementLimit bounds each statement by ctx's deadline; MariaDB takes seconds,
// MySQL milliseconds, 0 is no limit.
func statementLimit(ctx context.Context, info *serverInfo) string {
	left := time.Duration(0)
	if d, ok := ctx.Deadline(); ok {
		left = max(time.Until(d), 10*time.Millisecond)
	}
	if !info.mariaDB {
		return "SET SESSION max_execution_time=" + strconv.FormatInt(left.Milliseconds(), 10)
	}
	return "SET SESSION max_statement_time=" + strconv.FormatFloat(left.Seconds(), 'f', 3, 64)
}

package mysql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/fault"
)

var (
	chunkRows         = fault.Register("sink.chunk.before")
	chunkBeforeCommit = fault.Register("sink.chunk.before-commit")
	chunkAfterCommit  = fault.Register("sink.chunk.after-commit")
)

// LoadChunk implements change.TableSink. The chunk row is the first thing that
// the transaction writes: where it is there already, nothing else is done. A lost
// COMMIT is settled by doing the same again. An error about one row wraps a
// *RowError.
func (s *Sink) LoadChunk(ctx context.Context, f change.Fence, ch change.ChunkLoad) error {
	c, err := s.acquire(ctx, s.load)
	if err != nil {
		return fmt.Errorf("load chunk %d of %s: %w", ch.Index, ch.Target, err)
	}
	sc := scripts.Get().(*script)
	defer scripts.Put(sc)
	g := &group{s: s, c: c, f: f, sc: sc}
	defer func() { s.release(g.c, s.load) }()
	for attempt := 1; ; attempt++ {
		err := g.loadChunk(ctx, &ch)
		if err == nil {
			return nil
		}
		again := repeatable(err) || serverCode(err) == codeLockTimeout || errors.Is(err, change.ErrUnknownOutcome)
		if !again || attempt == attempts || ctx.Err() != nil {
			return fmt.Errorf("load chunk %d of %s: %w", ch.Index, ch.Target, s.classed(err))
		}
		if perr := pause(ctx, attempt, rand.Float64()); perr != nil {
			return fmt.Errorf("load chunk %d of %s: %w (%w)", ch.Index, ch.Target, perr, err)
		}
		if err := g.reconnect(ctx); err != nil {
			return fmt.Errorf("load chunk %d of %s: %w", ch.Index, ch.Target, err)
		}
	}
}

// loadChunk does one transaction.
func (g *group) loadChunk(ctx context.Context, ch *change.ChunkLoad) error {
	statement, err := g.s.bulkFor(ctx, g.c, ch)
	if err != nil {
		return err
	}
	if statement != "" {
		err := g.loadBulk(ctx, ch, statement)
		if !errors.Is(err, errNotInBulk) {
			return err
		}
	}
	if err := g.writeChunk(ch, false); err != nil {
		return err
	}
	if err := fault.Point(chunkRows); err != nil {
		return err
	}
	_, err = g.send(ctx, 1)
	switch {
	case err == nil:
	case g.chunkIsThere(err):
		g.c.rollback(ctx)
		return nil
	default:
		g.c.rollback(ctx)
		if change.ClassOf(classed(err)) == change.PermanentRow && rowIndex(err) < 0 {
			return g.blameRow(ctx, ch, err)
		}
		return err
	}
	return g.commitChunk(ctx)
}

func (g *group) commitChunk(ctx context.Context) error {
	if err := fault.Point(chunkBeforeCommit); err != nil {
		g.c.rollback(ctx)
		return err
	}
	if err := g.c.commit(ctx); err != nil {
		return err
	}
	return fault.Point(chunkAfterCommit)
}

// chunkRow marks the statement that inserts the chunk row.
const chunkRow = -2

// chunkIsThere reports that inserting the chunk row met one.
func (g *group) chunkIsThere(err error) bool {
	var re *chunkRowError
	return errors.As(err, &re) && serverCode(err) == codeDuplicateKey
}

type chunkRowError struct{ err error }

func (e *chunkRowError) Error() string { return "write chunk row: " + e.err.Error() }
func (e *chunkRowError) Unwrap() error { return e.err }

// writeChunkRow begins the script of the chunk's transaction: fence, chunk row.
func (g *group) writeChunkRow(ch *change.ChunkLoad) error {
	g.sc.reset(g.c.info.maxPacket)
	bound := "NULL"
	if ch.Bound != nil {
		bound = string(appendBytes(nil, "", ch.Bound))
	}
	for _, st := range []struct {
		sql   string
		batch int
	}{
		{"BEGIN", -1},
		{g.s.fenceRead(g.f, shared), -1},
		{"INSERT INTO " + g.s.tables.chunk + " (incarnation, chunk, bound, done, row_count) VALUES (" +
			quoteString(ch.Incarnation) + "," + strconv.Itoa(ch.Index) + "," + bound + "," +
			strconv.FormatBool(ch.Done) + "," + strconv.Itoa(len(ch.Rows)) + ")", chunkRow},
	} {
		if err := g.sc.add([]byte(st.sql), piece{batch: st.batch, row: -1}); err != nil {
			return err
		}
	}
	return nil
}

// writeChunk makes the script of the chunk's transaction.
func (g *group) writeChunk(ch *change.ChunkLoad, alone bool) error {
	if err := g.writeChunkRow(ch); err != nil || len(ch.Rows) == 0 {
		return err
	}
	t, err := newTableWriter(ch.Layout, ch.Target, g.c.info.mariadb)
	if err != nil {
		return err
	}
	w := newRowWriter(t, g.sc, 0, alone)
	defer w.done()
	return w.writeRows(ch.Rows)
}

// blameRow finds the row that the server refuses, and changes nothing.
func (g *group) blameRow(ctx context.Context, ch *change.ChunkLoad, refused error) error {
	if err := g.writeChunk(ch, true); err != nil {
		return err
	}
	_, err := g.send(ctx, 1)
	g.c.rollback(ctx)
	if err == nil || rowIndex(err) < 0 {
		return refused
	}
	return err
}

// Progress implements change.TableSink.
func (s *Sink) Progress(ctx context.Context, f change.Fence, incarnation string) (change.CopyProgress, error) {
	var p change.CopyProgress
	err := s.with(ctx, func(c *sinkConn) error {
		if err := s.begin(ctx, c, f); err != nil {
			return err
		}
		defer c.rollback(ctx)
		where := " FROM " + s.tables.chunk + " WHERE incarnation=" + quoteString(incarnation)
		// Without a gap the newest index is one less than the number of rows; what
		// lies behind a gap is loaded again.
		a, err := c.queryAll(ctx, "SELECT chunk, row_count, done"+where+" ORDER BY chunk")
		if err != nil {
			return err
		}
		p = change.CopyProgress{}
		for _, row := range a.rows {
			if string(row[0]) != strconv.Itoa(p.Chunks) {
				break
			}
			p.Chunks++
			p.Rows += number(row[1])
			p.Done = string(row[2]) == "1"
		}
		if p.Chunks == 0 {
			return nil
		}
		a, err = c.queryAll(ctx, "SELECT bound"+where+" AND chunk="+strconv.Itoa(p.Chunks-1))
		if err == nil && len(a.rows) == 1 {
			p.Bound = a.rows[0][0]
		}
		return err
	})
	if err != nil {
		return p, fmt.Errorf("read copy progress of %s at %s: %w", incarnation, s.cfg.subject(), s.classed(err))
	}
	return p, nil
}

package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// checkpointer moves the write-ahead log into the database on a connection of its
// own, so that a commit never waits for it. A passive checkpoint never blocks the
// writer, but under constant load it never catches up with it either and the log
// would only grow: past LogBytes the writer itself does the short rest between two
// transactions, after which the log starts again from its beginning.
type checkpointer struct {
	s       *Store
	failing bool // the last checkpoint failed; the next failure is not logged again
}

func (c *checkpointer) run(ctx context.Context) {
	t := time.NewTicker(c.s.opt.CheckpointEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		size := c.logSize()
		if size == 0 {
			continue
		}
		err := c.once(ctx)
		if err != nil && !c.failing && ctx.Err() == nil {
			c.s.opt.Log.Error("checkpoint of the store", "dir", c.s.dir, "log_bytes", size, "error", err)
		}
		c.failing = err != nil
	}
}

// logSize is the length of the log file; 0 if there is none. When the log starts
// again it is cut back to LogBytes.
func (c *checkpointer) logSize() int64 { return c.s.logSize() }

func (s *Store) logSize() int64 {
	st, err := os.Stat(filepath.Join(s.dir, FileName+"-wal"))
	if err != nil {
		return 0
	}
	return st.Size()
}

func (c *checkpointer) once(ctx context.Context) error {
	var busy, frames, moved int64
	c.s.moving.Lock()
	err := c.s.cdb.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &frames, &moved)
	c.s.moving.Unlock()
	if err != nil {
		return fmt.Errorf("checkpoint: %w", c.s.classify(err))
	}
	if frames*pageBytes < c.s.opt.LogBytes || frames == moved {
		return nil
	}
	_, err = c.s.do(ctx, false, 0, func(b *batch) (uint64, error) {
		b.checkpoint = true
		return 0, nil
	})
	return err
}

// pageBytes is SQLite's page size, the bulk of a frame of the log.
const pageBytes = 4096

package tablesync

import (
	"context"
	"errors"
	"fmt"

	"github.com/runnel-dev/runnel/change"
)

// copier places the chunks of one table between the lane's batches.
type copier struct {
	lane   *tableLane
	reader change.ChunkReader
	limit  int // rows of a chunk
	loaded func(rows int)
}

// maxRereads bounds how often one chunk is read again because the log moved on
// or the table changed meanwhile.
const maxRereads = 50

// table copies what is left of the table. It ends early with
// capture.ErrNotAttached when the lane was detached: what was loaded stays and
// the copy goes on after it once the lane is attached again.
func (c *copier) table(ctx context.Context) error {
	t := c.lane
	p, err := t.sink.Progress(ctx, t.fence(), t.handle.Incarnation)
	if err != nil {
		return fmt.Errorf("read copy progress of %s: %w", t.handle.Table, err)
	}
	t.copied.Store(p.Rows)
	if p.Done {
		return nil
	}
	layout, err := t.currentLayout(ctx)
	if err != nil {
		return err
	}
	// Keys above the bound are new since now and come by the log: the lane is live.
	upper, err := c.reader.Upper(ctx, layout)
	if err != nil {
		return fmt.Errorf("read greatest key of %s: %w", t.handle.Table, err)
	}
	for rereads := 0; !p.Done; {
		next, err := c.chunk(ctx, p, upper)
		switch {
		case errors.Is(err, errAgain) && rereads < maxRereads:
			rereads++
			continue
		case err != nil:
			return fmt.Errorf("copy chunk %d of %s: %w", p.Chunks, t.handle.Table, err)
		}
		p, rereads = next, 0
	}
	return nil
}

// chunk reads the chunk after p and loads it at the place in the log where its
// mark says it belongs (frontier.md, chunk). errAgain: read it again.
func (c *copier) chunk(ctx context.Context, p change.CopyProgress, upper []byte) (change.CopyProgress, error) {
	t := c.lane
	layout, err := t.currentLayout(ctx)
	if err != nil {
		return p, err
	}
	cutTo := t.startSeen() // before the read
	defer t.stopSeen()
	chunk, err := c.reader.ReadChunk(ctx, layout, p.Bound, upper, c.limit)
	if errors.Is(err, change.ErrLayout) && chunk != nil {
		return p, c.follow(ctx, chunk)
	}
	if err != nil {
		return p, err
	}
	defer t.cap.Unhold(t.handle)
	if err := t.cap.WaitHeld(ctx, t.handle, chunk.Mark.High()); err != nil {
		return p, err
	}
	now, err := t.currentLayout(ctx)
	if err != nil {
		return p, err
	}
	if now.Fingerprint() != chunk.Layout.Fingerprint() {
		return p, fmt.Errorf("the table changed during the read: %w", errAgain)
	}
	if !cutTo.IsZero() && !chunk.Mark.Includes(cutTo) {
		// A group was in the log and applied before the server let reads see it:
		// its keys are not in seen.
		return p, fmt.Errorf("the read is older than what was applied: %w", errAgain)
	}
	rows := t.unseen(chunk)
	load := change.ChunkLoad{
		Incarnation: t.handle.Incarnation, Target: t.target, Layout: chunk.Layout,
		Index: p.Chunks, Bound: chunk.Last, Done: chunk.Done, Rows: rows,
	}
	if err := t.sink.LoadChunk(ctx, t.fence(), load); err != nil {
		return p, err
	}
	t.copied.Add(int64(len(rows)))
	if c.loaded != nil {
		c.loaded(len(rows))
	}
	bound := chunk.Last
	if bound == nil {
		bound = p.Bound
	}
	return change.CopyProgress{Chunks: p.Chunks + 1, Bound: bound, Done: chunk.Done, Rows: p.Rows + int64(len(rows))}, nil
}

// follow waits until the lane has passed the schema change that the read met.
func (c *copier) follow(ctx context.Context, chunk *change.Chunk) error {
	t := c.lane
	defer t.cap.Unhold(t.handle)
	if err := t.cap.WaitHeld(ctx, t.handle, chunk.Mark.High()); err != nil {
		return err
	}
	now, err := t.currentLayout(ctx)
	if err != nil {
		return err
	}
	if chunk.Layout != nil && now.Fingerprint() != chunk.Layout.Fingerprint() {
		return change.WithClass(change.PermanentTask,
			fmt.Errorf("the source's definition of %s differs from what its log told: %w", t.handle.Table, change.ErrLayout))
	}
	return errAgain
}

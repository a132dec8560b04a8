package tablesync

import (
	"context"
	"errors"
	"fmt"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/capture"
)

// pinned is what a new task needs to know of its table: the layout and the mark
// at which it was read.
type pinned func(ctx context.Context, t change.TableID) (*change.Layout, change.Mark, error)

// prepare brings a started lane to the point where its task is durable: layout,
// target table, checkpoint row, Attached. Until the last step a crash starts the
// task afresh (frontier.md, newtask). errAgain: the table changed between the
// lane's start and the reading of its layout; start the lane afresh.
func prepare(ctx context.Context, t *tableLane, at change.Position, pin pinned, target change.TaskTarget) error {
	t.noteCut(at) // a chunk whose mark lies before the start would miss groups
	layout, mark, err := pin(ctx, t.handle.Table)
	if errors.Is(err, change.ErrNoTable) {
		return fmt.Errorf("read definition of %s: %w", t.handle.Table, errSourceTableGone)
	}
	if err != nil {
		return fmt.Errorf("read definition of %s: %w", t.handle.Table, err)
	}
	if !mark.Includes(at) {
		return fmt.Errorf("start %s: the server's snapshot lies before the lane's start: %w", t.handle.Table, errAgain)
	}
	if err := t.cap.WaitRead(ctx, mark.High()); err != nil {
		return err
	}
	if t.cap.BarrierBefore(t.handle, mark.High()) {
		return fmt.Errorf("start %s: its definition changed meanwhile: %w", t.handle.Table, errAgain)
	}
	if len(layout.Key) == 0 {
		return change.WithClass(change.PermanentTask, &change.Problem{
			Code: "table-without-key", Subject: "table " + t.handle.Table.String(), Cause: "it has no primary key and no unique key over columns that are not null",
			Remedy: "add a primary key: ALTER TABLE " + t.handle.Table.String() + " ADD PRIMARY KEY (…)",
		})
	}
	target.Incarnation, target.Target, target.Layout, target.At = t.handle.Incarnation, t.target, layout, at
	if err := t.sink.Prepare(ctx, t.fence(), target); err != nil {
		return fmt.Errorf("prepare target table %s: %w", t.target, err)
	}
	t.setLayout(layout)
	return t.cap.Attach(ctx, t.handle)
}

// restore brings a target's lanes back as the store and the target know them,
// after a claim: no older owner can commit any more. Lanes without a record are
// fresh: their tasks start afresh. Lanes whose checkpoint row is gone are restored
// and returned as gone. When the target cannot be read every lane that was attached
// is detached at the frontier, durably.
func restore(ctx context.Context, c *capture.Capture, sink tableSink, f change.Fence, lanes []*tableLane,
	records map[string]capture.LaneRecord) (r restored, err error) {
	var ckpts map[string]change.Position
	ckpts, r.unreadable = claimAndLoad(ctx, sink, f)
	if errors.Is(r.unreadable, change.ErrDeposed) || ctx.Err() != nil {
		return r, r.unreadable
	}
	for _, t := range lanes {
		rec, known := records[t.handle.Incarnation]
		if !known {
			r.fresh = append(r.fresh, t)
			continue
		}
		at, there := ckpts[t.handle.Incarnation]
		if err := c.AddLane(t.handle, rec.Attached, at, rec.Bound); err != nil {
			return r, err
		}
		t.noteCut(c.Lane(t.handle).Covered)
		switch {
		case r.unreadable != nil && rec.Attached:
			if err := c.Detach(ctx, t.handle, "the target could not be read at start"); err != nil {
				return r, err
			}
		case r.unreadable == nil && !there:
			r.gone = append(r.gone, t)
		}
	}
	for _, t := range lanes {
		delete(ckpts, t.handle.Incarnation)
	}
	for inc := range ckpts { // of a task that is not known any more
		if err := sink.Forget(ctx, f, inc); err != nil {
			return r, fmt.Errorf("forget %s: %w", inc, err)
		}
	}
	return r, nil
}

// errSourceTableGone: the table was dropped before its task had begun.
var errSourceTableGone = errors.New("the table does not exist at the source any more")

// restored is what a start found at one target.
type restored struct {
	fresh      []*tableLane // no record: the task has not begun
	gone       []*tableLane // the target holds no checkpoint any more
	unreadable error        // why the target could not be read
}

func claimAndLoad(ctx context.Context, sink change.Sink, f change.Fence) (map[string]change.Position, error) {
	if err := sink.Claim(ctx, f); err != nil {
		return nil, fmt.Errorf("claim the target for %s: %w", f.Owner, err)
	}
	rows, err := sink.Load(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("load checkpoints of %s: %w", f.Owner, err)
	}
	at := make(map[string]change.Position, len(rows))
	for _, r := range rows {
		at[r.Incarnation] = r.Position
	}
	return at, nil
}

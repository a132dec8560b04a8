package tablesync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/capture"
)

// batchBytes is how much of a lane's queue one transaction takes.
const batchBytes = 2 << 20

// arenaKeepBytes is how much decoding memory a worker keeps between batches.
const arenaKeepBytes = 16 << 20

// verdict is what became of a lane's batch.
type verdict struct {
	lane *tableLane
	err  error // nil: applied
	// end tells that the task is over or must be made anew, and why.
	end *ending
}

// ending is a statement that a lane cannot pass.
type ending struct {
	state  State // NeedsResync, Failed or Removed
	reason string
	remedy string
}

// applier turns ready lanes into target transactions. One applier belongs to one
// worker; it is not safe for concurrent use.
type applier struct {
	arena   change.Arena
	now     func() time.Time
	observe func(lag time.Duration, changes, transactions int)
}

type piece struct {
	lane  *tableLane
	items []capture.Item
	batch change.Batch
}

// step cuts a batch from each lane, applies them together and reports T to the
// capture. The lanes share sink and fence. It returns the lanes that failed.
func (a *applier) step(ctx context.Context, lanes []*tableLane) []verdict {
	var failed []verdict
	var pieces []piece
	for _, t := range lanes {
		items, ckpt := t.cap.Cut(t.handle, batchBytes)
		if len(items) == 0 {
			continue
		}
		t.noteCut(items[len(items)-1].End)
		if items[0].Barrier {
			if v := a.statement(ctx, t, items[0], ckpt); v.err != nil || v.end != nil {
				failed = append(failed, v)
			}
			continue
		}
		b, err := a.decode(ctx, t, items, ckpt)
		if err != nil {
			t.cap.Requeue(t.handle)
			failed = append(failed, verdict{lane: t, err: err})
			continue
		}
		pieces = append(pieces, piece{t, items, b})
	}
	if len(pieces) > 0 {
		failed = append(failed, a.apply(ctx, pieces)...)
	}
	a.arena.Reset(arenaKeepBytes)
	return failed
}

// decode makes the batch of a lane's items.
func (a *applier) decode(ctx context.Context, t *tableLane, items []capture.Item, ckpt change.Position) (change.Batch, error) {
	layout, err := t.currentLayout(ctx)
	if err != nil {
		return change.Batch{}, err
	}
	b := change.Batch{Key: t.key(), Target: t.target, Layout: layout, Expected: ckpt, New: items[len(items)-1].End}
	for i := range items {
		for _, ev := range items[i].Events {
			err := ev.Rows.Decode(layout, &a.arena, func(c change.Change) error {
				b.Changes = append(b.Changes, c)
				return nil
			})
			if err != nil {
				return b, fmt.Errorf("decode rows of %s at %s: %w", t.handle.Table, items[i].End.Token, err)
			}
		}
	}
	return b, nil
}

func (a *applier) apply(ctx context.Context, pieces []piece) (failed []verdict) {
	batches := make([]change.Batch, len(pieces))
	for i := range pieces {
		batches[i] = pieces[i].batch
	}
	first := pieces[0].lane
	results := first.sink.Apply(ctx, first.fence(), batches)
	now := a.now()
	transactions := 1
	for i := range pieces {
		p := &pieces[i]
		landed := func() { p.lane.noteChanges(p.batch.Layout, p.batch.Changes, p.batch.New) }
		if err := a.settle(ctx, p.lane, p.batch.Expected, p.batch.New, results[i].Err, landed); err != nil {
			failed = append(failed, verdict{lane: p.lane, err: nameRow(p.batch, results[i].RowIndex, err)})
			continue
		}
		p.lane.attempts = 0
		p.lane.applied.Add(int64(len(p.batch.Changes)))
		if a.observe != nil {
			for j := range p.items {
				a.observe(lagOf(&p.items[j], now), 0, 0)
			}
			a.observe(-1, len(p.batch.Changes), transactions)
			transactions = 0
		}
	}
	return failed
}

// nameRow adds the key of the row that the target refused, where it is known.
func nameRow(b change.Batch, row int, err error) error {
	if row < 0 || row >= len(b.Changes) || change.ClassOf(err) != change.PermanentRow {
		return err
	}
	image := b.Changes[row].After
	if image == nil {
		image = b.Changes[row].Before
	}
	var key []string
	for _, i := range b.Layout.Key {
		key = append(key, b.Layout.Columns[i].Name+"="+clip(image[i].String(), 60))
	}
	return fmt.Errorf("row %s of %s: %w", strings.Join(key, ","), b.Target, err)
}

// settle reports the outcome of a step from expected to reached to the capture.
// A lost outcome and a moved checkpoint are asked of the target, whose locking
// read is final. nil: the rows are in the target; landed was called before the
// capture heard of it, so that a chunk placed next knows their keys.
func (a *applier) settle(ctx context.Context, t *tableLane, expected, reached change.Position, err error, landed func()) error {
	if err == nil {
		landed()
		t.cap.Applied(t.handle, reached)
		return nil
	}
	if !errors.Is(err, change.ErrUnknownOutcome) && !errors.Is(err, change.ErrCheckpointMoved) {
		t.cap.Requeue(t.handle)
		return err
	}
	stored, rerr := t.sink.Resolve(ctx, t.fence(), []change.CheckpointKey{t.key()})
	if rerr != nil {
		// Not known yet: nothing is reported. The checkpoint's compare-and-set
		// refuses a second application, so the batch may be tried again.
		t.cap.Requeue(t.handle)
		return fmt.Errorf("resolve checkpoint of %s: %w", t.handle.Table, rerr)
	}
	if len(stored) == 0 {
		t.cap.Requeue(t.handle)
		return change.WithClass(change.PermanentTask, fmt.Errorf("checkpoint row of %s: %w", t.handle.Table, errCheckpointGone))
	}
	if stored[0].Position == reached {
		landed()
		t.cap.Applied(t.handle, reached)
		return nil
	}
	if !t.cap.Reload(t.handle, stored[0].Position) {
		return fmt.Errorf("checkpoint of %s went back to %s: %w", t.handle.Table, stored[0].Position.Token, errBehind)
	}
	return fmt.Errorf("commit rows of %s: the target stands at %s, expected %s: %w",
		t.handle.Table, stored[0].Position.Token, expected.Token, errAgain)
}

var (
	// errCheckpointGone: somebody removed the task's rows from the target.
	errCheckpointGone = errors.New("the target holds no checkpoint of this task any more")
	// errBehind: the target is older than what was applied (restored from a backup).
	errBehind = errors.New("the target is behind what was applied")
	// errAgain: the step may simply be repeated.
	errAgain = errors.New("to be tried again")
)

package tablesync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/capture"
)

// tableSink is a sink that also knows tables: what a sync task needs.
type tableSink interface {
	change.Sink
	change.TableSink
}

// tableLane is the engine's side of one lane: where its rows go and with which
// layout they are decoded. It exists as long as its task runs; buffers belong to
// the worker that applies it.
type tableLane struct {
	handle *capture.Lane
	cap    *capture.Capture
	sink   tableSink
	fence  func() change.Fence
	target change.TableID
	taskID string
	task   *task // nil in the model test
	// admitted: made for a table that the log created; the capture loop starts it.
	admitted bool
	pool     *pool
	sched    atomic.Int32 // dispatch state, see pool.go

	mu struct {
		sync.Mutex
		// layout decodes rows after the checkpoint; nil until first needed.
		layout *change.Layout
		// cutTo is the end of the newest group ever cut: rows up to here may be in
		// the target without being in seen.
		cutTo change.Position
		// seen collects keys while a chunk is read.
		seen map[string]change.Position
	}
	// attempts counts failures since the last success; only the worker that holds
	// the lane touches it.
	attempts int
	// copyTries counts failures of the copy; only the worker that copies touches it.
	copyTries int
	applied   atomic.Int64 // row changes since the process started
	copied    atomic.Int64 // rows of loaded chunks, of this incarnation
}

func (t *tableLane) key() change.CheckpointKey {
	return change.CheckpointKey{Incarnation: t.handle.Incarnation}
}

// currentLayout returns the layout valid after the checkpoint, from the target
// when the process does not hold it yet.
func (t *tableLane) currentLayout(ctx context.Context) (*change.Layout, error) {
	t.mu.Lock()
	l := t.mu.layout
	t.mu.Unlock()
	if l != nil {
		return l, nil
	}
	l, err := t.sink.LoadLayout(ctx, t.fence(), t.handle.Incarnation)
	if errors.Is(err, change.ErrNoTable) {
		return nil, change.WithClass(change.PermanentTask, fmt.Errorf("load layout of %s: %w", t.handle.Table, errCheckpointGone))
	}
	if err != nil {
		return nil, fmt.Errorf("load layout of %s: %w", t.handle.Table, err)
	}
	t.mu.Lock()
	t.mu.layout = l
	t.mu.Unlock()
	return l, nil
}

func (t *tableLane) setLayout(l *change.Layout) {
	t.mu.Lock()
	t.mu.layout = l
	t.mu.Unlock()
}

// seenCap bounds the keys a chunk read remembers; past it the lane holds.
const seenCap = 200_000

// startSeen begins to remember the keys that the lane applies. Everything cut
// before ends at or below the returned position.
func (t *tableLane) startSeen() change.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.seen = map[string]change.Position{}
	return t.mu.cutTo
}

func (t *tableLane) stopSeen() {
	t.mu.Lock()
	t.mu.seen = nil
	t.mu.Unlock()
}

// noteCut records how far the lane was cut; see startSeen.
func (t *tableLane) noteCut(end change.Position) {
	t.mu.Lock()
	if t.mu.cutTo.Before(end) {
		t.mu.cutTo = end
	}
	t.mu.Unlock()
}

// noteChanges remembers the keys of changes that are in the target now; the last
// of their groups ends at end.
func (t *tableLane) noteChanges(l *change.Layout, changes []change.Change, end change.Position) {
	t.mu.Lock()
	over := false
	if t.mu.seen != nil {
		var buf []byte
		for i := range changes {
			for _, row := range [][]change.Value{changes[i].Before, changes[i].After} {
				if row != nil {
					buf = change.AppendKey(buf[:0], l, row)
					t.mu.seen[string(buf)] = end
				}
			}
		}
		over = len(t.mu.seen) > seenCap
	}
	t.mu.Unlock()
	if over {
		t.cap.HoldNow(t.handle)
	}
}

// unseen keeps the chunk rows whose key no group outside the mark has touched.
func (t *tableLane) unseen(c *change.Chunk) []change.Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	rows := c.Rows[:0:0]
	var buf []byte
	for _, row := range c.Rows {
		buf = change.AppendKey(buf[:0], c.Layout, row)
		if end, ok := t.mu.seen[string(buf)]; !ok || c.Mark.Includes(end) {
			rows = append(rows, row)
		}
	}
	return rows
}

// lagOf is the age of a group at the moment its rows are in the target: the time
// since it was read, or since its commit where that is longer. A source may tell
// the commit to the second only, so a second is taken off that.
func lagOf(it *capture.Item, now time.Time) time.Duration {
	return max(now.Sub(it.ReadTime), now.Sub(it.CommitTime)-time.Second, 0)
}

// stopsAtDDL reports the pipeline's policy for schema changes.
func (t *tableLane) stopsAtDDL() bool {
	st, _ := t.task.snapshot()
	return t.task.src.e.pipelineSpec(st.Spec.Pipeline).DDL == "stop"
}

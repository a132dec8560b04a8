package capture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/runnel-dev/runnel/change"
)

// Cut takes the lane's next batch; see Core.Cut. The items stay valid until
// Applied, Requeue or Reload.
func (c *Capture) Cut(l *Lane, limitBytes int) (items []Item, ckpt change.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.core.Cut(l, limitBytes), l.ckpt
}

// Applied reports T for everything up to end; more tells that the lane has more
// to cut.
func (c *Capture) Applied(l *Lane, end change.Position) {
	c.update(func(core *Core, ready func(*Lane)) {
		core.Applied(l, end)
		if len(l.queue) > 0 {
			ready(l)
		}
	})
	c.resolved(l)
}

// Requeue puts the batch in flight back without scheduling the lane.
func (c *Capture) Requeue(l *Lane) {
	c.update(func(core *Core, _ func(*Lane)) { core.Requeue(l) })
	c.resolved(l)
}

// resolved starts the sweep that a detached lane wants but could not join while
// the outcome of its last batch was open.
func (c *Capture) resolved(l *Lane) {
	c.mu.Lock()
	_, wants := c.mu.core.wanting[l]
	c.mu.Unlock()
	if wants {
		c.askSweep()
	}
}

func (c *Capture) askSweep() {
	select {
	case c.sweepNow <- struct{}{}:
	default:
	}
}

// Reload sets the checkpoint to what the target says; false: the target is
// behind what the lane let go, so the lane must be detached and swept.
func (c *Capture) Reload(l *Lane, at change.Position) (ok bool) {
	c.update(func(core *Core, ready func(*Lane)) {
		if ok = core.Reload(l, at); ok && len(l.queue) > 0 {
			ready(l)
		}
	})
	c.resolved(l)
	return ok
}

// Kick schedules the lane if it has something to cut.
func (c *Capture) Kick(l *Lane) {
	c.update(func(_ *Core, ready func(*Lane)) {
		if len(l.queue) > 0 {
			ready(l)
		}
	})
}

// Want asks that a detached lane be brought back by the sweep.
func (c *Capture) Want(l *Lane) {
	c.update(func(core *Core, _ func(*Lane)) { core.Want(l) })
	c.askSweep()
}

// LaneStatus is a snapshot of one lane.
type LaneStatus struct {
	Mode       Mode
	Wants      bool
	Ended      bool
	Checkpoint change.Position
	// Covered ≥ Checkpoint: every row of the lane up to here is in the target.
	Covered     change.Position
	QueuedBytes int
	Queued      int
	// Oldest is when the oldest queued row was read; zero when nothing is queued.
	Oldest time.Time
}

// Lane returns a snapshot of l.
func (c *Capture) Lane(l *Lane) LaneStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, wants := c.mu.core.wanting[l]
	s := LaneStatus{Mode: l.mode, Wants: wants, Ended: l.ended, Checkpoint: l.ckpt, Covered: l.low, QueuedBytes: l.bytes,
		Queued: len(l.queue) + len(l.second) + len(l.inflight)}
	if l.bytes > 0 {
		s.Oldest = l.since
	}
	return s
}

// Status returns a snapshot of the capture.
func (c *Capture) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.status
	s.Read, s.Frontier = c.mu.core.read, c.mu.core.journaled
	s.QueuedBytes, s.LoadedLanes = c.mu.core.bytes, len(c.mu.core.loaded)
	return s
}

// WaitHeld holds the lane at a position, schedules it, and waits until all its
// groups up to there are under T. It fails when the lane leaves Attached.
func (c *Capture) WaitHeld(ctx context.Context, l *Lane, at change.Position) error {
	c.update(func(core *Core, ready func(*Lane)) {
		core.Hold(l, at)
		if len(l.queue) > 0 {
			ready(l)
		}
	})
	held := false
	err := c.wait(ctx, func(core *Core) bool {
		held = core.Held(l)
		return held || l.mode != Attached || !l.holding
	})
	if err != nil {
		return err
	}
	if !held {
		return fmt.Errorf("hold %s: lane is %s: %w", l.Table, c.Lane(l).Mode, ErrNotAttached)
	}
	return nil
}

// ErrNotAttached: the lane was detached while a step needed it attached.
var ErrNotAttached = errors.New("lane is not attached")

// HoldNow lets nothing more be cut until the next WaitHeld or Unhold.
func (c *Capture) HoldNow(l *Lane) {
	c.update(func(core *Core, _ func(*Lane)) {
		if !l.holding {
			core.Hold(l, l.ckpt)
		}
	})
}

// Unhold ends a hold and schedules the lane.
func (c *Capture) Unhold(l *Lane) {
	c.update(func(core *Core, ready func(*Lane)) {
		core.Unhold(l)
		if len(l.queue) > 0 {
			ready(l)
		}
	})
}

// WaitRead waits until the capture has delivered everything up to at.
func (c *Capture) WaitRead(ctx context.Context, at change.Position) error {
	return c.wait(ctx, func(core *Core) bool { return at.AtOrBefore(core.read) })
}

// BarrierBefore reports whether a statement at or below at waits for the lane.
func (c *Capture) BarrierBefore(l *Lane, at change.Position) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.core.BarrierBefore(l, at)
}

// Has reports whether the capture knows the lane.
func (c *Capture) Has(l *Lane) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.core.lanes[l.Incarnation] == l
}

package actor

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// A full mailbox whose Overflow is Block slows its senders down.
//
// A goroutine outside of turns waits. Each waiter has a place in line; a turn of
// the receiver that makes room reserves it for the first ones.
//
// A turn must not wait: its worker may be the one that the receiver needs. So the
// message is taken beyond the bound, and the sending actor is suspended when its
// handler returns: it handles no message until the receiver is below its bound
// again. What one handler sends to one full mailbox is bounded by the capacity
// once more.
//
// Invariant, under the receiver's mu: while goroutines stand in line, waiting is
// at or above the capacity. Everything that lowers waiting calls grantLocked.

// inLine is a sender that waits for room: one of the two.
type inLine struct {
	goroutine *waiter
	actor     *suspension
}

// waiter is a goroutine in line. granted says that a place is reserved for it.
type waiter struct {
	done    chan struct{} // closed when granted or when the receiver stops
	granted bool          // the receiver's mu guards it
}

// suspension is what one handler call of a sender has to wait for.
type suspension struct {
	sender *cell
	open   atomic.Int32  // receivers without room
	at     []*cell       // those; turn only
	sent   int           // messages beyond a bound; turn only
	limit  time.Duration // turn only
	until  time.Time     // when it ends in any case; turn only
	alarm  *timer
}

// freed says that one receiver has room again.
func (s *suspension) freed() {
	if s.open.Add(-1) == 0 {
		s.sender.post(sysResume)
	}
}

// grantLocked gives the room that there is to those who stand in line. The caller
// calls freed for the suspensions it returns once it holds no lock.
func (c *cell) grantLocked() (freed []*suspension) {
	if c.links == nil || len(c.links.line) == 0 {
		return nil
	}
	limit := int32(c.spec.mb.Capacity)
	if c.waiting >= limit {
		return nil
	}
	var rest []inLine
	for _, in := range c.links.line {
		switch {
		case in.actor != nil:
			freed = append(freed, in.actor)
		case c.waiting < limit:
			c.waiting++
			in.goroutine.granted = true
			close(in.goroutine.done)
		default:
			rest = append(rest, in)
		}
	}
	c.links.line = rest
	return freed
}

// dissolve lets everyone go who stood in line at an actor that has stopped.
func dissolve(line []inLine) {
	for _, in := range line {
		if in.actor != nil {
			in.actor.freed()
		} else {
			close(in.goroutine.done)
		}
	}
}

// tellWithin is tell by a goroutine that waits for room in a mailbox that blocks
// no longer than ctx lasts.
func (c *cell) tellWithin(ctx context.Context, e any) error {
	if e == nil || c.spec.mb.Overflow != Block || c.spec.mb.Capacity == Unbounded {
		return c.tell(nil, e)
	}
	c.mu.Lock()
	if int(c.waiting) >= c.spec.mb.Capacity || c.life >= stopping || c.spec.sys.dead.Load() {
		c.mu.Unlock()
		return c.tellBlocked(ctx, nil, e)
	}
	c.waiting++
	wake := c.acceptLocked(e)
	c.mu.Unlock()
	if wake {
		c.spec.disp.schedule(c, nil)
	}
	return nil
}

// tellBlocked is tell to a mailbox that was full. ctx is nil where the sender has
// none; MaxBlock bounds the wait in any case.
func (c *cell) tellBlocked(ctx context.Context, from *worker, e any) error {
	if from == nil {
		from = c.spec.sys.here()
	}
	if from != nil && from.cur != nil {
		return c.tellSuspending(from, e)
	}
	return c.tellWaiting(ctx, e)
}

// tellSuspending takes e beyond the bound and marks the sending actor.
func (c *cell) tellSuspending(from *worker, e any) error {
	s := from.cur
	if s == c { // it would wait for itself
		return c.refuse(e, ReasonOverflow, ErrMailboxFull)
	}
	sus := s.x().suspended
	if sus == nil {
		sus = &suspension{sender: s}
		s.ext.suspended = sus
	}
	if sus.sent >= c.spec.mb.Capacity {
		return c.refuse(e, ReasonOverflow, ErrMailboxFull)
	}
	c.mu.Lock()
	if c.life >= stopping || c.spec.sys.dead.Load() {
		c.mu.Unlock()
		return c.refuse(e, ReasonStopped, ErrStopped)
	}
	if int(c.waiting) >= c.spec.mb.Capacity {
		sus.sent++
		if !slices.Contains(sus.at, c) {
			sus.at = append(sus.at, c)
			sus.open.Add(1)
			l := c.linksLocked()
			l.line = append(l.line, inLine{actor: sus})
			if sus.limit == 0 || c.spec.mb.MaxBlock < sus.limit {
				sus.limit = c.spec.mb.MaxBlock
			}
			s.asked |= askedSuspend
		}
	}
	c.waiting++
	wake := c.acceptLocked(e)
	c.mu.Unlock()
	if wake {
		c.spec.disp.schedule(c, from)
	}
	return nil
}

// tellWaiting waits for room in line.
func (c *cell) tellWaiting(ctx context.Context, e any) error {
	w := &waiter{done: make(chan struct{})}
	c.mu.Lock()
	if c.life >= stopping || c.spec.sys.dead.Load() {
		c.mu.Unlock()
		return c.refuse(e, ReasonStopped, ErrStopped)
	}
	if int(c.waiting) < c.spec.mb.Capacity {
		c.waiting++
		w.granted = true
	} else {
		l := c.linksLocked()
		l.line = append(l.line, inLine{goroutine: w})
	}
	wait := !w.granted
	c.mu.Unlock()
	var cause error
	if wait {
		cause = c.standInLine(ctx, w)
	}
	c.mu.Lock()
	switch {
	case c.life >= stopping || c.spec.sys.dead.Load():
		c.leaveLineLocked(w)
		c.mu.Unlock()
		return c.refuse(e, ReasonStopped, ErrStopped)
	case !w.granted:
		c.leaveLineLocked(w)
		c.mu.Unlock()
		return c.refuse(e, ReasonOverflow, cause)
	}
	wake := c.acceptLocked(e)
	c.mu.Unlock()
	if wake {
		c.spec.disp.schedule(c, nil)
	}
	return nil
}

// standInLine waits for w's turn and returns why it did not come, if so.
func (c *cell) standInLine(ctx context.Context, w *waiter) error {
	limit := time.NewTimer(c.spec.mb.MaxBlock)
	defer limit.Stop()
	var done <-chan struct{}
	if ctx != nil {
		done = ctx.Done()
	}
	select {
	case <-w.done:
		return ErrStopped
	case <-done:
		return fmt.Errorf("%w: %w", ErrMailboxFull, context.Cause(ctx))
	case <-limit.C:
		return fmt.Errorf("%w for %v", ErrMailboxFull, c.spec.mb.MaxBlock)
	case <-c.spec.sys.ctx.Done():
		return ErrStopped
	}
}

func (c *cell) leaveLineLocked(w *waiter) {
	if c.links != nil {
		c.links.line = slices.DeleteFunc(c.links.line, func(in inLine) bool { return in.goroutine == w })
	}
}

// suspend stops the actor from taking messages until its suspension is over. It
// runs after the handler that began it.
func (c *cell) suspend() {
	sus := c.ext.suspended
	if sus == nil || c.life != running {
		return
	}
	if sus.open.Load() <= 0 {
		c.ext.suspended = nil
		return
	}
	c.setLife(suspended)
	sus.until = time.Now().Add(sus.limit)
	sus.alarm = &timer{cell: c, post: sysPatience}
	c.spec.sys.timers.add(sus.alarm, sus.limit)
	c.spec.sys.suspensions.Add(1)
}

// resume ends the suspension if it is over, or past its limit.
func (c *cell) resume() {
	if c.life != suspended {
		return
	}
	sus := c.ext.suspended
	if sus.open.Load() > 0 {
		if time.Now().Before(sus.until) {
			return
		}
		c.spec.sys.log.Warn("receiver had no room for too long", keyPath, c.path(), keyReceiver, sus.at[0].path(), keyFor, sus.limit)
	}
	c.dropSuspension()
	c.setLife(running)
}

// dropSuspension forgets what the actor waits for.
func (c *cell) dropSuspension() {
	sus := c.ext.suspended
	if sus == nil {
		return
	}
	c.ext.suspended = nil
	if sus.alarm != nil {
		c.spec.sys.timers.remove(sus.alarm)
		c.spec.sys.suspensions.Add(-1)
	}
	for _, at := range sus.at {
		at.mu.Lock()
		if at.links != nil {
			at.links.line = slices.DeleteFunc(at.links.line, func(in inLine) bool { return in.actor == sus })
		}
		at.mu.Unlock()
	}
}

package actor

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/runnel-dev/runnel/retry"
)

// The life of an actor:
//
//	starting ──start──▶ running ──beginStop──▶ stopping ──end──▶ ending ─▶ stopped ──bury──▶ (closed)
//	    ▲                  │                       ▲
//	    └───maybeRestart── restarting ─────────────┘
//
// A failure in starting or running leads to restarting or stopping. A stop asked
// for in starting, running or restarting leads to stopping. Everything here runs
// in a turn of the cell.
//
// Invariants:
//  1. An actor is buried only after all its children are: children end first.
//  2. Nothing of an earlier incarnation (timer, piped result, Terminated) reaches
//     a behavior of a later one.
//  3. Stopped is delivered once, and only to a behavior that Setup made.

// setLife makes l visible to other goroutines.
func (c *cell) setLife(l life) {
	c.mu.Lock()
	c.life = l
	c.mu.Unlock()
}

// start runs Setup and, if that succeeds, delivers Started.
func (c *cell) start(w *worker) {
	if f := c.callSetup(w); f != nil {
		c.settle(w, f)
		return
	}
	if c.ext != nil && c.ext.restart.attempt > 0 {
		c.ext.restart.up = time.Now()
	}
	c.setLife(running)
	c.settle(w, c.call(w, nil, Started{}))
}

// handleSystem acts on the system messages.
func (c *cell) handleSystem(w *worker) {
	bits := c.urgent.Swap(0)
	if bits&sysStop != 0 {
		c.beginStop(nil)
	}
	if bits&sysRestart != 0 && c.life == restarting {
		c.ext.restart.due = true
	}
	c.endIfChildless(w)
	c.maybeRestart()
}

// fail applies Supervision to a failure.
func (c *cell) fail(w *worker, f *Failure) {
	switch c.life {
	case restarting: // Restarting's handler left by Goexit
		c.report(f, Restart, 0, 0)
		c.maybeRestart()
		return
	case ending: // Stopped's handler did
		c.report(f, Stop, 0, 0)
		c.setLife(stopped)
		return
	case stopping, stopped:
		return
	}
	d := c.directive(f)
	if c.stopAsked {
		d = Stop
	}
	switch d {
	case Resume:
		c.report(f, Resume, 0, 0)
	case Stop:
		c.report(f, Stop, 0, 0)
		c.stopAsked = false
		c.beginStop(f)
		c.endIfChildless(w)
	default:
		c.beginRestart(w, f)
	}
}

func (c *cell) directive(f *Failure) Directive {
	d, sup := Restart, &c.spec.sup
	switch {
	case f.Panic != nil:
		d = sup.OnPanic
	case retry.IsPermanent(f.Err):
		d = sup.OnPermanent
	default:
		d = sup.OnError
	}
	if d == Resume && c.life == starting {
		return Restart // there is no behavior to go on with
	}
	return d
}

// beginRestart ends the failed incarnation and arms the backoff, or stops the
// actor if its budget is used up.
func (c *cell) beginRestart(w *worker, f *Failure) {
	x, sup, now := c.x(), &c.spec.sup, time.Now()
	r := &x.restart
	if r.attempt == 0 || !r.up.IsZero() && now.Sub(r.up) >= sup.ResetAfter {
		*r = restart{first: now}
	}
	r.up = time.Time{}
	delay := sup.Backoff.Delay(r.attempt+1, rand.Float64())
	// The attempts that the policy bounds are restarts.
	if sup.Backoff.Exhausted(r.attempt, now.Sub(r.first), delay) {
		c.report(f, Stop, 0, 0)
		c.beginStop(fmt.Errorf("%w (%d restarts): %w", ErrRestartsExhausted, r.attempt, f))
		c.endIfChildless(w)
		return
	}
	r.attempt++
	r.due = delay <= 0
	c.report(f, Restart, r.attempt, delay)
	hadBehavior := c.life == running
	c.setLife(restarting)
	c.dropIncarnation()
	c.stopKids()
	if !r.due {
		r.backoff = &timer{cell: c, restart: true}
		c.spec.sys.timers.add(r.backoff, delay)
	}
	if hadBehavior {
		if f2 := c.call(w, nil, Restarting{f}); f2 != nil {
			c.report(f2, Restart, 0, 0)
		}
	}
	c.maybeRestart()
}

// maybeRestart leads a restarting actor without children back to starting once
// its backoff has passed.
func (c *cell) maybeRestart() {
	if c.life != restarting || !c.ext.restart.due {
		return
	}
	c.mu.Lock()
	if c.childlessLocked() {
		c.life = starting
	}
	c.mu.Unlock()
	if c.life == starting {
		c.dropIncarnation() // what the handler of Restarting may have started
	}
}

// dropIncarnation cancels what the present incarnation has started.
func (c *cell) dropIncarnation() {
	c.advance()
	c.dropTimers()
	c.dropWatches()
}

// beginStop leads to stopping unless the actor is there or past it.
func (c *cell) beginStop(cause error) {
	if c.life >= stopping {
		return
	}
	if cause != nil {
		c.x().cause = cause
	}
	if c.life == starting || c.life == restarting {
		c.x().bare = true
	}
	c.setLife(stopping)
	if c.ext != nil {
		c.dropIncarnation()
	}
	c.stopKids()
}

// stopKids asks all children to stop. life is already one in which adopt takes no more.
func (c *cell) stopKids() {
	c.mu.Lock()
	var kids []*cell
	if c.links != nil {
		kids = make([]*cell, 0, len(c.links.kids))
		for _, k := range c.links.kids {
			kids = append(kids, k)
		}
	}
	c.mu.Unlock()
	for _, k := range kids {
		k.post(sysStop)
	}
}

func (c *cell) childlessLocked() bool { return c.links == nil || len(c.links.kids) == 0 }

// endIfChildless delivers Stopped and leads to stopped, if the actor is stopping
// and its children are gone.
func (c *cell) endIfChildless(w *worker) {
	if c.life != stopping {
		return
	}
	c.mu.Lock()
	if c.childlessLocked() {
		c.life = ending
	}
	c.mu.Unlock()
	if c.life != ending {
		return
	}
	var cause error
	if c.ext != nil {
		cause = c.ext.cause
	}
	if c.ext == nil || !c.ext.bare {
		if f := c.call(w, nil, Stopped{cause}); f != nil {
			c.report(f, Stop, 0, 0)
		}
	}
	c.setLife(stopped)
}

// bury closes a stopped cell: what waits becomes dead letters, the parent
// forgets it, its watchers are told. rest is what the turn had taken.
func (c *cell) bury(rest []any) {
	c.mu.Lock()
	c.phase.close()
	q, l := c.q, c.links
	c.q, c.links, c.core, c.waiting = queue{}, nil, nil, 0
	c.mu.Unlock()
	for _, e := range rest {
		c.deadLetter(e, ReasonStopped)
	}
	for !q.empty() {
		c.deadLetter(q.pop(), ReasonStopped)
	}
	var cause error
	if c.ext != nil {
		cause = c.ext.cause
		c.ext = nil
	}
	if c.parent != nil {
		c.parent.disown(c)
	}
	if l != nil {
		l.notifyWatchers(c, cause)
	}
}

// disown removes a buried child.
func (c *cell) disown(kid *cell) {
	if c.parent != nil { // a guardian's end is none of an actor
		c.spec.sys.actors.Add(-1)
	}
	c.mu.Lock()
	wake := false
	if c.links != nil {
		delete(c.links.kids, kid.name)
		if len(c.links.kids) == 0 {
			c.links.kids = nil
			if c.life == stopping || c.life == restarting {
				wake = c.postLocked(sysKidsGone)
			}
		}
	}
	c.mu.Unlock()
	if wake {
		c.spec.disp.schedule(c, nil)
	}
}

// report logs and publishes a failure: there is nobody to return it to.
func (c *cell) report(f *Failure, d Directive, attempt int, delay time.Duration) {
	sys := c.spec.sys
	attrs := []any{keyPath, f.Path, keyError, f.Err, keyDirective, d.String()}
	if attempt > 0 {
		attrs = append(attrs, keyAttempt, attempt, keyDelay, delay)
	}
	if f.Stack != nil {
		attrs = append(attrs, keyStack, string(f.Stack))
	}
	sys.log.Warn("actor failed", attrs...)
	sys.failures.Add(1)
	if sys.events.active() {
		sys.events.publish(ActorFailed{Failure: f, Directive: d, Attempt: attempt})
	}
}

package actor

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/runnel-dev/runnel/retry"
)

// The life of an actor:
//
//	                    suspended
//	                   suspend │▲ resume
//	                           ▼│
//	starting ──start──▶ running ──beginStop──▶ stopping ──end──▶ ending ─▶ stopped ──bury──▶ (closed)
//	    ▲                  │        passivate      ▲
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
	if bits&(sysResume|sysPatience) != 0 {
		c.resume()
	}
	if bits&sysFate != 0 {
		c.meetFate(w)
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
	if c.asked&askedStop != 0 {
		d = Stop
	}
	switch d {
	case Resume:
		c.report(f, Resume, 0, 0)
		return
	case Stop:
		c.report(f, Stop, 0, 0)
		c.shareFate(f, Stop)
		c.beginStop(f)
		c.endIfChildless(w)
	case Escalate:
		c.report(f, Escalate, 0, 0)
		c.parent.befall(fate{f, Escalate})
		c.beginStop(f)
		c.endIfChildless(w)
	default:
		c.beginRestart(w, f, false)
	}
	c.asked = 0
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
// actor if its budget is used up. shared says that the failure is a sibling's.
func (c *cell) beginRestart(w *worker, f *Failure, shared bool) {
	x, sup, now := c.x(), &c.spec.sup, time.Now()
	r := &x.restart
	if r.attempt == 0 || !r.up.IsZero() && now.Sub(r.up) >= sup.ResetAfter {
		*r = restart{first: now}
	}
	r.up = time.Time{}
	delay := sup.Backoff.Delay(r.attempt+1, rand.Float64())
	// The attempts that the policy bounds are restarts.
	if sup.Backoff.Exhausted(r.attempt, now.Sub(r.first), delay) {
		if !shared {
			c.report(f, Stop, 0, 0)
			c.shareFate(f, Stop)
		}
		c.beginStop(fmt.Errorf("%w (%d restarts): %w", ErrRestartsExhausted, r.attempt, f))
		c.endIfChildless(w)
		return
	}
	r.attempt++
	r.due = delay <= 0
	if !shared {
		c.report(f, Restart, r.attempt, delay)
		c.shareFate(f, Restart)
	}
	hadBehavior := c.life == running || c.life == suspended
	c.setLife(restarting)
	c.dropIncarnation()
	c.unstash(w)
	c.stopKids()
	if !r.due {
		r.backoff = &timer{cell: c, post: sysRestart}
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
	c.dropSuspension()
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
	c.endIncarnation()
}

// endIncarnation cancels and stops what a stopping actor has.
func (c *cell) endIncarnation() {
	if c.ext != nil {
		c.dropIncarnation()
	}
	c.stopKids()
}

// passivate stops the actor if nothing waits for it: no message, no stashed one,
// no result of a function that it has piped to itself. From then on messages are
// refused, so that none is lost.
func (c *cell) passivate(w *worker) {
	x := c.ext
	busy := x != nil && (x.stashed > 0 || x.scope != nil && x.scope.pipes > 0)
	if busy || w.next < len(w.batch) || c.life != running {
		return
	}
	c.mu.Lock()
	if c.emptyLocked() && c.waiting == 0 && c.urgent.Load() == 0 {
		c.life = stopping
	}
	c.mu.Unlock()
	if c.life != stopping {
		return
	}
	if f := c.call(w, nil, Passivated{}); f != nil {
		c.report(f, Stop, 0, 0)
	}
	c.endIncarnation()
	c.endIfChildless(w)
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
	var left []any
	for !c.emptyLocked() {
		left = append(left, c.popLocked())
	}
	l := c.links
	c.q, c.links, c.core, c.waiting = queue{}, nil, nil, 0
	c.mu.Unlock()
	var cause error
	if x := c.ext; x != nil {
		cause = x.cause
		for !x.stash.empty() {
			c.deadLetter(x.stash.pop(), ReasonStopped)
		}
		c.ext = nil
	}
	for _, e := range rest {
		c.deadLetter(e, ReasonStopped)
	}
	for _, e := range left {
		c.deadLetter(e, ReasonStopped)
	}
	if l != nil {
		dissolve(l.line)
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

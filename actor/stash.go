package actor

import "fmt"

// Stash puts the message that is being handled aside, up to Props.Stash of them.
// An Ask of it stays open. Stashed messages come back by Unstash and at a
// restart, in their order and before all others; if the actor stops they become
// dead letters. Errors: ErrStashFull, and then the message is not put aside;
// ErrNoMessage in Setup, in Signal, and for what is stashed already.
func (x Context[M]) Stash() error {
	if err := x.c.stashCurrent(x.w); err != nil {
		return fmt.Errorf("stash of %s: %w", x.c.path(), err)
	}
	return nil
}

// Unstash puts all stashed messages back to the front of the mailbox, in their
// order, beyond its bound if need be, and returns how many.
func (x Context[M]) Unstash() int { return x.c.unstash(x.w) }

// Stashed returns how many messages are put aside.
func (x Context[M]) Stashed() int {
	if x.c.ext == nil {
		return 0
	}
	return x.c.ext.stashed
}

// kept is the envelope of a stashed timer message or piped result: as those it
// belongs to one incarnation.
type kept struct {
	msg any
	gen uint32
}

// stashCurrent moves the envelope that w handles to the stash.
func (c *cell) stashCurrent(w *worker) error {
	i := w.next - 1
	if c.life != running || i < 0 || i >= len(w.batch) || w.batch[i] == nil {
		return ErrNoMessage
	}
	x := c.x()
	if x.stashed >= c.spec.stash {
		return ErrStashFull
	}
	e := w.batch[i]
	switch own := e.(type) {
	case *timer:
		e = &kept{own.msg, x.gen}
	case *piped:
		e = &kept{own.result, x.gen}
	case *termination:
		return ErrNoMessage
	}
	w.batch[i] = nil // what is left there is stashed; of an Ask, answer sees it
	x.stash.push(e)
	x.stashed++
	return nil
}

// unstash returns what the turn has not begun and then, before it, the stash to
// the mailbox.
func (c *cell) unstash(w *worker) int {
	x := c.ext
	if x == nil || x.stashed == 0 {
		return 0
	}
	n := x.stashed
	all := make([]any, 0, n)
	for !x.stash.empty() {
		all = append(all, x.stash.pop())
	}
	x.stashed = 0
	c.mu.Lock()
	w.giveBackLocked(c)
	for _, e := range all {
		if !isOwn(e) {
			c.waiting++
		}
	}
	c.unpopLocked(all)
	c.mu.Unlock()
	return n
}

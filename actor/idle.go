package actor

import "time"

// idleTimer is the receive timeout of an actor. Its timer is armed once and
// looks, when it comes, how long ago the last message was; so a message costs it
// one look at the clock and nothing else.
type idleTimer struct {
	after time.Duration
	last  time.Time // when the last message was handled
	timer *timer
}

// touch notes a message.
func (i *idleTimer) touch(e any) {
	if e != any(i.timer) {
		i.last = time.Now()
	}
}

// ReceiveTimeout sends msg to the actor itself whenever it has handled no other
// message for d, again and again, each time d after the last one. It replaces an
// earlier one; d of 0 or less ends it, and so do a restart and the actor's end.
func (x Context[M]) ReceiveTimeout(d time.Duration, msg M) { x.c.receiveTimeout(d, msg) }

func (c *cell) receiveTimeout(d time.Duration, msg any) {
	if c.ext != nil && c.ext.idle != nil {
		Timer{c.ext.idle.timer}.Stop()
		c.ext.idle = nil
	}
	if d <= 0 || c.life >= stopping {
		return
	}
	c.x().idle = &idleTimer{after: d, last: time.Now(), timer: c.after(d, 0, msg).t}
}

// elapsed reports whether the actor has been idle long enough, and arms the
// timer again in any case.
func (i *idleTimer) elapsed(c *cell) bool {
	now := time.Now()
	idle := now.Sub(i.last)
	if idle >= i.after {
		i.last = now
		idle = 0
	}
	c.spec.sys.timers.add(i.timer, i.after-idle)
	return i.last.Equal(now)
}

package actor

import (
	"sync"
	"time"
)

// Timer is a message that an actor has sent to itself for later. The zero Timer
// is one that has come.
type Timer struct{ t *timer }

// Stop cancels the message and reports whether it was still to come. After
// Stop it is not handled any more, even if it already waits in the mailbox.
// Call it only from the handlers of the actor that made the Timer.
func (t Timer) Stop() bool {
	if t.t == nil || !t.t.cell.unlinkTimer(t.t) {
		return false
	}
	t.t.cell.spec.sys.timers.remove(t.t)
	return true
}

// Every sends msg to the actor itself every d, first in d; the mailbox bound does
// not apply. At most one of them waits at a time: times that pass meanwhile are
// skipped. A restart or stop cancels it. A d of 0 or less sends nothing.
func (x Context[M]) Every(d time.Duration, msg M) Timer {
	if d <= 0 {
		return Timer{}
	}
	return x.c.after(d, d, msg)
}

// timer is one entry of the system's heap, and the envelope in which its message
// travels once it is due.
type timer struct {
	cell   *cell
	msg    any
	post   uint32        // a system message to post instead; then it is in no list
	period time.Duration // repeats; 0 does not

	when time.Duration // since timers.base; timers.mu guards it and pos
	pos  int           // index in the heap plus 1; 0 when not in it

	// The list of the actor's timers that are neither handled nor cancelled; turn
	// only. One that is not linked when it comes out of the mailbox is dropped.
	linked     bool
	prev, next *timer
}

// after arms a timer for c. An actor that stops gets none.
func (c *cell) after(d, period time.Duration, msg any) Timer {
	if c.life >= stopping {
		return Timer{}
	}
	x := c.x()
	t := &timer{cell: c, msg: msg, period: period, linked: true, next: x.timers}
	if t.next != nil {
		t.next.prev = t
	}
	x.timers = t
	c.spec.sys.timers.add(t, d)
	return Timer{t}
}

// takeTimer reports whether a timer that has come is to be handled.
func (c *cell) takeTimer(t *timer) bool {
	switch {
	case !t.linked:
		return false
	case c.ext.idle != nil && c.ext.idle.timer == t:
		return c.ext.idle.elapsed(c)
	case t.period > 0:
		c.spec.sys.timers.again(t)
		return true
	}
	return c.unlinkTimer(t)
}

// unlinkTimer takes t from c's list and reports whether it was in it.
func (c *cell) unlinkTimer(t *timer) bool {
	if !t.linked {
		return false
	}
	if t.next != nil {
		t.next.prev = t.prev
	}
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		c.ext.timers = t.next
	}
	t.linked, t.prev, t.next = false, nil, nil
	return true
}

// dropTimers cancels all timers of c, the restart backoff included.
func (c *cell) dropTimers() {
	if t := c.ext.restart.backoff; t != nil {
		c.spec.sys.timers.remove(t)
		c.ext.restart.backoff = nil
	}
	for c.ext.timers != nil {
		Timer{c.ext.timers}.Stop()
	}
	c.ext.idle = nil
}

// timers is the system's one heap of pending timers and the goroutine that
// fires them.
type timers struct {
	base  time.Time
	wake  chan struct{} // the earliest timer has changed
	quit  chan struct{}
	ended chan struct{}
	mu    struct {
		sync.Mutex
		heap []*timer // by when, earliest first
	}
}

func newTimers() *timers {
	ts := &timers{base: time.Now(), wake: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
	go ts.run()
	return ts
}

func (ts *timers) add(t *timer, d time.Duration) {
	when := time.Since(ts.base) + max(d, 0)
	if when < 0 { // a delay near the largest Duration
		when = 1<<63 - 1
	}
	ts.insert(t, when)
}

// again arms a repeating timer that has come for its next time that is not past.
func (ts *timers) again(t *timer) {
	late := max(time.Since(ts.base)-t.when, 0)
	ts.insert(t, t.when+t.period*(1+late/t.period))
}

func (ts *timers) insert(t *timer, when time.Duration) {
	ts.mu.Lock()
	t.when = when
	ts.mu.heap = append(ts.mu.heap, t)
	ts.upLocked(len(ts.mu.heap) - 1)
	first := t.pos == 1
	ts.mu.Unlock()
	if first {
		select {
		case ts.wake <- struct{}{}:
		default:
		}
	}
}

func (ts *timers) remove(t *timer) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.pos > 0 {
		ts.removeLocked(t.pos - 1)
	}
}

func (ts *timers) len() int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return len(ts.mu.heap)
}

// run fires due timers until quit is closed.
func (ts *timers) run() {
	defer close(ts.ended)
	alarm := newStoppedTimer()
	defer alarm.Stop()
	for {
		select {
		case <-alarm.C:
		case <-ts.wake:
		case <-ts.quit:
			return
		}
		for {
			t, wait := ts.due()
			if t != nil {
				t.fire()
				continue
			}
			if wait > 0 {
				alarm.Reset(wait)
			} else {
				alarm.Stop()
			}
			break
		}
	}
}

// due takes the earliest timer if its time has come; otherwise it returns how
// long until then, 0 if there is none.
func (ts *timers) due() (*timer, time.Duration) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if len(ts.mu.heap) == 0 {
		return nil, 0
	}
	t := ts.mu.heap[0]
	if wait := t.when - time.Since(ts.base); wait > 0 {
		return nil, wait
	}
	ts.removeLocked(0)
	return t, 0
}

func (t *timer) fire() {
	if t.post != 0 {
		t.cell.post(t.post)
		return
	}
	_ = t.cell.tell(nil, t) // an actor that has stopped has cancelled its timers
}

func (ts *timers) setLocked(i int, t *timer) {
	ts.mu.heap[i] = t
	t.pos = i + 1
}

func (ts *timers) upLocked(i int) {
	h := ts.mu.heap
	t := h[i]
	for i > 0 {
		parent := (i - 1) / 4
		if h[parent].when <= t.when {
			break
		}
		ts.setLocked(i, h[parent])
		i = parent
	}
	ts.setLocked(i, t)
}

func (ts *timers) downLocked(i int) {
	h := ts.mu.heap
	t := h[i]
	for {
		least := -1
		for k := 4*i + 1; k < min(4*i+5, len(h)); k++ {
			if least < 0 || h[k].when < h[least].when {
				least = k
			}
		}
		if least < 0 || h[least].when >= t.when {
			break
		}
		ts.setLocked(i, h[least])
		i = least
	}
	ts.setLocked(i, t)
}

func (ts *timers) removeLocked(i int) {
	h := ts.mu.heap
	h[i].pos = 0
	last := len(h) - 1
	moved := h[last]
	h[last] = nil
	ts.mu.heap = h[:last]
	if i == last {
		return
	}
	ts.setLocked(i, moved)
	ts.upLocked(i)
	ts.downLocked(moved.pos - 1)
}

// newStoppedTimer returns a timer that waits for Reset.
func newStoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

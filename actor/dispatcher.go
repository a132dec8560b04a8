package actor

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxThroughput = 1024
	// stealEvery makes a busy worker look at the others' queues before its own
	// now and then, so that what lies behind a blocked worker is not starved by a
	// pool that is busy but never idle.
	stealEvery = 32
	// watchTick is how long a turn may last before the monitor takes what its
	// worker has queued away from it.
	watchTick = 500 * time.Microsecond
	// sampleEvery is how many turns share one that is timed, and how many pushes
	// share one whose wait is.
	sampleEvery = 256
)

// dispatcher runs the turns of scheduled cells. This file is the shared pool;
// the other kinds are in dispatcher_side.go.
//
// Each worker has a queue of its own. A cell made runnable from a turn goes to
// the worker of that turn, so that a conversation stays on one core; any other
// goes to its home worker. A worker without work steals, looks again a few
// times, then parks.
//
// A push wakes a parked worker, with one exception: the first cell that a turn
// adds to its own worker's empty queue, since that worker is about to run it. In
// case the turn then blocks, the monitor sees a queue from which nothing is taken
// and wakes a parked worker for it within two ticks.
type dispatcher struct {
	sys        *System
	name       string
	kind       Kind
	limit      int // Dispatcher.Workers
	throughput int
	deadline   time.Duration
	hold       time.Duration // Dispatcher.HoldLimit; 0 means none
	base       time.Time     // turns are timed by the monotonic distance from here
	ws         []*worker     // of a shared pool
	side       *side         // of every other kind
	parked     atomic.Int32  // workers with parked set
	stopping   atomic.Bool
	quit       chan struct{} // closed by stop
	live       atomic.Int32  // goroutines that have not ended
	ended      chan struct{} // closed by the last of them

	alert    chan struct{} // wakes the monitor
	watching atomic.Bool   // the monitor ticks

	turnPeak, waitPeak peak
	sampled            struct{ turns, nanos atomic.Int64 } // of timed turns
	seenBusy           atomic.Int64                        // time that the watchdog saw workers in turns
}

// worker owns one run queue.
type worker struct {
	d     *dispatcher
	index int
	mu    struct {
		sync.Mutex
		head, tail     *cell // linked through cell.next
		pushed, popped uint64
		mark           uint64        // the push whose wait is timed, as a value of pushed; 0 if there is none
		markAt         time.Duration // when that was
	}
	n      atomic.Int32 // cells in the queue
	parked atomic.Bool
	wake   chan struct{} // holds a token for each parked worker that was claimed
	seen   uint64        // popped at the monitor's last tick; only the monitor uses it

	// What the monitors want to know of the turn under way. Only the worker's
	// goroutine writes it, while it holds the lock of the queue from which it takes
	// (side.mu in a dispatcher that is not shared); others read it while they hold
	// all of these locks.
	took   *cell         // stays after the turn
	tookAt time.Duration // only in a dispatcher that is not shared
	turns  uint64        // begun

	// State of the turn under way; only the worker's goroutine uses it.
	cur     *cell
	batch   []any         // envelopes taken from cur's mailbox
	next    int           // batch[next:] are not handled yet
	handled uint64        // messages
	told    atomic.Uint64 // handled, as of the last sample or park
	_       [64]byte
}

func (s *System) newDispatcher(name string, c Dispatcher) *dispatcher {
	d := &dispatcher{
		sys: s, name: name, kind: c.kind(), limit: c.Workers, throughput: c.Throughput, deadline: c.TurnDeadline,
		hold: max(c.HoldLimit, 0), base: time.Now(),
		quit: make(chan struct{}), ended: make(chan struct{}), alert: make(chan struct{}, 1),
	}
	if d.kind != Shared {
		d.side = newSide(d, c)
		d.live.Store(1)
		return d
	}
	for i := range c.Workers {
		w := d.newWorker()
		w.index = i
		d.ws = append(d.ws, w)
	}
	d.live.Store(int32(len(d.ws)) + 1)
	return d
}

// start starts the goroutines of a shared pool; the others come with the work.
func (d *dispatcher) start() {
	if d.side != nil {
		return
	}
	for _, w := range d.ws {
		go w.run()
	}
	go d.monitor()
}

func (d *dispatcher) newWorker() *worker {
	return &worker{d: d, wake: make(chan struct{}, 1), batch: make([]any, 0, d.throughput)}
}

func (d *dispatcher) now() time.Duration { return time.Since(d.base) }

// leave is the last act of each goroutine of the pool.
func (d *dispatcher) leave() {
	if d.live.Add(-1) == 0 {
		close(d.ended)
	}
}

// stop lets workers end once their queues are empty and their turns done. It
// does not wait; ended is closed afterwards.
func (d *dispatcher) stop() {
	if d.side != nil {
		d.side.stop(d)
		return
	}
	if d.stopping.Swap(true) {
		return
	}
	close(d.quit)
	for _, w := range d.ws {
		w.unpark()
	}
}

// schedule queues a cell whose phase has just become scheduled. from is the
// worker of the calling turn, nil outside turns.
func (d *dispatcher) schedule(c *cell, from *worker) {
	if d.side != nil {
		d.scheduleSide(c, from)
		return
	}
	local := from != nil && from.d == d
	w := from
	if !local {
		w = d.ws[c.home%uint32(len(d.ws))]
	}
	depth := w.push(c)
	if d.parked.Load() == 0 {
		return
	}
	if local && depth == 1 {
		d.watch()
		return
	}
	d.unparkOne(w)
}

// again queues a cell whose turn has ended with work left.
func (w *worker) again(c *cell) {
	if w.d.side != nil {
		w.d.scheduleSide(c, w)
		return
	}
	// Alone in the queue it is the next thing that this worker runs.
	if w.push(c) > 1 && w.d.parked.Load() > 0 {
		w.d.unparkOne(w)
	}
}

// unparkOne wakes one parked worker, w if it is one.
func (d *dispatcher) unparkOne(w *worker) {
	if w.unpark() {
		return
	}
	for _, w := range d.ws {
		if w.unpark() {
			return
		}
	}
}

// watch makes the monitor tick.
func (d *dispatcher) watch() {
	if len(d.ws) > 1 && !d.watching.Load() && d.watching.CompareAndSwap(false, true) {
		d.alert <- struct{}{} // never blocks: one alert for each false to true
	}
}

// monitor wakes parked workers for cells that wait behind an unfinished turn. It
// sleeps while no queue has cells.
func (d *dispatcher) monitor() {
	defer d.leave()
	tick := newStoppedTimer()
	defer tick.Stop()
	for {
		select {
		case <-d.alert:
		case <-d.quit:
			return
		}
		for d.look() {
			tick.Reset(watchTick)
			select {
			case <-tick.C:
			case <-d.quit:
				return
			}
		}
	}
}

// look does one tick and reports whether there must be another.
func (d *dispatcher) look() bool {
	waiting, stuck := false, 0
	for _, w := range d.ws {
		if w.n.Load() == 0 {
			continue
		}
		waiting = true
		if !w.mu.TryLock() { // someone pushes or pops: never slow that down
			continue
		}
		if w.mu.popped == w.seen {
			stuck++
		}
		w.seen = w.mu.popped
		w.mu.Unlock()
	}
	for range stuck {
		d.unparkOne(d.ws[0])
	}
	if waiting {
		return true
	}
	d.watching.Store(false)
	// A push may have seen watching before it was cleared: look once more.
	for _, w := range d.ws {
		if w.n.Load() > 0 {
			return d.watching.CompareAndSwap(false, true)
		}
	}
	return false
}

// lockQueues takes the locks of all queues, in their order; workers hold one at
// a time.
func (d *dispatcher) lockQueues() {
	for _, w := range d.ws {
		w.mu.Lock()
	}
}

func (d *dispatcher) unlockQueues() {
	for _, w := range d.ws {
		w.mu.Unlock()
	}
}

// push appends c and returns the queue's length.
func (w *worker) push(c *cell) int32 {
	w.mu.Lock()
	if w.mu.tail == nil {
		w.mu.head = c
	} else {
		w.mu.tail.next = c
	}
	w.mu.tail = c
	w.mu.pushed++
	if w.mu.pushed%sampleEvery == 1 && w.mu.mark == 0 {
		w.mu.mark, w.mu.markAt = w.mu.pushed, w.d.now()
	}
	depth := w.n.Add(1)
	w.mu.Unlock()
	return depth
}

// pop takes the first cell of w's queue for by, which begins its next turn.
func (w *worker) pop(by *worker) *cell {
	if w.n.Load() == 0 {
		return nil
	}
	w.mu.Lock()
	c := w.mu.head
	if c == nil {
		w.mu.Unlock()
		return nil
	}
	if w.mu.head = c.next; w.mu.head == nil {
		w.mu.tail = nil
	}
	c.next = nil
	w.n.Add(-1)
	w.mu.popped++
	by.took = c
	by.turns++
	if w.mu.popped != w.mu.mark {
		w.mu.Unlock()
		return c
	}
	w.mu.mark = 0
	at := w.mu.markAt
	w.mu.Unlock()
	now := w.d.now()
	w.d.waitPeak.note(now, now-at)
	return c
}

// find takes a cell from the worker's own queue, else from another's; every
// stealEvery turns in the opposite order.
func (w *worker) find() *cell {
	if t := w.turns; t%stealEvery == stealEvery-1 {
		if c := w.steal(int(t / stealEvery)); c != nil {
			return c
		}
		return w.pop(w)
	}
	if c := w.pop(w); c != nil {
		return c
	}
	return w.steal(w.index + 1)
}

func (w *worker) steal(start int) *cell {
	ws := w.d.ws
	for i := range ws {
		if v := ws[(start+i)%len(ws)]; v != w {
			if c := v.pop(w); c != nil {
				return c
			}
		}
	}
	return nil
}

// unpark claims and wakes w if it is parked.
func (w *worker) unpark() bool {
	if !w.parked.Load() || !w.parked.CompareAndSwap(true, false) {
		return false
	}
	w.d.parked.Add(-1)
	w.wake <- struct{}{}
	return true
}

// park returns a cell, or nil after having been woken or told to stop.
func (w *worker) park() *cell {
	for range 4 {
		runtime.Gosched()
		if c := w.find(); c != nil {
			return c
		}
	}
	w.told.Store(w.handled)
	w.parked.Store(true)
	w.d.parked.Add(1)
	// From here on a push sees the parked worker. What was pushed before is found now.
	c := w.find()
	if c == nil && !w.d.stopping.Load() {
		<-w.wake
	} else if w.parked.CompareAndSwap(true, false) {
		w.d.parked.Add(-1)
	} else {
		<-w.wake // claimed in between: the token is ours to take
	}
	w.d.sys.dog.rouse()
	return c
}

// run is the worker's goroutine.
func (w *worker) run() {
	ended := false
	w.d.sys.enter(w)
	defer func() {
		w.d.sys.exit(w)
		if !ended { // a handler called runtime.Goexit: another goroutine takes over
			go w.run()
			return
		}
		w.d.leave()
	}()
	w.d.sys.dog.rouse()
	w.mend()
	for {
		c := w.find()
		if c == nil {
			if w.d.stopping.Load() {
				ended = true
				return
			}
			if c = w.park(); c == nil {
				continue
			}
		}
		w.turn(c)
	}
}

// mend ends the turn in which a handler called runtime.Goexit.
func (w *worker) mend() {
	if c := w.cur; c != nil {
		c.settle(w, &Failure{Path: c.path(), Err: ErrGoexit})
		w.finish(c)
		clear(w.batch) // the message of that handler
	}
}

// turn runs c until its mailbox is empty, its throughput or deadline is used up,
// or it stops taking messages.
func (w *worker) turn(c *cell) {
	w.cur = c
	w.begin(c)
	timed := w.turns%sampleEvery == 0
	ordered := c.spec.mb.Order != FIFO
	var from time.Duration
	if len(w.batch) > 1 || timed || ordered {
		from = w.d.now()
	}
	n := w.handleAll(c, from, ordered)
	w.handled += uint64(n)
	if timed {
		w.sample(from)
	}
	w.finish(c)
}

// handleAll runs the handlers of one turn, which began at from, and returns how
// many messages they had. It looks at the clock after the first message and every
// fourth from there; after each one as soon as they are not fast.
func (w *worker) handleAll(c *cell, from time.Duration, ordered bool) (n int) {
	started := false // one start a turn: a Setup that fails at once must not hold the worker
	slow, last := false, from
	for {
		if c.urgent.Load() != 0 {
			c.handleSystem(w)
		}
		if c.life == starting && !started {
			started = true
			c.start(w)
			continue
		}
		if c.life != running {
			return n
		}
		if w.next == len(w.batch) && (!ordered || n >= w.d.throughput || !w.refill(c)) {
			return n
		}
		if n&3 == 1 || slow {
			now := w.d.now()
			if now-from > w.d.deadline {
				return n
			}
			slow, last = now-last > w.d.deadline/16, now
		}
		n++
		i := w.next
		w.next++
		c.handle(w, w.batch[i])
		w.batch[i] = nil
	}
}

// sample records a timed turn.
func (w *worker) sample(from time.Duration) {
	if w.d.side != nil { // measures every turn
		return
	}
	now := w.d.now()
	w.told.Store(w.handled)
	w.d.sampled.turns.Add(1)
	w.d.sampled.nanos.Add(int64(now - from))
	w.d.turnPeak.note(now, now-from)
}

// begin takes up to throughput envelopes from c's mailbox; one if the mailbox is
// ordered, so that what comes meanwhile takes its place before the others.
func (w *worker) begin(c *cell) {
	w.batch, w.next = w.batch[:0], 0
	c.mu.Lock()
	c.phase.begin()
	var freed []*suspension
	if c.life == running {
		if c.spec.mb.Order != FIFO {
			w.takeLocked(c)
		} else {
			for len(w.batch) < w.d.throughput && !c.q.empty() {
				e := c.q.pop()
				if !isOwn(e) {
					c.waiting--
				}
				w.batch = append(w.batch, e)
			}
		}
		if c.links != nil && c.links.line != nil {
			freed = c.grantLocked()
		}
	}
	c.mu.Unlock()
	for _, s := range freed {
		s.freed()
	}
}

// refill takes one more envelope of an ordered mailbox and reports whether there
// was one.
func (w *worker) refill(c *cell) bool {
	w.batch, w.next = w.batch[:0], 0
	c.mu.Lock()
	w.takeLocked(c)
	freed := c.grantLocked()
	c.mu.Unlock()
	for _, s := range freed {
		s.freed()
	}
	return len(w.batch) > 0
}

// takeLocked takes the first envelope of an ordered mailbox, if there is one.
func (w *worker) takeLocked(c *cell) {
	if c.emptyLocked() {
		return
	}
	e := c.popLocked()
	if !isOwn(e) {
		c.waiting--
	}
	w.batch = append(w.batch, e)
}

// giveBackLocked returns what the turn has taken and not handled to the front of
// c's mailbox.
func (w *worker) giveBackLocked(c *cell) {
	rest := w.batch[w.next:]
	for _, e := range rest {
		if !isOwn(e) {
			c.waiting++
		}
	}
	c.unpopLocked(rest)
	clear(rest)
	w.batch = w.batch[:w.next]
}

// finish puts back what the turn did not handle and gives c up, to the queue if
// it has more to do.
func (w *worker) finish(c *cell) {
	if c.life == stopped {
		rest := w.batch[w.next:]
		c.bury(rest)
		clear(rest)
		w.cur = nil
		return
	}
	c.mu.Lock()
	if w.next < len(w.batch) {
		w.giveBackLocked(c)
	}
	again := c.urgent.Load() != 0 || c.life == starting || c.life == running && !c.emptyLocked()
	if again {
		c.phase.yield()
	} else {
		c.phase.rest()
	}
	c.mu.Unlock()
	w.cur = nil
	if again {
		w.again(c)
	}
}

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
)

// dispatcher is a pool of workers that run the turns of scheduled cells.
//
// Each worker has a queue of its own. A cell made runnable from a turn goes to
// the worker of that turn, so that a conversation stays on one core; any other
// goes to its home worker. A worker without work steals, looks again a few
// times, then parks.
//
// A push wakes a parked worker, with one exception: the first cell that a turn
// adds to its own worker's empty queue, since that worker is about to run it. In
// case the turn then blocks, the monitor sees a queue behind an unfinished turn
// and wakes a parked worker for it within two ticks.
type dispatcher struct {
	name       string
	throughput int
	deadline   time.Duration
	base       time.Time // turns are timed by the monotonic distance from here
	ws         []*worker
	parked     atomic.Int32 // workers with parked set
	stopping   atomic.Bool
	quit       chan struct{} // closed by stop
	live       atomic.Int32  // goroutines that have not ended
	ended      chan struct{} // closed by the last of them

	alert    chan struct{} // wakes the monitor
	watching atomic.Bool   // the monitor ticks
}

// worker owns one run queue.
type worker struct {
	d     *dispatcher
	index int
	mu    struct {
		sync.Mutex
		head, tail *cell // linked through cell.next
	}
	n      atomic.Int32 // cells in the queue
	parked atomic.Bool
	wake   chan struct{} // holds a token for each parked worker that was claimed
	turns  atomic.Uint32 // turns begun; only its own goroutine writes
	seen   uint32        // turns at the monitor's last tick; only the monitor uses it

	// State of the turn under way; only the worker's goroutine uses it.
	cur   *cell
	batch []any // envelopes taken from cur's mailbox
	next  int   // batch[next:] are not handled yet
	_     [64]byte
}

func newDispatcher(name string, c Dispatcher) *dispatcher {
	d := &dispatcher{
		name: name, throughput: c.Throughput, deadline: c.TurnDeadline, base: time.Now(),
		quit: make(chan struct{}), ended: make(chan struct{}), alert: make(chan struct{}, 1),
	}
	for i := range c.Workers {
		d.ws = append(d.ws, &worker{
			d: d, index: i, wake: make(chan struct{}, 1),
			batch: make([]any, 0, c.Throughput),
		})
	}
	d.live.Store(int32(len(d.ws)) + 1)
	for _, w := range d.ws {
		go w.run()
	}
	go d.monitor()
	return d
}

// leave is the last act of each goroutine of the pool.
func (d *dispatcher) leave() {
	if d.live.Add(-1) == 0 {
		close(d.ended)
	}
}

// stop lets workers end once their queues are empty and their turns done. It
// does not wait; ended is closed afterwards.
func (d *dispatcher) stop() {
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
	waiting := false
	for _, w := range d.ws {
		turns := w.turns.Load()
		if w.n.Load() > 0 {
			waiting = true
			if turns == w.seen {
				d.unparkOne(w)
			}
		}
		w.seen = turns
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

// push appends c and returns the queue's length.
func (w *worker) push(c *cell) int32 {
	w.mu.Lock()
	if w.mu.tail == nil {
		w.mu.head = c
	} else {
		w.mu.tail.next = c
	}
	w.mu.tail = c
	depth := w.n.Add(1)
	w.mu.Unlock()
	return depth
}

func (w *worker) pop() *cell {
	if w.n.Load() == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.mu.head
	if c != nil {
		if w.mu.head = c.next; w.mu.head == nil {
			w.mu.tail = nil
		}
		c.next = nil
		w.n.Add(-1)
	}
	return c
}

// find takes a cell from the worker's own queue, else from another's; every
// stealEvery turns in the opposite order.
func (w *worker) find() *cell {
	if t := w.turns.Load(); t%stealEvery == stealEvery-1 {
		if c := w.steal(int(t / stealEvery)); c != nil {
			return c
		}
		return w.pop()
	}
	if c := w.pop(); c != nil {
		return c
	}
	return w.steal(w.index + 1)
}

func (w *worker) steal(start int) *cell {
	ws := w.d.ws
	for i := range ws {
		if v := ws[(start+i)%len(ws)]; v != w {
			if c := v.pop(); c != nil {
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
	w.parked.Store(true)
	w.d.parked.Add(1)
	// From here on a push sees the parked worker. What was pushed before is found now.
	c := w.find()
	if c == nil && !w.d.stopping.Load() {
		<-w.wake
		return nil
	}
	if w.parked.CompareAndSwap(true, false) {
		w.d.parked.Add(-1)
	} else {
		<-w.wake // claimed in between: the token is ours to take
	}
	return c
}

// run is the worker's goroutine.
func (w *worker) run() {
	ended := false
	defer func() {
		if !ended { // a handler called runtime.Goexit: another goroutine takes over
			go w.run()
			return
		}
		w.d.leave()
	}()
	if c := w.cur; c != nil {
		c.settle(w, &Failure{Path: c.path(), Err: ErrGoexit})
		w.finish(c)
	}
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

// turn runs c until its mailbox is empty, its throughput or deadline is used up,
// or it stops taking messages.
func (w *worker) turn(c *cell) {
	w.turns.Store(w.turns.Load() + 1)
	w.cur = c
	w.begin(c)
	started := false // one start a turn: a Setup that fails at once must not hold the worker
	until := time.Duration(0)
	if len(w.batch) > 1 {
		until = time.Since(w.d.base) + w.d.deadline
	}
	for {
		if c.urgent.Load() != 0 {
			c.handleSystem(w)
		}
		if c.life == starting && !started {
			started = true
			c.start(w)
			continue
		}
		if w.next == len(w.batch) || c.life != running {
			break
		}
		if w.next > 0 && time.Since(w.d.base) > until {
			break
		}
		e := w.batch[w.next]
		w.batch[w.next] = nil
		w.next++
		c.handle(w, e)
	}
	w.finish(c)
}

// begin takes up to throughput envelopes from c's mailbox.
func (w *worker) begin(c *cell) {
	w.batch, w.next = w.batch[:0], 0
	c.mu.Lock()
	c.phase.begin()
	if c.life == running {
		for len(w.batch) < w.d.throughput && !c.q.empty() {
			e := c.q.pop()
			if !isOwn(e) {
				c.waiting--
			}
			w.batch = append(w.batch, e)
		}
	}
	c.mu.Unlock()
}

// finish puts back what the turn did not handle and gives c up, to the queue if
// it has more to do.
func (w *worker) finish(c *cell) {
	rest := w.batch[w.next:]
	if c.life == stopped {
		c.bury(rest)
		clear(rest)
		w.cur = nil
		return
	}
	c.mu.Lock()
	for _, e := range rest {
		if !isOwn(e) {
			c.waiting++
		}
	}
	c.q.unpop(rest)
	again := c.urgent.Load() != 0 || c.life == starting || c.life == running && !c.q.empty()
	if again {
		c.phase.yield()
	} else {
		c.phase.rest()
	}
	c.mu.Unlock()
	clear(rest)
	w.cur = nil
	if !again {
		return
	}
	// Alone in the queue it is the next thing that this worker runs.
	if w.push(c) > 1 && w.d.parked.Load() > 0 {
		w.d.unparkOne(w)
	}
}

package actor

import (
	"sync"
	"sync/atomic"
	"time"
)

// Executor runs the turns of a dispatcher that is made by the user, for example
// one that steps through them by hand. Execute is called once for each scheduled
// turn, by the goroutine that made the actor runnable; it holds no lock. It must
// see to it that Run is called exactly once, then or later, on any goroutine.
// Turns that are never run are actors that never stop.
type Executor interface{ Execute(t Turn) }

// Turn is one actor's right to run: up to Dispatcher.Throughput messages.
type Turn struct{ c *cell }

// Actor returns whose turn it is.
func (t Turn) Actor() Addr { return Addr{t.c} }

// Run runs the turn on the calling goroutine.
func (t Turn) Run() {
	d := t.c.spec.disp
	if !d.side.join(d) {
		return
	}
	w := d.side.worker(d)
	w.push(t.c)
	w.drain()
}

// side is what a dispatcher has that is no shared pool: elastic, pinned, calling
// or custom. Its workers come and go, and every turn is measured.
type side struct {
	exec  Executor
	slots []atomic.Pointer[worker] // pinned: by cell.home
	spare sync.Pool                // of workers
	mu    struct {
		sync.Mutex
		stopped bool
		queue   queueOf[waitingCell] // elastic
		workers int                  // elastic: goroutines
		pinned  int
		free    []uint32             // slots that were given back
		inTurn  map[*worker]struct{} // running a turn; guards their took and turns
		turns   uint64
		handled uint64
		busy    time.Duration
	}
}

type waitingCell struct {
	c  *cell
	at time.Duration
}

func newSide(d *dispatcher, c Dispatcher) *side {
	s := &side{exec: c.Executor}
	if d.kind == Pinned {
		s.slots = make([]atomic.Pointer[worker], d.limit)
	}
	s.spare.New = func() any { return d.newWorker() }
	s.mu.inTurn = map[*worker]struct{}{}
	return s
}

// join counts one goroutine in, unless the dispatcher has stopped.
func (s *side) join(d *dispatcher) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopped {
		return false
	}
	d.live.Add(1)
	return true
}

func (s *side) stop(d *dispatcher) {
	s.mu.Lock()
	was := s.mu.stopped
	s.mu.stopped = true
	s.mu.Unlock()
	if !was {
		close(d.quit)
		d.leave()
	}
}

func (s *side) worker(d *dispatcher) *worker {
	w, _ := s.spare.Get().(*worker)
	return w
}

// scheduleSide is schedule for every kind but the shared pool.
func (d *dispatcher) scheduleSide(c *cell, from *worker) {
	switch d.kind {
	case Elastic:
		d.side.enqueue(d, c)
	case Pinned:
		w := d.side.slots[c.home].Load()
		w.push(c)
		w.wake <- struct{}{} // has room: a cell is scheduled once at a time
	case Calling:
		if from != nil && from.d == d { // in a turn on this goroutine: after it
			from.push(c)
			return
		}
		if d.side.join(d) {
			w := d.side.worker(d)
			w.push(c)
			w.drain()
		}
	default:
		d.side.exec.Execute(Turn{c})
	}
}

// enqueue adds to the elastic queue, and a goroutine if all are busy.
func (s *side) enqueue(d *dispatcher, c *cell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopped {
		return
	}
	s.mu.queue.push(waitingCell{c, d.now()})
	if s.mu.workers < d.limit {
		s.mu.workers++
		d.live.Add(1)
		go s.worker(d).runElastic()
	}
}

// dequeue takes from the elastic queue, or counts the calling goroutine out.
func (s *side) dequeue() (waitingCell, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.queue.len() == 0 {
		s.mu.workers--
		return waitingCell{}, false
	}
	return s.mu.queue.pop(), true
}

// runElastic runs turns until none waits.
func (w *worker) runElastic() {
	w.own(w.runElastic, func() {
		for {
			q, ok := w.d.side.dequeue()
			if !ok {
				return
			}
			now := w.d.now()
			w.d.waitPeak.note(now, now-q.at)
			w.sideTurn(q.c, now)
		}
	})
}

// drain runs turns on the calling goroutine until its own queue is empty.
func (w *worker) drain() {
	w.own(w.drain, func() {
		for c := w.popSide(); c != nil; c = w.popSide() {
			w.sideTurn(c, w.d.now())
		}
	})
}

// popSide takes from a queue that only this worker serves.
func (w *worker) popSide() *cell {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.mu.head
	if c == nil {
		return nil
	}
	if w.mu.head = c.next; w.mu.head == nil {
		w.mu.tail = nil
	}
	c.next = nil
	w.n.Add(-1)
	return c
}

// own runs loop as the work of this goroutine. If a handler ends the goroutine
// by runtime.Goexit, again continues on another.
func (w *worker) own(again, loop func()) {
	returned := false
	outer := w.d.sys.enter(w)
	defer func() {
		w.d.sys.reenter(outer)
		if !returned {
			go again()
			return
		}
		w.d.side.spare.Put(w)
		w.d.leave()
	}()
	w.mend()
	loop()
	returned = true
}

// sideTurn runs and measures one turn.
func (w *worker) sideTurn(c *cell, from time.Duration) {
	s, before := w.d.side, w.handled
	s.mu.Lock()
	w.took, w.tookAt = c, from
	w.turns++
	s.mu.inTurn[w] = struct{}{}
	s.mu.Unlock()
	w.d.sys.dog.rouse()
	defer func() {
		now := w.d.now()
		s.mu.Lock()
		w.took = nil
		delete(s.mu.inTurn, w)
		s.mu.turns++
		s.mu.handled += w.handled - before
		s.mu.busy += now - from
		s.mu.Unlock()
		w.d.turnPeak.note(now, now-from)
	}()
	w.turn(c)
}

// pin gives a cell that is about to be adopted a goroutine of its own.
func (s *side) pin(d *dispatcher, c *cell) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := len(s.mu.free); {
	case s.mu.stopped:
		return ErrStopped
	case n > 0:
		c.home = s.mu.free[n-1]
		s.mu.free = s.mu.free[:n-1]
	case s.mu.pinned < d.limit:
		c.home = uint32(s.mu.pinned)
		s.mu.pinned++
	default:
		return ErrDispatcherFull
	}
	w := d.newWorker()
	s.slots[c.home].Store(w)
	d.live.Add(1)
	go w.runPinned(c)
	return nil
}

// unpin ends the goroutine of a cell that was never adopted.
func (s *side) unpin(c *cell) {
	w := s.slots[c.home].Load()
	s.freeSlot(c)
	close(w.wake)
}

func (s *side) freeSlot(c *cell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots[c.home].Store(nil)
	s.mu.free = append(s.mu.free, c.home)
}

// runPinned runs the turns of one cell until that is buried.
func (w *worker) runPinned(c *cell) {
	returned := false
	w.d.sys.enter(w)
	defer func() {
		w.d.sys.exit(w)
		if !returned {
			go w.runPinned(c)
			return
		}
		w.d.leave()
	}()
	w.mend()
	for c.life != stopped {
		select {
		case _, ok := <-w.wake:
			if !ok {
				returned = true
				return
			}
			if w.popSide() != nil {
				w.sideTurn(c, w.d.now())
			}
		case <-w.d.quit:
			returned = true
			return
		}
	}
	w.d.side.freeSlot(c)
	returned = true
}

// queueOf is a FIFO of values.
type queueOf[T any] struct {
	all  []T
	head int // all[:head] are gone
}

func (q *queueOf[T]) len() int { return len(q.all) - q.head }

func (q *queueOf[T]) push(v T) { q.all = append(q.all, v) }

func (q *queueOf[T]) pop() T {
	var zero T
	v := q.all[q.head]
	q.all[q.head] = zero
	q.head++
	switch {
	case q.head == len(q.all) && cap(q.all) > 1024:
		*q = queueOf[T]{} // a burst is over
	case q.head == len(q.all):
		q.all, q.head = q.all[:0], 0
	case q.head > 1024 && q.head*2 > len(q.all):
		q.all = append(q.all[:0], q.all[q.head:]...)
		clear(q.all[len(q.all):cap(q.all)])
		q.head = 0
	}
	return v
}

package actor

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// WorkerHeld is published when a turn has lasted longer than its dispatcher's
// HoldLimit, and again each time that this has doubled. The actor's handler
// blocks, computes, or waits for the processor; meanwhile its worker serves
// nobody else.
type WorkerHeld struct {
	Path       string // of the actor
	Dispatcher string
	For        time.Duration // at least
}

// dogTick is the mean time between two looks of the watchdog.
const dogTick = 20 * time.Millisecond

// dog is the system's watchdog: it looks at which turns are under way, reports
// those that last too long, and counts whose they are. It sleeps while all
// workers are parked. Nothing on the path of a message is for it, but for the
// two fields of worker that tell what was taken.
type dog struct {
	on    atomic.Bool // it ticks
	alert chan struct{}
	quit  chan struct{}
	ended chan struct{}
	base  time.Time
	mu    struct {
		sync.Mutex
		cur, prev         map[*cell]time.Duration // time seen in turns
		curFrom, prevFrom time.Duration           // when that began
	}
	sights map[*worker]sight // the goroutine's own
}

// sight is a turn that was seen under way.
type sight struct {
	turns uint64 // which turn of the worker
	since time.Duration
	next  time.Duration // report at this age
	path  string        // of the actor, once reported
}

// inTurn is a worker and what it runs.
type inTurn struct {
	w     *worker
	c     *cell
	turns uint64
}

func newDog() *dog {
	g := &dog{
		alert: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}),
		base: time.Now(), sights: map[*worker]sight{},
	}
	g.mu.cur = map[*cell]time.Duration{}
	return g
}

// rouse makes the dog look; cheap when it does already.
func (g *dog) rouse() {
	if !g.on.Load() && g.on.CompareAndSwap(false, true) {
		g.alert <- struct{}{} // never blocks: one alert for each false to true
	}
}

func (g *dog) run(s *System) {
	defer close(g.ended)
	tick := newStoppedTimer()
	defer tick.Stop()
	for {
		select {
		case <-g.alert:
		case <-g.quit:
			return
		}
		last := time.Since(g.base)
		for g.look(s, &last) {
			tick.Reset(dogTick/2 + rand.N(dogTick))
			select {
			case <-tick.C:
			case <-g.quit:
				return
			}
		}
	}
}

// look does one tick and reports whether there must be another.
func (g *dog) look(s *System, last *time.Duration) bool {
	now := time.Since(g.base)
	busy := s.turnsUnderWay()
	g.count(busy, now, now-*last)
	g.judge(s, busy, now)
	*last = now
	if len(busy) > 0 || s.anyAwake() {
		return true
	}
	clear(g.sights)
	g.on.Store(false)
	// One that rose meanwhile may have seen it on: look once more.
	return s.anyAwake() && g.on.CompareAndSwap(false, true)
}

// count adds the time since the last look to the actors that are in a turn.
func (g *dog) count(busy []inTurn, now, step time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now-g.mu.curFrom > peakSpan {
		g.mu.prev, g.mu.prevFrom = g.mu.cur, g.mu.curFrom
		g.mu.cur, g.mu.curFrom = map[*cell]time.Duration{}, now
	}
	for _, b := range busy {
		g.mu.cur[b.c] += step
		b.w.d.seenBusy.Add(int64(step))
	}
}

// times returns the time that actors were seen in turns, and in which span.
func (g *dog) times() (map[*cell]time.Duration, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	sum := map[*cell]time.Duration{}
	for _, m := range []map[*cell]time.Duration{g.mu.prev, g.mu.cur} {
		for c, t := range m {
			sum[c] += t
		}
	}
	return sum, time.Since(g.base) - g.mu.prevFrom
}

// judge reports turns that last too long.
func (g *dog) judge(s *System, busy []inTurn, now time.Duration) {
	seen := make(map[*worker]sight, len(busy))
	for _, b := range busy {
		at, known := g.sights[b.w]
		if !known || at.turns != b.turns {
			at = sight{turns: b.turns, since: now, next: b.w.d.hold}
		}
		if age := now - at.since; at.next > 0 && age >= at.next {
			at.path = b.c.path()
			at.next *= 2
			b.w.d.turnPeak.note(b.w.d.now(), age)
			s.log.Warn("actor holds its worker", keyPath, at.path, keyDispatcher, b.w.d.name, keyFor, age)
			s.events.publish(WorkerHeld{Path: at.path, Dispatcher: b.w.d.name, For: age})
		}
		seen[b.w] = at
	}
	for w, at := range g.sights {
		if now, still := seen[w]; at.path != "" && (!still || now.turns != at.turns) {
			s.log.Info("actor released its worker", keyPath, at.path, keyDispatcher, w.d.name)
		}
	}
	g.sights = seen
}

// turnsUnderWay returns what the workers of all dispatchers run now.
func (s *System) turnsUnderWay() (busy []inTurn) {
	for _, d := range s.dispatchers {
		if d.side != nil {
			d.side.mu.Lock()
			for w := range d.side.mu.inTurn {
				busy = append(busy, inTurn{w, w.took, w.turns})
			}
			d.side.mu.Unlock()
			continue
		}
		now := d.now()
		d.lockQueues()
		for _, w := range d.ws {
			if w.busyLocked() {
				busy = append(busy, inTurn{w, w.took, w.turns})
			}
			if w.mu.mark == 0 && w.n.Load() > 0 { // time the wait of the first in the queue, from now
				w.mu.mark, w.mu.markAt = w.mu.popped+1, now
			}
		}
		d.unlockQueues()
	}
	return busy
}

// busyLocked reports whether a worker of a shared pool is in a turn, or between
// two. All queues of its dispatcher are locked.
func (w *worker) busyLocked() bool { return w.took != nil && !w.parked.Load() }

// anyAwake reports whether any worker is not parked.
func (s *System) anyAwake() bool {
	for _, d := range s.dispatchers {
		if d.side != nil {
			d.side.mu.Lock()
			n := len(d.side.mu.inTurn)
			d.side.mu.Unlock()
			if n > 0 {
				return true
			}
		} else if int(d.parked.Load()) < len(d.ws) {
			return true
		}
	}
	return false
}

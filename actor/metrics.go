package actor

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// DispatcherStats says how one dispatcher fares. What counts up is since the
// System was made, or between two readings after Since; peaks are of the last 10
// to 20 seconds.
type DispatcherStats struct {
	Name    string
	Kind    Kind
	Workers int // goroutines at most; 0 if others provide them (Calling, Custom)

	Busy   int // workers in a turn now
	Queued int // actors that wait for a worker now

	Elapsed  time.Duration // of the reading
	Turns    uint64
	Messages uint64        // handled; may lag by 256 turns a worker while it is busy
	BusyTime time.Duration // in turns, summed over workers; in a shared pool by 50 looks a second

	TurnTime time.Duration // mean of the timed turns (every 256th in a shared pool), since the System was made
	MaxTurn  time.Duration // longest of the timed turns, and of those that held a worker past HoldLimit
	MaxWait  time.Duration // longest time from runnable to running; sampled in a shared pool
	WaitNow  time.Duration // how long one that waits now has waited at least
}

// Since returns the counters from an earlier reading on.
func (d DispatcherStats) Since(earlier DispatcherStats) DispatcherStats {
	d.Elapsed -= earlier.Elapsed
	d.Turns -= earlier.Turns
	d.Messages -= earlier.Messages
	d.BusyTime -= earlier.BusyTime
	return d
}

// Utilisation is the busy share of the workers: the sum over all actors of
// arrival rate × service time, divided by the workers. Work piles up without end
// at 1. It is 0 where others provide the workers.
func (d DispatcherStats) Utilisation() float64 {
	if d.Workers == 0 || d.Elapsed <= 0 {
		return 0
	}
	return float64(d.BusyTime) / (float64(d.Workers) * float64(d.Elapsed))
}

// Dispatchers returns the statistics of every dispatcher, by name.
func (s *System) Dispatchers() []DispatcherStats {
	var all []DispatcherStats
	for _, name := range slices.Sorted(maps.Keys(s.dispatchers)) {
		all = append(all, s.dispatchers[name].stats())
	}
	return all
}

func (d *dispatcher) stats() DispatcherStats {
	now := d.now()
	st := DispatcherStats{
		Name: d.name, Kind: d.kind, Workers: d.limit, Elapsed: now,
		MaxTurn: d.turnPeak.last(now), MaxWait: d.waitPeak.last(now),
	}
	if d.side != nil {
		d.side.stats(now, &st)
		return st
	}
	st.BusyTime = time.Duration(d.seenBusy.Load())
	if n := d.sampled.turns.Load(); n > 0 {
		st.TurnTime = time.Duration(d.sampled.nanos.Load() / n)
	}
	d.lockQueues()
	defer d.unlockQueues()
	for _, w := range d.ws {
		st.Turns += w.turns
		st.Messages += w.told.Load()
		if w.busyLocked() {
			st.Busy++
		}
		n := int(w.n.Load())
		st.Queued += n
		if n > 0 && w.mu.mark != 0 {
			st.WaitNow = max(st.WaitNow, now-w.mu.markAt)
		}
	}
	st.MaxWait = max(st.MaxWait, st.WaitNow)
	return st
}

func (s *side) stats(now time.Duration, st *DispatcherStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Turns, st.Messages, st.BusyTime = s.mu.turns, s.mu.handled, s.mu.busy
	if st.Turns > 0 {
		st.TurnTime = st.BusyTime / time.Duration(st.Turns)
	}
	st.Busy, st.Queued = len(s.mu.inTurn), s.mu.queue.len()
	for w := range s.mu.inTurn {
		st.BusyTime += max(now-w.tookAt, 0)
	}
	if st.Queued > 0 {
		st.WaitNow = now - s.mu.queue.all[s.mu.queue.head].at
		st.MaxWait = max(st.MaxWait, st.WaitNow)
	}
}

// peakSpan is one of the two spans of which a peak is kept.
const peakSpan = 10 * time.Second

// peak is the largest of the values that were noted in the present span and the
// one before.
type peak struct {
	mu        sync.Mutex
	span      time.Duration // number of the present span
	cur, prev time.Duration
}

func (p *peak) note(now, v time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moveLocked(now)
	p.cur = max(p.cur, v)
}

func (p *peak) last(now time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moveLocked(now)
	return max(p.cur, p.prev)
}

func (p *peak) moveLocked(now time.Duration) {
	switch span := now / peakSpan; {
	case span > p.span+1:
		p.span, p.cur, p.prev = span, 0, 0
	case span == p.span+1:
		p.span, p.prev, p.cur = span, p.cur, 0
	}
}

// ActorLoad is how much of one worker an actor takes.
type ActorLoad struct {
	Path       string
	Dispatcher string
	Load       float64 // arrival rate × service time: the share of time in its turns; the limit is 1
	Waiting    int     // messages in its mailbox that count against its bound
}

// Hottest returns the n actors that took most time of their workers in the last
// 10 to 20 seconds, hottest first. It is found by looking at all workers some 50
// times a second, so that messages cost nothing for it: a load below 0.01 is
// rough.
func (s *System) Hottest(n int) []ActorLoad {
	times, span := s.dog.times()
	var all []ActorLoad
	for c, t := range times {
		c.mu.Lock()
		waiting := int(c.waiting)
		c.mu.Unlock()
		all = append(all, ActorLoad{
			Path: c.path(), Dispatcher: c.spec.disp.name, Waiting: waiting,
			Load: min(float64(t)/float64(max(span, 1)), 1),
		})
	}
	slices.SortFunc(all, func(a, b ActorLoad) int {
		return cmp.Or(cmp.Compare(b.Load, a.Load), cmp.Compare(a.Path, b.Path))
	})
	return all[:min(max(n, 0), len(all))]
}

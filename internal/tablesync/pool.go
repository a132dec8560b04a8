package tablesync

import (
	"context"
	"sync"
)

// The dispatch state of a lane: what an actor's mailbox does for messages. Each
// transition is a method here.
const (
	laneIdle    int32 = iota // nothing to do, or nobody has looked
	laneQueued               // in the pool's queue
	laneRunning              // a worker has it
	laneAgain                // a worker has it and it became ready meanwhile
)

// pool is a target's apply workers and the lanes that are ready for them. One
// worker takes up to lanesPerStep lanes of one fence into one transaction.
type pool struct {
	mu    sync.Mutex
	queue []*tableLane
	wake  chan struct{} // one token per waiting worker at most
}

// lanesPerStep is how many small lanes share a transaction: about 50 was best in
// measurements on MariaDB.
const lanesPerStep = 50

func newPool(workers int) *pool { return &pool{wake: make(chan struct{}, workers)} }

// schedule makes a ready lane known; it is safe to call for a lane in any state.
func (p *pool) schedule(t *tableLane) {
	for {
		switch s := t.sched.Load(); s {
		case laneIdle:
			if t.sched.CompareAndSwap(laneIdle, laneQueued) {
				p.push(t)
				return
			}
		case laneRunning:
			if t.sched.CompareAndSwap(laneRunning, laneAgain) {
				return
			}
		default:
			return
		}
	}
}

func (p *pool) push(t *tableLane) {
	p.mu.Lock()
	p.queue = append(p.queue, t)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take returns lanes that may share a transaction, in the order they became
// ready; nil when the queue is empty.
func (p *pool) take() []*tableLane {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return nil
	}
	n := 1
	for n < len(p.queue) && n < lanesPerStep && p.queue[n].cap == p.queue[0].cap {
		n++
	}
	lanes := append([]*tableLane(nil), p.queue[:n]...)
	if p.queue = p.queue[n:]; len(p.queue) == 0 {
		p.queue = nil
	} else {
		select { // more is left: another worker may go on
		case p.wake <- struct{}{}:
		default:
		}
	}
	for _, t := range lanes {
		t.sched.Store(laneRunning)
	}
	return lanes
}

// done ends a worker's hold of a lane.
func (p *pool) done(t *tableLane) {
	if t.sched.CompareAndSwap(laneRunning, laneIdle) {
		return
	}
	t.sched.Store(laneQueued)
	p.push(t)
}

// run is one worker: it waits for ready lanes and gives them to step.
func (p *pool) run(ctx context.Context, step func(context.Context, []*tableLane)) {
	for {
		lanes := p.take()
		if lanes == nil {
			select {
			case <-p.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() == nil {
			step(ctx, lanes)
		}
		for _, t := range lanes {
			p.done(t)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

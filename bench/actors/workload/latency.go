package workload

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	floodDepth  = 1000                   // messages that wait for the flooded actor
	everyActor  = 100 * time.Millisecond // each other actor gets a message this often
	latencyTick = time.Millisecond
)

// latency is how long messages are on their way to 9,999 actors with little to
// do, beside one that always has floodDepth messages to handle of workTime each.
func (r *runner[R]) latency() ([]Sample, error) {
	hot, err := r.peer.Spawn("hot")
	if err != nil {
		return nil, err
	}
	refs, err := r.spawnN("a", r.crowd(10_000)-1)
	if err != nil {
		return nil, err
	}
	f := &flood[R]{peer: r.peer, hot: hot}
	stop := f.start(r.ctx)
	defer stop()
	if _, err := r.drizzle(refs, 500*time.Millisecond); err != nil {
		return nil, fmt.Errorf("warm up: %w", err)
	}
	d := time.Duration(r.scale * float64(2*time.Second))
	handled, start := f.handled(), time.Now()
	times, err := r.drizzle(refs, max(200*time.Millisecond, d))
	if err != nil {
		return nil, err
	}
	hotRate := float64(f.handled()-handled) / time.Since(start).Seconds()
	stop()
	if err := f.err; err != nil {
		return nil, fmt.Errorf("flood: %w", err)
	}
	if possible := float64(time.Second / workTime); hotRate < possible/20 {
		return nil, fmt.Errorf("flooded actor handled %.0f messages/s of %.0f possible: it was starved, or nothing flooded it", hotRate, possible)
	}
	return append(percentiles(times),
		Sample{hotRate, "messages/s of the flooded actor"},
		Sample{float64(len(times)), "messages"}), nil
}

// drizzle sends each of refs a message per everyActor for d and returns the time
// that each message took.
func (r *runner[R]) drizzle(refs []R, d time.Duration) ([]time.Duration, error) {
	total := int(d * time.Duration(len(refs)) / everyActor)
	messages := make([]Message[R], total)
	g := newGate(total, 0)
	tick := time.NewTicker(latencyTick)
	defer tick.Stop()
	sent, start := 0, time.Now()
	for sent < total {
		for due := min(total, int(time.Since(start)*time.Duration(len(refs))/everyActor)); sent < due; sent++ {
			m := &messages[sent]
			*m = Message[R]{kind: stamp, gate: g, sent: time.Since(epoch)}
			if err := r.peer.Tell(refs[sent%len(refs)], m); err != nil {
				return nil, err
			}
		}
		<-tick.C
	}
	if err := g.wait(r.ctx); err != nil {
		return nil, err
	}
	times := make([]time.Duration, total)
	for i := range messages {
		times[i] = messages[i].took
	}
	return times, nil
}

// flood keeps messages waiting for one actor.
type flood[R any] struct {
	peer   Peer[R]
	hot    R
	sent   atomic.Int64
	queued atomic.Int64
	err    error // set before the function of start returns
}

func (f *flood[R]) handled() int64 { return f.sent.Load() - f.queued.Load() }

// start begins to flood and returns what ends it.
func (f *flood[R]) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		m := &Message[R]{kind: work, queued: &f.queued}
		tick := time.NewTicker(latencyTick)
		defer tick.Stop()
		for {
			for f.queued.Load() < floodDepth && ctx.Err() == nil {
				f.queued.Add(1)
				f.sent.Add(1)
				if f.err = f.peer.Tell(f.hot, m); f.err != nil {
					return
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

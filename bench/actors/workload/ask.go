package workload

import (
	"fmt"
	"sync/atomic"
	"time"
)

// ask is 64 askers that ask 1,000 actors, each one question at a time.
func (r *runner[R]) ask() ([]Sample, error) {
	const askers = 64
	refs, err := r.spawnN("a", r.crowd(1000))
	if err != nil {
		return nil, err
	}
	per := r.scaled(1_000_000, 50*askers) / askers
	times := make([]time.Duration, askers*per)
	if err := r.interview(refs, askers, max(1, per/10), times); err != nil {
		return nil, err
	}
	samples, err := rate(askers*per, "ask", func() error { return r.interview(refs, askers, per, times) })
	if err != nil {
		return nil, err
	}
	return append(samples, percentiles(times)...), nil
}

// interview lets each asker ask per questions and notes in times how long each took.
func (r *runner[R]) interview(refs []R, askers, per int, times []time.Duration) error {
	var failure atomic.Pointer[error]
	var answered atomic.Int64
	err := r.peer.Askers(askers, func(i int, ask Ask[R]) {
		n, err := r.questions(refs, i, per, ask, times[i*per:(i+1)*per])
		answered.Add(int64(n))
		if err != nil {
			failure.CompareAndSwap(nil, &err)
		}
	})
	if err != nil {
		return err
	}
	if err := failure.Load(); err != nil {
		return *err
	}
	if got, want := answered.Load(), int64(askers*per); got != want {
		return fmt.Errorf("%d questions answered, want %d", got, want)
	}
	return nil
}

// questions is the loop of asker i.
func (r *runner[R]) questions(refs []R, i, per int, put Ask[R], times []time.Duration) (answered int, err error) {
	m := &Message[R]{kind: ask}
	for k := range per {
		m.in, m.out = int64(i*per+k), 0
		start := time.Now()
		got, err := put(refs[(i*997+k*31)%len(refs)], m)
		if err != nil {
			return answered, fmt.Errorf("ask: %w", err)
		}
		times[k] = time.Since(start)
		if got != m || got.out != answer(m.in) {
			return answered, fmt.Errorf("asker %d: answer to question %d is wrong", i, k)
		}
		answered++
	}
	return answered, nil
}

package workload

import (
	"fmt"
	"runtime"
	"strconv"
	"time"
)

// population is how many actors there are in the cases about many of them.
func (r *runner[R]) population() int {
	n := r.scaled(1_000_000, 100)
	if l, ok := r.peer.(Limited); ok {
		n = min(n, l.MaxActors())
	}
	return n
}

// memory is what actors cost that have handled one message and are idle.
func (r *runner[R]) memory() ([]Sample, error) {
	n := r.population()
	refs := make([]R, n) // not counted
	warm, err := r.spawnN("warm", 1)
	if err != nil {
		return nil, err
	}
	if err := r.deal(warm, 1, 1); err != nil {
		return nil, err
	}
	before, err := settle(r.ctx)
	if err != nil {
		return nil, err
	}
	for i := range refs {
		if refs[i], err = r.peer.Spawn("table-" + strconv.Itoa(i)); err != nil {
			return nil, fmt.Errorf("spawn table-%d: %w", i, err)
		}
	}
	if err := r.deal(refs, 1, 1); err != nil {
		return nil, err
	}
	after, err := settle(r.ctx)
	if err != nil {
		return nil, err
	}
	err = r.checkNames(n)
	runtime.KeepAlive(refs)
	runtime.KeepAlive(r.peer)
	each := func(a, b float64) float64 { return (b - a) / float64(n) }
	return []Sample{
		{each(before.heap, after.heap), "heap B/actor"},
		{each(before.stack, after.stack), "stack B/actor"},
		{each(before.rss, after.rss), "resident B/actor"},
		{each(float64(before.goroutines), float64(after.goroutines)), "goroutines/actor"},
		{float64(n), "actors"},
	}, err
}

// checkNames finds some of n actors by name and asks them who they are.
func (r *runner[R]) checkNames(n int) error {
	step := max(1, n/100)
	for i := 0; i < n; i += step {
		name := "table-" + strconv.Itoa(i)
		m := &Message[R]{kind: identify, gate: newGate(1, 0)}
		if err := r.peer.TellName(name, m); err != nil {
			return fmt.Errorf("send to %s: %w", name, err)
		}
		if err := m.gate.wait(r.ctx); err != nil {
			return fmt.Errorf("send to %s: %w", name, err)
		}
		if m.id != name {
			return fmt.Errorf("actor %s says that it is %q", name, m.id)
		}
	}
	return nil
}

// spawn is how fast actors are made by one goroutine, up to the moment when the
// last of them has started: some runtimes start an actor before Spawn returns,
// others after.
func (r *runner[R]) spawn() ([]Sample, error) {
	n := r.population()
	names := make([]string, n)
	for i := range names {
		names[i] = "table-" + strconv.Itoa(i)
	}
	refs := make([]R, n)
	warm := newGate(100, 0)
	begun.Store(warm)
	if _, err := r.spawnN("warm", 100); err != nil {
		return nil, err
	}
	if err := warm.wait(r.ctx); err != nil {
		return nil, err
	}
	runtime.GC()
	g := newGate(n, 0)
	begun.Store(g)
	start := time.Now()
	for i, name := range names {
		var err error
		if refs[i], err = r.peer.Spawn(name); err != nil {
			return nil, fmt.Errorf("spawn %s: %w", name, err)
		}
	}
	called := time.Since(start)
	if err := g.wait(r.ctx); err != nil {
		return nil, err
	}
	took := time.Since(start)
	begun.Store(nil)
	if err := r.checkNames(n); err != nil {
		return nil, err
	}
	runtime.KeepAlive(refs)
	return []Sample{
		{float64(n) / took.Seconds(), "actors/s"},
		{float64(n) / called.Seconds(), "spawn calls/s"},
		{float64(n), "actors"},
	}, nil
}

package actortest

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/runnel-dev/runnel/actor"
)

// Stepper is a dispatcher whose turns the test runs by hand:
//
//	st := actortest.NewStepper()
//	sys := actortest.New(t, actor.Config{Dispatchers: map[string]actor.Dispatcher{
//		"steps": {Executor: st, Throughput: 1},
//	}})
//
// With Throughput 1 a step is at most one message. Use one Stepper for one
// dispatcher. Its methods may be called from any goroutine.
type Stepper struct {
	mu    sync.Mutex
	turns []actor.Turn // runnable, oldest first; one for each actor
	free  bool
}

// NewStepper returns a Stepper that nothing runs for.
func NewStepper() *Stepper { return &Stepper{} }

// Execute keeps t until a step runs it; once freed, it runs it at once on a
// goroutine of its own.
func (s *Stepper) Execute(t actor.Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free {
		go t.Run()
		return
	}
	s.turns = append(s.turns, t)
}

// Pending returns the paths of the actors that wait for a turn, oldest first.
func (s *Stepper) Pending() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	paths := make([]string, len(s.turns))
	for i, t := range s.turns {
		paths[i] = t.Actor().Path()
	}
	return paths
}

// Step runs the oldest turn on the calling goroutine and reports whether there
// was one.
func (s *Stepper) Step() bool {
	return s.run(func([]actor.Turn) int { return 0 })
}

// StepOf runs the turn of one actor, if it waits for one.
func (s *Stepper) StepOf(a actor.Addressable) bool {
	return s.run(func(ts []actor.Turn) int {
		return slices.IndexFunc(ts, func(t actor.Turn) bool { return t.Actor() == a.Addr() })
	})
}

// StepAny runs a turn that r chooses.
func (s *Stepper) StepAny(r *rand.Rand) bool {
	return s.run(func(ts []actor.Turn) int { return r.IntN(len(ts)) })
}

// Run takes steps until no actor waits, limit of them at most, and returns how many.
func (s *Stepper) Run(limit int) int {
	n := 0
	for n < limit && s.Step() {
		n++
	}
	return n
}

// Free runs all turns, those that wait and those to come, on goroutines from now on.
func (s *Stepper) Free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = true
	for _, t := range s.turns {
		go t.Run()
	}
	s.turns = nil
}

// run runs the turn that choose names by its index, if there is one.
func (s *Stepper) run(choose func([]actor.Turn) int) bool {
	s.mu.Lock()
	i := -1
	if len(s.turns) > 0 {
		i = choose(s.turns)
	}
	if i < 0 {
		s.mu.Unlock()
		return false
	}
	t := s.turns[i]
	s.turns = slices.Delete(s.turns, i, i+1)
	s.mu.Unlock()
	t.Run()
	return true
}

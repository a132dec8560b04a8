package workload

import (
	"sync"
	"time"
)

// AskTimeout is the deadline of each ask, where a case demands one or the
// runtime knows no ask without.
const AskTimeout = 10 * time.Second

// Peer adapts one runtime. R is its own reference to an actor.
type Peer[R any] interface {
	// Spawn makes an actor with a State under a name. It is called from one
	// goroutine at a time.
	Spawn(name string) (R, error)
	// Tell sends from outside of any actor, from any goroutine.
	Tell(to R, m *Message[R]) error
	// TellName sends to the actor that was spawned under name.
	TellName(name string, m *Message[R]) error
	// Askers runs loop for 0 to n-1 at the same time, each with its own Ask, and
	// returns when all have returned.
	Askers(n int, loop func(i int, ask Ask[R])) error
}

// Ask sends m, waits for the answer and returns it.
type Ask[R any] func(to R, m *Message[R]) (*Message[R], error)

// Limited is a Peer that cannot hold as many actors as the rest.
type Limited interface{ MaxActors() int }

// Env is what a case says to the peer it is about to run on.
type Env struct {
	// Crowd: there will be very many actors with a few messages each. A runtime
	// that can be told to keep mailboxes small may do so.
	Crowd bool
	// AskDeadline: each ask has a deadline of its own.
	AskDeadline bool
}

// GoAskers is Askers for a runtime whose ask may be called from any goroutine.
func GoAskers[R any](n int, loop func(i int, ask Ask[R]), open func() (Ask[R], func())) error {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ask, done := open()
			defer done()
			loop(i, ask)
		})
	}
	wg.Wait()
	return nil
}

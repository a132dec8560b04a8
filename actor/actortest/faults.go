package actortest

import (
	"sync"

	"github.com/runnel-dev/runnel/actor"
)

// Faults makes handlers go wrong. Give its Before to the Config:
//
//	var f actortest.Faults
//	sys := actortest.New(t, actor.Config{Before: f.Before})
//	f.Fail("/user/orders", 1, io.ErrUnexpectedEOF)
//
// The zero value is usable, from any goroutine.
type Faults struct {
	mu    sync.Mutex
	rules []*Rule
}

// Rule is a fault in waiting.
type Rule struct {
	Path  string           // of the actor; "" is any
	Match func(m any) bool // which calls: of a message, an actor.Signal, or nil for Setup; nil means messages only
	Skip  int              // how many of them pass before
	Count int              // how many of them it meets; 0 means 1
	Do    func(m any) error
}

// Add puts a rule in force after those that are. A call meets the first that
// matches it and is not used up.
func (f *Faults) Add(r Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.Count = max(r.Count, 1)
	f.rules = append(f.rules, &r)
}

// Fail makes the next n messages of the actor fail with err.
func (f *Faults) Fail(path string, n int, err error) {
	f.Add(Rule{Path: path, Count: n, Do: func(any) error { return err }})
}

// FailSetup makes the next n setups of the actor fail with err.
func (f *Faults) FailSetup(path string, n int, err error) {
	f.Add(Rule{Path: path, Count: n, Match: func(m any) bool { return m == nil }, Do: func(any) error { return err }})
}

// Panic makes the next n messages of the actor panic with v.
func (f *Faults) Panic(path string, n int, v any) {
	f.Add(Rule{Path: path, Count: n, Do: func(any) error {
		panic(v) // invariant: the test asks for it, and the turn makes it a failure of the actor
	}})
}

// Drop loses the next n messages of the actor, as dead letters with
// actor.ReasonDropped.
func (f *Faults) Drop(path string, n int) {
	f.Add(Rule{Path: path, Count: n, Do: func(any) error { return actor.ErrDropped }})
}

// Hold makes the handler of the actor's next message block, and with it its
// worker, until release is called; entered is closed when it does. The message is
// then handled.
func (f *Faults) Hold(path string) (entered <-chan struct{}, release func()) {
	in, out := make(chan struct{}), make(chan struct{})
	f.Add(Rule{Path: path, Do: func(any) error {
		close(in)
		<-out
		return nil
	}})
	return in, sync.OnceFunc(func() { close(out) })
}

// Before is what Config.Before calls.
func (f *Faults) Before(a actor.Addr, m any) error {
	if r := f.take(a.Path(), m); r != nil {
		return r.Do(m)
	}
	return nil
}

func (f *Faults) take(path string, m any) *Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rules {
		if r.Count == 0 || r.Path != "" && r.Path != path || !r.matches(m) {
			continue
		}
		if r.Skip > 0 {
			r.Skip--
			continue
		}
		r.Count--
		return r
	}
	return nil
}

func (r *Rule) matches(m any) bool {
	if r.Match != nil {
		return r.Match(m)
	}
	_, signal := m.(actor.Signal)
	return m != nil && !signal
}

package actor

import (
	"fmt"
	"sync"
)

// Extension is a facility of which each System has one, made when it is first
// asked for. Declare it as a package variable:
//
//	var Clock = actor.NewExtension("clock", func(s *actor.System) (*clock, error) { … })
//	c, err := Clock.Get(sys)
//
// It may be used from any goroutine.
type Extension[T any] struct {
	name string
	make func(*System) (T, error)
}

// NewExtension declares an extension. make runs at most once at a time for each
// System and, once it has succeeded, never again. It may spawn actors, register
// tasks by OnShutdown and use other extensions, but not in a circle.
func NewExtension[T any](name string, make func(*System) (T, error)) *Extension[T] {
	return &Extension[T]{name, make}
}

// Get returns s's instance. Callers that come while it is made wait for it; an
// error of make is returned, and the next Get tries again.
func (x *Extension[T]) Get(s *System) (T, error) {
	got, _ := s.extensions.LoadOrStore(x, &instance[T]{})
	in, _ := got.(*instance[T]) // only x stores under x
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.made {
		return in.value, nil
	}
	v, err := x.make(s)
	if err != nil {
		var zero T
		return zero, fmt.Errorf("make extension %s: %w", x.name, err)
	}
	in.value, in.made = v, true
	return v, nil
}

type instance[T any] struct {
	mu    sync.Mutex
	made  bool
	value T
}

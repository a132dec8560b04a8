package actor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
)

// Attribute keys of log records.
const (
	keySystem    = "system"
	keyActors    = "actors"
	keyPath      = "actor"
	keyError     = "error"
	keyDirective = "directive"
	keyAttempt   = "attempt"
	keyDelay     = "delay"
	keyStack     = "stack"
)

// System is one process's actor runtime: dispatchers, timers, a blocking pool,
// an event stream and a hierarchy of actors under /user and /system. All methods
// may be called from any goroutine.
type System struct {
	cfg         Config
	log         *slog.Logger
	ctx         context.Context // above all that runs for actors outside them
	cancel      context.CancelCauseFunc
	dispatchers map[string]*dispatcher
	timers      *timers
	blocking    *blocking
	events      stream
	futures     sync.Pool

	root, user, internal *cell // /, /user, /system

	specs struct {
		mu sync.Mutex
		m  map[Props]*spec
	}

	actors   atomic.Int64
	spawned  atomic.Uint64
	failures atomic.Uint64
	dropped  [numReasons]atomic.Uint64
	dead     atomic.Bool // Shutdown is past the actors: nothing runs any more

	shutdown struct {
		begun atomic.Bool
		done  chan struct{} // closed when the first Shutdown returns
		err   error
	}
}

// New starts a System. It reports every fault of c at once.
func New(c Config) (*System, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &System{
		cfg:         c,
		log:         c.Logger.With(keySystem, c.Name),
		dispatchers: map[string]*dispatcher{},
		timers:      newTimers(),
		blocking:    &blocking{limit: c.Blocking.Workers, room: c.Blocking.Queue},
	}
	s.ctx, s.cancel = context.WithCancelCause(root{})
	s.futures.New = func() any { return &future{sys: s, done: make(chan struct{}, 1)} }
	s.specs.m = map[Props]*spec{}
	s.shutdown.done = make(chan struct{})
	for name, d := range c.Dispatchers {
		s.dispatchers[name] = newDispatcher(name, d)
	}
	sp := &spec{sys: s, disp: s.dispatchers[SystemDispatcher], mb: c.Mailbox, sup: c.Supervision}
	guard := func(parent *cell, name string) *cell {
		g := &cell{parent: parent, name: name, spec: sp, core: guardian{}, life: running}
		if parent != nil {
			parent.linksLocked().kids = addKid(parent.links.kids, g) // nobody else sees it yet
		}
		return g
	}
	s.root = guard(nil, "")
	s.user, s.internal = guard(s.root, "user"), guard(s.root, "system")
	return s, nil
}

func addKid(kids map[string]*cell, k *cell) map[string]*cell {
	if kids == nil {
		kids = map[string]*cell{}
	}
	kids[k.name] = k
	return kids
}

func (s *System) spawner() (*cell, *worker) { return s.user, nil }

// Internal is the Spawner of actors under /system. They stop after those under
// /user and run on SystemDispatcher unless their Props say otherwise.
func (s *System) Internal() Spawner { return place{s.internal} }

type place struct{ c *cell }

func (p place) spawner() (*cell, *worker) { return p.c, nil }

// Stats are counters of a System; each is exact, the set is not one instant.
type Stats struct {
	Actors          int64             // alive, guardians not counted
	Spawned         uint64            // ever, refused ones included
	Failures        uint64            // of handlers, ever
	DeadLetters     map[Reason]uint64 // ever, by reason; every reason is present
	Timers          int               // pending
	BlockingRunning int               // functions of the blocking pool that run
	BlockingQueued  int               // functions that wait for a worker
}

// Stats returns the counters.
func (s *System) Stats() Stats {
	st := Stats{
		Actors: s.actors.Load(), Spawned: s.spawned.Load(), Failures: s.failures.Load(),
		DeadLetters: map[Reason]uint64{}, Timers: s.timers.len(),
	}
	for r := range s.dropped {
		st.DeadLetters[Reason(r)] = s.dropped[r].Load()
	}
	st.BlockingRunning, st.BlockingQueued = s.blocking.counts()
	return st
}

// Shutdown stops all actors, children before parents and /user before /system,
// then the blocking pool, timers, dispatchers and subscriptions, and returns
// when every goroutine of the System has ended. Spawn and Tell fail with
// ErrStopped from the moment that their actor's parent stops.
//
// If ctx ends first, Shutdown cancels the contexts of all running functions,
// lets the goroutines end as soon as their handlers return, and returns an
// error with the cause of ctx and the actors that remain. A second call waits
// for the first. Do not call it from a handler: it would wait for itself.
func (s *System) Shutdown(ctx context.Context) error {
	if s.shutdown.begun.Swap(true) {
		select {
		case <-s.shutdown.done:
			return s.shutdown.err
		case <-ctx.Done():
			return fmt.Errorf("await shutdown: %w", context.Cause(ctx))
		}
	}
	s.log.Info("actor system stops", keyActors, s.actors.Load())
	err := s.stopActors(ctx)
	s.dead.Store(true)
	s.cancel(ErrStopped)
	poolIdle := s.blocking.close()
	close(s.timers.quit)
	for _, d := range s.dispatchers {
		d.stop()
	}
	if err == nil {
		err = s.stopGoroutines(ctx, poolIdle)
	}
	s.events.close()
	s.shutdown.err = err
	close(s.shutdown.done)
	return err
}

// stopActors stops the guardians one after the other.
func (s *System) stopActors(ctx context.Context) error {
	for _, g := range []*cell{s.user, s.internal, s.root} {
		g.stop()
		if err := (Addr{g}).Await(ctx); err != nil {
			return fmt.Errorf("shut down with %d actors left, first %s: %w", s.actors.Load(), g.deepest().path(), err)
		}
	}
	return nil
}

// stopGoroutines waits for what was told to end.
func (s *System) stopGoroutines(ctx context.Context, poolIdle <-chan struct{}) error {
	wait := func(what string, c <-chan struct{}) error {
		select {
		case <-c:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("shut down, %s still running: %w", what, context.Cause(ctx))
		}
	}
	errs := []error{wait("functions of the blocking pool", poolIdle), wait("timers", s.timers.ended)}
	for name, d := range s.dispatchers {
		errs = append(errs, wait("dispatcher "+name, d.ended))
	}
	return errors.Join(errs...)
}

// deepest follows first children down: an actor that the others wait for.
func (c *cell) deepest() *cell {
	for {
		var kid *cell
		c.mu.Lock()
		if c.links != nil {
			for _, k := range c.links.kids {
				kid = k
				break
			}
		}
		c.mu.Unlock()
		if kid == nil {
			return c
		}
		c = kid
	}
}

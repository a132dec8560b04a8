package actor

import (
	"context"
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

	keyDispatcher = "dispatcher"
	keyReceiver   = "receiver"
	keyFor        = "for"
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

	suspensions atomic.Int64
	onGoroutine sync.Map // of goroutine numbers to the *worker that runs there
	extensions  sync.Map // of *Extension[T] to *instance[T]
	dog         *dog
	shutdown    shutdown
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
	s.shutdown.mu.left = map[string][]*task{}
	for _, p := range c.Phases {
		s.shutdown.mu.left[p.Name] = nil
	}
	s.dog = newDog()
	for name, d := range c.Dispatchers {
		s.dispatchers[name] = s.newDispatcher(name, d)
	}
	go s.dog.run(s)
	for _, d := range s.dispatchers {
		d.start()
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
	Suspended       int               // actors that wait until receivers have room
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
	st.Suspended = int(s.suspensions.Load())
	st.BlockingRunning, st.BlockingQueued = s.blocking.counts()
	return st
}

package actor

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/runnel-dev/runnel/retry"
)

// Names of the dispatchers that every System has. Config.Dispatchers may set
// their sizes.
const (
	DefaultDispatcher = "default" // actors whose Props name no dispatcher
	SystemDispatcher  = "system"  // guardians; a handler that blocks here delays every stop
)

// Config sizes a System. The zero value is usable.
type Config struct {
	Name        string                // shown in logs; "" means "runnel"
	Logger      *slog.Logger          // nil discards
	Dispatchers map[string]Dispatcher // worker pools by name; DefaultDispatcher and SystemDispatcher are added if absent
	Blocking    Blocking              // pool that runs PipeToSelf functions
	Mailbox     Mailbox               // for Props whose Mailbox is zero; zero means 1024, Reject
	Supervision Supervision           // for Props whose Supervision is zero
}

// Dispatcher sizes one worker pool.
type Dispatcher struct {
	Workers      int           // goroutines; 0 means GOMAXPROCS (1 for the system dispatcher)
	Throughput   int           // messages a turn; 0 means 5, at most 1024
	TurnDeadline time.Duration // a turn takes no further message after this; 0 means 5 ms
}

// Blocking bounds the pool for functions that wait. Its goroutines exist only
// while functions run.
type Blocking struct {
	Workers int // functions at the same time; 0 means 64
	Queue   int // functions that wait for a worker, in all; 0 means 4096
}

// Unbounded as Mailbox.Capacity sets no bound; memory is then the only one.
const Unbounded = -1

// Mailbox bounds the messages that wait for one actor. Signals, timers and piped
// results are not counted and never dropped: the actor itself asked for each.
// Messages that a running turn has taken no longer wait.
type Mailbox struct {
	Capacity int      // messages; 0 means 1024, Unbounded means no bound
	Overflow Overflow // what happens to a message that finds the mailbox full
}

// Overflow says which message loses when a bounded mailbox is full. The loser
// is always counted and published as a DeadLetter, and if it was an Ask, that
// Ask returns ErrMailboxFull.
type Overflow uint8

const (
	Reject     Overflow = iota // the new message; Tell returns ErrMailboxFull
	DropNewest                 // the new message; Tell returns nil
	DropOldest                 // the one that waits longest; the new one is taken
)

// String returns the lower-case name.
func (o Overflow) String() string {
	switch o {
	case Reject:
		return "reject"
	case DropNewest:
		return "drop-newest"
	case DropOldest:
		return "drop-oldest"
	}
	return fmt.Sprintf("overflow(%d)", uint8(o))
}

// Directive says what happens to an actor whose handler failed.
type Directive uint8

const (
	Default Directive = iota // the default of the field that holds it
	Restart                  // new behavior from Setup after the backoff; the mailbox is kept, children are stopped
	Resume                   // keep the behavior, go on with the next message
	Stop                     // stop the actor
)

// String returns the lower-case name.
func (d Directive) String() string {
	switch d {
	case Default:
		return "default"
	case Restart:
		return "restart"
	case Resume:
		return "resume"
	case Stop:
		return "stop"
	}
	return fmt.Sprintf("directive(%d)", uint8(d))
}

// Supervision says what follows a failure of an actor, by class of failure. The
// zero value of every field is a usable default.
type Supervision struct {
	OnError     Directive // returned error; Default means Restart
	OnPanic     Directive // panic; Default means Restart
	OnPermanent Directive // error marked by retry.Permanent; Default means Stop

	// Backoff spaces restarts and bounds them: after MaxAttempts restarts in a
	// row, or MaxElapsed, the actor stops. The zero Policy means 10 restarts
	// from 100 ms to 30 s with a fifth of jitter.
	Backoff retry.Policy
	// ResetAfter is how long an actor must run without failure for the count of
	// restarts to begin anew; 0 means 1 minute.
	ResetAfter time.Duration
}

// Props are the properties that an actor shares with others of its kind. Props
// are compared as values: actors with equal Props share one copy.
type Props struct {
	Dispatcher  string      // name in Config.Dispatchers; "" means DefaultDispatcher, SystemDispatcher under /system
	Mailbox     Mailbox     // zero means Config.Mailbox
	Supervision Supervision // zero means Config.Supervision
}

// withDefaults fills c; it does not change the caller's map.
func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, "runnel")
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	ds := maps.Clone(c.Dispatchers)
	if ds == nil {
		ds = map[string]Dispatcher{}
	}
	for _, name := range []string{DefaultDispatcher, SystemDispatcher} {
		ds[name] = ds[name] // present, zero if the caller said nothing
	}
	for name, d := range ds {
		workers := runtime.GOMAXPROCS(0)
		if name == SystemDispatcher {
			workers = 1
		}
		d.Workers = cmp.Or(d.Workers, workers)
		d.Throughput = cmp.Or(d.Throughput, 5)
		d.TurnDeadline = cmp.Or(d.TurnDeadline, 5*time.Millisecond)
		ds[name] = d
	}
	c.Dispatchers = ds
	c.Blocking.Workers = cmp.Or(c.Blocking.Workers, 64)
	c.Blocking.Queue = cmp.Or(c.Blocking.Queue, 4096)
	c.Mailbox.Capacity = cmp.Or(c.Mailbox.Capacity, 1024)
	c.Supervision = c.Supervision.withDefaults()
	return c
}

func (s Supervision) withDefaults() Supervision {
	s.OnError = cmp.Or(s.OnError, Restart)
	s.OnPanic = cmp.Or(s.OnPanic, Restart)
	s.OnPermanent = cmp.Or(s.OnPermanent, Stop)
	s.ResetAfter = cmp.Or(s.ResetAfter, time.Minute)
	if s.Backoff == (retry.Policy{}) {
		s.Backoff = retry.Policy{Initial: 100 * time.Millisecond, Max: 30 * time.Second, Multiplier: 2, Jitter: 0.2, MaxAttempts: 10}
	}
	return s
}

// validate reports every fault of a filled Config, joined.
func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("actor config: "+format, args...)) }
	for _, name := range slices.Sorted(maps.Keys(c.Dispatchers)) {
		d := c.Dispatchers[name]
		if name == "" {
			bad("a dispatcher has no name: give it one, Props refer to it")
		}
		if d.Workers < 1 || d.Workers > 1<<14 {
			bad("dispatcher %s: Workers is %d, set 1 to %d", name, d.Workers, 1<<14)
		}
		if d.Throughput < 1 || d.Throughput > maxThroughput {
			bad("dispatcher %s: Throughput is %d, set 1 to %d", name, d.Throughput, maxThroughput)
		}
		if d.TurnDeadline < 0 {
			bad("dispatcher %s: TurnDeadline is %v, set 0 or more", name, d.TurnDeadline)
		}
	}
	if c.Blocking.Workers < 1 {
		bad("Blocking.Workers is %d, set 1 or more", c.Blocking.Workers)
	}
	if c.Blocking.Queue < 1 {
		bad("Blocking.Queue is %d, set 1 or more", c.Blocking.Queue)
	}
	return errors.Join(append(errs, c.Mailbox.validate(), c.Supervision.validate())...)
}

func (m Mailbox) validate() error {
	var errs []error
	if m.Capacity < Unbounded {
		errs = append(errs, fmt.Errorf("mailbox: Capacity is %d, set 1 or more, or Unbounded", m.Capacity))
	}
	if m.Overflow > DropOldest {
		errs = append(errs, fmt.Errorf("mailbox: Overflow is %v, set Reject, DropNewest or DropOldest", m.Overflow))
	}
	return errors.Join(errs...)
}

func (s Supervision) validate() error {
	var errs []error
	for _, f := range []struct {
		name string
		d    Directive
	}{{"OnError", s.OnError}, {"OnPanic", s.OnPanic}, {"OnPermanent", s.OnPermanent}} {
		if f.d > Stop {
			errs = append(errs, fmt.Errorf("supervision: %s is %v, set Restart, Resume or Stop", f.name, f.d))
		}
	}
	if s.ResetAfter < 0 {
		errs = append(errs, fmt.Errorf("supervision: ResetAfter is %v, set 0 or more", s.ResetAfter))
	}
	return errors.Join(append(errs, s.Backoff.Validate())...)
}

// spec is what cells of equal Props in one System share; immutable.
type spec struct {
	sys  *System
	disp *dispatcher
	mb   Mailbox
	sup  Supervision
}

// maxInterned bounds the table of shared specs; past it each actor gets its own.
const maxInterned = 4096

// resolve checks p and returns its shared spec.
func (s *System) resolve(p Props) (*spec, error) {
	s.specs.mu.Lock()
	sp := s.specs.m[p]
	s.specs.mu.Unlock()
	if sp != nil {
		return sp, nil
	}
	d := s.dispatchers[cmp.Or(p.Dispatcher, DefaultDispatcher)]
	var err error
	if d == nil {
		err = fmt.Errorf("dispatcher %q is unknown: add it to Config.Dispatchers (known: %v)",
			p.Dispatcher, slices.Sorted(maps.Keys(s.dispatchers)))
	}
	sup := s.cfg.Supervision
	if p.Supervision != (Supervision{}) {
		sup = p.Supervision.withDefaults()
	}
	mb := s.cfg.Mailbox
	if p.Mailbox != (Mailbox{}) {
		mb = p.Mailbox
		mb.Capacity = cmp.Or(mb.Capacity, s.cfg.Mailbox.Capacity)
	}
	if err := errors.Join(err, mb.validate(), sup.validate()); err != nil {
		return nil, err
	}
	sp = &spec{sys: s, disp: d, mb: mb, sup: sup}
	s.specs.mu.Lock()
	defer s.specs.mu.Unlock()
	if old := s.specs.m[p]; old != nil {
		return old, nil
	}
	if len(s.specs.m) < maxInterned {
		s.specs.m[p] = sp
	}
	return sp, nil
}

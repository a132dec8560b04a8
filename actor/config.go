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
	Phases      []Phase               // of Shutdown, in order; empty means drain, stop, close
	Mailbox     Mailbox               // for Props whose Mailbox is zero; zero means 1024, Reject
	Supervision Supervision           // for Props whose Supervision is zero

	// Before, if set, is called before every Setup (m is nil), message and signal of
	// every actor, by its turn; for tests that inject faults. An error or panic of it
	// is the handler's, which does not run; ErrDropped loses a message instead. It
	// must be safe for concurrent use.
	Before func(a Addr, m any) error
}

// Kind says where a dispatcher's turns run.
type Kind uint8

const (
	Shared  Kind = iota // on Workers goroutines, which live as long as the System and steal from each other
	Elastic             // on goroutines that exist while there are turns, at most Workers; for handlers that wait
	Pinned              // each actor on a goroutine of its own, at most Workers actors; Spawn fails with ErrDispatcherFull beyond
	Calling             // on the goroutine that makes the actor runnable: its Spawn, Tell, timer; for tests
	Custom              // where Dispatcher.Executor runs them; set by it
)

// String returns the lower-case name.
func (k Kind) String() string {
	if k <= Custom {
		return [...]string{"shared", "elastic", "pinned", "calling", "custom"}[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Dispatcher configures where the turns of actors run. A handler that blocks
// holds what its turn runs on: give handlers that wait an elastic dispatcher of
// their own.
type Dispatcher struct {
	Kind         Kind          // zero means Shared
	Workers      int           // 0 means GOMAXPROCS (1 for the system dispatcher), 64 for Elastic and Pinned; unused by Calling and Custom
	Throughput   int           // messages a turn; 0 means 5, at most 1024
	TurnDeadline time.Duration // a turn takes no further message after this, or up to 3 more that are fast; 0 means 5 ms
	HoldLimit    time.Duration // a turn beyond it is reported as WorkerHeld; 0 means 1 s, 1 minute for Elastic and Pinned; negative never
	Executor     Executor      // makes the dispatcher Custom
}

func (d Dispatcher) kind() Kind {
	if d.Executor != nil {
		return Custom
	}
	return d.Kind
}

func (d Dispatcher) withDefaults(name string) Dispatcher {
	workers, hold := runtime.GOMAXPROCS(0), time.Second
	if name == SystemDispatcher {
		workers = 1
	}
	switch d.kind() {
	case Elastic, Pinned:
		workers, hold = 64, time.Minute
	case Calling, Custom:
		workers = 0
		d.Workers = 0
	}
	d.Workers = cmp.Or(d.Workers, workers)
	d.Throughput = cmp.Or(d.Throughput, 5)
	d.TurnDeadline = cmp.Or(d.TurnDeadline, 5*time.Millisecond)
	d.HoldLimit = cmp.Or(d.HoldLimit, hold)
	return d
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
	Capacity int           // messages; 0 means 1024, Unbounded means no bound
	Overflow Overflow      // what happens to a message that finds the mailbox full
	MaxBlock time.Duration // Block: how long a sender waits at most; 0 means 30 s
	Order    Order         // which message is first; zero means FIFO
}

// Order says which of the waiting messages is handled first. Stop, restart and
// the end of children precede them all. Timers, piped results and Terminated
// take their place by the message that they carry; a Terminated, and a piped
// result, whose message is not made yet, count as messages without rank.
type Order uint8

const (
	FIFO         Order = iota // the one that came first
	ByPriority                // the one with the highest Priority, see Prioritized; the first among equals; Terminated comes last
	ControlFirst              // the first that is a Control message, then FIFO
)

// String returns the lower-case name.
func (o Order) String() string {
	if o <= ControlFirst {
		return [...]string{"fifo", "by-priority", "control-first"}[o]
	}
	return fmt.Sprintf("order(%d)", uint8(o))
}

// Overflow says which message loses when a bounded mailbox is full. The loser
// is always counted and published as a DeadLetter, and if it was an Ask, that
// Ask returns ErrMailboxFull.
type Overflow uint8

const (
	Reject     Overflow = iota // the new message; Tell returns ErrMailboxFull
	DropNewest                 // the new message; Tell returns nil
	DropOldest                 // the one that waits longest, of the lowest rank; the new one is taken

	// Block makes the sender wait for room, MaxBlock at most. A goroutine waits in
	// Tell, which then returns ErrMailboxFull. An actor does not wait in its handler,
	// where it would hold a worker that the receiver may need: the message is taken
	// beyond the bound, and the actor is suspended when the handler returns. It
	// handles no message until the receiver is below its bound; after MaxBlock it
	// goes on in any case, so that actors which wait for each other do not wait for
	// ever. A handler that sends more than the capacity into a full mailbox gets
	// ErrMailboxFull, and so does one that tells its own actor.
	Block
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
	case Block:
		return "block"
	}
	return fmt.Sprintf("overflow(%d)", uint8(o))
}

// Directive says what happens to an actor whose handler failed.
type Directive uint8

const (
	Default  Directive = iota // the default of the field that holds it
	Restart                   // new behavior from Setup after the backoff; the mailbox is kept, children are stopped
	Resume                    // keep the behavior, go on with the next message
	Stop                      // stop the actor
	Escalate                  // stop the actor, and fail its parent with this failure; at /user or /system that ends there
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
	case Escalate:
		return "escalate"
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
	// Scope says whom a restart or stop befalls.
	Scope Scope
}

// Scope says whom the failure of an actor befalls.
type Scope uint8

const (
	OneForOne Scope = iota // the actor
	AllForOne              // also its siblings whose Scope is AllForOne: they restart, each after its own backoff, or stop with it
)

// Props are the properties that an actor shares with others of its kind. Props
// are compared as values: actors with equal Props share one copy.
type Props struct {
	Dispatcher  string      // name in Config.Dispatchers; "" means DefaultDispatcher, SystemDispatcher under /system
	Mailbox     Mailbox     // zero means Config.Mailbox
	Supervision Supervision // zero means Config.Supervision
	Stash       int         // messages that Context.Stash may put aside; 0 means 1024
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
		ds[name] = d.withDefaults(name)
	}
	c.Dispatchers = ds
	c.Blocking.Workers = cmp.Or(c.Blocking.Workers, 64)
	c.Blocking.Queue = cmp.Or(c.Blocking.Queue, 4096)
	c.Mailbox = c.Mailbox.withDefaults(1024)
	c.Phases = withDefaultDeadlines(c.Phases)
	c.Supervision = c.Supervision.withDefaults()
	return c
}

func (m Mailbox) withDefaults(capacity int) Mailbox {
	m.Capacity = cmp.Or(m.Capacity, capacity)
	m.MaxBlock = cmp.Or(m.MaxBlock, 30*time.Second)
	return m
}

func withDefaultDeadlines(ps []Phase) []Phase {
	if len(ps) == 0 {
		ps = []Phase{{Name: PhaseDrain}, {Name: PhaseStop}, {Name: PhaseClose}}
	}
	ps = slices.Clone(ps)
	for i, p := range ps {
		if p.Name != PhaseStop {
			ps[i].Deadline = cmp.Or(p.Deadline, 10*time.Second)
		}
	}
	return ps
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
		if d.Kind > Calling {
			bad("dispatcher %s: Kind is %v, set Shared, Elastic, Pinned or Calling, or an Executor", name, d.Kind)
		}
		if lends := d.kind() == Calling || d.kind() == Custom; !lends && (d.Workers < 1 || d.Workers > 1<<14) {
			bad("dispatcher %s: Workers is %d, set 1 to %d", name, d.Workers, 1<<14)
		}
		if d.Throughput < 1 || d.Throughput > maxThroughput {
			bad("dispatcher %s: Throughput is %d, set 1 to %d", name, d.Throughput, maxThroughput)
		}
		if d.TurnDeadline < 0 {
			bad("dispatcher %s: TurnDeadline is %v, set 0 or more", name, d.TurnDeadline)
		}
	}
	seen := map[string]bool{}
	for _, p := range c.Phases {
		if seen[p.Name] || p.Name == "" || p.Deadline < 0 {
			bad("phase %q with deadline %v: give each phase a name of its own and a deadline of 0 or more", p.Name, p.Deadline)
		}
		seen[p.Name] = true
	}
	if !seen[PhaseStop] {
		bad("Phases lack %q, in which the actors stop: add it", PhaseStop)
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
	if m.Overflow > Block {
		errs = append(errs, fmt.Errorf("mailbox: Overflow is %v, set Reject, DropNewest, DropOldest or Block", m.Overflow))
	}
	if m.Order > ControlFirst {
		errs = append(errs, fmt.Errorf("mailbox: Order is %v, set FIFO, ByPriority or ControlFirst", m.Order))
	}
	if m.MaxBlock < 0 {
		errs = append(errs, fmt.Errorf("mailbox: MaxBlock is %v, set 0 or more", m.MaxBlock))
	}
	return errors.Join(errs...)
}

func (s Supervision) validate() error {
	var errs []error
	for _, f := range []struct {
		name string
		d    Directive
	}{{"OnError", s.OnError}, {"OnPanic", s.OnPanic}, {"OnPermanent", s.OnPermanent}} {
		if f.d > Escalate {
			errs = append(errs, fmt.Errorf("supervision: %s is %v, set Restart, Resume, Stop or Escalate", f.name, f.d))
		}
	}
	if s.Scope > AllForOne {
		errs = append(errs, fmt.Errorf("supervision: Scope is %d, set OneForOne or AllForOne", s.Scope))
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

	stash  int
	before func(Addr, any) error
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
		mb = p.Mailbox.withDefaults(s.cfg.Mailbox.Capacity)
	}
	if p.Stash < 0 {
		err = errors.Join(err, fmt.Errorf("props: Stash is %d, set 0 or more", p.Stash))
	}
	if err := errors.Join(err, mb.validate(), sup.validate()); err != nil {
		return nil, err
	}
	sp = &spec{sys: s, disp: d, mb: mb, sup: sup, stash: cmp.Or(p.Stash, 1024), before: s.cfg.Before}
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

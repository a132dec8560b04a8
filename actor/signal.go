package actor

import (
	"errors"
	"fmt"
)

var (
	// ErrStopped: the actor, or the system, has stopped or is stopping.
	ErrStopped = errors.New("actor stopped")
	// ErrMailboxFull: a bounded mailbox had no room; slow down, or try later.
	ErrMailboxFull = errors.New("mailbox full")
	// ErrNameTaken: a sibling has the name and has not fully stopped.
	ErrNameTaken = errors.New("actor name taken")
	// ErrBadName: the name cannot be part of a path.
	ErrBadName = errors.New("actor name not allowed")
	// ErrNotFound: no actor has the path.
	ErrNotFound = errors.New("actor not found")
	// ErrBlockingFull: the pool for blocking functions has no room in its queue.
	ErrBlockingFull = errors.New("blocking pool full")
	// ErrRestartsExhausted: an actor failed once more than its Backoff allows.
	ErrRestartsExhausted = errors.New("restart budget exhausted")
	// ErrGoexit: a handler or piped function ended its goroutine by
	// runtime.Goexit (testing's FailNow does so).
	ErrGoexit = errors.New("called runtime.Goexit")
	// ErrStale is the cause of a cancelled Context.Context: the actor went on to
	// another generation, or stopped.
	ErrStale = errors.New("actor generation ended")
	// ErrNilMessage: a nil message of an interface type; send a value.
	ErrNilMessage = errors.New("message is nil")
	// ErrStashFull: as many messages as Props.Stash allows are put aside.
	ErrStashFull = errors.New("stash full")
	// ErrNoMessage: no message is being handled that could be stashed.
	ErrNoMessage = errors.New("no message to stash")
	// ErrDispatcherFull: a pinned dispatcher has no goroutine left; raise its Workers.
	ErrDispatcherFull = errors.New("dispatcher full")
	// ErrBadPattern: the pattern of a Select is not a path.
	ErrBadPattern = errors.New("path pattern not allowed")
	// ErrDropped, returned by Config.Before, loses the message.
	ErrDropped = errors.New("message dropped")
	// ErrNoActor: a zero Ref or Reply names nobody.
	ErrNoActor = errors.New("zero ref: take it from Spawn or Lookup")
)

// Signal tells a behavior about its own life or that of an actor it watches:
// Started, Restarting, Passivated, Stopped or Terminated.
type Signal interface{ signal() }

type (
	// Started is the first thing a behavior receives, before any message, also
	// after each restart.
	Started struct{}

	// Restarting is the last thing a failed behavior receives. Its children stop
	// next; then, after Supervision.Backoff, Setup makes the next behavior.
	Restarting struct{ Cause *Failure }

	// Passivated says that Context.Passivate has come true: nothing waited, and
	// no message is taken any more. Stopped follows.
	Passivated struct{}

	// Stopped is the last thing an actor receives, after its children have
	// stopped. An actor that stops while it has no behavior, because Setup has not
	// succeeded since Spawn or the last Restarting, receives none. Cause is nil if it
	// was asked to stop.
	Stopped struct{ Cause error }

	// Terminated says that a watched actor has stopped. It comes after every
	// message which that actor sent to the watcher. Cause is nil if that actor was
	// asked to stop, or had already stopped when Watch was called.
	Terminated struct {
		Addr  Addr
		Cause error
	}
)

func (Started) signal()    {}
func (Restarting) signal() {}
func (Passivated) signal() {}
func (Stopped) signal()    {}
func (Terminated) signal() {}

// Failure is what went wrong in a handler.
type Failure struct {
	Path  string // of the actor
	Err   error  // returned error, or the panic as an error
	Panic any    // value of the panic; nil if an error was returned
	Stack []byte // of the panic; nil if an error was returned
}

// Error names the actor and the cause, without the stack.
func (f *Failure) Error() string { return fmt.Sprintf("actor %s: %v", f.Path, f.Err) }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// ActorFailed is published for each failure of an actor.
type ActorFailed struct {
	Failure   *Failure
	Directive Directive // Restart, Resume, Stop or Escalate; Stop also when the restart budget is exhausted
	Attempt   int       // which restart in a row this is, from 1; 0 if it is none
}

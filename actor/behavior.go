package actor

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Behavior handles the messages of one actor, one at a time. A returned error
// is a failure, as is a panic: Supervision decides what follows, and the message
// is not handled again.
type Behavior[M any] interface {
	Receive(ctx Context[M], msg M) error
}

// SignalHandler is what a Behavior also implements to receive signals. An error
// is a failure as in Receive, except for Stopped and Restarting, where it is
// only reported. Without it signals are dropped.
type SignalHandler[M any] interface {
	Signal(ctx Context[M], sig Signal) error
}

// Func is a Behavior without signals.
type Func[M any] func(ctx Context[M], msg M) error

// Receive calls f.
func (f Func[M]) Receive(ctx Context[M], msg M) error { return f(ctx, msg) }

// State is a Behavior that is one function and returns the next one: nil stays.
// Each may carry what it knows in its closure. It has no signals; an error is a
// failure, and then the next State is ignored.
type State[M any] func(ctx Context[M], msg M) (State[M], error)

// Receive calls f and becomes what it returns.
func (f State[M]) Receive(ctx Context[M], msg M) error {
	next, err := f(ctx, msg)
	if err == nil && next != nil {
		ctx.Become(next)
	}
	return err
}

// Setup makes the behavior of an actor at its start and at each restart; it runs
// as the actor's first turn, on its dispatcher. Share one Setup among many
// actors of a kind to save memory.
type Setup[M any] func(ctx Context[M]) (Behavior[M], error)

// Stateless is the Setup of a function that keeps no state of its own, or whose
// captured state is to survive restarts.
func Stateless[M any](f func(ctx Context[M], msg M) error) Setup[M] {
	b := Behavior[M](Func[M](f))
	return func(Context[M]) (Behavior[M], error) { return b, nil }
}

// Spawner is a place where actors can be made: a *System (under /user), a
// Context (children of that actor), or System.Internal (under /system).
type Spawner interface{ spawner() (*cell, *worker) }

// Spawn makes an actor and returns at once; Setup runs later, and messages told
// before that wait. An empty name means a generated one. A name is 1 to 255
// bytes of UTF-8 without '/', '*' or control characters, does not begin with '$',
// and is unique among siblings until the actor has fully stopped. At most one
// Props may be given. Errors: ErrNameTaken, ErrBadName, ErrStopped (the parent
// stops), or faults of the Props.
func Spawn[M any](parent Spawner, name string, setup Setup[M], props ...Props) (Ref[M], error) {
	pc, w := parent.spawner()
	var p Props
	switch {
	case setup == nil:
		return Ref[M]{}, fmt.Errorf("spawn %s/%s: Setup is nil: pass a Setup or Stateless(func)", pc.path(), name)
	case len(props) > 1:
		return Ref[M]{}, fmt.Errorf("spawn %s/%s: %d Props given: pass one at most", pc.path(), name, len(props))
	case len(props) == 1:
		p = props[0]
	}
	c, err := pc.spawn(w, name, &typed[M]{make: setup}, p)
	if err != nil {
		return Ref[M]{}, fmt.Errorf("spawn %s/%s: %w", pc.path(), name, err)
	}
	return Ref[M]{c}, nil
}

// Context is a handler's view of its actor. It is valid only until the handler
// returns and only on the handler's goroutine; what must outlive it is Self.
type Context[M any] struct {
	c *cell
	w *worker
}

func (x Context[M]) spawner() (*cell, *worker) { return x.c, x.w }

// Self returns the actor's own Ref.
func (x Context[M]) Self() Ref[M] { return Ref[M]{x.c} }

// Path returns the actor's path.
func (x Context[M]) Path() string { return x.c.path() }

// System returns the System that the actor lives in.
func (x Context[M]) System() *System { return x.c.spec.sys }

// Log returns the System's logger with the actor's path.
func (x Context[M]) Log() *slog.Logger { return x.c.spec.sys.log.With(keyPath, x.c.path()) }

// Stop stops the actor after this handler. See Addr.Stop.
func (x Context[M]) Stop() { x.c.asked |= askedStop }

// Passivate stops the actor after this handler if nothing waits for it: no
// message, no stashed one, no result of a PipeToSelf. Otherwise it lives on. The
// actor receives Passivated, then Stopped. Messages that come after are refused
// with ErrStopped, so that their senders can make the actor anew: passivation
// loses none. Call it when a ReceiveTimeout says that the actor is idle.
func (x Context[M]) Passivate() { x.c.asked |= askedPassivate }

// Become replaces the behavior from the next message or signal on. A restart
// goes back to Setup.
func (x Context[M]) Become(b Behavior[M]) {
	if t, ok := x.c.core.(*typed[M]); ok && b != nil {
		t.b = b
	}
}

// Watch makes a Terminated signal arrive once a has stopped; at once if it has.
// Watching what is watched does nothing. A restart of the watcher, or its stop,
// ends its watches.
func (x Context[M]) Watch(a Addressable) {
	if to := a.Addr().to; to != nil {
		x.c.watchOther(to)
	}
}

// Unwatch undoes Watch: no Terminated comes after it.
func (x Context[M]) Unwatch(a Addressable) {
	if to := a.Addr().to; to != nil {
		x.c.unwatchOther(to)
	}
}

// After sends msg to the actor itself in d; the mailbox bound does not apply.
// A restart or stop cancels it.
func (x Context[M]) After(d time.Duration, msg M) Timer { return x.c.after(d, 0, msg) }

// Generation is the number that results of PipeToSelf must still match when
// they arrive. It changes at each restart and by Advance.
func (x Context[M]) Generation() uint32 { return x.c.generation() }

// Advance begins a new generation: the contexts of functions started by
// PipeToSelf are cancelled and their results will be dropped.
func (x Context[M]) Advance() { x.c.advance() }

// Context returns a context that is cancelled when this generation of the actor
// ends: at Advance, restart and stop.
func (x Context[M]) Context() context.Context {
	s := x.c.openScope()
	s.lent = true
	return s.ctx
}

// receiver is the untyped core's view of a behavior. Every method runs in a turn.
type receiver interface {
	setup(c *cell, w *worker) error
	receive(c *cell, w *worker, msg any) error
	signal(c *cell, w *worker, sig Signal) error
}

// typed is the typed façade's half of an actor.
type typed[M any] struct {
	make Setup[M]
	b    Behavior[M] // nil before the first setup
}

func (t *typed[M]) setup(c *cell, w *worker) error {
	t.b = nil
	b, err := t.make(Context[M]{c, w})
	if err == nil && b == nil {
		return fmt.Errorf("setup returned no behavior and no error: return one of them")
	}
	t.b = b
	return err
}

func (t *typed[M]) receive(c *cell, w *worker, msg any) error {
	m, _ := msg.(M) // only Ref[M] sends here; a nil message of an interface type stays nil
	return t.b.Receive(Context[M]{c, w}, m)
}

func (t *typed[M]) signal(c *cell, w *worker, sig Signal) error {
	if h, ok := t.b.(SignalHandler[M]); ok {
		return h.Signal(Context[M]{c, w}, sig)
	}
	return nil
}

// guardian is the behavior of /, /user and /system: none.
type guardian struct{}

func (guardian) setup(*cell, *worker) error          { return nil }
func (guardian) receive(*cell, *worker, any) error   { return nil }
func (guardian) signal(*cell, *worker, Signal) error { return nil }

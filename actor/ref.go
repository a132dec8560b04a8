package actor

import (
	"context"
	"fmt"
)

// recipient is the untyped core behind a Ref: a local cell today, an actor of
// another node later.
type recipient interface {
	tell(from *worker, envelope any) error
	path() string
	stop()
	watch(w watcher)
	unwatch(w watcher)
}

// Addressable is anything that has the address of an actor: Ref and Addr.
type Addressable interface{ Addr() Addr }

// Addr is the untyped address of an actor: comparable, usable as a map key. Two
// actors that had the same path one after the other have different addresses.
type Addr struct{ to recipient }

// Addr returns a.
func (a Addr) Addr() Addr { return a }

// Path returns the path, such as /user/captures/orders; "" for the zero Addr.
func (a Addr) Path() string {
	if a.to == nil {
		return ""
	}
	return a.to.path()
}

// String returns the path.
func (a Addr) String() string { return a.Path() }

// Stop asks the actor to stop after the message it handles now, children first;
// messages that still wait become dead letters. It returns at once. Stopping a
// stopped actor does nothing.
func (a Addr) Stop() {
	if a.to != nil {
		a.to.stop()
	}
}

// Await returns nil once the actor and all below it have stopped, or the cause
// of ctx. It does not stop the actor. Do not call it from a handler: it holds
// the worker; use Watch there.
func (a Addr) Await(ctx context.Context) error {
	if a.to == nil {
		return ErrNoActor
	}
	w := watcher{done: make(chan struct{})}
	a.to.watch(w)
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		a.to.unwatch(w)
		return fmt.Errorf("await stop of %s: %w", a.Path(), context.Cause(ctx))
	}
}

// Ref is the address of an actor that takes messages of type M: a small
// comparable value, usable from any goroutine. The zero Ref names nobody.
type Ref[M any] struct{ to recipient }

// Tell puts m into the actor's mailbox and returns without waiting for it to be
// handled; nil says that it was taken, not that it will be handled. Errors:
// ErrMailboxFull, ErrStopped, ErrNilMessage; such a message has also become a
// dead letter.
//
// Messages from one goroutine (or one actor) to one actor are handled in the
// order sent. Inside a handler the function [Tell] is faster. A full mailbox that
// blocks makes the calling goroutine wait, see [Block].
func (r Ref[M]) Tell(m M) error { return r.tell(nil, m) }

// TellContext is Tell, but for a full mailbox that blocks it waits only until
// ctx ends; then the error has ErrMailboxFull and the cause of ctx.
func (r Ref[M]) TellContext(ctx context.Context, m M) error {
	if c, ok := r.to.(*cell); ok {
		return c.tellWithin(ctx, m)
	}
	return r.tell(nil, m)
}

func (r Ref[M]) tell(from *worker, m M) error {
	if r.to == nil {
		return ErrNoActor
	}
	return r.to.tell(from, m)
}

// Tell is Ref.Tell for use inside a handler. If both actors use one dispatcher,
// the receiver is queued at the sender's worker, which saves waking another.
func Tell[N, M any](ctx Context[N], to Ref[M], m M) error { return to.tell(ctx.w, m) }

// Addr returns the untyped address.
func (r Ref[M]) Addr() Addr { return Addr(r) }

// Path returns the path, such as /user/captures/orders; "" for the zero Ref.
func (r Ref[M]) Path() string { return r.Addr().Path() }

// String returns the path.
func (r Ref[M]) String() string { return r.Path() }

// IsZero reports whether the Ref names nobody.
func (r Ref[M]) IsZero() bool { return r.to == nil }

// Stop is Addr.Stop.
func (r Ref[M]) Stop() { r.Addr().Stop() }

// Await is Addr.Await.
func (r Ref[M]) Await(ctx context.Context) error { return r.Addr().Await(ctx) }

// Lookup returns the actor that has the path now, for example
// /user/captures/orders. Errors: ErrNotFound; an error naming both types if the
// actor takes other messages than M.
func Lookup[M any](s *System, path string) (Ref[M], error) {
	c := s.lookup(path)
	if c == nil || c == s.root {
		return Ref[M]{}, fmt.Errorf("look up %q: %w", path, ErrNotFound)
	}
	c.mu.Lock()
	core := c.core
	c.mu.Unlock()
	if core == nil {
		return Ref[M]{}, fmt.Errorf("look up %q: %w", path, ErrNotFound)
	}
	if _, ok := core.(*typed[M]); !ok {
		return Ref[M]{}, fmt.Errorf("look up %q: actor is a %T, not a %T", path, core, (*typed[M])(nil))
	}
	return Ref[M]{c}, nil
}

package actor

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// PipeToSelf runs fn on the System's blocking pool, outside the actor, and
// brings its result back as a message: wrap turns it into one in a later turn of
// the actor, where it may use the actor's state. fn may wait; it must return
// when its context ends, which happens when the actor's generation does.
//
// The result carries the generation in which fn was started. If the actor has
// restarted or called Advance since, the result is dropped as a dead letter with
// ReasonStale and wrap does not run. The mailbox bound does not apply to results.
// A panic in fn arrives as its error, a *Failure. Errors: ErrBlockingFull,
// ErrStopped; then fn does not run.
func PipeToSelf[M, R any](ctx Context[M], fn func(context.Context) (R, error), wrap func(R, error) M) error {
	c := ctx.c
	if c.life >= stopping {
		return fmt.Errorf("pipe to %s: %w", c.path(), ErrStopped)
	}
	s := c.openScope()
	s.pipes++
	p := &piped{scope: s}
	run := func() {
		var r R
		p.err = ErrGoexit // stands if fn does not return
		defer func() {
			if v := recover(); v != nil {
				p.err = &Failure{Path: c.path(), Err: panicError(v), Panic: v, Stack: debug.Stack()}
			}
			p.result, p.wrap = r, func() any { return wrap(r, p.err) }
			_ = c.tell(nil, p) // an actor that has stopped makes the result a dead letter
		}()
		r, p.err = fn(s.ctx)
	}
	if err := c.spec.sys.blocking.submit(run); err != nil {
		s.pipes--
		c.closeScope(s)
		return fmt.Errorf("pipe to %s: %w", c.path(), err)
	}
	return nil
}

// piped is the envelope of a PipeToSelf result.
type piped struct {
	scope  *scope // of the generation that started it
	result any    // in the handler, the message that wrap has made of it
	err    error
	wrap   func() any
}

// scope is one generation's hold on what runs for it outside the actor. It
// exists only while something does. Turn only, but for ctx.
type scope struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	pipes  int  // results to come
	lent   bool // Context.Context gave ctx away: keep it to the end of the generation
}

func (c *cell) openScope() *scope {
	x := c.x()
	if x.scope == nil {
		s := &scope{}
		s.ctx, s.cancel = context.WithCancelCause(c.spec.sys.ctx)
		x.scope = s
		if c.life >= stopping {
			s.cancel(ErrStale)
		}
	}
	return x.scope
}

// closeScope frees s if nothing needs it.
func (c *cell) closeScope(s *scope) {
	if s.pipes == 0 && !s.lent {
		s.cancel(ErrStale)
		if c.ext.scope == s {
			c.ext.scope = nil
		}
	}
}

// advance ends the generation.
func (c *cell) advance() {
	x := c.x()
	x.gen++
	if s := x.scope; s != nil {
		x.scope = nil
		s.cancel(ErrStale)
	}
}

// current reports whether p belongs to the present generation.
func (c *cell) current(p *piped) bool { return c.ext != nil && c.ext.scope == p.scope }

// callPiped runs the behavior on a result.
func (c *cell) callPiped(w *worker, p *piped) (f *Failure) {
	p.scope.pipes--
	c.closeScope(p.scope)
	defer c.caught(&f)
	p.result = p.wrap()
	if c.spec.before != nil {
		if dropped, err := c.hook(p.result, nil); dropped || err != nil {
			return c.failure(err)
		}
	}
	return c.failure(c.core.receive(c, w, p.result))
}

// blocking is the pool for functions that wait: at most limit goroutines, which
// end when nothing is queued, and a bounded queue.
type blocking struct {
	limit, room int
	mu          struct {
		sync.Mutex
		running int
		queue   []func()
		head    int // queue[:head] are gone
		closed  bool
		idle    chan struct{} // closed once running is 0; nil unless awaited
	}
}

func (b *blocking) submit(fn func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.mu.closed:
		return ErrStopped
	case b.mu.running < b.limit:
		b.mu.running++
		go b.work(fn)
	case len(b.mu.queue)-b.mu.head >= b.room:
		return ErrBlockingFull
	default:
		b.mu.queue = append(b.mu.queue, fn)
	}
	return nil
}

// work runs fn and then what is queued. A function that ends the goroutine gives
// its place to a new one.
func (b *blocking) work(fn func()) {
	returned := false
	defer func() {
		if !returned {
			if next := b.next(); next != nil {
				go b.work(next)
			}
		}
	}()
	for ; fn != nil; fn = b.next() {
		fn()
	}
	returned = true
}

// next returns a queued function, or nil after taking the caller off the count.
func (b *blocking) next() func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.head == len(b.mu.queue) {
		b.mu.queue, b.mu.head = b.mu.queue[:0], 0
		if b.mu.running--; b.mu.running == 0 && b.mu.idle != nil {
			close(b.mu.idle)
			b.mu.idle = nil
		}
		return nil
	}
	fn := b.mu.queue[b.mu.head]
	b.mu.queue[b.mu.head] = nil
	b.mu.head++
	if b.mu.head > 1024 && b.mu.head*2 > len(b.mu.queue) {
		b.mu.queue = append(b.mu.queue[:0], b.mu.queue[b.mu.head:]...)
		b.mu.head = 0
	}
	return fn
}

// close refuses further functions and returns a channel that is closed when none runs.
func (b *blocking) close() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.closed = true
	if b.mu.idle == nil {
		b.mu.idle = make(chan struct{})
	}
	idle := b.mu.idle
	if b.mu.running == 0 {
		close(idle)
		b.mu.idle = nil
	}
	return idle
}

func (b *blocking) counts() (running, queued int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.running, len(b.mu.queue) - b.mu.head
}

// root is the context above all others of a System. Its life is ended by
// Shutdown, not by a caller's context, so nothing is above it.
type root struct{}

func (root) Deadline() (time.Time, bool) { return time.Time{}, false }
func (root) Done() <-chan struct{}       { return nil }
func (root) Err() error                  { return nil }
func (root) Value(any) any               { return nil }

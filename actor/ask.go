package actor

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Ask tells ref the message that ask makes around a Reply and waits for what is
// sent to that Reply. It holds the calling goroutine: in a handler start it
// through PipeToSelf.
//
// Errors: the cause of ctx once it is done; ErrMailboxFull or ErrStopped as
// soon as the message has become a dead letter; the *Failure if the handler of
// the message failed before a reply; what Reply.Fail was given. A reply that
// comes after Ask has returned becomes a dead letter with ReasonLateReply.
func Ask[M, R any](ctx context.Context, ref Ref[M], ask func(replyTo Reply[R]) M) (R, error) {
	var zero R
	c, ok := ref.to.(*cell)
	if !ok {
		return zero, fmt.Errorf("ask: %w", ErrNoActor)
	}
	f, _ := c.spec.sys.futures.Get().(*future)
	gen := f.open()
	var msg any = ask(Reply[R]{f, gen})
	f.msg = msg
	if msg == nil {
		_ = c.refuse(f, ReasonInvalid, ErrNilMessage) // the future learns it
	} else {
		_ = c.tellWithin(ctx, f) // a message that is not taken: the future learns it as a dead letter
	}
	select {
	case <-f.done:
	case <-ctx.Done():
	}
	val, err, answered := f.leave()
	switch {
	case !answered:
		return zero, fmt.Errorf("ask %s: %w", ref.Path(), context.Cause(ctx))
	case err != nil && ctx.Err() != nil && errors.Is(err, ErrMailboxFull): // there was no room until then
		return zero, fmt.Errorf("ask %s: %w: %w", ref.Path(), err, context.Cause(ctx))
	case err != nil:
		return zero, fmt.Errorf("ask %s: %w", ref.Path(), err)
	}
	r, _ := val.(R) // only Reply[R] answers; a nil of an interface type stays nil
	return r, nil
}

// Reply is where the answer to one Ask goes; a small value that may be kept,
// sent on and used from any goroutine. The first answer counts.
type Reply[R any] struct {
	f   *future
	gen uint64
}

// Send answers with r. It returns false, and r becomes a dead letter, if the
// Ask has ended or was answered. A zero Reply drops r: a message that wants an
// answer can so be told as well as asked.
func (r Reply[R]) Send(val R) bool { return r.answer(val, nil) }

// Fail answers with an error, which must not be nil.
func (r Reply[R]) Fail(err error) bool {
	if err == nil {
		err = fmt.Errorf("reply failed without an error")
	}
	return r.answer(nil, err)
}

func (r Reply[R]) answer(val any, err error) bool {
	if r.f == nil {
		return false
	}
	if r.f.set(r.gen, val, err) {
		return true
	}
	if err != nil {
		val = err
	}
	r.f.sys.deadLetter("", val, ReasonLateReply)
	return false
}

// future is the meeting place of an Ask and its answer, and the envelope of the
// asked message. It is used again once both the asker and the envelope have let
// it go; gen keeps Replies of earlier uses out.
type future struct {
	sys  *System       // immutable
	msg  any           // the asked message; belongs to the envelope
	done chan struct{} // a token once answered

	mu       sync.Mutex // guards what follows
	gen      uint64
	holders  int8
	waiting  bool // the asker has not left
	answered bool
	val      any
	err      error
}

// open begins a use with two holders, the asker and the envelope.
func (f *future) open() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gen++
	f.holders, f.waiting, f.answered = 2, true, false
	return f.gen
}

// set answers use gen, if that is still unanswered and waited for.
func (f *future) set(gen uint64, val any, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gen != gen || !f.waiting || f.answered {
		return false
	}
	f.answered, f.val, f.err = true, val, err
	f.done <- struct{}{} // has room: one token a use
	return true
}

// leave ends the asker's part.
func (f *future) leave() (val any, err error, answered bool) {
	f.mu.Lock()
	val, err, answered = f.val, f.err, f.answered
	f.waiting, f.val, f.err = false, nil, nil
	if answered {
		select {
		case <-f.done: // answered while ctx ended the wait
		default:
		}
	}
	f.releaseLocked()
	return val, err, answered
}

// drop ends the envelope's part. A cause that is not nil answers for the actor
// if it has not answered: no answer can come from this message.
func (f *future) drop(cause error) {
	f.msg = nil
	f.mu.Lock()
	gen := f.gen
	f.mu.Unlock()
	if cause != nil {
		f.set(gen, nil, cause)
	}
	f.mu.Lock()
	f.releaseLocked()
}

// releaseLocked gives up one hold and unlocks mu.
func (f *future) releaseLocked() {
	f.holders--
	free := f.holders == 0
	f.mu.Unlock()
	if free {
		f.sys.futures.Put(f)
	}
}

// answer runs the behavior on an asked message.
func (c *cell) answer(w *worker, f *future) (failure *Failure) {
	cause := ErrGoexit // stands if the handler does not return
	i := w.next - 1
	defer func() {
		if w.batch[i] != nil { // otherwise it is stashed, and answered later
			f.drop(cause)
		}
	}()
	failure = c.call(w, f.msg, nil)
	if cause = nil; failure != nil {
		cause = failure
	}
	return failure
}

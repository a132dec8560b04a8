package persistence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/runnel-dev/runnel/actor"
)

// ErrTooManyEffects: an entity has as many pipes and timers as it may have.
var ErrTooManyEffects = errors.New("too many pipes and timers of one entity")

// EffectContext is what Effects and Recovered can do beside returning. It is
// valid only until they return. What it starts keeps the entity resident until it
// ends, and ends with the entity: at a restart, a forced stop or a conflict.
type EffectContext struct {
	id    EntityID
	seq   uint64
	epoch uint64
	log   *slog.Logger
	// start counts one more pipe or timer, if there may be one.
	start func() error
	after func(d time.Duration, cmd any) (stop func() bool)
	pipe  func(fn func(context.Context) any) error
}

func (e *entity[S]) effects(x actor.Context[message]) EffectContext {
	start := func() error {
		if e.underWay >= maxUnderWay {
			return fmt.Errorf("effect of %s: %w (%d)", e.p.ID, ErrTooManyEffects, maxUnderWay)
		}
		e.underWay++
		return nil
	}
	gen := e.gen
	return EffectContext{
		id: e.p.ID, seq: e.seq, epoch: e.p.Epoch, log: e.p.Log, start: start,
		after: func(d time.Duration, cmd any) func() bool {
			t := x.After(d, piped{gen, cmd})
			return func() bool {
				ok := t.Stop()
				if ok && gen == e.gen {
					e.underWay--
				}
				return ok
			}
		},
		pipe: func(fn func(context.Context) any) error {
			err := actor.PipeToSelf(x, func(ctx context.Context) (any, error) { return fn(ctx), nil },
				func(cmd any, err error) message {
					if err != nil {
						return piped{gen, PipeFailed{err}}
					}
					return piped{gen, cmd}
				})
			if err != nil {
				e.underWay--
			}
			return err
		},
	}
}

// PipeFailed is the command that a pipe whose function panicked becomes.
type PipeFailed struct{ Err error }

// ID is the entity's.
func (x EffectContext) ID() EntityID { return x.id }

// Seq is the last event that is in the state.
func (x EffectContext) Seq() uint64 { return x.seq }

// Epoch is the shard's, under which the entity writes.
func (x EffectContext) Epoch() uint64 { return x.epoch }

// Log is the host's logger.
func (x EffectContext) Log() *slog.Logger { return x.log }

// Tell sends cmd to the entity itself, behind the commands that wait. Error:
// ErrTooManyEffects.
func (x EffectContext) Tell(cmd any) error {
	_, err := x.After(0, cmd)
	return err
}

// After sends cmd to the entity itself in d. stop, called from a later Effects of
// the same entity, cancels it and reports whether it was still to come. Error:
// ErrTooManyEffects.
func (x EffectContext) After(d time.Duration, cmd any) (stop func() bool, err error) {
	if err := x.start(); err != nil {
		return nil, err
	}
	return x.after(d, cmd), nil
}

// Pipe runs fn outside the entity, where it may wait until its context ends.
// What it returns becomes a command to the entity; nil becomes nothing. A panic
// becomes the command PipeFailed. Errors: ErrTooManyEffects, or the pool has no
// room; then fn does not run.
func (x EffectContext) Pipe(fn func(ctx context.Context) any) error {
	if err := x.start(); err != nil {
		return err
	}
	return x.pipe(fn)
}

package persistence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/runnel-dev/runnel/actor"
)

// Decision is what a command leads to: events, or a refusal, or just an answer.
type Decision struct {
	// Events are appended together, then applied one by one. None is fine: the
	// command only asks.
	Events []any
	// Reply answers the command, after the events are durable.
	Reply any
	// Err refuses the command; Events and Reply are then ignored.
	Err error
}

// Definition describes the entities of one type. All functions run in the
// entity's turn, one at a time, and must not block: what waits goes through
// EffectContext.Pipe. S is copied by assignment; if it holds pointers or maps,
// only Apply changes what they point to.
type Definition[S any] struct {
	// Type is the first part of the entities' ids.
	Type string
	// Initial is the state before the first event.
	Initial func(id EntityID) S
	// Decide answers a command by the state alone. It changes nothing. It runs
	// again, with a newer state, if the store turns out to know more events.
	Decide func(s S, cmd any) Decision
	// Apply returns the state after an event. It has no other effect, knows every
	// event type of the entity and never fails: an event is a fact.
	Apply func(s S, event any) S
	// Effects acts on events that have just become durable and been applied; it is
	// not called in replay. Optional.
	Effects func(x EffectContext, s S, events []any)
	// Recovered takes up after a replay what Effects had started before; it is
	// called each time the entity is loaded. Optional.
	Recovered func(x EffectContext, s S)
	// SnapshotVersion is the format of S in JSON; raise it with every change that
	// older data does not fit. A snapshot of another version is not used. 0 means
	// that no snapshots are written.
	SnapshotVersion uint32
	// SnapshotEvery is how many new events make a snapshot worth while when the
	// entity passivates; 0 is 20.
	SnapshotEvery uint64
}

// Kind is a Definition without its state's type.
type Kind struct {
	// Type is the definition's.
	Type  string
	spawn func(at actor.Spawner, name string, p EntityProps) (EntityRef, error)
	fault error
}

// Kind checks d; what is wrong with it comes back from Validate.
func (d Definition[S]) Kind() Kind {
	if d.SnapshotEvery == 0 {
		d.SnapshotEvery = 20
	}
	k := Kind{Type: d.Type, fault: d.validate()}
	k.spawn = func(at actor.Spawner, name string, p EntityProps) (EntityRef, error) {
		e := &entity[S]{def: &d, p: p}
		ref, err := actor.Spawn(at, name, e.setup, actor.Props{
			Dispatcher: p.Dispatcher,
			Mailbox:    actor.Mailbox{Capacity: p.MaxPending + mailboxReserve, Overflow: actor.Reject},
			// A failure never ends an entity: its mailbox holds commands of others.
			Supervision: actor.Supervision{OnPermanent: actor.Restart, Backoff: restartBackoff},
		})
		return EntityRef{ref}, err
	}
	return k
}

func (d Definition[S]) validate() error {
	var errs []error
	if err := checkType(d.Type); err != nil {
		errs = append(errs, err)
	}
	if d.Initial == nil || d.Decide == nil || d.Apply == nil {
		errs = append(errs, errors.New("set Initial, Decide and Apply"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("entity definition %q: %w", d.Type, err)
	}
	return nil
}

// Validate reports every fault of the definition.
func (k Kind) Validate() error {
	if k.spawn == nil {
		return errors.New("entity kind: make it with Definition.Kind")
	}
	return k.fault
}

// Spawn starts the entity of p.ID; only its Host does that.
func (k Kind) Spawn(at actor.Spawner, name string, p EntityProps) (EntityRef, error) {
	if err := k.Validate(); err != nil {
		return EntityRef{}, err
	}
	return k.spawn(at, name, p)
}

// EntityProps are what an entity needs from its host.
type EntityProps struct {
	ID       EntityID
	Store    Store
	Registry *Registry
	// Epoch is the shard's, as acquired; a deposed entity writes nothing.
	Epoch uint64
	Host  Host
	// Dispatcher names the worker pool, "" is the default.
	Dispatcher string
	// MaxPending bounds the commands that the host has given and not got back.
	MaxPending int
	Log        *slog.Logger
}

// Host keeps an entity. Its methods are called in the entity's turn and do not block.
type Host interface {
	// Done says that one command given by the host has been answered.
	Done()
	// Kept says that the entity does not passivate now: it has work under way.
	Kept()
	// Stopped is the entity's last word. What the host has not given it by now
	// goes to the next one.
	Stopped()
	// Deposed says that the shard has a newer owner.
	Deposed(err error)
}

// Command is a message to an entity.
type Command struct {
	// Msg is what Decide gets.
	Msg any
	// Reply is called once with the answer; nil for a command nobody waits for. It
	// must not block.
	Reply func(reply any, err error)

	own bool // sent by the entity to itself: the host does not count it
}

// EntityRef is the host's handle on a running entity.
type EntityRef struct{ ref actor.Ref[message] }

// Tell hands over a command. The host keeps within MaxPending.
func (r EntityRef) Tell(c *Command) error { return r.ref.Tell(c) }

// Passivate asks the entity to stop. It stops once nothing is under way and then
// calls Host.Stopped, or calls Host.Kept and goes on. With force it stops as soon
// as it has answered what it was given; its pipes and timers are cancelled.
func (r EntityRef) Passivate(force bool) error { return r.ref.Tell(passivate{force}) }

// Await returns once the entity has stopped.
func (r EntityRef) Await(ctx context.Context) error { return r.ref.Await(ctx) }

// RecoveryError answers every command while an entity cannot be recovered.
type RecoveryError struct {
	Entity EntityID
	// Retry is when the entity tries again, at the next command.
	Retry time.Time
	Err   error
}

func (e *RecoveryError) Error() string {
	return fmt.Sprintf("recover %s: %v; the next attempt is at %s", e.Entity, e.Err, e.Retry.UTC().Format(time.RFC3339))
}

func (e *RecoveryError) Unwrap() error { return e.Err }

// ErrRestarted: the entity failed while it handled the command. The command's
// events may be stored; ask the entity before sending it again.
var ErrRestarted = errors.New("the entity failed and restarts")

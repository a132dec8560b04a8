package persistence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/runnel-dev/runnel/actor"
	"github.com/runnel-dev/runnel/retry"
)

var (
	restartBackoff = retry.Policy{Initial: 100 * time.Millisecond, Max: 30 * time.Second, Multiplier: 2, Jitter: 0.2}
	recoverBackoff = retry.Policy{Initial: time.Second, Max: time.Minute, Multiplier: 2, Jitter: 0.2}
)

const (
	// mailboxReserve is the room beside commands: an append's result of this and of
	// the last incarnation, a passivation and its repetition by force.
	mailboxReserve = 8
	// maxDecides bounds how often one command is decided again after a conflict.
	maxDecides = 3
	// maxUnderWay bounds an entity's pipes and timers.
	maxUnderWay = 64
	// snapshotTimeout bounds a snapshot's write; without it the entity stops anyway.
	snapshotTimeout = 10 * time.Second
	// poolBusyDelay is the wait for room in the pool that runs recoveries.
	poolBusyDelay = 50 * time.Millisecond
)

// phase is where an entity stands in memory.
//
//	recovering ──replayed──▶ ready ──decided──▶ appending ──durable──▶ ready
//	    │    ▲                 │ passivate           │
//	    │    └── conflict, unknown outcome ──────────┘
//	    ▼                      ▼
//	  broken ──next command, after the backoff──▶ recovering
//	                         leaving ──snapshot written or not needed──▶ stopped
//
// Invariants:
//  1. state is the sum of the events up to seq, in ready and appending.
//  2. current is not nil exactly in appending.
//  3. Every command taken is answered once: by finish, here or at a restart.
//  4. Commands are decided in the order in which they came.
type phase uint8

const (
	recovering phase = iota
	ready
	appending
	broken
	leaving
)

// message is what an entity's mailbox holds: *Command, appended, recovered,
// passivate, saved, piped, recoverAgain.
type message any

type (
	// appended is the answer of the store.
	appended struct {
		number uint64 // of the append
		seq    uint64
		err    error
	}
	passivate struct{ force bool }
	saved     struct{ err error }
	// piped says that a pipe or timer of generation gen has ended.
	piped struct {
		gen uint32
		cmd any // nil: nothing to do
	}
	recoverAgain     struct{}
	recovered[S any] struct {
		state   S
		seq     uint64
		snapSeq uint64
		err     error
	}
)

// entity is the actor. Its fields outlive a restart as far as reset leaves them:
// the commands that wait must not be lost with the state.
type entity[S any] struct {
	def *Definition[S]
	p   EntityProps

	phase    phase
	state    S
	seq      uint64 // last event in state
	snapSeq  uint64 // last event in the snapshot that was loaded or written
	stash    []*Command
	deciding *Command // being handled in this turn; answered if the turn fails
	current  *Command // whose events are being appended
	decision Decision
	decides  int    // how often current was decided
	number   uint64 // of the append; older answers do not count
	underWay int    // pipes and timers of gen
	gen      uint32 // one higher with each replay; older pipes and timers do not count
	force    bool   // stop as soon as nothing is left to answer
	failures int    // recoveries in a row
	fault    *RecoveryError
}

func (e *entity[S]) setup(actor.Context[message]) (actor.Behavior[message], error) {
	e.decides = 0
	e.reset()
	return e, nil
}

// reset forgets what a replay brings back. An append is never under way then: no
// code of the definition runs in appending, so nothing fails there.
func (e *entity[S]) reset() {
	var zero S
	e.state, e.seq, e.snapSeq = zero, 0, 0
	e.phase, e.number = recovering, e.number+1
	e.gen, e.underWay = e.gen+1, 0
}

// Signal is actor.SignalHandler's.
func (e *entity[S]) Signal(x actor.Context[message], sig actor.Signal) error {
	switch s := sig.(type) {
	case actor.Started:
		e.recover(x)
	case actor.Restarting:
		e.failCurrent(fmt.Errorf("%w: %s: %w", ErrRestarted, e.p.ID, s.Cause))
	case actor.Stopped:
		e.failCurrent(actor.ErrStopped)
		for _, c := range e.stash {
			e.finish(c, nil, fmt.Errorf("command to %s: %w", e.p.ID, actor.ErrStopped))
		}
		e.stash = nil
		e.p.Host.Stopped()
	}
	return nil
}

func (e *entity[S]) failCurrent(err error) {
	for _, c := range []*Command{e.deciding, e.current} {
		if c != nil {
			e.finish(c, nil, err)
		}
	}
	e.deciding, e.current = nil, nil
}

// Receive is actor.Behavior's.
func (e *entity[S]) Receive(x actor.Context[message], m message) error {
	switch m := m.(type) {
	case *Command:
		e.take(x, m)
	case appended:
		if m.number == e.number && e.phase == appending {
			e.settle(x, m)
		}
	case recovered[S]:
		e.recovered(x, m)
	case recoverAgain:
		if e.phase == recovering {
			e.recover(x)
		}
	case piped:
		e.piped(x, m)
	case passivate:
		e.passivate(x, m.force)
	case saved:
		if m.err != nil {
			x.Log().Warn("entity snapshot not saved", "entity", e.p.ID.String(), "error", m.err)
		}
		x.Stop()
	}
	if e.force && e.phase != leaving {
		e.leaveIfIdle(x)
	}
	return nil
}

func (e *entity[S]) piped(x actor.Context[message], m piped) {
	if m.gen != e.gen {
		return
	}
	e.underWay--
	if m.cmd != nil {
		e.take(x, &Command{Msg: m.cmd, own: true})
	}
}

// take handles a command, or keeps it until the phase lets it.
func (e *entity[S]) take(x actor.Context[message], c *Command) {
	if e.phase == broken {
		if time.Now().Before(e.fault.Retry) {
			e.finish(c, nil, e.fault)
			return
		}
		e.recover(x)
	}
	e.stash = append(e.stash, c)
	e.next(x)
}

// finish answers a command.
func (e *entity[S]) finish(c *Command, reply any, err error) {
	if c.Reply != nil {
		c.Reply(reply, err)
	}
	if !c.own {
		e.p.Host.Done()
	}
}

// next decides waiting commands until one has events to append.
func (e *entity[S]) next(x actor.Context[message]) {
	for e.phase == ready && len(e.stash) > 0 {
		c := e.stash[0]
		e.stash[0] = nil
		e.stash = e.stash[1:]
		e.decides = 0
		e.decide(x, c)
	}
	if len(e.stash) == 0 {
		e.stash = nil // an idle entity keeps no buffer
	}
}

func (e *entity[S]) decide(x actor.Context[message], c *Command) {
	e.deciding = c
	e.decides++
	d := e.def.Decide(e.state, c.Msg)
	if d.Err != nil || len(d.Events) == 0 {
		e.deciding = nil
		e.finish(c, d.Reply, d.Err)
		return
	}
	req := AppendRequest{Shard: e.p.ID.Shard(e.p.Store.Shards()), Epoch: e.p.Epoch, Entity: e.p.ID, Expected: e.seq, Events: make([]EncodedEvent, len(d.Events))}
	for i, ev := range d.Events {
		var err error
		if req.Events[i], err = e.p.Registry.Encode(ev); err != nil {
			e.deciding = nil
			e.finish(c, nil, fmt.Errorf("command to %s: %w", e.p.ID, err))
			return
		}
	}
	e.phase, e.deciding, e.current, e.decision = appending, nil, c, d
	e.number++
	self, number := x.Self(), e.number
	e.p.Store.AppendAsync(req, func(seq uint64, err error) {
		// The mailbox has reserved room, so this fails only for an entity that has
		// stopped; its next incarnation reads the journal.
		_ = self.Tell(appended{number, seq, err}) // nobody is left to tell
	})
}

// settle goes on after the store's answer to the append that is under way.
func (e *entity[S]) settle(x actor.Context[message], m appended) {
	c, d := e.current, e.decision
	e.current, e.decision = nil, Decision{}
	switch {
	case m.err == nil:
		e.deciding = c // a failure from here on is answered as such
		for _, ev := range d.Events {
			e.state = e.def.Apply(e.state, ev)
		}
		e.seq, e.phase = m.seq, ready
		if e.def.Effects != nil {
			e.def.Effects(e.effects(x), e.state, d.Events)
		}
		e.deciding = nil
		e.finish(c, d.Reply, nil)
	case errors.Is(m.err, ErrConflict) && e.decides < maxDecides:
		e.stash = append([]*Command{c}, e.stash...)
		e.recover(x)
		return
	case nothingWritten(m.err):
		e.phase = ready
		e.finish(c, nil, m.err)
	case errors.Is(m.err, ErrDeposed):
		e.finish(c, nil, m.err)
		e.p.Host.Deposed(m.err)
		e.phase = ready // every further append is refused likewise
	default:
		e.finish(c, nil, m.err)
		e.recover(x)
		return
	}
	e.next(x)
}

// nothingWritten reports whether the state in memory still is the stored one.
func nothingWritten(err error) bool {
	for _, s := range []error{ErrBusy, ErrFull, ErrReadOnly, ErrTooLarge, ErrClosed} {
		if errors.Is(err, s) {
			return !errors.Is(err, ErrUnknownOutcome)
		}
	}
	return false
}

// recover replays the entity outside the worker.
func (e *entity[S]) recover(x actor.Context[message]) {
	e.reset()
	// A new generation: pipes of the state that is given up are of no use.
	x.Advance()
	err := actor.PipeToSelf(x, e.replay, func(r recovered[S], err error) message {
		r.err = err
		return r
	})
	if err != nil {
		x.After(poolBusyDelay, recoverAgain{})
	}
}

// replay builds the state from snapshot and journal. It runs beside the entity
// and touches nothing of it that changes.
func (e *entity[S]) replay(ctx context.Context) (recovered[S], error) {
	id := e.p.ID
	r := recovered[S]{state: e.def.Initial(id)}
	if v := e.def.SnapshotVersion; v > 0 {
		sn, ok, err := e.p.Store.LoadSnapshot(ctx, id)
		if err != nil {
			return r, err
		}
		if ok && sn.Version == v {
			if err := json.Unmarshal(sn.Data, &r.state); err != nil {
				return r, fmt.Errorf("decode snapshot of %s version %d: %w", id, v, err)
			}
			r.seq, r.snapSeq = sn.Seq, sn.Seq
		}
	}
	err := e.p.Store.ReadEntity(ctx, id, r.seq, func(se StoredEvent) error {
		ev, err := e.p.Registry.Decode(se.EncodedEvent)
		if err != nil {
			return fmt.Errorf("seq %d: %w", se.Seq, err)
		}
		r.state, r.seq = e.def.Apply(r.state, ev), se.Seq
		return nil
	})
	return r, err
}

func (e *entity[S]) recovered(x actor.Context[message], r recovered[S]) {
	if r.err != nil {
		e.failures++
		e.fault = &RecoveryError{Entity: e.p.ID, Err: r.err, Retry: time.Now().Add(recoverBackoff.Delay(e.failures, rand.Float64()))}
		e.phase = broken
		x.Log().Error("entity not recovered", "entity", e.p.ID.String(), "error", r.err)
		for _, c := range e.stash {
			e.finish(c, nil, e.fault)
		}
		e.stash, e.decides = nil, 0
		return
	}
	e.state, e.seq, e.snapSeq = r.state, r.seq, r.snapSeq
	e.failures, e.fault = 0, nil
	e.phase = ready
	if e.def.Recovered != nil {
		e.def.Recovered(e.effects(x), e.state)
	}
	e.resume(x)
}

// resume takes up the first waiting command with the count of decisions it has.
func (e *entity[S]) resume(x actor.Context[message]) {
	if e.decides > 0 && e.phase == ready && len(e.stash) > 0 {
		c := e.stash[0]
		e.stash = e.stash[1:]
		e.decide(x, c)
	}
	e.next(x)
}

// passivate stops the entity, or says why not yet.
func (e *entity[S]) passivate(x actor.Context[message], force bool) {
	e.force = e.force || force
	switch {
	case e.force || e.phase == leaving: // Receive looks after it
	case e.idle() && e.underWay == 0:
		e.leave(x)
	default:
		e.p.Host.Kept()
	}
}

// idle reports whether nothing is left to answer or to wait for.
func (e *entity[S]) idle() bool {
	return len(e.stash) == 0 && (e.phase == ready || e.phase == broken)
}

func (e *entity[S]) leaveIfIdle(x actor.Context[message]) {
	if e.idle() || e.phase == recovering && len(e.stash) == 0 {
		e.leave(x)
	}
}

// leave writes a snapshot if it is worth while, and stops.
func (e *entity[S]) leave(x actor.Context[message]) {
	wanted := e.phase == ready && e.def.SnapshotVersion > 0 && e.seq-e.snapSeq >= e.def.SnapshotEvery
	e.phase = leaving
	x.Advance()
	if !wanted {
		x.Stop()
		return
	}
	state, seq := e.state, e.seq
	err := actor.PipeToSelf(x, func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
		defer cancel()
		data, err := json.Marshal(state)
		if err != nil {
			return struct{}{}, fmt.Errorf("encode snapshot of %s: %w", e.p.ID, err)
		}
		return struct{}{}, e.p.Store.SaveSnapshot(ctx, e.p.Epoch, Snapshot{Entity: e.p.ID, Seq: seq, Version: e.def.SnapshotVersion, Data: data})
	}, func(_ struct{}, err error) message { return saved{err} })
	if err != nil {
		x.Log().Warn("entity snapshot not saved", "entity", e.p.ID.String(), "error", err)
		x.Stop()
	}
}

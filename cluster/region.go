package cluster

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/runnel-dev/runnel/actor"
	"github.com/runnel-dev/runnel/persistence"
)

// Sentinels that callers branch on.
var (
	// ErrBusy: an entity has as many commands waiting, or the region as many
	// entities at work, as they may have. Try again later.
	ErrBusy = errors.New("too much waits")
	// ErrNotRunning: the region has not started, or stops.
	ErrNotRunning = errors.New("the region does not run")
	// ErrUnknownType: no Kind has the entity's type.
	ErrUnknownType = errors.New("unknown entity type")
)

// RegionConfig describes a Region.
type RegionConfig struct {
	// System runs the entities.
	System *actor.System
	// Store keeps them.
	Store persistence.Store
	// Registry knows their events.
	Registry *persistence.Registry
	// Kinds are the types of entities, each once.
	Kinds []persistence.Kind
	// Dispatcher names the System's worker pool for entities; "" is its default.
	Dispatcher string
	// IdleAfter is how long an entity stays in memory without a command; 0 is 2 min.
	IdleAfter time.Duration
	// MaxResident is how many entities are in memory before the longest unused are
	// stopped; 0 is 20,000. Up to a quarter and 16 more may be at
	// work or stopping; beyond that commands to further entities are ErrBusy.
	MaxResident int
	// MaxPending is how many unanswered commands an entity may have; 0 is 128.
	MaxPending int
	// AskTimeout bounds an Ask whose context has no deadline; 0 is 30 s.
	AskTimeout time.Duration
	// Log is what entities log to; nil discards.
	Log *slog.Logger
}

func (c RegionConfig) withDefaults() RegionConfig {
	c.IdleAfter = cmp.Or(c.IdleAfter, 2*time.Minute)
	c.MaxResident = cmp.Or(c.MaxResident, 20_000)
	c.MaxPending = cmp.Or(c.MaxPending, 128)
	c.AskTimeout = cmp.Or(c.AskTimeout, 30*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c RegionConfig) validate() error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("region: "+format, args...))
		}
	}
	fault(c.System == nil, "System is nil")
	fault(c.Store == nil, "Store is nil")
	fault(c.Registry == nil, "Registry is nil")
	fault(c.IdleAfter < 0, "IdleAfter is %v, set 0 (2 min) or more", c.IdleAfter)
	fault(c.MaxResident < 0, "MaxResident is %d, set 0 (20,000) or more", c.MaxResident)
	fault(c.MaxPending < 0, "MaxPending is %d, set 0 (128) or more", c.MaxPending)
	fault(c.AskTimeout < 0, "AskTimeout is %v, set 0 (30 s) or more", c.AskTimeout)
	seen := map[string]bool{}
	for _, k := range c.Kinds {
		if err := k.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("region: %w", err))
		}
		fault(seen[k.Type], "two kinds have the type %q", k.Type)
		seen[k.Type] = true
	}
	return errors.Join(errs...)
}

// Region is the one way to the entities of a node.
type Region struct {
	cfg   RegionConfig
	kinds map[string]persistence.Kind

	ticks sync.WaitGroup // the sweeper
	quit  chan struct{}  // closed: the sweeper ends

	// mu is held while a command is handed to an entity, so that none can slip
	// between an entity's decision to stop and its end. It is a leaf but for the
	// entity's mailbox.
	mu struct {
		sync.Mutex
		state   state
		epochs  []uint64 // by shard; 0 is not owned
		lost    []error  // by shard: why it is not owned any more
		slots   map[persistence.EntityID]*slot
		used    *list.List    // of *slot that are active, longest unused first
		spawned uint64        // incarnations ever
		empty   chan struct{} // closed when stopping and no slot is left
	}
}

// state of the region: created ──Start──▶ running ──Stop──▶ stopping ──▶ stopped
type state uint8

const (
	created state = iota
	running
	stopping
	stopped
)

// NewRegion checks the configuration and starts nothing.
func NewRegion(c RegionConfig) (*Region, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	r := &Region{cfg: c, kinds: map[string]persistence.Kind{}, quit: make(chan struct{})}
	for _, k := range c.Kinds {
		r.kinds[k.Type] = k
	}
	r.mu.epochs = make([]uint64, c.Store.Shards())
	r.mu.lost = make([]error, c.Store.Shards())
	r.mu.slots = map[persistence.EntityID]*slot{}
	r.mu.used = list.New()
	r.mu.empty = make(chan struct{})
	return r, nil
}

// Start acquires all shards, each with a new epoch, and takes commands from then
// on. A Region starts once.
func (r *Region) Start(ctx context.Context) error {
	r.mu.Lock()
	st := r.mu.state
	r.mu.Unlock()
	if st != created {
		return errors.New("start region: it was started before; make a new one")
	}
	epochs := make([]uint64, r.cfg.Store.Shards())
	errs := make([]error, len(epochs))
	var wg sync.WaitGroup
	for shard := range epochs {
		// Together they are one group commit, or two.
		wg.Go(func() { epochs[shard], errs[shard] = r.cfg.Store.AcquireShard(ctx, uint32(shard)) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("start region: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.state != created {
		return errors.New("start region: it was started or stopped meanwhile")
	}
	r.mu.epochs, r.mu.state = epochs, running
	r.ticks.Go(r.sweep)
	return nil
}

// Epoch is the epoch under which this region owns the shard; 0 if it does not.
// It is what a sink's fence takes.
func (r *Region) Epoch(shard uint32) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if int(shard) >= len(r.mu.epochs) {
		return 0
	}
	return r.mu.epochs[shard]
}

// EpochOf is Epoch of the shard of everything with this routing part.
func (r *Region) EpochOf(routing string) (shard uint32, epoch uint64) {
	shard = persistence.ShardOf(routing, r.cfg.Store.Shards())
	return shard, r.Epoch(shard)
}

// Resident is how many entities are in memory.
func (r *Region) Resident() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.slots)
}

// Tell gives cmd to the entity and returns without waiting for what becomes of
// it. Errors: ErrBusy, ErrNotRunning, ErrUnknownType, persistence.ErrDeposed;
// then nothing was given.
func (r *Region) Tell(ctx context.Context, id persistence.EntityID, cmd any) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("tell %s: %w", id, context.Cause(ctx))
	}
	if err := r.give(id, &persistence.Command{Msg: cmd}); err != nil {
		return fmt.Errorf("tell %s: %w", id, err)
	}
	return nil
}

// Ask gives cmd to the entity and waits for the answer: the decision's reply or
// refusal. The error is Tell's, the refusal, the store's, or ctx's cause; in the
// last case the command may still be carried out.
func (r *Region) Ask(ctx context.Context, id persistence.EntityID, cmd any) (any, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.cfg.AskTimeout)
		defer cancel()
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("ask %s: %w", id, context.Cause(ctx))
	}
	type answer struct {
		reply any
		err   error
	}
	answered := make(chan answer, 1)
	err := r.give(id, &persistence.Command{Msg: cmd, Reply: func(reply any, err error) { answered <- answer{reply, err} }})
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", id, err)
	}
	select {
	case a := <-answered:
		return a.reply, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("ask %s: wait for the answer: %w", id, context.Cause(ctx))
	}
}

// Stop takes no more commands, lets the entities answer what they have, stops
// them, and returns when all have stopped. If ctx ends first it returns an error
// with the number that remain; they go on stopping.
func (r *Region) Stop(ctx context.Context) error {
	r.mu.Lock()
	switch r.mu.state {
	case created:
		r.mu.state = stopped
		close(r.mu.empty)
	case running:
		r.mu.state = stopping
		close(r.quit)
		for _, s := range r.mu.slots {
			r.passivateLocked(s, true)
		}
		r.endLocked()
	}
	r.mu.Unlock()
	select {
	case <-r.mu.empty:
		r.ticks.Wait()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop region with %d entities left: %w", r.Resident(), context.Cause(ctx))
	}
}

// endLocked ends a stopping region that has no entity left.
func (r *Region) endLocked() {
	if r.mu.state == stopping && len(r.mu.slots) == 0 {
		r.mu.state = stopped
		close(r.mu.empty)
	}
}

// name is an actor name that tells people which entity it is.
func name(id persistence.EntityID, incarnation uint64) string {
	s := strings.NewReplacer("/", "|", "*", "+").Replace(id.String())
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "")
	}
	return fmt.Sprintf("%s#%d", s, incarnation)
}

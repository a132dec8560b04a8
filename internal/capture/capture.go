package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/retry"
)

// Config is what a Capture needs. Zero durations and sizes take the defaults.
type Config struct {
	// Name is the capture's name: source and lane group, "shop:0".
	Name    string
	Source  change.Source
	Journal Journal
	Filter  change.Filter
	Log     *slog.Logger
	// Ready is told of a lane that has something to cut. It must not block; it
	// may be called again for a lane that is already scheduled.
	Ready func(*Lane)
	// Admit is asked on the capture loop for the lanes of tables that a statement
	// creates or changes under a wanted name; group is the end of its group. It returns only when their tasks are durable;
	// the lanes start at the end of the statement's group. nil: none.
	Admit func(ctx context.Context, s *change.Statement, group change.Position) ([]*Lane, error)
	// Started is told on the capture loop of a lane that Admit returned, with its
	// position. It must not block.
	Started func(l *Lane, at change.Position)
	// Slow is told of a lane whose rows fill the budget without progress, so that
	// the engine detaches it. It must not block.
	Slow func(*Lane)
	// Attached is told of a lane that the sweep has handed over, durably. It must
	// not block.
	Attached func(*Lane)
	// Lost is told of lanes whose log is gone. It must not block.
	Lost func(lanes []*Lane, cause error)
	// Fatal is an error after which no record may be written any more (deposed).
	Fatal func(error) bool

	BudgetBytes     int           // rows in memory for all lanes; 64 MiB
	LaneBudgetBytes int           // rows in memory for one lane in the sweep; 8 MiB
	FrontierEvery   time.Duration // J; 1s
	StallAfter      time.Duration // full budget without room; 10s
	SweepFullFor    time.Duration // a lane full for longer leaves the sweep; 5s
	// Now is the clock; time.Now.
	Now func() time.Time
	// Retry spaces the attempts to open the log and to write a record.
	Retry retry.Policy
}

func (c *Config) fill() {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.FrontierEvery, time.Second)
	def(&c.StallAfter, 10*time.Second)
	def(&c.SweepFullFor, 5*time.Second)
	if c.BudgetBytes == 0 {
		c.BudgetBytes = 64 << 20
	}
	if c.LaneBudgetBytes == 0 {
		c.LaneBudgetBytes = 8 << 20
	}
	if c.Retry.Initial == 0 {
		c.Retry = retry.Policy{Initial: 100 * time.Millisecond, Max: 10 * time.Second, Multiplier: 2, Jitter: 0.5}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Fatal == nil {
		c.Fatal = func(error) bool { return false }
	}
}

// Capture is the shell around Core. See the package documentation.
type Capture struct {
	cfg Config

	mu struct {
		sync.Mutex
		core    *Core
		changed chan struct{} // closed and replaced when something changed and somebody waits
		waiters int
		status  Status
	}
	sweepNow chan struct{}
	// wait blocks until cond holds under the mutex; the model test replaces it.
	wait func(ctx context.Context, cond func(*Core) bool) error
}

// Status is what a capture tells about itself.
type Status struct {
	Read      change.Position // R
	Frontier  change.Position // F
	LastRead  time.Time       // when the last group arrived
	LastEvent time.Time       // commit time of the last group, in the source's clock
	Groups    uint64
	Sweeping  bool
	SweepAt   change.Position
	// Err is why the log is not being read at present; nil when it is.
	Err         error
	QueuedBytes int
	LoadedLanes int
}

// New returns a capture whose last journaled frontier is f.
func New(cfg Config, f Frontier) *Capture {
	cfg.fill()
	c := &Capture{cfg: cfg, sweepNow: make(chan struct{}, 1)}
	c.mu.core = NewCore(f.At, f.From)
	c.wait = c.waitChanged
	return c
}

// SetWait replaces how procedures wait; for model tests that run them as
// coroutines. Call it before anything else.
func (c *Capture) SetWait(wait func(ctx context.Context, cond func(*Core) bool) error) { c.wait = wait }

// Try reports whether cond holds now.
func (c *Capture) Try(cond func(*Core) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cond(c.mu.core)
}

// update runs f under the mutex and afterwards wakes whoever waits and schedules
// the lanes that f made ready.
func (c *Capture) update(f func(core *Core, ready func(*Lane))) {
	var ready []*Lane
	c.mu.Lock()
	f(c.mu.core, func(l *Lane) { ready = append(ready, l) })
	if c.mu.waiters > 0 {
		close(c.mu.changed)
		c.mu.changed, c.mu.waiters = nil, 0
	}
	c.mu.Unlock()
	if c.cfg.Ready != nil {
		for _, l := range ready {
			c.cfg.Ready(l)
		}
	}
}

func (c *Capture) waitChanged(ctx context.Context, cond func(*Core) bool) error {
	for {
		c.mu.Lock()
		if cond(c.mu.core) {
			c.mu.Unlock()
			return nil
		}
		if c.mu.changed == nil {
			c.mu.changed = make(chan struct{})
		}
		ch := c.mu.changed
		c.mu.waiters++
		c.mu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// waitFor waits at most d for cond; false when the time was up.
func (c *Capture) waitFor(ctx context.Context, d time.Duration, cond func(*Core) bool) (bool, error) {
	tctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	err := c.wait(tctx, cond)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}

// persist repeats a store operation until it is durable: its outcome must be
// known before the state may go on. It ends with an error only on ctx or on a
// fatal one.
func (c *Capture) persist(ctx context.Context, what string, op func(context.Context) error) error {
	err := retry.Do(ctx, c.cfg.Retry, func(ctx context.Context) error {
		err := op(ctx)
		switch {
		case err == nil:
			return nil
		case c.cfg.Fatal(err):
			return retry.Permanent(err)
		}
		c.cfg.Log.Warn("store record not written, trying again", "capture", c.cfg.Name, "record", what, "err", err)
		return err
	})
	if err != nil {
		return fmt.Errorf("store %s: %w", what, err)
	}
	return nil
}

// putLane stores an attach or detach while no other record of the lane is on its
// way, so that the last one stored is the last one meant.
func (c *Capture) putLane(ctx context.Context, l *Lane, r LaneRecord) error {
	r.Capture, r.Incarnation = c.cfg.Name, l.Incarnation
	return c.persist(ctx, "lane "+l.Incarnation, func(ctx context.Context) error { return c.cfg.Journal.PutLane(ctx, r) })
}

// AddLane registers a lane found at start with its durable mode and checkpoint.
func (c *Capture) AddLane(l *Lane, attached bool, ckpt, bound change.Position) (err error) {
	c.update(func(core *Core, _ func(*Lane)) { err = core.AddLane(l, attached, ckpt, bound) })
	return err
}

// SetCheckpoint tells a detached lane what its row in the target says.
func (c *Capture) SetCheckpoint(l *Lane, ckpt change.Position) {
	c.update(func(core *Core, _ func(*Lane)) { core.SetCheckpoint(l, ckpt) })
}

// StartLanes makes new tasks' lanes live at one position of the log, from which
// every group of their tables is delivered. The filter must want the tables
// already; groups read before it did lie at or below the source's present end,
// which the capture passes first.
func (c *Capture) StartLanes(ctx context.Context, lanes []*Lane) (at change.Position, err error) {
	end, err := c.cfg.Source.Now(ctx)
	if err != nil {
		return at, fmt.Errorf("start lanes: %w", err)
	}
	if err := c.wait(ctx, func(core *Core) bool { return end.AtOrBefore(core.read) }); err != nil {
		return at, fmt.Errorf("start lanes: wait for %s: %w", end, err)
	}
	c.update(func(core *Core, _ func(*Lane)) {
		for _, l := range lanes {
			if at, err = core.StartLane(l); err != nil {
				return
			}
		}
	})
	return at, err
}

// Attach makes a started lane durable. The target must hold its checkpoint row.
func (c *Capture) Attach(ctx context.Context, l *Lane) error {
	var bound change.Position
	err := c.lockStoring(ctx, l, func(core *Core) bool {
		bound = l.low
		return l.mode == Attaching
	})
	if err != nil {
		return err
	}
	err = c.putLane(ctx, l, LaneRecord{Attached: true, Bound: bound})
	c.update(func(core *Core, ready func(*Lane)) {
		l.storing = false
		if err == nil {
			core.AttachDurable(l)
			if len(l.queue) > 0 {
				ready(l)
			}
		}
	})
	return err
}

// errLaneMode: the lane is not in the mode that the step needs.
var errLaneMode = errors.New("lane changed its mode meanwhile")

// lockStoring waits until no record of l is on its way, and claims that right
// when ok holds.
func (c *Capture) lockStoring(ctx context.Context, l *Lane, ok func(*Core) bool) error {
	granted, mode := false, Detached
	err := c.wait(ctx, func(core *Core) bool {
		if mode = l.mode; l.storing {
			return false
		}
		if granted = ok(core); granted {
			l.storing = true
		}
		return true
	})
	switch {
	case err != nil:
		return err
	case !granted:
		return fmt.Errorf("lane %s of %s is %s: %w", l.Incarnation, l.Table, mode, errLaneMode)
	}
	return nil
}

// Detach takes the lane out: it stops at once, and when Detach returns nil it no
// longer holds the frontier, durably. The steps are those of frontier.md.
func (c *Capture) Detach(ctx context.Context, l *Lane, why string) error {
	var bound change.Position
	var store bool
	err := c.lockStoring(ctx, l, func(core *Core) bool {
		bound, store = core.DetachBegin(l) // step 1
		return true
	})
	if err != nil {
		return fmt.Errorf("detach %s: %w", l.Table, err)
	}
	if store {
		err = c.putLane(ctx, l, LaneRecord{Why: why, Bound: bound}) // step 2
	}
	c.update(func(core *Core, _ func(*Lane)) {
		l.storing = false
		if err == nil {
			core.DetachDurable(l) // step 3
		}
	})
	return err
}

// Remove forgets a lane and its record. Nothing of it is counted afterwards.
func (c *Capture) Remove(ctx context.Context, l *Lane) error {
	if err := c.Detach(ctx, l, "removed"); err != nil {
		return err
	}
	err := c.persist(ctx, "lane "+l.Incarnation, func(ctx context.Context) error {
		return c.cfg.Journal.DeleteLane(ctx, c.cfg.Name, l.Incarnation)
	})
	if err == nil {
		c.update(func(core *Core, _ func(*Lane)) { core.Remove(l) })
	}
	return err
}

// Advance journals the frontier when it moved (J) and then releases it (D).
func (c *Capture) Advance(ctx context.Context) error {
	var f, from change.Position
	var moved bool
	c.update(func(core *Core, _ func(*Lane)) { f, from, moved = core.Advance() })
	if !moved {
		return nil
	}
	err := c.persist(ctx, "frontier", func(ctx context.Context) error {
		return c.cfg.Journal.PutFrontier(ctx, Frontier{Capture: c.cfg.Name, At: f, From: from})
	})
	if err != nil {
		return err
	}
	c.update(func(core *Core, _ func(*Lane)) { core.Journaled(f) })
	if err := c.cfg.Source.Release(ctx, from); err != nil {
		return fmt.Errorf("release %s: %w", from, err)
	}
	return nil
}

// Deliver takes one group from the log: it admits the tables that the group
// creates, queues the rows of live lanes and moves R.
func (c *Capture) Deliver(ctx context.Context, g *change.Group) error {
	started, err := c.admit(ctx, g)
	if err != nil {
		return err
	}
	var at change.Position
	c.update(func(core *Core, ready func(*Lane)) {
		work := core.route(g)
		core.Deliver(g.End, g.OpenFrom, work, ready)
		core.endRouting(work)
		for _, l := range started {
			if at, err = core.StartLane(l); err != nil {
				return
			}
		}
		c.mu.status.LastRead, c.mu.status.LastEvent = g.ReadTime, g.CommitTime
		c.mu.status.Groups++
	})
	if err != nil {
		return err
	}
	for _, l := range started {
		c.cfg.Started(l, at)
	}
	return nil
}

func (c *Capture) admit(ctx context.Context, g *change.Group) ([]*Lane, error) {
	if c.cfg.Admit == nil {
		return nil, nil
	}
	known := false
	c.mu.Lock()
	known = g.End.AtOrBefore(c.mu.core.read)
	c.mu.Unlock()
	var started []*Lane
	for _, ev := range g.Events {
		if s := ev.Statement; s != nil && !known && (s.Kind == change.CreateTable || s.Kind == change.AlterTable || len(s.Renames) > 0) {
			lanes, err := c.cfg.Admit(ctx, s, g.End)
			if err != nil {
				return nil, fmt.Errorf("admit new tables of %q: %w", s.SQL, err)
			}
			started = append(started, lanes...)
		}
	}
	return started, nil
}

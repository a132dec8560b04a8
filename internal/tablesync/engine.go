package tablesync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/cluster"
	"github.com/runnel-dev/runnel/internal/capture"
	"github.com/runnel-dev/runnel/persistence"
	"github.com/runnel-dev/runnel/retry"
)

// Source is what a source connector gives.
type Source interface {
	change.Source
	change.Catalog
	change.ChunkReader
}

// Sink is what a target connector gives.
type Sink interface {
	change.Sink
	change.TableSink
}

// Connector makes connectors of specifications; the root package wires it.
type Connector interface {
	Source(ServerSpec) (Source, error)
	Sink(ServerSpec) (Sink, error)
}

// Config is what an Engine needs.
type Config struct {
	Store   persistence.Store
	Connect Connector
	Log     *slog.Logger
	// BudgetBytes bounds the rows in memory per source; 64 MiB when zero.
	BudgetBytes int
	// Retry spaces a failed task's attempts; 1 s doubling to 1 min, 10 attempts.
	Retry retry.Policy
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

var (
	// ErrNoTask: no task has this id.
	ErrNoTask = errors.New("no such task")
	// ErrNotRunning: the engine has not started or stops.
	ErrNotRunning = errors.New("the engine does not run")
)

// Engine runs all sync tasks of a process.
type Engine struct {
	cfg    Config
	region *cluster.Region
	log    *slog.Logger
	meter  meter

	// applying serialises changes of definitions.
	applying sync.Mutex

	mu struct {
		sync.Mutex
		running   bool
		ctx       context.Context // of Run; for what is started later
		group     *sync.WaitGroup // of Run
		sources   map[string]*sourceRun
		targets   map[string]*targetRun
		pipelines map[string]*pipelineRun
		tasks     map[string]*task // by entity id
		byTable   map[taskKey]*task
		byTarget  map[intoKey]*task
		making    map[taskKey]bool // tasks that are being created
		counts    map[State]int
		fail      func(error) // ends Run
	}
}

type (
	// taskKey finds a pipeline's task of a table.
	taskKey struct {
		pipeline string
		table    change.TableID
	}
	// intoKey finds the task that writes a target table.
	intoKey struct {
		target string
		table  change.TableID
	}
)

// task is the engine's side of a sync task: what its entity decided last, and the
// lane that runs.
type task struct {
	id   persistence.EntityID
	text string // id as text
	src  *sourceRun
	tgt  *targetRun

	mu struct {
		sync.Mutex
		state  taskState
		lane   *tableLane      // nil until the task's lane exists
		at     change.Position // where the lane started, while it is Attaching
		notice *notice         // what a lane met and the entity does not know yet
		queued bool            // in the source's reconcile queue, or being reconciled
		again  bool            // something changed while it was being reconciled
		copies bool            // in the copy queue, or being copied
		// copying: a worker reads or loads a chunk of the lane; the lane's rows at the
		// target are not forgotten before it has ended.
		copying bool
		timer   *time.Timer // wakes the task for a retry
	}
}

func (t *task) snapshot() (taskState, *tableLane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.state, t.mu.lane
}

// pipelineRun is a pipeline and what it could not take in.
type pipelineRun struct {
	spec    PipelineSpec
	refused []*change.Problem
}

// kinds describes sync tasks to the region.
func (e *Engine) kinds() []persistence.Kind {
	def := persistence.Definition[taskState]{
		Type:    taskType,
		Initial: func(persistence.EntityID) taskState { return taskState{} },
		Apply:   applyEvent,
		Effects: func(x persistence.EffectContext, s taskState, _ []any) { e.changed(x.ID(), s) },
	}
	// Decide needs the id for its messages; the state carries none, so it is
	// wrapped by Ask's caller.
	def.Decide = func(s taskState, cmd any) persistence.Decision {
		c, ok := cmd.(addressed)
		if !ok {
			return persistence.Decision{Err: fmt.Errorf("unknown command %T", cmd)}
		}
		return decide(c.id, s, c.cmd, e.cfg.Now())
	}
	return []persistence.Kind{def.Kind()}
}

// addressed is a command with the id it was sent to.
type addressed struct {
	id  string
	cmd any
}

// Registry returns the codecs of sync tasks, and Folders what their rows hold.
func Registry() (*persistence.Registry, map[string]persistence.Folder, error) {
	reg := persistence.NewRegistry()
	if err := registerEvents(reg); err != nil {
		return nil, nil, err
	}
	return reg, map[string]persistence.Folder{taskType: foldTask(reg)}, nil
}

// New returns an engine; makeRegion makes the region of its entity kinds.
func New(cfg Config, makeRegion func([]persistence.Kind) (*cluster.Region, error)) (*Engine, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Retry.Initial == 0 {
		cfg.Retry = retry.Policy{Initial: time.Second, Max: time.Minute, Multiplier: 2, Jitter: 0.2, MaxAttempts: 10}
	}
	e := &Engine{cfg: cfg, log: cfg.Log}
	e.mu.sources, e.mu.targets, e.mu.pipelines = map[string]*sourceRun{}, map[string]*targetRun{}, map[string]*pipelineRun{}
	e.mu.tasks, e.mu.byTable, e.mu.byTarget = map[string]*task{}, map[taskKey]*task{}, map[intoKey]*task{}
	e.mu.counts, e.mu.making = map[State]int{}, map[taskKey]bool{}
	region, err := makeRegion(e.kinds())
	if err != nil {
		return nil, err
	}
	e.region = region
	return e, nil
}

// Run loads what the store knows, starts every source and target, and returns
// when ctx ends or the process may not go on (deposed, store failed). It waits
// for all that it started.
func (e *Engine) Run(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := e.region.Start(ctx); err != nil {
		return fmt.Errorf("start region: %w", err)
	}
	var group sync.WaitGroup
	e.mu.Lock()
	e.mu.ctx, e.mu.group, e.mu.fail = ctx, &group, cancel
	e.mu.Unlock()
	err := e.load(ctx)
	if err == nil {
		e.mu.Lock()
		e.mu.running = true
		for _, t := range e.mu.targets {
			e.startTargetLocked(t)
		}
		for _, s := range e.mu.sources {
			e.startSourceLocked(s)
		}
		e.mu.Unlock()
		if ready != nil {
			ready()
		}
		<-ctx.Done()
	}
	e.mu.Lock()
	e.mu.running = false
	e.mu.Unlock()
	cancel(nil)
	group.Wait()
	stop, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	err = errors.Join(err, e.region.Stop(stop), e.closeConnectors())
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = errors.Join(cause, err)
	}
	return err
}

// load reads definitions and task rows: no entity is loaded.
func (e *Engine) load(ctx context.Context) error {
	var defs Definitions
	err := e.cfg.Store.Scan(ctx, persistence.KindDefinition, "", func(r persistence.Record) error {
		d, err := persistence.ParseDefinition(r)
		if err != nil {
			return err
		}
		return defs.addStored(d)
	})
	if err != nil {
		return fmt.Errorf("read definitions: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range defs.Targets {
		e.addTargetLocked(s)
	}
	for _, s := range defs.Sources {
		e.addSourceLocked(s)
	}
	for _, p := range defs.Pipelines {
		e.mu.pipelines[p.Name] = &pipelineRun{spec: p}
	}
	e.refilterLocked()
	err = e.cfg.Store.ScanRows(ctx, taskType, func(r persistence.Row) error {
		if r.Fault != "" {
			return fmt.Errorf("task %s: %s", r.Entity, r.Fault)
		}
		var s taskState
		if err := json.Unmarshal(r.Data, &s); err != nil {
			return fmt.Errorf("read row of task %s: %w", r.Entity, err)
		}
		e.addTaskLocked(r.Entity, s, nil)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read tasks: %w", err)
	}
	return nil
}

func (d *Definitions) addStored(r persistence.DefinitionRecord) error {
	var err error
	switch r.Kind {
	case KindSource, KindTarget:
		var s ServerSpec
		if err = json.Unmarshal(r.JSON, &s); err == nil && r.Kind == KindSource {
			d.Sources = append(d.Sources, s)
		} else if err == nil {
			d.Targets = append(d.Targets, s)
		}
	case KindPipeline:
		var p PipelineSpec
		if err = json.Unmarshal(r.JSON, &p); err == nil {
			d.Pipelines = append(d.Pipelines, p)
		}
	default:
		err = errors.New("unknown kind; a newer Runnel wrote it")
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", r.Kind, r.Name, err)
	}
	return nil
}

// addTaskLocked takes a task into the indexes; nil when its source or target is
// not declared any more or it was removed for good.
func (e *Engine) addTaskLocked(id persistence.EntityID, s taskState, admit *capture.Capture) *task {
	t := &task{id: id, text: id.String(), src: e.mu.sources[s.Spec.Source], tgt: e.mu.targets[s.Spec.Target]}
	if t.src == nil || t.tgt == nil {
		return nil
	}
	if s.State == Removed { // its lane record, if one is left, is cleaned up by the source
		if p := e.mu.pipelines[s.Spec.Pipeline]; p != nil && s.Since.After(p.spec.Created) {
			t.src.ended(taskKey{s.Spec.Pipeline, s.Spec.Table}, s.Barred)
		}
		return nil
	}
	t.mu.state = s
	if admit != nil {
		l := t.src.newLane(admit, t)
		l.admitted = true
		t.mu.lane = l
	}
	e.mu.tasks[t.text] = t
	e.mu.byTable[taskKey{s.Spec.Pipeline, s.Spec.Table}] = t
	e.mu.byTarget[intoKey{s.Spec.Target, s.Spec.Into}] = t
	e.mu.counts[s.State]++
	t.src.addTask(t, s.Spec.Table)
	return t
}

// forgetTask drops a removed task from the indexes.
func (e *Engine) forgetTask(t *task) {
	s, _ := t.snapshot()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.tasks[t.text] != t {
		return
	}
	delete(e.mu.tasks, t.text)
	if k := (taskKey{s.Spec.Pipeline, s.Spec.Table}); e.mu.byTable[k] == t {
		delete(e.mu.byTable, k)
	}
	if k := (intoKey{s.Spec.Target, s.Spec.Into}); e.mu.byTarget[k] == t {
		delete(e.mu.byTarget, k)
	}
	e.mu.counts[s.State]--
	t.src.dropTask(t, s.Spec.Table)
}

// changed is the entity's effect: its new state is durable. It does not block.
func (e *Engine) changed(id persistence.EntityID, s taskState) {
	e.mu.Lock()
	t := e.mu.tasks[id.String()]
	if t != nil {
		t.mu.Lock()
		e.mu.counts[t.mu.state.State]--
		e.mu.counts[s.State]++
		t.mu.state = s
		t.mu.Unlock()
	}
	e.mu.Unlock()
	if t != nil {
		e.log.Info("task state", "task", t.text, "table", s.Spec.Table.String(), "state", string(s.State), "reason", s.Reason)
		t.src.reconcileSoon(t)
	}
}

// ask sends a command to a task's entity.
func (e *Engine) ask(ctx context.Context, id persistence.EntityID, cmd any) (taskState, error) {
	r, err := e.region.Ask(ctx, id, addressed{id.String(), cmd})
	if err != nil {
		return taskState{}, err
	}
	return r.(taskState), nil
}

// report tells a task's entity what the engine saw; it repeats until the report
// is durable, since nothing else would tell.
func (e *Engine) report(ctx context.Context, t *task, r cmdReport) {
	err := retry.Do(ctx, retry.Policy{Initial: 50 * time.Millisecond, Max: 5 * time.Second, Multiplier: 2, Jitter: 0.5}, func(ctx context.Context) error {
		_, err := e.ask(ctx, t.id, r)
		if errors.Is(err, persistence.ErrDeposed) {
			return retry.Permanent(err)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		e.fatal(fmt.Errorf("report %s of task %s: %w", r.Saw, t.text, err))
	}
}

// fatal ends the engine: this process may not write any more.
func (e *Engine) fatal(err error) {
	e.mu.Lock()
	fail := e.mu.fail
	e.mu.Unlock()
	if fail != nil {
		fail(err)
	}
}

// goLocked starts a goroutine that Run waits for.
func (e *Engine) goLocked(f func(ctx context.Context)) {
	ctx, group := e.mu.ctx, e.mu.group
	group.Go(func() { f(ctx) })
}

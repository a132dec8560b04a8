package tablesync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/capture"
	"github.com/runnel-dev/runnel/persistence"
	"github.com/runnel-dev/runnel/retry"
)

// sourceRun is a declared source: its connector, and the capture while it runs.
type sourceRun struct {
	e      *Engine
	spec   ServerSpec
	conn   *lazySource
	filter *sourceFilter
	copies *copyQueue

	wake    chan struct{} // a token: look at the queue of tasks
	lookNow chan struct{} // a token: look at the catalog
	mu      struct {
		sync.Mutex
		cap     *capture.Capture // nil while the source does not run
		journal recordJournal
		err     error // why it does not run
		tasks   map[*task]struct{}
		queue   []*task             // to be reconciled
		barred  map[taskKey]bool    // removed by an operator: not created again
		former  map[taskKey]bool    // ended with its source table: the rows at the target are its own
		claimed map[*targetRun]bool // targets whose fence this run has raised
		same    map[*targetRun]bool // whether the target is the same server, as far as asked
		refresh bool                // pipelines changed: look for tables
		stop    context.CancelFunc  // ends the supervisor
		ended   chan struct{}       // closed when the supervisor has ended
	}
}

func (e *Engine) addSourceLocked(spec ServerSpec) {
	conn := newLazySource(func() (Source, error) { return e.cfg.Connect.Source(spec) })
	readers := spec.CopyReaders
	if readers == 0 {
		readers = 2
	}
	s := &sourceRun{e: e, spec: spec, conn: conn, filter: newSourceFilter(), wake: make(chan struct{}, 1), lookNow: make(chan struct{}, 1), copies: newCopyQueue(readers)}
	s.mu.tasks, s.mu.barred, s.mu.former = map[*task]struct{}{}, map[taskKey]bool{}, map[taskKey]bool{}
	e.mu.sources[spec.Name] = s
}

func (s *sourceRun) addTask(t *task, table change.TableID) {
	s.mu.Lock()
	s.mu.tasks[t] = struct{}{}
	s.mu.Unlock()
	s.filter.add(table, 1)
}

func (s *sourceRun) dropTask(t *task, table change.TableID) {
	s.mu.Lock()
	delete(s.mu.tasks, t)
	s.mu.Unlock()
	s.filter.add(table, -1)
}

// ended remembers how a pipeline's task of a table was removed.
func (s *sourceRun) ended(k taskKey, byOperator bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if byOperator {
		s.mu.barred[k] = true
	} else {
		s.mu.former[k] = true
	}
}

// unbar lets tables that an operator removed come back: their pipeline is removed.
func (s *sourceRun) unbar(pipeline string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.mu.barred {
		if k.pipeline == pipeline {
			delete(s.mu.barred, k)
		}
	}
	for k := range s.mu.former {
		if k.pipeline == pipeline {
			delete(s.mu.former, k)
		}
	}
}

// startSourceLocked supervises the source until Run ends or it is removed.
func (e *Engine) startSourceLocked(s *sourceRun) {
	ctx, cancel := context.WithCancel(e.mu.ctx)
	ended := make(chan struct{})
	s.mu.Lock()
	s.mu.stop, s.mu.ended, s.mu.refresh = cancel, ended, true
	s.mu.Unlock()
	e.mu.group.Go(func() {
		defer close(ended)
		defer cancel()
		policy := retry.Policy{Initial: time.Second, Max: 30 * time.Second, Multiplier: 2, Jitter: 0.3}
		for attempt := 1; ctx.Err() == nil; attempt++ {
			started := e.cfg.Now()
			err := s.run(ctx)
			if ctx.Err() != nil {
				return
			}
			if errors.Is(err, persistence.ErrDeposed) || errors.Is(err, change.ErrDeposed) {
				e.fatal(fmt.Errorf("source %s: %w", s.spec.Name, err))
				return
			}
			s.setErr(err)
			if err != nil {
				e.log.Warn("source does not run", "source", s.spec.Name, "attempt", attempt, "err", err)
				s.renewConnector()
			}
			if e.cfg.Now().Sub(started) > time.Minute || err == nil {
				attempt = 1
			}
			if retry.Sleep(ctx, policy, attempt) != nil {
				return
			}
		}
	})
}

// renewConnector has the connector made anew at its next use.
func (s *sourceRun) renewConnector() {
	if err := s.conn.reset(); err != nil {
		s.e.log.Warn("connector not closed", "source", s.spec.Name, "err", err)
	}
}

func (s *sourceRun) setErr(err error) {
	s.mu.Lock()
	s.mu.err = err
	s.mu.Unlock()
}

// run captures the source once: check, restore, read. It returns when reading
// cannot go on or ctx ends; nothing of it runs afterwards.
func (s *sourceRun) run(ctx context.Context) error {
	problems, err := s.conn.Check(ctx)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return joinProblems(problems)
	}
	c, err := s.restore(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	defer func() { cancel(); group.Wait(); s.detachRuntime() }()
	for range reconcilers {
		group.Go(func() { s.reconcileLoop(ctx) })
	}
	for range s.copies.readers {
		group.Go(func() { s.copies.run(ctx, s.copyTask) })
	}
	group.Go(func() { s.discoverLoop(ctx) })
	s.setErr(nil)
	s.reconcileAll()
	err = c.Run(ctx)
	if errors.Is(err, change.ErrLogGone) || errors.Is(err, change.ErrHistory) {
		return s.lostAll(ctx, c, err)
	}
	return err
}

func joinProblems(ps []*change.Problem) error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errors.Join(errs...)
}

// restore makes the capture and brings back the lanes of all tasks.
func (s *sourceRun) restore(ctx context.Context) (*capture.Capture, error) {
	name := captureName(s.spec.Name)
	shard, epoch := s.e.region.EpochOf(name)
	j := recordJournal{s.e.cfg.Store, shard, epoch}
	frontier, known, records, err := j.load(ctx, name)
	if err != nil {
		return nil, err
	}
	if !known {
		now, err := s.conn.Now(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the end of the log: %w", err)
		}
		frontier.At, frontier.From = now, now
		if err := j.PutFrontier(ctx, frontier); err != nil {
			return nil, err
		}
	}
	c := capture.New(s.captureConfig(name, j), frontier)
	s.mu.Lock()
	s.mu.journal, s.mu.claimed, s.mu.same = j, map[*targetRun]bool{}, map[*targetRun]bool{}
	byTarget := map[*targetRun][]*tableLane{}
	for t := range s.mu.tasks {
		lane := s.newLane(c, t)
		t.mu.Lock()
		t.mu.lane = lane
		t.mu.Unlock()
		byTarget[t.tgt] = append(byTarget[t.tgt], lane)
	}
	s.mu.Unlock()
	mine := map[string]bool{}
	for tgt, lanes := range byTarget {
		back, err := restore(ctx, c, tgt.sink, s.fence(), lanes, records)
		if err != nil {
			s.detachRuntime()
			return nil, fmt.Errorf("target %s: %w", tgt.spec.Name, err)
		}
		if back.unreadable != nil {
			tgt.failed(back.unreadable)
		} else {
			s.setClaimed(tgt)
		}
		for _, l := range back.gone {
			s.tell(l, goneNotice(errCheckpointGone))
		}
		for _, l := range lanes {
			mine[l.handle.Incarnation] = true
		}
	}
	for inc := range records {
		if !mine[inc] {
			s.sweepOrphan(ctx, j, name, inc)
		}
	}
	s.mu.Lock()
	s.mu.cap = c
	s.mu.Unlock()
	return c, nil
}

func (s *sourceRun) setClaimed(t *targetRun) {
	s.mu.Lock()
	s.mu.claimed[t] = true
	s.mu.Unlock()
}

func (s *sourceRun) unclaim(t *targetRun) {
	s.mu.Lock()
	delete(s.mu.claimed, t)
	s.mu.Unlock()
}

// claim raises this capture's fence at a target before the first task writes
// there.
func (s *sourceRun) claim(ctx context.Context, t *targetRun) error {
	s.mu.Lock()
	done := s.mu.claimed[t]
	s.mu.Unlock()
	if done {
		return nil
	}
	if err := t.sink.Claim(ctx, s.fence()); err != nil {
		return fmt.Errorf("claim target %s: %w", t.spec.Name, err)
	}
	s.setClaimed(t)
	return nil
}

// sweepOrphan cleans up after a task that was removed or renewed when the process
// ended before it was done.
func (s *sourceRun) sweepOrphan(ctx context.Context, j recordJournal, name, incarnation string) {
	s.e.mu.Lock()
	targets := make([]*targetRun, 0, len(s.e.mu.targets))
	for _, t := range s.e.mu.targets {
		targets = append(targets, t)
	}
	s.e.mu.Unlock()
	for _, t := range targets {
		if err := t.sink.Forget(ctx, s.fence(), incarnation); err != nil {
			s.e.log.Warn("rows of a removed task stay at the target until the next start", "target", t.spec.Name, "incarnation", incarnation, "err", err)
			return
		}
	}
	if err := j.DeleteLane(ctx, name, incarnation); err != nil {
		s.e.log.Warn("record of a removed task stays until the next start", "incarnation", incarnation, "err", err)
	}
}

func (s *sourceRun) captureConfig(name string, j recordJournal) capture.Config {
	return capture.Config{
		Name: name, Source: s.conn, Journal: j, Filter: s.filter, Log: s.e.log, BudgetBytes: s.e.cfg.BudgetBytes,
		Ready:    func(l *capture.Lane) { t := l.Task.(*tableLane); t.pool.schedule(t) },
		Admit:    s.admit,
		Started:  s.started,
		Attached: func(l *capture.Lane) { s.reconcileSoon(l.Task.(*tableLane).task) },
		Slow: func(l *capture.Lane) {
			s.tell(l.Task.(*tableLane), notice{saw: sawBehind, reason: "its rows filled the budget without progress"})
		},
		Lost: func(lanes []*capture.Lane, cause error) {
			for _, l := range lanes {
				s.tell(l.Task.(*tableLane), lostNotice(cause))
			}
		},
		Fatal: func(err error) bool {
			return errors.Is(err, persistence.ErrDeposed) || errors.Is(err, persistence.ErrClosed)
		},
		Now: s.e.cfg.Now,
	}
}

func lostNotice(cause error) notice {
	n := notice{saw: sawLost, reason: cause.Error(), remedy: "resync the task"}
	if errors.Is(cause, change.ErrLogGone) {
		n.remedy = "keep the log longer at the source (binlog_expire_logs_seconds), then resync the task"
	}
	return n
}

// fence is the right of this capture to write.
func (s *sourceRun) fence() change.Fence {
	name := captureName(s.spec.Name)
	_, epoch := s.e.region.EpochOf(name)
	return change.Fence{StoreID: s.e.cfg.Store.StoreID(), Owner: name, Epoch: epoch}
}

// newLane makes the lane of a task's present life.
func (s *sourceRun) newLane(c *capture.Capture, t *task) *tableLane {
	t.mu.Lock()
	st := t.mu.state
	t.mu.Unlock()
	l := &tableLane{cap: c, sink: t.tgt.sink, fence: s.fence, target: st.Spec.Into, taskID: t.text, pool: t.tgt.pool, task: t,
		handle: &capture.Lane{Table: st.Spec.Table, Incarnation: st.Incarnation}}
	l.handle.Task = l
	return l
}

// detachRuntime forgets the lanes of a run that ended.
func (s *sourceRun) detachRuntime() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.cap = nil
	for t := range s.mu.tasks {
		t.mu.Lock()
		t.mu.lane, t.mu.notice, t.mu.copies = nil, nil, false
		if t.mu.timer != nil {
			t.mu.timer.Stop()
			t.mu.timer = nil
		}
		t.mu.Unlock()
	}
	s.copies.clear()
}

// lostAll makes every task of the source needs-resync: the log that they need is
// gone, or it is another log. Each lane is detached durably before the frontier
// moves to the log's present end.
func (s *sourceRun) lostAll(ctx context.Context, c *capture.Capture, cause error) error {
	n := lostNotice(cause)
	s.mu.Lock()
	tasks := make([]*task, 0, len(s.mu.tasks))
	for t := range s.mu.tasks {
		tasks = append(tasks, t)
	}
	j := s.mu.journal
	s.mu.Unlock()
	for _, t := range tasks {
		st, lane := t.snapshot()
		if lane == nil {
			continue
		}
		if err := c.Detach(ctx, lane.handle, "log lost"); err != nil {
			return err
		}
		s.e.report(ctx, t, cmdReport{Incarnation: st.Incarnation, Saw: n.saw, Reason: n.reason, Remedy: n.remedy})
	}
	now, err := s.conn.Now(ctx)
	if err != nil {
		return fmt.Errorf("read the end of the log: %w", err)
	}
	s.e.log.Warn("log lost, every task needs a resync", "source", s.spec.Name, "tasks", len(tasks), "cause", cause)
	return j.PutFrontier(ctx, capture.Frontier{Capture: captureName(s.spec.Name), At: now, From: now})
}

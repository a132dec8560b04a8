package tablesync

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/capture"
	"github.com/runnel-dev/runnel/retry"
)

// targetRun is a declared target: its sink and the workers that apply.
type targetRun struct {
	e    *Engine
	spec ServerSpec
	sink *lazySink
	pool *pool

	mu struct {
		sync.Mutex
		err     error                   // why it is down; nil while it is up
		waiting map[*tableLane]struct{} // lanes to schedule when it is up again
		stop    context.CancelFunc
		workers *sync.WaitGroup // of the running apply workers
	}
}

func (e *Engine) addTargetLocked(spec ServerSpec) {
	if spec.Connections == 0 {
		spec.Connections = 2
	}
	sink := newLazySink(func() (Sink, error) { return e.cfg.Connect.Sink(spec) })
	t := &targetRun{e: e, spec: spec, sink: sink, pool: newPool(spec.Connections)}
	t.mu.waiting = map[*tableLane]struct{}{}
	e.mu.targets[spec.Name] = t
}

func (e *Engine) startTargetLocked(t *targetRun) {
	ctx, cancel := context.WithCancel(e.mu.ctx)
	workers := &sync.WaitGroup{}
	t.mu.Lock()
	t.mu.stop, t.mu.workers = cancel, workers
	t.mu.Unlock()
	for range t.spec.Connections {
		workers.Go(func() { t.work(ctx) })
	}
	e.mu.group.Go(func() {
		<-ctx.Done()
		workers.Wait()
	})
}

// work is one apply worker.
func (t *targetRun) work(ctx context.Context) {
	a := &applier{now: t.e.cfg.Now, observe: t.e.meter.observe}
	t.pool.run(ctx, func(ctx context.Context, lanes []*tableLane) {
		if t.park(lanes) {
			return
		}
		for _, v := range a.step(ctx, lanes) {
			if ctx.Err() == nil {
				t.verdict(ctx, v)
			}
		}
	})
}

// park sets lanes aside while the target is down.
func (t *targetRun) park(lanes []*tableLane) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.err == nil {
		return false
	}
	for _, l := range lanes {
		t.mu.waiting[l] = struct{}{}
	}
	return true
}

// transientTries is how often a lane repeats a transient failure on its own
// before its task is failed and detached.
const transientTries = 5

var laneBackoff = retry.Policy{Initial: 100 * time.Millisecond, Max: 2 * time.Second, Multiplier: 2, Jitter: 0.5}

// verdict decides what a lane's failure means.
func (t *targetRun) verdict(ctx context.Context, v verdict) {
	l := v.lane
	s := l.task.src
	switch {
	case v.end != nil:
		n := notice{saw: sawLost, reason: v.end.reason, remedy: v.end.remedy}
		if v.end.state == Removed {
			n.saw = sawEnd
		}
		s.tell(l, n)
	case errors.Is(v.err, errAgain):
		l.cap.Kick(l.handle)
	case errors.Is(v.err, errBehind):
		s.tell(l, notice{saw: sawBehind, reason: v.err.Error()})
	case errors.Is(v.err, errCheckpointGone), errors.Is(v.err, change.ErrStateGone):
		s.unclaim(t) // our tables may be gone as well: the next claim makes them
		s.tell(l, goneNotice(v.err))
	case errors.Is(v.err, change.ErrDeposed):
		t.e.fatal(v.err)
	case errors.Is(v.err, change.ErrOwnedElsewhere):
		s.tell(l, notice{saw: sawElsewhere, reason: v.err.Error(), remedy: "remove the other owner's task, then retry this one; when its data directory is lost, DROP SCHEMA runnel at the target, then retry"})
	case errors.Is(v.err, change.ErrLayout):
		s.tell(l, notice{saw: sawLost, reason: v.err.Error(), remedy: "resync the task"})
	case change.ClassOf(v.err) == change.TargetWide:
		t.failed(v.err)
		t.park([]*tableLane{l})
	case change.ClassOf(v.err) == change.Transient && l.attempts < transientTries:
		l.attempts++
		time.AfterFunc(laneBackoff.Delay(l.attempts, 0.5), func() { l.cap.Kick(l.handle) })
	default:
		l.attempts = 0
		s.tell(l, failureNotice(v.err))
	}
}

// goneNotice: the target's record of the task's progress was removed by somebody.
func goneNotice(err error) notice {
	return notice{saw: sawLost, reason: err.Error(), remedy: "resync the task; leave the schema that Runnel keeps at the target alone"}
}

func failureNotice(err error) notice {
	n := notice{saw: sawFailure, reason: err.Error(), retry: change.ClassOf(err) == change.Transient}
	var p *change.Problem
	if errors.As(err, &p) {
		n.remedy = p.Remedy
	} else if !n.retry {
		n.remedy = "mend the cause, then retry the task"
	}
	return n
}

// failed takes the target down: one cause, retried once for all of its lanes.
func (t *targetRun) failed(err error) {
	t.mu.Lock()
	down := t.mu.err != nil
	t.mu.err = err
	t.mu.Unlock()
	if down {
		return
	}
	t.e.log.Warn("target down", "target", t.spec.Name, "err", err)
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	if t.e.mu.running {
		t.e.goLocked(t.recover)
	}
}

// isDown reports why the target is down, nil when it is not.
func (t *targetRun) isDown() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.err
}

// recover tries until the target takes claims again, then wakes what waits.
func (t *targetRun) recover(ctx context.Context) {
	policy := retry.Policy{Initial: 500 * time.Millisecond, Max: 15 * time.Second, Multiplier: 2, Jitter: 0.3}
	for attempt := 1; ; attempt++ {
		if retry.Sleep(ctx, policy, attempt) != nil {
			return
		}
		err := t.reclaim(ctx)
		if err == nil {
			break
		}
		if errors.Is(err, change.ErrDeposed) {
			t.e.fatal(err)
			return
		}
		t.mu.Lock()
		t.mu.err = err
		t.mu.Unlock()
		if err := t.sink.reset(); err != nil {
			t.e.log.Warn("connector not closed", "target", t.spec.Name, "err", err)
		}
	}
	t.mu.Lock()
	waiting := t.mu.waiting
	t.mu.err, t.mu.waiting = nil, map[*tableLane]struct{}{}
	t.mu.Unlock()
	t.e.log.Info("target up", "target", t.spec.Name)
	for l := range waiting {
		l.cap.Kick(l.handle)
	}
	for _, s := range t.e.sourcesOf(t) {
		s.reconcileAll()
	}
}

// reclaim raises the fences of every source that writes here and tells the lanes
// that were detached unread what their checkpoints are.
func (t *targetRun) reclaim(ctx context.Context) error {
	for _, s := range t.e.sourcesOf(t) {
		ckpts, err := claimAndLoad(ctx, t.sink, s.fence())
		if err != nil {
			return err
		}
		s.setClaimed(t)
		for _, tk := range s.tasksNow() {
			_, l := tk.snapshot()
			if l == nil || tk.tgt != t {
				continue
			}
			if at, ok := ckpts[l.handle.Incarnation]; ok && l.cap.Lane(l.handle).Mode == capture.Detached {
				l.cap.SetCheckpoint(l.handle, at)
			}
		}
	}
	return nil
}

// sourcesOf lists the sources with pipelines to the target.
func (e *Engine) sourcesOf(t *targetRun) []*sourceRun {
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := map[*sourceRun]bool{}
	var out []*sourceRun
	for _, p := range e.mu.pipelines {
		if s := e.mu.sources[p.spec.Source]; p.spec.Target == t.spec.Name && s != nil && !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

func (s *sourceRun) tasksNow() []*task {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*task, 0, len(s.mu.tasks))
	for t := range s.mu.tasks {
		out = append(out, t)
	}
	return out
}

package tablesync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/capture"
)

// reconcilers is how many goroutines per source bring tasks to where their
// entities want them; beginBatch how many new tasks start at one position.
const (
	reconcilers = 4
	beginBatch  = 256
)

// notice is what a lane met: it is told to the entity once the lane is detached.
type notice struct {
	saw    sight
	reason string
	remedy string
	retry  bool
}

// tell notes what a lane met and has its task looked at. It does not block.
func (s *sourceRun) tell(l *tableLane, n notice) {
	t := l.task
	t.mu.Lock()
	if t.mu.lane == l && (t.mu.notice == nil || t.mu.notice.saw == sawBehind) {
		t.mu.notice = &n
	}
	t.mu.Unlock()
	s.reconcileSoon(t)
}

// reconcileSoon queues a task; a task is in the queue or in work at most once.
func (s *sourceRun) reconcileSoon(t *task) {
	t.mu.Lock()
	if t.mu.queued {
		t.mu.again = true
		t.mu.Unlock()
		return
	}
	t.mu.queued = true
	t.mu.Unlock()
	s.mu.Lock()
	s.mu.queue = append(s.mu.queue, t)
	s.mu.Unlock()
	s.wakeOne()
}

func (s *sourceRun) wakeOne() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// reconcileAll queues the tasks that may have something to do: after a start, or
// when a target is up again.
func (s *sourceRun) reconcileAll() {
	for _, t := range s.tasksNow() {
		if st, l := t.snapshot(); st.State != Streaming || l == nil || l.cap.Lane(l.handle).Mode != capture.Attached {
			s.reconcileSoon(t)
		}
	}
}

// again queues a task after a delay, unless something else does before.
func (s *sourceRun) again(t *task, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.timer != nil {
		t.mu.timer.Stop()
	}
	t.mu.timer = time.AfterFunc(d, func() { s.reconcileSoon(t) })
}

// reconcileLoop is one worker.
func (s *sourceRun) reconcileLoop(ctx context.Context) {
	for {
		s.mu.Lock()
		n := min(len(s.mu.queue), beginBatch)
		batch := s.mu.queue[:n:n]
		if s.mu.queue = s.mu.queue[n:]; len(s.mu.queue) == 0 {
			s.mu.queue = nil
		} else {
			s.wakeOne()
		}
		s.mu.Unlock()
		if n == 0 {
			select {
			case <-s.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		s.reconcileBatch(ctx, batch)
		for _, t := range batch {
			s.reconciled(ctx, t)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// reconciled ends a worker's hold of a task.
func (s *sourceRun) reconciled(ctx context.Context, t *task) {
	t.mu.Lock()
	t.mu.queued = false
	more := t.mu.again
	t.mu.again = false
	t.mu.Unlock()
	if more && ctx.Err() == nil {
		s.reconcileSoon(t)
	}
}

func (s *sourceRun) reconcileBatch(ctx context.Context, batch []*task) {
	s.mu.Lock()
	c := s.mu.cap
	s.mu.Unlock()
	if c == nil {
		return
	}
	var fresh []*task
	for _, t := range batch {
		begin, err := s.reconcile(ctx, c, t)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.e.log.Warn("task not brought on, trying again", "task", t.text, "err", err)
			s.again(t, time.Second)
		case begin:
			fresh = append(fresh, t)
		}
	}
	if len(fresh) > 0 {
		s.begin(ctx, c, fresh)
	}
}

// reconcile brings one task's lane to what its entity has decided. begin tells
// that its lane has to be started.
func (s *sourceRun) reconcile(ctx context.Context, c *capture.Capture, t *task) (begin bool, err error) {
	if err := s.deliverNotice(ctx, c, t); err != nil {
		return false, err
	}
	st, lane := t.snapshot()
	switch {
	case lane != nil && (lane.handle.Incarnation != st.Incarnation || st.State == Removed):
		return s.endLife(ctx, c, t, lane, st)
	case st.State == Removed: // it never began, or has no lane any more
		return s.endLife(ctx, c, t, s.newLane(c, t), st)
	}
	mode, exists := capture.Detached, false
	if lane != nil {
		mode, exists = s.modeOf(c, lane)
	}
	switch st.State {
	case Pending:
		if mode == capture.Attached && exists {
			s.e.report(ctx, t, cmdReport{Incarnation: st.Incarnation, Saw: sawAttached})
			return false, nil
		}
		return t.tgt.isDown() == nil, nil
	case Copying, CatchingUp, Streaming:
		return s.keepRunning(ctx, c, t, st, lane, mode, exists)
	case Paused, Failed, NeedsResync, OwnedElsewhere:
		if exists && mode != capture.Detached {
			if err := c.Detach(ctx, lane.handle, string(st.State)); err != nil {
				return false, err
			}
		}
		if st.State == Failed && st.Retry {
			s.retryLater(ctx, t, st)
		}
	}
	return false, nil
}

// modeOf tells a lane's mode; exists is false when the capture does not know it.
func (s *sourceRun) modeOf(c *capture.Capture, l *tableLane) (capture.Mode, bool) {
	return c.Lane(l.handle).Mode, c.Has(l.handle)
}

// keepRunning looks after a task that is to copy, catch up or stream.
func (s *sourceRun) keepRunning(ctx context.Context, c *capture.Capture, t *task, st taskState, lane *tableLane, mode capture.Mode, exists bool) (begin bool, err error) {
	report := func(saw sight, reason string) {
		s.e.report(ctx, t, cmdReport{Incarnation: st.Incarnation, Saw: saw, Reason: reason})
	}
	switch {
	case !exists && st.State == CatchingUp && !st.Copied:
		return t.tgt.isDown() == nil, nil // it was stopped before it had begun
	case !exists:
		s.e.report(ctx, t, cmdReport{Incarnation: st.Incarnation, Saw: sawLost, Reason: "the store holds no record of its lane", Remedy: "resync the task"})
	case mode == capture.Attached && st.State == CatchingUp:
		report(sawCaughtUp, "")
	case mode == capture.Attached && st.State == Copying:
		s.copySoon(t, st)
	case mode == capture.Detached && st.State != CatchingUp:
		report(sawBehind, "it was detached when the process ended")
	case mode == capture.Detached && t.tgt.isDown() == nil:
		c.Want(lane.handle)
	}
	return false, nil
}

// deliverNotice detaches a lane that met something and tells its entity.
func (s *sourceRun) deliverNotice(ctx context.Context, c *capture.Capture, t *task) error {
	t.mu.Lock()
	n, lane, st := t.mu.notice, t.mu.lane, t.mu.state
	t.mu.Unlock()
	if n == nil || lane == nil {
		return nil
	}
	if c.Has(lane.handle) {
		if c.Lane(lane.handle).Mode == capture.Attaching {
			return s.abandon(ctx, c, t, lane, n)
		}
		if err := c.Detach(ctx, lane.handle, n.reason); err != nil {
			return err
		}
	}
	s.e.report(ctx, t, cmdReport{Incarnation: st.Incarnation, Saw: n.saw, Reason: n.reason, Remedy: n.remedy, Retry: n.retry})
	t.mu.Lock()
	if t.mu.notice == n {
		t.mu.notice = nil
	}
	t.mu.Unlock()
	return nil
}

// abandon gives up a lane's start; the task begins again.
func (s *sourceRun) abandon(ctx context.Context, c *capture.Capture, t *task, lane *tableLane, n *notice) error {
	if err := c.Remove(ctx, lane.handle); err != nil {
		return err
	}
	t.mu.Lock()
	t.mu.lane, t.mu.notice = nil, nil
	t.mu.Unlock()
	if n.saw == sawEnd || n.saw == sawLost {
		s.e.report(ctx, t, cmdReport{Incarnation: lane.handle.Incarnation, Saw: n.saw, Reason: n.reason, Remedy: n.remedy})
	}
	return nil
}

// endLife removes a lane whose incarnation is over: rows at the target first, the
// record last, so that a crash in between is cleaned up at the next start.
func (s *sourceRun) endLife(ctx context.Context, c *capture.Capture, t *task, lane *tableLane, st taskState) (bool, error) {
	if c.Has(lane.handle) {
		if err := c.Detach(ctx, lane.handle, "ended"); err != nil {
			return false, err
		}
	}
	t.mu.Lock()
	copying := t.mu.copying
	t.mu.Unlock()
	if copying { // it ends soon: the lane is detached
		s.again(t, 50*time.Millisecond)
		return false, nil
	}
	if err := s.claim(ctx, t.tgt); err != nil {
		return false, err
	}
	if err := t.tgt.sink.Forget(ctx, s.fence(), lane.handle.Incarnation); err != nil {
		return false, fmt.Errorf("forget %s at the target: %w", lane.handle.Incarnation, err)
	}
	if c.Has(lane.handle) {
		if err := c.Remove(ctx, lane.handle); err != nil {
			return false, err
		}
	}
	t.mu.Lock()
	t.mu.lane, t.mu.notice = nil, nil
	t.mu.Unlock()
	if st.State == Removed {
		s.ended(taskKey{st.Spec.Pipeline, st.Spec.Table}, st.Barred)
		s.e.forgetTask(t)
		if !st.Barred {
			s.lookForTables() // the table may exist again
		}
		return false, nil
	}
	return st.State == Pending, nil
}

// retryLater wakes a failed task when its time has come.
func (s *sourceRun) retryLater(ctx context.Context, t *task, st taskState) {
	policy := s.e.cfg.Retry
	if policy.MaxAttempts > 0 && st.Attempts > policy.MaxAttempts {
		return // the operator's turn
	}
	due := st.Since.Add(policy.Delay(st.Attempts, 0.5))
	if wait := due.Sub(s.e.cfg.Now()); wait > 0 {
		s.again(t, wait)
		return
	}
	s.e.report(ctx, t, cmdReport{Incarnation: st.Incarnation, Saw: sawRetry})
}

// begin starts the lanes of new tasks at one position and makes each durable.
func (s *sourceRun) begin(ctx context.Context, c *capture.Capture, tasks []*task) {
	var lanes []*capture.Lane
	var started []*task
	for _, t := range tasks {
		t.mu.Lock()
		known := t.mu.lane != nil && t.mu.lane.handle.Incarnation == t.mu.state.Incarnation && (t.mu.lane.admitted || c.Has(t.mu.lane.handle))
		t.mu.Unlock()
		if known { // the log starts it, see admit
			continue
		}
		l := s.newLane(c, t)
		t.mu.Lock()
		t.mu.lane = l
		t.mu.Unlock()
		lanes = append(lanes, l.handle)
		started = append(started, t)
	}
	if len(lanes) > 0 {
		at, err := c.StartLanes(ctx, lanes)
		if err != nil {
			if ctx.Err() == nil {
				s.e.log.Warn("lanes not started, trying again", "source", s.spec.Name, "tasks", len(lanes), "err", err)
				s.renewConnector()
				for _, t := range started {
					s.again(t, time.Second)
				}
			}
			return
		}
		for _, t := range started {
			t.mu.Lock()
			t.mu.at = at
			t.mu.Unlock()
		}
	}
	for _, t := range tasks {
		if ctx.Err() != nil {
			return
		}
		if _, l := t.snapshot(); l != nil && c.Has(l.handle) {
			s.prepare(ctx, c, t)
		}
	}
}

// prepare makes one started task durable, or gives its start up.
func (s *sourceRun) prepare(ctx context.Context, c *capture.Capture, t *task) {
	t.mu.Lock()
	lane, at, st := t.mu.lane, t.mu.at, t.mu.state
	t.mu.Unlock()
	if lane == nil || lane.handle.Incarnation != st.Incarnation {
		s.reconcileSoon(t)
		return
	}
	tctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := s.claim(tctx, t.tgt)
	if err == nil {
		err = prepare(tctx, lane, at, s.conn.Pin, change.TaskTarget{Task: t.text, Existing: st.Fresh})
	}
	if err == nil {
		s.e.report(ctx, t, cmdReport{Incarnation: st.Incarnation, Saw: sawAttached})
		return
	}
	if ctx.Err() != nil {
		return
	}
	if rerr := c.Remove(ctx, lane.handle); rerr != nil {
		s.e.log.Warn("lane not removed", "task", t.text, "err", rerr)
	}
	t.mu.Lock()
	t.mu.lane = nil
	t.mu.Unlock()
	s.beginFailed(ctx, t, st, err)
}

func (s *sourceRun) beginFailed(ctx context.Context, t *task, st taskState, err error) {
	switch {
	case errors.Is(err, errAgain):
		s.reconcileSoon(t)
	case errors.Is(err, change.ErrDeposed):
		s.e.fatal(err)
	case errors.Is(err, errSourceTableGone):
		s.e.report(ctx, t, cmdReport{Incarnation: st.Incarnation, Saw: sawEnd, Reason: errSourceTableGone.Error()})
	case change.ClassOf(err) == change.TargetWide:
		t.tgt.failed(err)
	case errors.Is(err, change.ErrOwnedElsewhere):
		n := failureNotice(err)
		s.e.report(ctx, t, cmdReport{Incarnation: st.Incarnation, Saw: sawFailure, Reason: n.reason, Remedy: n.remedy, Retry: true})
	default:
		n := failureNotice(err)
		n.retry = n.retry || errors.Is(err, context.DeadlineExceeded)
		s.e.report(ctx, t, cmdReport{Incarnation: st.Incarnation, Saw: sawFailure, Reason: n.reason, Remedy: n.remedy, Retry: n.retry})
	}
}

// copySoon queues the copy of an attached task.
func (s *sourceRun) copySoon(t *task, st taskState) {
	t.mu.Lock()
	busy := t.mu.copies
	t.mu.copies = true
	t.mu.Unlock()
	if !busy {
		s.copies.push(t, st.Spec.Estimate)
	}
}

// copyTask copies what is left of a task's table.
func (s *sourceRun) copyTask(ctx context.Context, t *task) {
	t.mu.Lock()
	st, lane := t.mu.state, t.mu.lane
	ok := lane != nil && st.State == Copying && lane.handle.Incarnation == st.Incarnation
	t.mu.copying = ok
	t.mu.Unlock()
	if !ok {
		s.copied(t)
		return
	}
	limit := s.e.pipelineSpec(st.Spec.Pipeline).ChunkRows
	if limit == 0 {
		limit = 10_000
	}
	c := &copier{lane: lane, reader: s.conn, limit: limit, loaded: s.e.meter.copied}
	err := c.table(ctx)
	s.copied(t)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		s.e.report(ctx, t, cmdReport{Incarnation: st.Incarnation, Saw: sawCopied, Rows: lane.copied.Load()})
	case errors.Is(err, capture.ErrNotAttached):
		s.reconcileSoon(t)
	case errors.Is(err, change.ErrDeposed):
		s.e.fatal(err)
	case errors.Is(err, errAgain), errors.Is(err, change.ErrNoTable): // the log will tell about a dropped table
		s.again(t, time.Second)
	case change.ClassOf(err) == change.TargetWide:
		t.tgt.failed(err)
		s.again(t, time.Second)
	case change.ClassOf(err) == change.Transient && retryableCopy(lane):
		s.e.log.Warn("copy interrupted, going on", "task", t.text, "err", err)
		s.again(t, laneBackoff.Delay(lane.copyTries, 0.5))
	default:
		s.tell(lane, failureNotice(err))
	}
}

func retryableCopy(l *tableLane) bool {
	l.copyTries++
	return l.copyTries <= transientTries
}

func (s *sourceRun) copied(t *task) {
	t.mu.Lock()
	t.mu.copies, t.mu.copying = false, false
	t.mu.Unlock()
}

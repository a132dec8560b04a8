package tablesync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/capture"
	"github.com/runnel-dev/runnel/persistence"
)

// Command carries out an operator's verb: pause, resume, retry, resync, remove.
// It returns when the decision is durable; the lane follows at once.
func (e *Engine) Command(ctx context.Context, id string, verb string) error {
	e.mu.Lock()
	t := e.mu.tasks[id]
	running := e.mu.running
	e.mu.Unlock()
	if !running {
		return ErrNotRunning
	}
	if t == nil {
		return fmt.Errorf("%s task %s: %w", verb, id, ErrNoTask)
	}
	cmd := cmdVerb{Verb: verb}
	if verb == "resync" {
		fresh, err := persistence.NewEntityID(taskType, captureName(t.src.spec.Name))
		if err != nil {
			return err
		}
		cmd.Incarnation = fresh.Random()
	}
	_, err := e.ask(ctx, t.id, cmd)
	return err
}

// Task returns one task.
func (e *Engine) Task(id string) (TaskView, error) {
	e.mu.Lock()
	t := e.mu.tasks[id]
	e.mu.Unlock()
	if t == nil {
		return TaskView{}, fmt.Errorf("get task %s: %w", id, ErrNoTask)
	}
	return e.view(t), nil
}

// Tasks returns one page of the tasks that the query selects, in id order.
func (e *Engine) Tasks(q TaskQuery) (TaskPage, error) {
	if q.State != "" && !slices.Contains(States, q.State) {
		return TaskPage{}, fmt.Errorf("list tasks: state %q is not one of %v", q.State, States)
	}
	if q.Table != "" && !strings.Contains(q.Table, ".") {
		return TaskPage{}, fmt.Errorf("list tasks: table pattern %q: want schema.table", q.Table)
	}
	if q.Limit < 0 || q.Limit > 1000 {
		return TaskPage{}, fmt.Errorf("list tasks: limit %d: want 1 to 1000", q.Limit)
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	page := TaskPage{Tasks: []TaskView{}, Count: map[State]int{}}
	var found []*task
	e.mu.Lock()
	for st, n := range e.mu.counts {
		if n > 0 {
			page.Count[st] = n
		}
	}
	for _, t := range e.mu.tasks {
		if st, _ := t.snapshot(); matches(&q, &st) {
			found = append(found, t)
		}
	}
	e.mu.Unlock()
	page.Total = len(found)
	slices.SortFunc(found, func(a, b *task) int { return strings.Compare(a.text, b.text) })
	at, _ := slices.BinarySearchFunc(found, q.After+"\x00", func(t *task, s string) int { return strings.Compare(t.text, s) })
	if q.After == "" {
		at = 0
	}
	for _, t := range found[at:] {
		if len(page.Tasks) == q.Limit {
			page.Next = page.Tasks[q.Limit-1].ID
			break
		}
		page.Tasks = append(page.Tasks, e.view(t))
	}
	return page, nil
}

func matches(q *TaskQuery, s *taskState) bool {
	return (q.State == "" || q.State == s.State) && (q.Pipeline == "" || q.Pipeline == s.Spec.Pipeline) &&
		(q.Source == "" || q.Source == s.Spec.Source) && (q.Table == "" || matchTable(q.Table, s.Spec.Table))
}

func (e *Engine) view(t *task) TaskView {
	st, lane := t.snapshot()
	v := TaskView{
		ID: t.text, Pipeline: st.Spec.Pipeline, Source: st.Spec.Source, Target: st.Spec.Target, Table: st.Spec.Table, Into: st.Spec.Into,
		State: st.State, Reason: st.Reason, Remedy: st.Remedy, Since: st.Since, RowsEstimate: st.Spec.Estimate,
		Attempts: st.Attempts, Incarnation: st.Incarnation,
	}
	v.RowsCopied = st.Rows
	if down := t.tgt.isDown(); down != nil && v.Reason == "" && st.State != Removed {
		v.Reason, v.Remedy = "waits for target "+t.tgt.spec.Name+": "+down.Error(), "bring the target back; every task of it goes on by itself"
	}
	if src := t.src.trouble(); src != nil && v.Reason == "" && st.State != Removed {
		v.Reason, v.Remedy = "waits for source "+t.src.spec.Name+": "+src.Error(), "bring the source back; every task of it goes on by itself"
	}
	if lane == nil {
		return v
	}
	ls := lane.cap.Lane(lane.handle)
	v.Attached = ls.Mode == capture.Attached
	v.Position = ls.Checkpoint.Token
	v.QueuedBytes = ls.QueuedBytes
	if !ls.Oldest.IsZero() {
		v.LagSeconds = e.cfg.Now().Sub(ls.Oldest).Seconds()
	}
	v.RowsCopied, v.ChangesApplied = max(st.Rows, lane.copied.Load()), lane.applied.Load()
	return v
}

// Sources lists the sources by name.
func (e *Engine) Sources() []SourceView {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]SourceView, 0, len(e.mu.sources))
	for _, name := range sortedKeys(e.mu.sources) {
		out = append(out, e.mu.sources[name].view())
	}
	return out
}

// trouble is why the source is not read at present; nil when it is.
func (s *sourceRun) trouble() error {
	s.mu.Lock()
	c, err := s.mu.cap, s.mu.err
	s.mu.Unlock()
	if err == nil && c != nil {
		err = c.Status().Err
	}
	return err
}

func (s *sourceRun) view() SourceView {
	s.mu.Lock()
	c, err, n := s.mu.cap, s.mu.err, len(s.mu.tasks)
	s.mu.Unlock()
	v := SourceView{ServerSpec: s.spec, Tasks: n, State: "waiting"}
	if c != nil {
		st := c.Status()
		v.State, v.Read, v.Frontier, v.Groups = "reading", st.Read.Token, st.Frontier.Token, st.Groups
		v.QueuedBytes, v.Sweeping = st.QueuedBytes, st.Sweeping
		if !st.LastEvent.IsZero() {
			v.LagSeconds = max(st.LastRead.Sub(st.LastEvent).Seconds(), 0)
		}
		err = st.Err
	}
	if err != nil {
		v.State, v.Reason = "failed", err.Error()
		var p *change.Problem
		if errors.As(err, &p) {
			v.Remedy = p.Remedy
		}
	}
	return v
}

// Targets lists the targets by name.
func (e *Engine) Targets() []TargetView {
	e.mu.Lock()
	defer e.mu.Unlock()
	count := map[*targetRun]int{}
	for _, t := range e.mu.tasks {
		count[t.tgt]++
	}
	out := make([]TargetView, 0, len(e.mu.targets))
	for _, name := range sortedKeys(e.mu.targets) {
		t := e.mu.targets[name]
		v := TargetView{ServerSpec: t.spec, Tasks: count[t], State: "ready"}
		if err := t.isDown(); err != nil {
			v.State, v.Reason = "down", err.Error()
		}
		out = append(out, v)
	}
	return out
}

// Pipelines lists the pipelines by name.
func (e *Engine) Pipelines() []PipelineView {
	e.mu.Lock()
	defer e.mu.Unlock()
	counts := map[string]map[State]int{}
	for _, t := range e.mu.tasks {
		st, _ := t.snapshot()
		m := counts[st.Spec.Pipeline]
		if m == nil {
			m = map[State]int{}
			counts[st.Spec.Pipeline] = m
		}
		m[st.State]++
	}
	out := make([]PipelineView, 0, len(e.mu.pipelines))
	for _, name := range sortedKeys(e.mu.pipelines) {
		p := e.mu.pipelines[name]
		v := PipelineView{PipelineSpec: p.spec, Count: counts[name], Refused: p.refused}
		for _, n := range v.Count {
			v.Tasks += n
		}
		out = append(out, v)
	}
	return out
}

// Counters returns what the process has done since it started.
func (e *Engine) Counters() Counters {
	q := e.meter.lag.quantiles(0.5, 0.99)
	c := Counters{RowsCopied: e.meter.rowsCopied.Load(), ChangesApplied: e.meter.changes.Load(), Transactions: e.meter.transactions.Load(),
		LagP50: q[0], LagP99: q[1], Idle: true}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.mu.sources {
		s.mu.Lock()
		capt := s.mu.cap
		s.mu.Unlock()
		if capt == nil || capt.Status().QueuedBytes > 0 {
			c.Idle = false
		}
	}
	return c
}

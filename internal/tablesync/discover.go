package tablesync

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/capture"
	"github.com/runnel-dev/runnel/persistence"
)

// discoverLoop creates the tasks of tables that pipelines match: at a start and
// after a change of pipelines. Tables created later come by the log.
func (s *sourceRun) discoverLoop(ctx context.Context) {
	for {
		s.mu.Lock()
		look := s.mu.refresh
		s.mu.refresh = false
		s.mu.Unlock()
		if look {
			if err := s.discover(ctx); err != nil && ctx.Err() == nil {
				s.e.log.Warn("tables not listed, trying again", "source", s.spec.Name, "err", err)
				s.renewConnector()
				s.lookForTables()
				if !sleep(ctx, 2*time.Second) {
					return
				}
				continue
			}
		}
		select {
		case <-s.look():
		case <-ctx.Done():
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// lookForTables asks for a look at the catalog.
func (s *sourceRun) lookForTables() {
	s.mu.Lock()
	s.mu.refresh = true
	s.mu.Unlock()
	select {
	case s.lookNow <- struct{}{}:
	default:
	}
}

func (s *sourceRun) look() <-chan struct{} { return s.lookNow }

// discover reads the catalog once for all pipelines of the source.
func (s *sourceRun) discover(ctx context.Context) error {
	pipelines := s.e.pipelinesOf(s)
	if len(pipelines) == 0 {
		return nil
	}
	infos, err := s.conn.Tables(ctx, s.filter.WantsNew)
	if err != nil {
		return err
	}
	for _, p := range pipelines {
		var refused []*change.Problem
		var wanted []taskSpec
		for i := range infos {
			info := &infos[i]
			if !p.Matches(info.Table) {
				continue
			}
			if info.Problem != nil {
				refused = append(refused, info.Problem)
				continue
			}
			wanted = append(wanted, specFor(&p, info.Table, info.RowsEstimate))
		}
		problems, err := s.createTasks(ctx, wanted)
		if err != nil {
			return err
		}
		s.e.setRefused(p.Name, append(refused, problems...))
	}
	return nil
}

func specFor(p *PipelineSpec, t change.TableID, rows int64) taskSpec {
	return taskSpec{Pipeline: p.Name, Source: p.Source, Target: p.Target, Table: t, Into: p.TargetOf(t), Estimate: rows}
}

// creators is how many tasks are created at once: the store commits them in
// groups.
const creators = 64

// createTasks creates the tasks that do not exist yet.
func (s *sourceRun) createTasks(ctx context.Context, specs []taskSpec) (refused []*change.Problem, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, creators)
	for _, spec := range specs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			t, problem, cerr := s.createTask(ctx, spec, false, nil)
			if t != nil {
				s.reconcileSoon(t)
			}
			mu.Lock()
			defer mu.Unlock()
			if problem != nil {
				refused = append(refused, problem)
			}
			err = errors.Join(err, cerr)
		})
		if ctx.Err() != nil {
			break
		}
	}
	wg.Wait()
	return refused, err
}

// createTask makes one task durable and known; nil when there is one already, an
// operator removed it, or another task writes the target table. With admit the
// task's lane exists before anybody sees the task; the log will start it.
func (s *sourceRun) createTask(ctx context.Context, spec taskSpec, again bool, admit *capture.Capture) (*task, *change.Problem, error) {
	k, into := taskKey{spec.Pipeline, spec.Table}, intoKey{spec.Target, spec.Into}
	s.mu.Lock()
	barred, former := s.mu.barred[k], s.mu.former[k]
	s.mu.Unlock()
	s.e.mu.Lock()
	_, exists := s.e.mu.byTable[k]
	other, making := s.e.mu.byTarget[into], s.e.mu.making[k]
	mine := !making && !barred && (!exists || again)
	if mine {
		s.e.mu.making[k] = true
	}
	s.e.mu.Unlock()
	if !mine { // whoever makes it now starts it later in the log than we are
		return nil, nil, nil
	}
	defer func() {
		s.e.mu.Lock()
		delete(s.e.mu.making, k)
		s.e.mu.Unlock()
	}()
	if other != nil {
		if st, _ := other.snapshot(); st.State != Removed && (st.Spec.Pipeline != spec.Pipeline || st.Spec.Table != spec.Table) {
			return nil, &change.Problem{
				Code: "target-taken", Subject: fmt.Sprintf("pipeline %s, table %s", spec.Pipeline, spec.Table),
				Cause:  fmt.Sprintf("its target table %s is written by pipeline %s from %s", spec.Into, st.Spec.Pipeline, st.Spec.Table),
				Remedy: "give one of the pipelines another route, or exclude the table from it",
			}, nil
		}
	}
	s.e.mu.Lock()
	tgt := s.e.mu.targets[spec.Target]
	s.e.mu.Unlock()
	same, err := s.sameAs(ctx, tgt)
	if err != nil {
		return nil, nil, err
	}
	p := s.e.pipelineSpec(spec.Pipeline)
	if problem := placement(&p, tgt.spec.Schema, spec.Table, same, s.e.pipelinesOf(s)); problem != nil {
		return nil, problem, nil
	}
	id, err := persistence.NewEntityID(taskType, captureName(s.spec.Name))
	if err != nil {
		return nil, nil, err
	}
	cmd := cmdCreate{Spec: spec, Incarnation: id.Random(), Fresh: p.existing()}
	if again || former {
		cmd.Fresh = change.EmptyTable
	}
	st, err := s.e.ask(ctx, id, cmd)
	if err != nil {
		return nil, nil, fmt.Errorf("create the task of %s: %w", spec.Table, err)
	}
	s.e.mu.Lock()
	t := s.e.addTaskLocked(id, st, admit)
	s.e.mu.Unlock()
	return t, nil, nil
}

var ifNotExists = regexp.MustCompile(`(?is)^[^(]*\bif\s+not\s+exists\b`)

// admit is called on the capture loop for a statement that makes tables: it
// creates the tasks of those that pipelines match, durably, and returns their
// lanes, which start right behind the statement.
func (s *sourceRun) admit(ctx context.Context, stmt *change.Statement, group change.Position) ([]*capture.Lane, error) {
	var names []change.TableID
	switch stmt.Kind {
	case change.CreateTable:
		names = stmt.Tables
	case change.AlterTable: // it may have made a table fit that was refused
		for _, t := range stmt.Tables {
			if s.filter.WantsNew(t) && !s.hasTask(t) {
				s.lookForTables()
			}
		}
	}
	for _, r := range stmt.Renames {
		names = append(names, r.To)
	}
	var lanes []*capture.Lane
	for _, p := range s.e.pipelinesOf(s) {
		for _, name := range names {
			if !p.Matches(name) {
				continue
			}
			l, err := s.admitTable(ctx, &p, name, stmt, group)
			if err != nil {
				return nil, err
			}
			if l != nil {
				lanes = append(lanes, l)
			}
		}
	}
	return lanes, nil
}

// hasTask reports whether a task captures the table.
func (s *sourceRun) hasTask(t change.TableID) bool {
	s.filter.mu.RLock()
	defer s.filter.mu.RUnlock()
	return s.filter.mu.tables[t] > 0
}

func (s *sourceRun) admitTable(ctx context.Context, p *PipelineSpec, name change.TableID, stmt *change.Statement, group change.Position) (*capture.Lane, error) {
	s.mu.Lock()
	c := s.mu.cap
	s.mu.Unlock()
	s.e.mu.Lock()
	old := s.e.mu.byTable[taskKey{p.Name, name}]
	s.e.mu.Unlock()
	if old != nil {
		st, lane := old.snapshot()
		switch {
		case lane != nil && lane.admitted && !c.Has(lane.handle) && st.State == Pending:
			return lane.handle, nil // admitted before, when the group could not be delivered
		case st.State == Removed:
		case lane == nil || !c.Has(lane.handle):
			return nil, nil // it has not begun: it will read the table as it is
		case group.AtOrBefore(c.Lane(lane.handle).Covered):
			return nil, nil // read again after a restart: the lane began behind it
		case c.Lane(lane.handle).Ended: // its end is on the way
		case stmt.Kind != change.CreateTable || ifNotExists.MatchString(stmt.SQL) || orReplace.MatchString(stmt.SQL):
			return nil, nil // the statement goes to the lane that exists
		case c.Lane(lane.handle).Mode == capture.Attached:
			return nil, nil // the lane will meet it: not possible for a plain CREATE
		default:
			// The log creates the table anew, so the one this task was for is gone.
			s.tell(lane, notice{saw: sawEnd, reason: "the table was dropped and created anew at the source"})
		}
	}
	t, problem, err := s.createTask(ctx, specFor(p, name, 0), old != nil, c)
	if problem != nil {
		s.e.addRefused(p.Name, problem)
	}
	if err != nil || t == nil {
		return nil, err
	}
	_, lane := t.snapshot()
	return lane.handle, nil
}

// started is told on the capture loop where an admitted lane begins.
func (s *sourceRun) started(l *capture.Lane, at change.Position) {
	t := l.Task.(*tableLane).task
	t.mu.Lock()
	t.mu.at = at
	t.mu.Unlock()
	s.reconcileSoon(t)
}

package tablesync

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/capture"
)

var orReplace = regexp.MustCompile(`(?is)^[^(]*\bor\s+replace\b`)

// judge says what a lane does about a statement: run it on the target, pass it
// by, or end.
func judge(t *tableLane, s *change.Statement) (run bool, end *ending) {
	shown := clip(s.SQL, 500)
	switch s.Kind {
	case change.AlterTable, change.TruncateTable:
		if capture.TakesAway(s, t.handle.Table) {
			return false, &ending{NeedsResync, "the table was renamed at the source: " + shown, "resync the task if a table of this name exists again, or remove it"}
		}
		if s.Volatile {
			return false, &ending{NeedsResync, "a schema change computed values that another server would compute differently: " + shown, "resync the task"}
		}
		if t.stopsAtDDL() {
			return false, &ending{NeedsResync, "a schema change waits for review: " + shown, "change the target as wanted, then resync the task"}
		}
		return true, nil
	case change.CreateTable:
		if orReplace.MatchString(s.SQL) {
			return false, &ending{NeedsResync, "the table was replaced at the source: " + shown, "resync the task"}
		}
		return false, nil // IF NOT EXISTS on a table that exists
	case change.DropTable, change.DropSchema:
		return false, &ending{Removed, "the table was dropped at the source: " + shown, "the rows at the target were kept"}
	case change.RenameTable:
		return false, &ending{NeedsResync, "a table was renamed from or to this name at the source: " + shown, "resync the task if a table of this name exists, or remove it"}
	case change.RowsByStatement:
		return false, &ending{NeedsResync, "rows were changed by a statement that the log holds only as text: " + shown, "set binlog_format=ROW for every writer, then resync the task"}
	case change.LostRows:
		return false, &ending{NeedsResync, "rows changed without row events that could be applied: " + shown, "resync the task"}
	default:
		return false, &ending{NeedsResync, "a statement that names this table was not understood: " + shown, "resync the task"}
	}
}

// statement takes a lane past a group that holds a statement for its table. The
// lane is drained: the barrier came alone.
func (a *applier) statement(ctx context.Context, t *tableLane, it capture.Item, ckpt change.Position) verdict {
	var run *change.Statement
	rows := false
	for _, ev := range it.Events {
		if ev.Rows != nil {
			rows = true
			continue
		}
		ok, end := judge(t, ev.Statement)
		if end != nil {
			t.cap.Requeue(t.handle)
			return verdict{lane: t, end: end}
		}
		if ok && run != nil || ok && rows {
			t.cap.Requeue(t.handle)
			return verdict{lane: t, end: &ending{NeedsResync, "one group holds more than one schema change of this table: " + clip(ev.Statement.SQL, 500), "resync the task"}}
		}
		if ok {
			run = ev.Statement
		}
	}
	if run == nil { // nothing to run: rows, if any, and the checkpoint go on as usual
		var plain []change.Event
		for _, ev := range it.Events {
			if ev.Rows != nil {
				plain = append(plain, ev)
			}
		}
		it.Events = plain
		b, err := a.decode(ctx, t, []capture.Item{it}, ckpt)
		if err != nil {
			t.cap.Requeue(t.handle)
			return verdict{lane: t, err: err}
		}
		for _, v := range a.apply(ctx, []piece{{t, []capture.Item{it}, b}}) {
			return v
		}
		return verdict{lane: t}
	}
	return verdict{lane: t, err: a.runDDL(ctx, t, run, it.End, ckpt)}
}

func (a *applier) runDDL(ctx context.Context, t *tableLane, s *change.Statement, group, ckpt change.Position) error {
	before, err := t.currentLayout(ctx)
	if err != nil {
		t.cap.Requeue(t.handle)
		return err
	}
	after, err := t.sink.ApplyDDL(ctx, t.fence(), change.DDL{
		Key: t.key(), Target: t.target, Layout: before, Statement: s, Source: t.handle.Table, Expected: ckpt, Group: group,
	})
	if err == nil {
		t.setLayout(after)
		t.cap.Applied(t.handle, group)
		t.attempts = 0
		return nil
	}
	if errors.Is(err, change.ErrUnknownOutcome) || errors.Is(err, change.ErrCheckpointMoved) {
		t.setLayout(nil) // whatever happened, the target's layout row tells
		return a.settle(ctx, t, ckpt, group, err, func() {})
	}
	t.cap.Requeue(t.handle)
	return fmt.Errorf("run on %s: %s: %w", t.target, clip(s.SQL, 500), err)
}

// clip shortens text for people.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}

package tablesync_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// streamingRig has tables a, b and c streaming.
func streamingRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, testdb.MariaDBOptions{})
	r.exec("CREATE DATABASE shop")
	for _, name := range []string{"a", "b", "c"} {
		r.exec("CREATE TABLE shop."+name+"(id INT PRIMARY KEY, v VARCHAR(40))", "INSERT INTO shop."+name+" VALUES(1,'one'),(2,'two')")
	}
	r.start()
	r.apply(shopPipeline)
	r.inState(3, tablesync.Streaming)
	return r
}

func (r *rig) command(table, verb string) {
	r.t.Helper()
	if err := r.engine.Command(r.t.Context(), r.taskOf(table).ID, verb); err != nil {
		r.t.Fatalf("%s %s: %v", verb, table, err)
	}
}

func (r *rig) waitState(table string, want tablesync.State) tablesync.TaskView {
	r.t.Helper()
	var v tablesync.TaskView
	eventually(r.t, fmt.Sprintf("%s %s", table, want), func() (bool, string) {
		page, err := r.engine.Tasks(tablesync.TaskQuery{Table: table})
		if err != nil || len(page.Tasks) != 1 {
			return false, fmt.Sprintf("%+v %v", page, err)
		}
		v = page.Tasks[0]
		return v.State == want, fmt.Sprintf("%+v", v)
	})
	return v
}

func (r *rig) targetRows(table string) int {
	r.t.Helper()
	rows, err := r.target.Query(r.t.Context(), "SELECT * FROM "+table)
	if err != nil {
		r.t.Fatal(err)
	}
	return len(rows)
}

func TestPauseHoldsOneTableAndResumeCatchesUp(t *testing.T) {
	t.Parallel()
	r := streamingRig(t)
	r.command("shop.a", "pause")
	r.waitState("shop.a", tablesync.Paused)
	eventually(t, "a is detached", func() (bool, string) { v := r.taskOf("shop.a"); return !v.Attached, fmt.Sprint(v) })
	r.exec("INSERT INTO shop.a VALUES(3,'held')", "INSERT INTO shop.b VALUES(3,'flows')", "DELETE FROM shop.a WHERE id=1")
	eventually(t, "b goes on", func() (bool, string) { n := r.targetRows("shop.b"); return n == 3, fmt.Sprint(n) })
	if got := r.targetRows("shop.a"); got != 2 {
		t.Errorf("rows of the paused table: got %d, want 2", got)
	}
	r.stop()
	r.start() // a pause survives a restart
	if got := r.waitState("shop.a", tablesync.Paused); got.Reason == "" || got.Remedy == "" {
		t.Errorf("a paused task tells why and what to do: got %+v", got)
	}
	var refused *tablesync.RefusedError
	if err := r.engine.Command(t.Context(), r.taskOf("shop.b").ID, "retry"); !errors.As(err, &refused) {
		t.Errorf("retry of a streaming task: got %v, want RefusedError", err)
	}
	r.command("shop.a", "resume")
	r.inState(3, tablesync.Streaming)
	r.same("shop")
}

func TestResyncRemovesRowsThatVanished(t *testing.T) {
	t.Parallel()
	r := streamingRig(t)
	before := r.taskOf("shop.a").Incarnation
	if err := r.target.Exec(t.Context(), "INSERT INTO shop.a VALUES(99,'stray')", "DELETE FROM shop.a WHERE id=2"); err != nil {
		t.Fatal(err)
	}
	r.command("shop.a", "resync")
	r.exec("INSERT INTO shop.a VALUES(5,'meanwhile')")
	eventually(t, "a new life streams", func() (bool, string) {
		v := r.taskOf("shop.a")
		return v.State == tablesync.Streaming && v.Incarnation != before, fmt.Sprintf("%+v", v)
	})
	r.same("shop")
	rows, err := r.target.Query(t.Context(), "SELECT incarnation FROM runnel.checkpoint WHERE incarnation='"+before+"'")
	if err != nil || len(rows) != 0 {
		t.Errorf("checkpoints of the old life: got %v, %v, want none", rows, err)
	}
}

func TestRemoveForgetsAndKeepsRows(t *testing.T) {
	t.Parallel()
	r := streamingRig(t)
	id := r.taskOf("shop.a").ID
	r.command("shop.a", "remove")
	eventually(t, "the task is gone", func() (bool, string) {
		_, err := r.engine.Task(id)
		return errors.Is(err, tablesync.ErrNoTask), fmt.Sprint(err)
	})
	r.exec("INSERT INTO shop.a VALUES(7,'unseen')", "INSERT INTO shop.b VALUES(7,'seen')")
	eventually(t, "b goes on", func() (bool, string) { n := r.targetRows("shop.b"); return n == 3, fmt.Sprint(n) })
	if got := r.targetRows("shop.a"); got != 2 {
		t.Errorf("rows of the removed task: got %d, want 2", got)
	}
	for _, table := range []string{"checkpoint", "layout", "owner"} {
		rows, err := r.target.Query(t.Context(), "SELECT * FROM runnel."+table)
		if err != nil || len(rows) != 2 {
			t.Errorf("rows of runnel.%s: got %d, %v, want 2", table, len(rows), err)
		}
	}
	r.stop()
	r.start() // the pipeline does not bring back what an operator removed
	r.inState(2, tablesync.Streaming)
	if page, err := r.engine.Tasks(tablesync.TaskQuery{}); err != nil || page.Total != 2 {
		t.Errorf("tasks after a restart: got %d, %v, want 2", page.Total, err)
	}
}

// TestDefinitionsFollow changes and prunes definitions while tables stream.
func TestDefinitionsFollow(t *testing.T) {
	t.Parallel()
	r := streamingRig(t)
	d := r.definitions()
	d.Targets[0].Connections = 4
	d.Sources[0].CopyReaders = 3
	d.Pipelines[0] = shopPipeline
	d.Pipelines[0].Tables.Exclude = append([]string{"shop.c"}, shopPipeline.Tables.Exclude...)
	plan, err := r.engine.Apply(t.Context(), d, tablesync.ApplyOptions{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	done, err := r.engine.Apply(t.Context(), d, tablesync.ApplyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(plan) != fmt.Sprint(done) || len(done) != 3 || done[0].Action != "update" || done[1].Action != "update" || done[2].Action != "update" {
		t.Errorf("differences: got %v after the plan %v, want three updates", done, plan)
	}
	r.exec("INSERT INTO shop.a VALUES(50,'on')", "INSERT INTO shop.c VALUES(50,'off')")
	r.inState(2, tablesync.Streaming)
	eventually(t, "a goes on", func() (bool, string) { n := r.targetRows("shop.a"); return n == 3, fmt.Sprint(n) })
	if got := r.targetRows("shop.c"); got != 2 {
		t.Errorf("rows of the excluded table: got %d, want 2", got)
	}
	again, err := r.engine.Apply(t.Context(), d, tablesync.ApplyOptions{})
	if err != nil || again[0].Action != "unchanged" || again[1].Action != "unchanged" || again[2].Action != "unchanged" {
		t.Errorf("the same again: got %v, %v, want nothing to do", again, err)
	}
	if _, err := r.engine.Apply(t.Context(), tablesync.Definitions{}, tablesync.ApplyOptions{Prune: true}); err != nil {
		t.Fatal(err)
	}
	if got := len(r.engine.Sources()) + len(r.engine.Targets()) + len(r.engine.Pipelines()); got != 0 {
		t.Errorf("definitions after a prune: got %d, want none", got)
	}
	rows, err := r.target.Query(t.Context(), "SELECT * FROM runnel.checkpoint")
	if err != nil || len(rows) != 0 {
		t.Errorf("checkpoints after a prune: got %v, %v, want none", rows, err)
	}
}

// TestTablesThatBecomeFit are taken in: by the statement that mends them, or when
// the pipeline that an operator had them removed from is declared anew.
func TestTablesThatBecomeFit(t *testing.T) {
	t.Parallel()
	r := streamingRig(t)
	r.exec("CREATE TABLE shop.late(id INT, v INT)")
	r.exec("INSERT INTO shop.late VALUES(1,1)", "ALTER TABLE shop.late ADD PRIMARY KEY(id)", "INSERT INTO shop.late VALUES(2,2)")
	if v := r.taskOfAny("shop.late"); v != nil && v.State == tablesync.Failed {
		r.command("shop.late", "retry")
	}
	r.waitState("shop.late", tablesync.Streaming)
	r.command("shop.a", "remove")
	eventually(t, "it is gone", func() (bool, string) { return r.taskOfAny("shop.a") == nil, "" })
	d := r.definitions()
	if _, err := r.engine.Apply(t.Context(), tablesync.Definitions{Sources: d.Sources, Targets: d.Targets}, tablesync.ApplyOptions{Prune: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are gone", func() (bool, string) {
		page, err := r.engine.Tasks(tablesync.TaskQuery{})
		return err == nil && page.Total == 0, fmt.Sprint(page)
	})
	again := shopPipeline
	again.Existing = "empty"
	r.apply(again)
	r.inState(4, tablesync.Streaming)
	r.stop()
	r.start()
	r.inState(4, tablesync.Streaming)
	r.same("shop")
}

// taskOfAny is taskOf for a table that may have no task.
func (r *rig) taskOfAny(table string) *tablesync.TaskView {
	page, err := r.engine.Tasks(tablesync.TaskQuery{Table: table})
	if err != nil || len(page.Tasks) == 0 {
		return nil
	}
	return &page.Tasks[0]
}

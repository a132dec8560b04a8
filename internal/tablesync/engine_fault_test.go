package tablesync_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
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

// TestNamedStates meets what the log can hold that rows cannot follow: the task
// concerned stops with cause and remedy, the others go on.
func TestNamedStates(t *testing.T) {
	for name, c := range map[string]struct {
		do    []string
		state tablesync.State
		cause string
	}{
		"statement":         {[]string{"SET binlog_format='STATEMENT'", "UPDATE shop.a SET v='x'"}, tablesync.NeedsResync, "text"},
		"partial row image": {[]string{"SET binlog_row_image='MINIMAL'", "UPDATE shop.a SET v='x' WHERE id=1"}, tablesync.NeedsResync, "rows changed"},
		"rename":            {[]string{"RENAME TABLE shop.a TO shop.a2"}, tablesync.NeedsResync, "renamed"},
		"replaced":          {[]string{"CREATE OR REPLACE TABLE shop.a(id INT PRIMARY KEY)"}, tablesync.NeedsResync, "replaced"},
		"row does not fit":  {[]string{"INSERT INTO shop.a VALUES(500,'y')"}, tablesync.Failed, "row id=500"},
		"target table gone": {[]string{"INSERT INTO shop.a VALUES(501,'y')"}, tablesync.Failed, "shop.a"},
		"alter fails there": {[]string{"ALTER TABLE shop.a ADD COLUMN extra INT"}, tablesync.Failed, "extra"},
	} {
		t.Run(name, func(t *testing.T) {
			r := streamingRig(t)
			prepare := map[string]string{
				"row does not fit":  "ALTER TABLE shop.a ADD CONSTRAINT small CHECK (id < 100)",
				"target table gone": "DROP TABLE shop.a",
				"alter fails there": "ALTER TABLE shop.a ADD COLUMN extra INT",
			}[name]
			if prepare != "" {
				if err := r.target.Exec(t.Context(), prepare); err != nil {
					t.Fatal(err)
				}
			}
			r.exec(c.do...)
			v := r.waitState("shop.a", c.state)
			if !strings.Contains(v.Reason, c.cause) || v.Remedy == "" {
				t.Errorf("reason %q, remedy %q: want a reason with %q and a remedy", v.Reason, v.Remedy, c.cause)
			}
			r.exec("INSERT INTO shop.b VALUES(9,'goes on')")
			eventually(t, "b goes on", func() (bool, string) { n := r.targetRows("shop.b"); return n == 3, fmt.Sprint(n) })
		})
	}
}

func TestDropAndCreateIsANewTask(t *testing.T) {
	r := streamingRig(t)
	first := r.taskOf("shop.a").ID
	r.exec("DROP TABLE shop.a", "CREATE TABLE shop.a(id INT PRIMARY KEY, v VARCHAR(40))", "INSERT INTO shop.a VALUES(77,'second life')")
	eventually(t, "the new table streams", func() (bool, string) {
		page, err := r.engine.Tasks(tablesync.TaskQuery{Table: "shop.a"})
		return err == nil && len(page.Tasks) == 1 && page.Tasks[0].ID != first && page.Tasks[0].State == tablesync.Streaming, fmt.Sprintf("%+v", page.Tasks)
	})
	r.same("shop")
}

func TestTargetOutageIsOneCause(t *testing.T) {
	r := streamingRig(t)
	if err := r.target.Kill(); err != nil {
		t.Fatal(err)
	}
	r.exec("INSERT INTO shop.a VALUES(10,'waits')", "INSERT INTO shop.b VALUES(10,'waits')")
	eventually(t, "the target is down", func() (bool, string) { v := r.engine.Targets(); return v[0].State == "down", fmt.Sprint(v) })
	if err := r.target.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the target is up", func() (bool, string) { v := r.engine.Targets(); return v[0].State == "ready", fmt.Sprint(v) })
	r.inState(3, tablesync.Streaming)
	r.same("shop")
}

func TestStartWhileTargetIsDown(t *testing.T) {
	r := streamingRig(t)
	r.stop()
	if err := r.target.Kill(); err != nil {
		t.Fatal(err)
	}
	r.exec("INSERT INTO shop.a VALUES(11,'waits')")
	r.start()
	eventually(t, "the target is down", func() (bool, string) { v := r.engine.Targets(); return v[0].State == "down", fmt.Sprint(v) })
	r.exec("INSERT INTO shop.b VALUES(11,'waits')")
	if err := r.target.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.inState(3, tablesync.Streaming)
	r.same("shop")
}

func TestSourceRestartIsReadOn(t *testing.T) {
	r := streamingRig(t)
	if err := r.source.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := r.source.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.exec("INSERT INTO shop.a VALUES(12,'after')", "FLUSH BINARY LOGS", "INSERT INTO shop.a VALUES(13,'after')")
	r.same("shop")
}

func TestPurgedLogOfAPausedTask(t *testing.T) {
	r := streamingRig(t)
	r.command("shop.a", "pause")
	eventually(t, "a is detached", func() (bool, string) { v := r.taskOf("shop.a"); return !v.Attached, fmt.Sprint(v) })
	r.exec("INSERT INTO shop.a VALUES(20,'lost')", "INSERT INTO shop.b VALUES(20,'kept')", "FLUSH BINARY LOGS", "INSERT INTO shop.b VALUES(21,'kept')")
	eventually(t, "b goes on", func() (bool, string) { n := r.targetRows("shop.b"); return n == 4, fmt.Sprint(n) })
	rows, err := r.source.Query(t.Context(), "SHOW BINARY LOGS")
	if err != nil {
		t.Fatal(err)
	}
	last := rows[len(rows)-1][0]
	eventually(t, "the log is purged", func() (bool, string) {
		// The server keeps a file that a reader is still in.
		if err := r.source.Exec(t.Context(), "PURGE BINARY LOGS TO '"+last+"'"); err != nil {
			return false, err.Error()
		}
		rows, err := r.source.Query(t.Context(), "SHOW BINARY LOGS")
		return err == nil && len(rows) == 1, fmt.Sprint(rows, err)
	})
	r.command("shop.a", "resume")
	if v := r.waitState("shop.a", tablesync.NeedsResync); !strings.Contains(v.Reason, "log") || v.Remedy == "" {
		t.Errorf("got %+v, want a reason that names the log and a remedy", v)
	}
	r.command("shop.a", "resync")
	r.inState(3, tablesync.Streaming)
	r.same("shop")
}

func TestTwoPipelinesOneTargetTable(t *testing.T) {
	r := streamingRig(t)
	second := shopPipeline
	second.Name = "again"
	_, err := r.engine.Apply(t.Context(), tablesync.Definitions{Pipelines: []tablesync.PipelineSpec{second}}, tablesync.ApplyOptions{})
	var p *change.Problem
	if !errors.As(err, &p) || p.Code != "target-taken" || p.Remedy == "" {
		t.Errorf("got %v, want the problem target-taken", err)
	}
	second.Route.Schema = "other_{schema}"
	if _, err := r.engine.Apply(t.Context(), tablesync.Definitions{Pipelines: []tablesync.PipelineSpec{second}}, tablesync.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	r.inState(6, tablesync.Streaming)
}

func TestAnotherLogUnderTheSameAddress(t *testing.T) {
	r := streamingRig(t)
	r.stop()
	r.exec("RESET MASTER", "INSERT INTO shop.a VALUES(30,'unseen')")
	r.start()
	r.inState(3, tablesync.NeedsResync)
	for _, table := range []string{"shop.a", "shop.b", "shop.c"} {
		r.command(table, "resync")
	}
	r.inState(3, tablesync.Streaming)
	r.same("shop")
}

// TestXAAcrossRestarts: rows prepared before a restart and committed after it
// arrive once; rows rolled back never do.
func TestXAAcrossRestarts(t *testing.T) {
	r := streamingRig(t)
	r.exec("XA START 'keep'", "INSERT INTO shop.a VALUES(40,'prepared')", "XA END 'keep'", "XA PREPARE 'keep'")
	r.exec("XA START 'drop'", "INSERT INTO shop.b VALUES(40,'prepared')", "XA END 'drop'", "XA PREPARE 'drop'")
	r.exec("INSERT INTO shop.a VALUES(41,'between')", "INSERT INTO shop.b VALUES(41,'between')")
	eventually(t, "what was committed in between arrives", func() (bool, string) { n := r.targetRows("shop.a"); return n == 3, fmt.Sprint(n) })
	r.command("shop.b", "pause")
	eventually(t, "b is detached", func() (bool, string) { v := r.taskOf("shop.b"); return !v.Attached, fmt.Sprint(v) })
	r.stop()
	r.exec("INSERT INTO shop.a VALUES(42,'while away')")
	r.start()
	r.exec("XA COMMIT 'keep'", "XA ROLLBACK 'drop'", "INSERT INTO shop.b VALUES(42,'after')")
	r.command("shop.b", "resume")
	r.inState(3, tablesync.Streaming)
	r.same("shop")
}

// TestDefinitionsFollow changes and prunes definitions while tables stream.
func TestDefinitionsFollow(t *testing.T) {
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

// TestTablesNamedInAPipeline: a table that is named must be fit; one that only a
// pattern matches is refused alone.
func TestTablesNamedInAPipeline(t *testing.T) {
	r := newRig(t, testdb.MariaDBOptions{})
	r.exec("CREATE DATABASE shop", "CREATE TABLE shop.good(id INT PRIMARY KEY)", "CREATE TABLE shop.nokey(id INT)")
	r.start()
	d := r.definitions()
	for name, code := range map[string]string{"shop.absent": "no-such-table", "shop.nokey": "table-without-key"} {
		d.Pipelines[0].Tables.Include = []string{"shop.good", name}
		_, err := r.engine.Apply(t.Context(), d, tablesync.ApplyOptions{})
		var p *change.Problem
		if !errors.As(err, &p) || p.Code != code || p.Remedy == "" || !strings.Contains(err.Error(), name) {
			t.Errorf("apply with %s: got %v, want the problem %s with a remedy", name, err, code)
		}
	}
	if got := len(r.engine.Pipelines()); got != 0 {
		t.Errorf("pipelines after a refusal: got %d, want none", got)
	}
	d.Pipelines[0].Tables.Include = []string{"shop.*"}
	diffs, err := r.engine.Apply(t.Context(), d, tablesync.ApplyOptions{})
	if err != nil || len(diffs) != 4 || diffs[3].Action != "refused" || diffs[3].Name != "shop.nokey" {
		t.Errorf("apply of a pattern: got %+v, %v, want shop.nokey refused", diffs, err)
	}
	r.inState(1, tablesync.Streaming)
}

// TestMissingPasswordIsOneServersState: a source or target whose connector cannot
// be made has a state; the process runs.
func TestMissingPasswordIsOneServersState(t *testing.T) {
	r := streamingRig(t)
	r.stop()
	why := "the password file is missing"
	refuse.Store(&why)
	t.Cleanup(func() { refuse.Store(nil) })
	r.start()
	eventually(t, "both are named", func() (bool, string) {
		s, g := r.engine.Sources()[0], r.engine.Targets()[0]
		return s.State == "failed" && strings.Contains(s.Reason, "password"), fmt.Sprintf("%+v %+v", s, g)
	})
	refuse.Store(nil)
	r.exec("INSERT INTO shop.a VALUES(60,'after')")
	r.inState(3, tablesync.Streaming)
	r.same("shop")
}

// TestSchemaChangesThatComputeValues: what the statement computed at the source is
// what the target holds, or the task says that it cannot be.
func TestSchemaChangesThatComputeValues(t *testing.T) {
	r := streamingRig(t)
	r.exec("SET timestamp=1700000000.123456", "ALTER TABLE shop.a ADD COLUMN seen DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6), ADD COLUMN day DATE DEFAULT (CURRENT_DATE)")
	r.exec("ALTER TABLE shop.b ADD COLUMN ts TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)",
		"SET time_zone='+05:30'", "ALTER TABLE shop.b MODIFY ts DATETIME(3) NOT NULL", "SET timestamp=1600000000", "ALTER TABLE shop.b ADD COLUMN at DATETIME DEFAULT NOW()")
	eventually(t, "the columns are there", func() (bool, string) {
		rows, err := r.target.Query(t.Context(), "SELECT at FROM shop.b")
		return err == nil && len(rows) == 2, fmt.Sprint(rows, err)
	})
	r.inState(3, tablesync.Streaming)
	r.same("shop")
	r.exec("ALTER TABLE shop.c ADD COLUMN tag VARCHAR(40) DEFAULT (UUID())")
	if v := r.waitState("shop.c", tablesync.NeedsResync); !strings.Contains(v.Reason, "UUID") || v.Remedy == "" {
		t.Errorf("got %+v, want a reason with the statement and a remedy", v)
	}
	r.command("shop.c", "resync")
	r.inState(3, tablesync.Streaming)
	r.same("shop")
}

func TestDropAndCreateWithOtherColumns(t *testing.T) {
	r := streamingRig(t)
	first := r.taskOf("shop.a").ID
	r.exec("DROP TABLE shop.a", "CREATE TABLE shop.a(k VARCHAR(10) PRIMARY KEY, other INT)", "INSERT INTO shop.a VALUES('x', 1)")
	eventually(t, "the new table streams", func() (bool, string) {
		page, err := r.engine.Tasks(tablesync.TaskQuery{Table: "shop.a"})
		return err == nil && len(page.Tasks) == 1 && page.Tasks[0].ID != first && page.Tasks[0].State == tablesync.Streaming, fmt.Sprintf("%+v", page.Tasks)
	})
	r.same("shop")
}

// TestTriggerAtTheTarget: one that can change rows is refused, one that looks on
// is not.
func TestTriggerAtTheTarget(t *testing.T) {
	r := newRig(t, testdb.MariaDBOptions{})
	for _, m := range []*testdb.MariaDB{r.source, r.target} {
		if err := m.Exec(t.Context(), "CREATE DATABASE shop", "CREATE TABLE shop.a(id INT PRIMARY KEY, v INT)", "CREATE TABLE shop.b(id INT PRIMARY KEY, v INT)"); err != nil {
			t.Fatal(err)
		}
	}
	r.exec("INSERT INTO shop.a VALUES(1,1)", "INSERT INTO shop.b VALUES(1,1)")
	if err := r.target.Exec(t.Context(), "CREATE DATABASE aside", "CREATE TABLE aside.n(n INT)",
		"CREATE TRIGGER shop.worse BEFORE INSERT ON shop.a FOR EACH ROW SET NEW.v=NEW.v+1",
		"CREATE TRIGGER shop.counts AFTER INSERT ON shop.b FOR EACH ROW INSERT INTO aside.n VALUES(1)"); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.apply(shopPipeline)
	r.waitState("shop.b", tablesync.Streaming)
	if v := r.waitState("shop.a", tablesync.Failed); !strings.Contains(v.Reason, "worse") || !strings.Contains(v.Remedy, "DROP TRIGGER") {
		t.Errorf("got %+v, want the trigger named and its remedy", v)
	}
	if err := r.target.Exec(t.Context(), "DROP TRIGGER shop.worse"); err != nil {
		t.Fatal(err)
	}
	r.command("shop.a", "retry")
	r.inState(2, tablesync.Streaming)
	r.same("shop")
}

// TestPlacesThatAreRefused: a pipeline never writes onto its own source, into a
// system schema or over Runnel's own tables.
func TestPlacesThatAreRefused(t *testing.T) {
	r := newRig(t, testdb.MariaDBOptions{})
	r.exec("CREATE DATABASE shop", "CREATE TABLE shop.a(id INT PRIMARY KEY)", "INSERT INTO shop.a VALUES(1)")
	r.start()
	d := r.definitions()
	d.Targets[0].Address = d.Sources[0].Address
	route := func(schema, table, code string) {
		t.Helper()
		d.Pipelines[0].Route = tablesync.RouteSpec{Schema: schema, Table: table}
		_, err := r.engine.Apply(t.Context(), d, tablesync.ApplyOptions{})
		var p *change.Problem
		if !errors.As(err, &p) || p.Code != code || p.Remedy == "" {
			t.Errorf("route to %s.%s: got %v, want the problem %s", schema, table, err, code)
		}
	}
	route("", "", "target-is-source")
	route("", "copy_{table}", "target-is-captured")
	route("mysql", "", "target-reserved")
	route("runnel", "", "target-reserved")
	route("x", strings.Repeat("long", 20), "target-name-too-long")
	d.Pipelines[0].Route = tablesync.RouteSpec{Schema: "copy_{schema}"}
	if _, err := r.engine.Apply(t.Context(), d, tablesync.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	r.inState(1, tablesync.Streaming)
}

// TestProgressRemovedAtTheTarget: somebody drops our schema; the tasks say what to
// do, at once after a restart and with the next row without one.
func TestProgressRemovedAtTheTarget(t *testing.T) {
	for _, restart := range []bool{true, false} {
		r := streamingRig(t)
		if restart {
			r.stop()
		}
		if err := r.target.Exec(t.Context(), "DROP DATABASE runnel"); err != nil {
			t.Fatal(err)
		}
		if restart {
			r.start()
		} else {
			r.exec("INSERT INTO shop.a VALUES(70,'x')", "INSERT INTO shop.b VALUES(70,'x')", "INSERT INTO shop.c VALUES(70,'x')")
		}
		r.inState(3, tablesync.NeedsResync)
		for _, table := range []string{"shop.a", "shop.b", "shop.c"} {
			if v := r.taskOf(table); !strings.Contains(v.Remedy, "resync") {
				t.Errorf("remedy of %s: got %q", table, v.Remedy)
			}
			r.command(table, "resync")
		}
		r.inState(3, tablesync.Streaming)
		r.same("shop")
	}
}

// TestFailuresAreSpaced: a failure that goes on is tried less and less often.
func TestFailuresAreSpaced(t *testing.T) {
	r := streamingRig(t)
	if err := r.target.Exec(t.Context(), "INSERT INTO runnel.owner SELECT target_schema, CONCAT(target_name,'x'), store_id, owner, incarnation, task FROM runnel.owner WHERE target_name='a'",
		"UPDATE runnel.owner SET target_name='later', store_id='ANOTHER' WHERE target_name='ax'"); err != nil {
		t.Fatal(err)
	}
	r.exec("CREATE TABLE shop.later(id INT PRIMARY KEY)")
	var attempts []int
	eventually(t, "three attempts", func() (bool, string) {
		page, err := r.engine.Tasks(tablesync.TaskQuery{Table: "shop.later"})
		if err == nil && len(page.Tasks) == 1 && page.Tasks[0].State == tablesync.Failed {
			if n := page.Tasks[0].Attempts; len(attempts) == 0 || attempts[len(attempts)-1] != n {
				attempts = append(attempts, n)
			}
		}
		return len(attempts) >= 3, fmt.Sprint(attempts, page.Tasks)
	})
	if attempts[2] <= attempts[0] {
		t.Errorf("attempts: got %v, want them to grow", attempts)
	}
}

// TestXAOpenWhileAnotherTableIsMadeAnew (a prepared transaction of one table must
// not trouble a task that begins while it is open).
func TestXAOpenWhileAnotherTableIsMadeAnew(t *testing.T) {
	r := streamingRig(t)
	r.exec("XA START 'w'", "INSERT INTO shop.a VALUES(80,'prepared')", "XA END 'w'", "XA PREPARE 'w'")
	before := r.taskOf("shop.b").Incarnation
	r.command("shop.b", "resync")
	eventually(t, "b is new", func() (bool, string) {
		v := r.taskOf("shop.b")
		return v.State == tablesync.Streaming && v.Incarnation != before, fmt.Sprintf("%+v", v)
	})
	r.command("shop.b", "pause")
	eventually(t, "b is detached", func() (bool, string) { v := r.taskOf("shop.b"); return !v.Attached, fmt.Sprint(v) })
	r.exec("XA COMMIT 'w'", "INSERT INTO shop.b VALUES(80,'x')")
	r.command("shop.b", "resume")
	r.inState(3, tablesync.Streaming)
	r.same("shop")
}

// TestTargetTablesThatExist: rows that Runnel did not write are nobody's to keep or
// to lose without a word.
func TestTargetTablesThatExist(t *testing.T) {
	r := newRig(t, testdb.MariaDBOptions{})
	r.exec("CREATE DATABASE shop")
	if err := r.target.Exec(t.Context(), "CREATE DATABASE shop"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		r.exec("CREATE TABLE shop."+name+"(id INT PRIMARY KEY)", "INSERT INTO shop."+name+" VALUES(1)")
		if err := r.target.Exec(t.Context(), "CREATE TABLE shop."+name+"(id INT PRIMARY KEY)", "INSERT INTO shop."+name+" VALUES(7)"); err != nil {
			t.Fatal(err)
		}
	}
	r.exec("CREATE TABLE shop.v(id INT PRIMARY KEY)")
	if err := r.target.Exec(t.Context(), "CREATE VIEW shop.v AS SELECT 1 id"); err != nil {
		t.Fatal(err)
	}
	pipeline := func(name, table, existing string) tablesync.PipelineSpec {
		return tablesync.PipelineSpec{Name: name, Source: "shop", Target: "copy", Existing: existing, Tables: tablesync.TableSpec{Include: []string{table}}}
	}
	r.start()
	r.apply(pipeline("refuse", "shop.a", ""), pipeline("empties", "shop.b", "empty"), pipeline("keeps", "shop.c", "keep"), pipeline("view", "shop.v", ""))
	if v := r.waitState("shop.a", tablesync.Failed); !strings.Contains(v.Reason, "rows already") || !strings.Contains(v.Remedy, "TRUNCATE") {
		t.Errorf("got %+v, want the rows named and a remedy", v)
	}
	if v := r.waitState("shop.v", tablesync.Failed); !strings.Contains(v.Reason, "view") || v.Remedy == "" {
		t.Errorf("got %+v, want the view named and a remedy", v)
	}
	r.waitState("shop.b", tablesync.Streaming)
	r.waitState("shop.c", tablesync.Streaming)
	if b, c := r.targetRows("shop.b"), r.targetRows("shop.c"); b != 1 || c != 2 {
		t.Errorf("rows: got %d emptied and %d kept, want 1 and 2", b, c)
	}
	if err := r.target.Exec(t.Context(), "TRUNCATE TABLE shop.a", "DROP VIEW shop.v"); err != nil {
		t.Fatal(err)
	}
	r.command("shop.a", "retry")
	r.command("shop.v", "retry")
	r.inState(4, tablesync.Streaming)
}

// TestTablesThatBecomeFit are taken in: by the statement that mends them, or when
// the pipeline that an operator had them removed from is declared anew.
func TestTablesThatBecomeFit(t *testing.T) {
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

// TestStatementsWithSettingsInFront (SET STATEMENT … FOR) are what they are for.
func TestStatementsWithSettingsInFront(t *testing.T) {
	r := streamingRig(t)
	r.exec("SET STATEMENT max_statement_time=100 FOR ALTER TABLE shop.a ADD COLUMN z INT DEFAULT 3 FIRST", "INSERT INTO shop.a VALUES(9,90,'after')",
		"SET STATEMENT lock_wait_timeout=(1+FLOOR(2)) FOR TRUNCATE TABLE shop.b", "INSERT INTO shop.b VALUES(91,'only')")
	eventually(t, "the truncated table follows", func() (bool, string) { n := r.targetRows("shop.b"); return n == 1, fmt.Sprint(n) })
	r.same("shop")
	r.exec("SET STATEMENT max_statement_time=100 FOR RENAME TABLE shop.c TO shop.c2")
	r.waitState("shop.c", tablesync.NeedsResync)
}

// TestNewDataDirectory: a target that another store owns says so, and what to do
// when that store is lost works.
func TestNewDataDirectory(t *testing.T) {
	r := streamingRig(t)
	r.stop()
	r.dir = t.TempDir()
	r.start()
	again := shopPipeline
	again.Existing = "empty"
	r.apply(again)
	eventually(t, "the owner is named", func() (bool, string) {
		page, err := r.engine.Tasks(tablesync.TaskQuery{})
		for _, v := range page.Tasks {
			if (v.State == tablesync.Failed || v.State == tablesync.OwnedElsewhere) && strings.Contains(v.Reason, "store") && strings.Contains(v.Remedy, "DROP SCHEMA") {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v %v", page.Tasks, err)
	})
	if err := r.target.Exec(t.Context(), "DROP SCHEMA runnel"); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"shop.a", "shop.b", "shop.c"} {
		eventually(t, table+" can be retried", func() (bool, string) {
			v := r.taskOf(table)
			if v.State == tablesync.Failed || v.State == tablesync.OwnedElsewhere {
				err := r.engine.Command(t.Context(), v.ID, "retry")
				return err == nil, fmt.Sprint(err)
			}
			return v.State == tablesync.Streaming, fmt.Sprintf("%+v", v)
		})
	}
	r.inState(3, tablesync.Streaming)
	r.same("shop")
}

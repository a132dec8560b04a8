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

func TestTwoPipelinesOneTargetTable(t *testing.T) {
	t.Parallel()
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

// TestTablesNamedInAPipeline: a table that is named must be fit; one that only a
// pattern matches is refused alone.
func TestTablesNamedInAPipeline(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	r := streamingRig(t)
	r.stop()
	why := "the password file is missing"
	r.connector.refuse.Store(&why)
	r.start()
	eventually(t, "both are named", func() (bool, string) {
		s, g := r.engine.Sources()[0], r.engine.Targets()[0]
		return s.State == "failed" && strings.Contains(s.Reason, "password"), fmt.Sprintf("%+v %+v", s, g)
	})
	r.connector.refuse.Store(nil)
	r.exec("INSERT INTO shop.a VALUES(60,'after')")
	r.inState(3, tablesync.Streaming)
	r.same("shop")
}

// TestTriggerAtTheTarget: one that can change rows is refused, one that looks on
// is not.
func TestTriggerAtTheTarget(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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

// TestTargetTablesThatExist: rows that Runnel did not write are nobody's to keep or
// to lose without a word.
func TestTargetTablesThatExist(t *testing.T) {
	t.Parallel()
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

// TestNewDataDirectory: a target that another store owns says so, and what to do
// when that store is lost works.
func TestNewDataDirectory(t *testing.T) {
	t.Parallel()
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

package tablesync_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/internal/tablesync"
)

// TestNamedStates meets what the log can hold that rows cannot follow: the task
// concerned stops with cause and remedy, the others go on.
func TestNamedStates(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	r := streamingRig(t)
	first := r.taskOf("shop.a").ID
	r.exec("DROP TABLE shop.a", "CREATE TABLE shop.a(id INT PRIMARY KEY, v VARCHAR(40))", "INSERT INTO shop.a VALUES(77,'second life')")
	eventually(t, "the new table streams", func() (bool, string) {
		page, err := r.engine.Tasks(tablesync.TaskQuery{Table: "shop.a"})
		return err == nil && len(page.Tasks) == 1 && page.Tasks[0].ID != first && page.Tasks[0].State == tablesync.Streaming, fmt.Sprintf("%+v", page.Tasks)
	})
	r.same("shop")
}

// TestXAAcrossRestarts: rows prepared before a restart and committed after it
// arrive once; rows rolled back never do.
func TestXAAcrossRestarts(t *testing.T) {
	t.Parallel()
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

// TestSchemaChangesThatComputeValues: what the statement computed at the source is
// what the target holds, or the task says that it cannot be.
func TestSchemaChangesThatComputeValues(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	r := streamingRig(t)
	first := r.taskOf("shop.a").ID
	r.exec("DROP TABLE shop.a", "CREATE TABLE shop.a(k VARCHAR(10) PRIMARY KEY, other INT)", "INSERT INTO shop.a VALUES('x', 1)")
	eventually(t, "the new table streams", func() (bool, string) {
		page, err := r.engine.Tasks(tablesync.TaskQuery{Table: "shop.a"})
		return err == nil && len(page.Tasks) == 1 && page.Tasks[0].ID != first && page.Tasks[0].State == tablesync.Streaming, fmt.Sprintf("%+v", page.Tasks)
	})
	r.same("shop")
}

// TestXAOpenWhileAnotherTableIsMadeAnew (a prepared transaction of one table must
// not trouble a task that begins while it is open).
func TestXAOpenWhileAnotherTableIsMadeAnew(t *testing.T) {
	t.Parallel()
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

// TestStatementsWithSettingsInFront (SET STATEMENT … FOR) are what they are for.
func TestStatementsWithSettingsInFront(t *testing.T) {
	t.Parallel()
	r := streamingRig(t)
	r.exec("SET STATEMENT max_statement_time=100 FOR ALTER TABLE shop.a ADD COLUMN z INT DEFAULT 3 FIRST", "INSERT INTO shop.a VALUES(9,90,'after')",
		"SET STATEMENT lock_wait_timeout=(1+FLOOR(2)) FOR TRUNCATE TABLE shop.b", "INSERT INTO shop.b VALUES(91,'only')")
	eventually(t, "the truncated table follows", func() (bool, string) { n := r.targetRows("shop.b"); return n == 1, fmt.Sprint(n) })
	r.same("shop")
	r.exec("SET STATEMENT max_statement_time=100 FOR RENAME TABLE shop.c TO shop.c2")
	r.waitState("shop.c", tablesync.NeedsResync)
}

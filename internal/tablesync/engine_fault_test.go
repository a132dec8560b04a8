package tablesync_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/internal/tablesync"
)

func TestTargetOutageIsOneCause(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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

func TestAnotherLogUnderTheSameAddress(t *testing.T) {
	t.Parallel()
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

// TestProgressRemovedAtTheTarget: somebody drops our schema; the tasks say what to
// do, at once after a restart and with the next row without one.
func TestProgressRemovedAtTheTarget(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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

// TestSettingsChangedBeforeAReconnect: the source is checked again whenever its log
// is opened, and its tasks say what they wait for.
func TestSettingsChangedBeforeAReconnect(t *testing.T) {
	t.Parallel()
	r := streamingRig(t)
	cut := func() {
		rows, err := r.source.Query(t.Context(), "SELECT id FROM information_schema.processlist WHERE command='Binlog Dump'")
		if err != nil || len(rows) == 0 {
			t.Fatalf("dump threads: got %v, %v", rows, err)
		}
		for _, row := range rows {
			r.exec("KILL " + row[0])
		}
	}
	r.exec("SET GLOBAL binlog_row_image='MINIMAL'")
	cut()
	eventually(t, "the setting is named", func() (bool, string) {
		s, v := r.engine.Sources()[0], r.taskOf("shop.a")
		return s.State == "failed" && strings.Contains(s.Reason, "binlog_row_image") && s.Remedy != "" && strings.Contains(v.Reason, "waits for source"), fmt.Sprintf("%+v %+v", s, v)
	})
	r.exec("SET GLOBAL binlog_row_image='FULL'", "INSERT INTO shop.a VALUES(90,'after')")
	eventually(t, "reading goes on", func() (bool, string) { n := r.targetRows("shop.a"); return n == 3, fmt.Sprint(n) })
	r.same("shop")
}

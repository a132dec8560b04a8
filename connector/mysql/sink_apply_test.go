package mysql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/fault"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// table makes a table with a task.
func (x *target) table(t *testing.T, name, columns string) *change.Layout {
	t.Helper()
	x.exec(t, "CREATE TABLE t."+quoteName(name)+" "+columns)
	l := x.layout(t, name)
	x.prepare(t, name, l)
	return l
}

// K-15, K-16, K-18: rows that pass unique values on to each other.
func TestUniqueValuesMoveBetweenRows(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	r := func(id, u int64) []change.Value { return row(num(id), num(u)) }
	for i, tc := range []struct {
		name, columns string
		start         string
		changes       []change.Change
		want          string
	}{
		{"swap through a temporary value", "(id INT PRIMARY KEY, u INT UNIQUE)", "(1,10),(2,20)",
			[]change.Change{update(r(1, 10), r(1, 0)), update(r(2, 20), r(2, 10)), update(r(1, 0), r(1, 20))}, "1,20;2,10"},
		{"free and take", "(id INT PRIMARY KEY, u INT UNIQUE)", "(1,10)",
			[]change.Change{update(r(1, 10), r(1, 11)), insert(r(2, 10)...)}, "1,11;2,10"},
		{"take after delete", "(id INT PRIMARY KEY, u INT UNIQUE)", "(1,10),(3,30)",
			[]change.Change{remove(r(1, 10)...), insert(r(2, 10)...), remove(r(3, 30)...), update(r(2, 10), r(2, 30))}, "2,30"},
		{"replace that hits two rows", "(id INT PRIMARY KEY, u INT UNIQUE)", "(1,10),(2,20)",
			[]change.Change{remove(r(1, 10)...), remove(r(2, 20)...), insert(r(1, 20)...)}, "1,20"},
		{"shift of keys", "(id INT PRIMARY KEY, u INT)", "(1,1),(2,2),(3,3)",
			[]change.Change{update(r(3, 3), r(4, 3)), update(r(2, 2), r(3, 2)), update(r(1, 1), r(2, 1))}, "2,1;3,2;4,3"},
		{"shift of keys with a unique column", "(id INT PRIMARY KEY, u INT UNIQUE)", "(1,1),(2,2),(3,3)",
			[]change.Change{update(r(3, 3), r(4, 3)), update(r(2, 2), r(3, 2)), update(r(1, 1), r(2, 1))}, "2,1;3,2;4,3"},
		{"key there and back", "(id INT PRIMARY KEY, u INT)", "(1,1)",
			[]change.Change{update(r(1, 1), r(2, 1)), update(r(2, 1), r(1, 5))}, "1,5"},
		{"a row ahead of the log gives way", "(id INT PRIMARY KEY, u INT UNIQUE)", "(7,10),(8,20)",
			[]change.Change{insert(r(1, 10)...)}, "1,10;8,20"},
		{"insert over a row that is there, delete of none", "(id INT PRIMARY KEY, u INT)", "(1,1)",
			[]change.Change{insert(r(1, 2)...), remove(r(9, 9)...)}, "1,2"},
	} {
		name := fmt.Sprint("u", i)
		l := x.table(t, name, tc.columns)
		x.exec(t, "INSERT INTO t."+name+" VALUES "+tc.start)
		x.mustApply(t, x.batch(name, l, 0, 1, tc.changes...))
		if got := x.one(t, "SELECT id, u FROM t."+name+" ORDER BY id"); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

// Statements are cut to what the server takes, and a row that it never takes is
// the row's fault.
func TestPacketsRespectTheServersLimit(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{ExtraArgs: []string{"--max-allowed-packet=1M"}}, SinkOptions{})
	l := x.table(t, "big", "(id INT PRIMARY KEY, b LONGBLOB)")
	u := x.table(t, "uniq", "(id INT PRIMARY KEY, b INT UNIQUE)")
	var changes, deletes, uniq []change.Change
	for i := range int64(40) {
		size := 1000
		if i%7 == 0 {
			size = 300_000 + int(i)*16_000
		}
		changes = append(changes, insert(num(i), raw(strings.Repeat("'", size/2)))) // each byte is written as two
	}
	for i := range int64(5000) {
		uniq = append(uniq, insert(num(i), num(-i)))
		deletes = append(deletes, remove(num(i), num(-i)))
	}
	x.mustApply(t, x.batch("big", l, 0, 1, changes...), x.batch("uniq", u, 0, 1, uniq...))
	if got, want := x.one(t, "SELECT COUNT(*), SUM(LENGTH(b)) FROM t.big"), "40,1757000"; got != want {
		t.Errorf("got rows and bytes %s, want %s", got, want)
	}
	if got, want := x.one(t, "SELECT COUNT(*), SUM(b) FROM t.uniq"), "5000,-12497500"; got != want {
		t.Errorf("got rows and sum %s, want %s", got, want)
	}
	res := x.apply(t, x.batch("big", l, 1, 2, remove(num(1), null()), insert(num(99), raw(strings.Repeat("x", 1<<20)))), x.batch("uniq", u, 1, 2, deletes...))
	if change.ClassOf(res[0].Err) != change.PermanentRow || res[0].RowIndex != 1 || !strings.Contains(res[0].Err.Error(), "max_allowed_packet") {
		t.Errorf("got %v at row %d, want a permanent-row error at 1 that names max_allowed_packet", res[0].Err, res[0].RowIndex)
	}
	if got := x.one(t, "SELECT (SELECT COUNT(*) FROM t.big), (SELECT COUNT(*) FROM t.uniq)"); res[1].Err != nil || got != "40,0" {
		t.Errorf("got %v and counts %s, want nil and 40,0", res[1].Err, got)
	}
}

func TestErrorsHaveTheirClass(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	good := x.table(t, "good", "(id INT PRIMARY KEY)")
	parent := "CREATE TABLE t.parent (id INT PRIMARY KEY)"
	x.exec(t, parent)
	at := uint64(0)
	for name, tc := range map[string]struct {
		columns, breaking string
		row               []change.Value
		class             change.Class
		row0              bool
	}{
		"toolong":    {"(id INT PRIMARY KEY, v VARCHAR(20))", "ALTER TABLE t.toolong MODIFY v VARCHAR(2)", row(num(1), text("abc")), change.PermanentRow, true},
		"range":      {"(id INT PRIMARY KEY, v INT)", "ALTER TABLE t.`range` MODIFY v TINYINT", row(num(1), num(1000)), change.PermanentRow, true},
		"nulls":      {"(id INT PRIMARY KEY, v INT)", "ALTER TABLE t.nulls MODIFY v INT NOT NULL", row(num(1), null()), change.PermanentRow, true},
		"badtext":    {"(id INT PRIMARY KEY, v VARCHAR(20))", "", row(num(1), text("\xff\xfe")), change.PermanentRow, true},
		"checked":    {"(id INT PRIMARY KEY, v INT)", "ALTER TABLE t.checked ADD CHECK (v < 5)", row(num(1), num(9)), change.PermanentRow, true},
		"triggered":  {"(id INT PRIMARY KEY, v INT)", "CREATE TRIGGER t.tr BEFORE INSERT ON t.triggered FOR EACH ROW SIGNAL SQLSTATE '45000'", row(num(1), num(9)), change.PermanentRow, true},
		"dropped":    {"(id INT PRIMARY KEY, v INT)", "DROP TABLE t.dropped", row(num(1), num(9)), change.PermanentTask, false},
		"column":     {"(id INT PRIMARY KEY, v INT)", "ALTER TABLE t.`column` DROP v", row(num(1), num(9)), change.PermanentTask, false},
		"addcolumn":  {"(id INT PRIMARY KEY, v INT)", "ALTER TABLE t.addcolumn ADD w INT NOT NULL", row(num(1), num(9)), change.PermanentTask, false},
		"badvalue":   {"(id INT PRIMARY KEY, v DATE)", "", row(num(1), moment("2024-13-01")), change.PermanentRow, true},
		"badkind":    {"(id INT PRIMARY KEY, v DOUBLE)", "", row(num(1), change.Value{Kind: 77}), change.PermanentRow, true},
		"shortimage": {"(id INT PRIMARY KEY, v DOUBLE)", "", row(num(1)), change.PermanentRow, true},
	} {
		l := x.table(t, name, tc.columns)
		if tc.breaking != "" {
			x.exec(t, tc.breaking)
		}
		ok := row(num(5), tc.row[len(tc.row)-1])
		ok[1] = null()
		if name == "nulls" {
			ok[1] = num(3)
		}
		res := x.apply(t, x.batch("good", good, at, at+1, insert(num(int64(at)))),
			x.batch(name, l, 0, 1, insert(ok...), change.Change{Op: change.Insert, After: tc.row}))
		at++
		if res[0].Err != nil {
			t.Errorf("%s: its neighbour got %v", name, res[0].Err)
			at--
		}
		wantRow := -1
		if tc.row0 {
			wantRow = 1
			if name == "triggered" {
				wantRow = 0
			}
		}
		if got := change.ClassOf(res[1].Err); res[1].Err == nil || got != tc.class || res[1].RowIndex != wantRow {
			t.Errorf("%s: got class %s at row %d (%v), want %s at %d", name, got, res[1].RowIndex, res[1].Err, tc.class, wantRow)
		}
	}
}

// One locked table costs its own batch, not the others.
func TestLockedTableHarmsNoOther(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	a, b, c := x.table(t, "a", "(id INT PRIMARY KEY)"), x.table(t, "b", "(id INT PRIMARY KEY)"), x.table(t, "c", "(id INT PRIMARY KEY)")
	ctx := testContext(t)
	holder, err := x.sink.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.close()
	if _, err := holder.run(ctx, []byte("LOCK TABLES t.b WRITE"), nil); err != nil {
		t.Fatal(err)
	}
	batches := []change.Batch{x.batch("a", a, 0, 1, insert(num(1))), x.batch("b", b, 0, 1, insert(num(1))), x.batch("c", c, 0, 1, insert(num(1)))}
	res := x.apply(t, batches...)
	if res[0].Err != nil || res[2].Err != nil || change.ClassOf(res[1].Err) != change.Transient || serverCode(res[1].Err) != codeLockTimeout {
		t.Errorf("got %v, want only the second to be a transient lock timeout", res)
	}
	if _, err := holder.run(ctx, []byte("UNLOCK TABLES"), nil); err != nil {
		t.Fatal(err)
	}
	x.mustApply(t, batches[1])
}

// However many tables are locked, the others wait for a bounded time only.
func TestManyLockedTablesAreNotAllTried(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	var batches []change.Batch
	var locks []string
	for i := range maxLockWaits + 3 {
		name := fmt.Sprint("l", i)
		batches = append(batches, x.batch(name, x.table(t, name, "(id INT PRIMARY KEY)"), 0, 1, insert(num(1))))
		if i > 0 {
			locks = append(locks, "t."+name+" WRITE")
		}
	}
	ctx := testContext(t)
	holder, err := x.sink.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.close()
	if _, err := holder.run(ctx, []byte("LOCK TABLES "+strings.Join(locks, ", ")), nil); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for i, r := range x.apply(t, batches...) {
		if (r.Err == nil) != (i == 0) || r.Err != nil && change.ClassOf(r.Err) != change.Transient {
			t.Errorf("batch %d: got %v, want only the first to be applied and the others transient", i, r.Err)
		}
		if serverCode(r.Err) == codeLockTimeout {
			tried++
		}
	}
	if tried != maxLockWaits {
		t.Errorf("got %d batches that waited for a lock, want %d", tried, maxLockWaits)
	}
}

// Deadlocks and lost connections are repeated as a whole; when they go on, the
// error is transient and nothing was written.
func TestLostTransactionsAreRepeated(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	l := x.table(t, "a", "(id INT PRIMARY KEY)")
	broken := errors.New("connection reset by test")
	failures := 0
	defer fault.Set(commitBefore, func() error {
		if failures--; failures >= 0 {
			return broken
		}
		return nil
	})()
	failures = attempts - 1
	x.mustApply(t, x.batch("a", l, 0, 1, insert(num(1))))
	failures = attempts
	res := x.apply(t, x.batch("a", l, 1, 2, insert(num(2))))
	if !errors.Is(res[0].Err, broken) || change.ClassOf(res[0].Err) != change.Transient {
		t.Errorf("got %v, want the transient error", res[0].Err)
	}
	if got := x.one(t, "SELECT id FROM t.a"); got != "1" {
		t.Errorf("got rows %s, want 1", got)
	}
	// The server drops the idle connections of the pool: nobody notices.
	x.exec(t, "SET GLOBAL wait_timeout=28800")
	for _, r := range x.query(t, "SELECT id FROM information_schema.PROCESSLIST WHERE id <> CONNECTION_ID() AND command='Sleep'") {
		x.exec(t, "KILL "+r[0])
	}
	failures = 0
	x.mustApply(t, x.batch("a", l, 1, 2, insert(num(2))))
}

func TestTargetAsAWhole(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	l := x.table(t, "a", "(id INT PRIMARY KEY)")
	b := x.table(t, "b", "(id INT PRIMARY KEY)")
	ctx := testContext(t)
	if err := x.db.CreateUser(ctx, "plain", "pw", "SELECT, INSERT, UPDATE, DELETE"); err != nil {
		t.Fatal(err)
	}
	cfg := targetConfig(x.db)
	cfg.User, cfg.Password = "plain", "pw"
	x.sink = newTestSink(t, cfg, SinkOptions{})
	x.exec(t, "SET GLOBAL read_only=1")
	for _, r := range x.apply(t, x.batch("a", l, 0, 1, insert(num(1))), x.batch("b", b, 0, 1, insert(num(1)))) {
		if change.ClassOf(r.Err) != change.TargetWide || serverCode(r.Err) != 1290 {
			t.Errorf("got %v of class %s, want target-wide", r.Err, change.ClassOf(r.Err))
		}
	}
	x.exec(t, "SET GLOBAL read_only=0")
	x.mustApply(t, x.batch("a", l, 0, 1, insert(num(1))))
	if err := x.db.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // with a pooled connection, and without
		if r := x.apply(t, x.batch("a", l, 1, 2, insert(num(2))))[0]; change.ClassOf(r.Err) != change.TargetWide {
			t.Errorf("got %v of class %s from a dead server, want target-wide", r.Err, change.ClassOf(r.Err))
		}
	}
	if err := x.db.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	x.mustApply(t, x.batch("a", l, 1, 2, insert(num(2))))
}

func TestCallsEndWithTheirContext(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{Connections: 1})
	l := x.table(t, "a", "(id INT PRIMARY KEY)")
	ctx, cancel := context.WithCancel(testContext(t))
	hold := make(chan struct{})
	entered := make(chan struct{})
	restore := fault.Set(commitBefore, func() error { close(entered); <-hold; return nil })
	first := make(chan []change.BatchResult, 1)
	go func() {
		first <- x.sink.Apply(testContext(t), x.fence, []change.Batch{x.batch("a", l, 0, 1, insert(num(1)))})
	}()
	<-entered
	restore()
	second := make(chan []change.BatchResult, 1)
	go func() { second <- x.sink.Apply(ctx, x.fence, []change.Batch{x.batch("a", l, 0, 1, insert(num(1)))}) }()
	cancel()
	if r := <-second; !errors.Is(r[0].Err, context.Canceled) {
		t.Errorf("got %v while all connections are in use, want canceled", r[0].Err)
	}
	close(hold)
	if r := <-first; r[0].Err != nil {
		t.Errorf("got %v, want nil", r[0].Err)
	}
	if err := x.sink.Close(); err != nil {
		t.Fatal(err)
	}
	if r := x.apply(t, x.batch("a", l, 1, 2)); !errors.Is(r[0].Err, errSinkClosed) {
		t.Errorf("got %v after Close, want errSinkClosed", r[0].Err)
	}
}

// A batch may have no rows, and several batches may follow each other on one lane.
func TestCheckpointsMoveWithoutRows(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	l := x.table(t, "a", "(id INT PRIMARY KEY)")
	x.mustApply(t, x.batch("a", l, 0, 5), x.batch("a", l, 5, 5), x.batch("a", l, 5, 9, insert(num(1))))
	if got := x.checkpoint(t, "a"); got != pos(9) {
		t.Errorf("got checkpoint %v, want 9", got)
	}
}

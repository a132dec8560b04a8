package mysql

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// target is a server, a sink on it and the fence that the sink's owner claimed.
type target struct {
	db    *testdb.MariaDB
	sink  *Sink
	fence change.Fence
}

func targetConfig(db *testdb.MariaDB) Config {
	return Config{Name: "target lake", Addr: db.Addr(), User: "root"}
}

// newTarget starts a server with a claimed sink and a schema t.
func newTarget(t *testing.T, o testdb.MariaDBOptions, so SinkOptions) *target {
	t.Helper()
	db := testdb.MariaDBFor(t, o)
	x := &target{db: db, sink: newTestSink(t, targetConfig(db), so), fence: change.Fence{StoreID: "store-1", Owner: "shop/0", Epoch: 1}}
	x.exec(t, "CREATE DATABASE t CHARACTER SET utf8mb4")
	if err := x.sink.Claim(testContext(t), x.fence); err != nil {
		t.Fatal(err)
	}
	return x
}

func newTestSink(t *testing.T, cfg Config, so SinkOptions) *Sink {
	t.Helper()
	s, err := NewSink(cfg, so)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close sink: %v", err)
		}
	})
	return s
}

func (x *target) exec(t *testing.T, sql ...string) {
	t.Helper()
	if err := x.db.Exec(testContext(t), sql...); err != nil {
		t.Fatal(err)
	}
}

func (x *target) query(t *testing.T, sql string) [][]string {
	t.Helper()
	rows, err := x.db.Query(testContext(t), sql)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// one runs a query and joins its rows: "a,b;c,d".
func (x *target) one(t *testing.T, sql string) string {
	t.Helper()
	var lines []string
	for _, r := range x.query(t, sql) {
		lines = append(lines, strings.Join(r, ","))
	}
	return strings.Join(lines, ";")
}

// layout reads a table's layout as the source would.
func (x *target) layout(t *testing.T, name string) *change.Layout {
	t.Helper()
	l, err := x.readLayout(t, change.TableID{Schema: "t", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (x *target) readLayout(t *testing.T, id change.TableID) (l *change.Layout, err error) {
	t.Helper()
	err = x.sink.with(testContext(t), func(c *sinkConn) error {
		l, err = c.layout(t.Context(), id)
		return err
	})
	return l, err
}

// prepare makes a task for the table; its checkpoint is pos(0).
func (x *target) prepare(t *testing.T, name string, l *change.Layout) {
	t.Helper()
	err := x.sink.Prepare(testContext(t), x.fence, change.TaskTarget{
		Incarnation: "inc-" + name, Task: "task-" + name, Target: change.TableID{Schema: "t", Name: name}, Layout: l, At: pos(0),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// pos is the n-th position of a history.
func pos(n uint64) change.Position {
	p := change.Position{History: "mariadb:7:binlog", Token: fmt.Sprintf("binlog.000001:%d", n)}
	binary.BigEndian.PutUint64(p.Order[8:], n)
	return p
}

func (x *target) batch(name string, l *change.Layout, from, to uint64, changes ...change.Change) change.Batch {
	return change.Batch{
		Key: change.CheckpointKey{Incarnation: "inc-" + name}, Target: change.TableID{Schema: "t", Name: name},
		Layout: l, Changes: changes, Expected: pos(from), New: pos(to),
	}
}

func (x *target) apply(t *testing.T, b ...change.Batch) []change.BatchResult {
	t.Helper()
	return x.sink.Apply(testContext(t), x.fence, b)
}

func (x *target) mustApply(t *testing.T, b ...change.Batch) {
	t.Helper()
	for i, r := range x.apply(t, b...) {
		if r.Err != nil {
			t.Fatalf("batch %d: %v", i, r.Err)
		}
	}
}

// checkpoint is the stored position of an incarnation, as the server sees it.
func (x *target) checkpoint(t *testing.T, name string) change.Position {
	t.Helper()
	p, err := change.ParsePosition(x.one(t, "SELECT position FROM runnel.checkpoint WHERE incarnation='inc-"+name+"' AND part=0"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func num(n int64) change.Value     { return change.Value{Kind: change.Int, Num: uint64(n)} }
func text(s string) change.Value   { return change.Value{Kind: change.Text, Data: []byte(s)} }
func moment(s string) change.Value { return change.Value{Kind: change.Time, Data: []byte(s)} }
func raw(s string) change.Value    { return change.Value{Kind: change.Bytes, Data: []byte(s)} }
func null() change.Value           { return change.Value{Kind: change.Null} }
func single(f float32) change.Value {
	return change.Value{Kind: change.Float32, Num: uint64(math.Float32bits(f))}
}
func double(f float64) change.Value {
	return change.Value{Kind: change.Float64, Num: math.Float64bits(f)}
}

func insert(row ...change.Value) change.Change { return change.Change{Op: change.Insert, After: row} }
func remove(row ...change.Value) change.Change { return change.Change{Op: change.Delete, Before: row} }
func update(before, after []change.Value) change.Change {
	return change.Change{Op: change.Update, Before: before, After: after}
}
func row(v ...change.Value) []change.Value { return v }

func TestApplyMovesRowsAndCheckpointTogether(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	x.exec(t, "CREATE TABLE t.a (id INT PRIMARY KEY, v VARCHAR(20))", "CREATE TABLE t.b (id INT PRIMARY KEY, v VARCHAR(20) NOT NULL)")
	a, b := x.layout(t, "a"), x.layout(t, "b")
	x.prepare(t, "a", a)
	x.prepare(t, "b", b)
	x.mustApply(t,
		x.batch("a", a, 0, 3, insert(num(1), text("x")), insert(num(2), text("y")), update(row(num(1), text("x")), row(num(1), text("x'\\2"))), remove(num(2), text("y"))),
		x.batch("b", b, 0, 4, insert(num(1), text("z"))))
	if got, want := x.one(t, "SELECT * FROM t.a"), `1,x'\2`; got != want {
		t.Errorf("got rows %s, want %s", got, want)
	}
	if got, want := x.checkpoint(t, "a"), pos(3); got != want {
		t.Errorf("got checkpoint %v, want %v", got, want)
	}
	// One bad row among three batches: the others commit, the bad one keeps its place.
	x.exec(t, "CREATE TABLE t.c (id INT PRIMARY KEY)")
	c := x.layout(t, "c")
	x.prepare(t, "c", c)
	res := x.apply(t,
		x.batch("a", a, 3, 5, insert(num(7), text("x"))),
		x.batch("b", b, 4, 5, insert(num(2), text("ok")), insert(num(3), null()), insert(num(4), text("ok"))),
		x.batch("c", c, 99, 100, insert(num(1))))
	if res[0].Err != nil {
		t.Errorf("got %v for the good batch", res[0].Err)
	}
	if change.ClassOf(res[1].Err) != change.PermanentRow || res[1].RowIndex != 1 {
		t.Errorf("got class %s at row %d (%v), want permanent-row at 1", change.ClassOf(res[1].Err), res[1].RowIndex, res[1].Err)
	}
	if !errors.Is(res[2].Err, change.ErrCheckpointMoved) {
		t.Errorf("got %v, want ErrCheckpointMoved", res[2].Err)
	}
	if got, want := x.one(t, "SELECT (SELECT group_concat(id) FROM t.a), (SELECT group_concat(id) FROM t.b), (SELECT count(*) FROM t.c)"), "1,7,1,0"; got != want {
		t.Errorf("got ids %s, want %s", got, want)
	}
	if got := [3]change.Position{x.checkpoint(t, "a"), x.checkpoint(t, "b"), x.checkpoint(t, "c")}; got != [3]change.Position{pos(5), pos(4), pos(0)} {
		t.Errorf("got checkpoints %v, want 5, 4, 0", got)
	}
}

package mysql

import (
	"errors"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// TestIdentity: one server has one identity, by whatever way and account it is
// reached, also after changes of its settings; another has another, also when it
// was copied and has the same server id.
func TestIdentity(t *testing.T) {
	a, b := testdb.MariaDBFor(t, testdb.MariaDBOptions{ServerID: 7}), testdb.MariaDBFor(t, testdb.MariaDBOptions{ServerID: 7})
	execSQL(t, a, "CREATE USER r", "GRANT REPLICATION SLAVE ON *.* TO r")
	proxy := testdb.ProxyFor(t, a.Addr())
	ctx := testContext(t)
	identity := func(cfg Config) string {
		t.Helper()
		src, err := NewSource(cfg, SourceOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		from, err := src.Identity(ctx)
		if err != nil {
			t.Fatal(err)
		}
		to, err := newTestSink(t, cfg, SinkOptions{}).Identity(ctx)
		if err != nil || from != to {
			t.Errorf("%s: got %q for the source and %q (%v) for the sink, want the same", cfg, from, to, err)
		}
		return from
	}
	first := identity(Config{Addr: a.Addr(), User: "root"})
	execSQL(t, a, "SET GLOBAL server_id=8", "CREATE DATABASE d")
	for name, cfg := range map[string]Config{
		"by a proxy": {Addr: proxy.Addr(), User: "root"}, "by the socket": {Addr: a.Socket(), User: "root"}, "as another user": {Addr: a.Addr(), User: "r"},
	} {
		if got := identity(cfg); got != first {
			t.Errorf("%s: got %q, want %q", name, got, first)
		}
	}
	if got := identity(Config{Addr: b.Addr(), User: "root"}); got == first {
		t.Errorf("another server has the identity %q too", got)
	}
}

// TestStateGone: whatever a sink cannot find of its own tables and rows is told
// from a target table that is not there.
func TestStateGone(t *testing.T) {
	for name, drop := range map[string]string{
		"the schema": "DROP DATABASE runnel", "the fence": "DROP TABLE runnel.fence", "the checkpoints": "DROP TABLE runnel.checkpoint",
		"a checkpoint": "DELETE FROM runnel.checkpoint", "the layouts": "DROP TABLE runnel.layout", "a layout": "DELETE FROM runnel.layout",
		"a target table": "DROP TABLE t.x",
	} {
		t.Run(name, func(t *testing.T) {
			x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
			l := x.table(t, "x", "(id INT PRIMARY KEY)")
			x.table(t, "y", "(id INT PRIMARY KEY)")
			if res := x.apply(t, x.batch("x", l, 0, 1, insert(num(1)))); res[0].Err != nil {
				t.Fatal(res[0].Err)
			}
			x.exec(t, drop)
			_, err := x.sink.LoadLayout(testContext(t), x.fence, x.batch("x", l, 1, 2).Key.Incarnation)
			gone := name != "a target table"
			if got := errors.Is(err, change.ErrStateGone); got != gone || gone && change.ClassOf(err) != change.PermanentTask {
				t.Errorf("LoadLayout: got %v of class %s, want state gone: %v", err, change.ClassOf(err), gone)
			}
			for _, r := range x.apply(t, x.batch("x", l, 1, 2, insert(num(2))), x.batch("y", l, 0, 1, insert(num(2)))) {
				applied := name == "the layouts" || name == "a layout" || name == "a checkpoint" // compare and set tells of the last
				if got := errors.Is(r.Err, change.ErrStateGone); got != (gone && !applied) || got && change.ClassOf(r.Err) != change.PermanentTask {
					t.Errorf("Apply: got %v of class %s, want state gone: %v", r.Err, change.ClassOf(r.Err), gone && !applied)
				}
			}
		})
	}
}

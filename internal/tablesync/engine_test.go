package tablesync_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/actor"
	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/cluster"
	"github.com/runnel-dev/runnel/connector/mysql"
	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/testdb"
	"github.com/runnel-dev/runnel/persistence"
	"github.com/runnel-dev/runnel/persistence/sqlite"
)

// connector makes MySQL connectors for servers without passwords.
type connector struct {
	// refuse, when it is set, is why no connector can be made.
	refuse atomic.Pointer[string]
}

func (c *connector) refused() error {
	if s := c.refuse.Load(); s != nil {
		return errors.New(*s)
	}
	return nil
}

func (c *connector) Source(s tablesync.ServerSpec) (tablesync.Source, error) {
	if err := c.refused(); err != nil {
		return nil, err
	}
	return mysql.NewSource(mysql.Config{Name: s.Name, Addr: s.Address, User: s.User},
		mysql.SourceOptions{Own: []change.TableID{{Schema: "runnel"}}})
}

func (c *connector) Sink(s tablesync.ServerSpec) (tablesync.Sink, error) {
	if err := c.refused(); err != nil {
		return nil, err
	}
	return mysql.NewSink(mysql.Config{Name: s.Name, Addr: s.Address, User: s.User}, mysql.SinkOptions{Connections: s.Connections})
}

// rig is a running engine between two servers.
type rig struct {
	t              testing.TB
	source, target *testdb.MariaDB
	dir            string
	engine         *tablesync.Engine
	connector      connector
	stop           func()
}

func newRig(t testing.TB, o testdb.MariaDBOptions) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	r.source = testdb.MariaDBFor(t, o)
	r.target = testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	return r
}

// start runs the engine until stop.
func (r *rig) start() {
	r.t.Helper()
	level := slog.LevelWarn
	if os.Getenv("RUNNEL_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(r.t.Output(), &slog.HandlerOptions{Level: level}))
	reg, folders, err := tablesync.Registry()
	if err != nil {
		r.t.Fatal(err)
	}
	store, err := sqlite.Open(r.t.Context(), r.dir, sqlite.Options{Folders: folders, Log: log})
	if err != nil {
		r.t.Fatal(err)
	}
	sys, err := actor.New(actor.Config{Name: "test"})
	if err != nil {
		r.t.Fatal(err)
	}
	r.engine, err = tablesync.New(tablesync.Config{Store: store, Connect: &r.connector, Log: log}, func(kinds []persistence.Kind) (*cluster.Region, error) {
		return cluster.NewRegion(cluster.RegionConfig{System: sys, Store: store, Registry: reg, Kinds: kinds, Log: log})
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- r.engine.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		r.t.Fatalf("engine ended: %v", err)
	}
	r.stop = func() {
		cancel()
		err := <-done
		r.stop = nil
		shut, end := context.WithTimeout(context.Background(), 10*time.Second)
		defer end()
		if err := errors.Join(err, sys.Shutdown(shut), store.Close()); err != nil {
			r.t.Errorf("stop engine: %v", err)
		}
	}
	r.t.Cleanup(func() {
		if r.stop != nil {
			r.stop()
		}
	})
}

func (r *rig) apply(pipelines ...tablesync.PipelineSpec) {
	r.t.Helper()
	d := tablesync.Definitions{
		Sources:   []tablesync.ServerSpec{{Name: "shop", Type: "mysql", Address: r.source.Addr(), User: "root"}},
		Targets:   []tablesync.ServerSpec{{Name: "copy", Type: "mysql", Address: r.target.Addr(), User: "root"}},
		Pipelines: pipelines,
	}
	if _, err := r.engine.Apply(r.t.Context(), d, tablesync.ApplyOptions{}); err != nil {
		r.t.Fatalf("apply: %v", err)
	}
}

var shopPipeline = tablesync.PipelineSpec{Name: "shop-copy", Source: "shop", Target: "copy",
	Tables: tablesync.TableSpec{Include: []string{"shop.*"}, Exclude: []string{"shop.tmp_*"}}}

// eventually polls a condition that other processes bring about.
func eventually(t testing.TB, what string, cond func() (bool, string)) {
	t.Helper()
	deadline := time.NewTimer(60 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, state := cond()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s did not come about: %s", what, state)
		}
	}
}

// inState waits until all tasks are in the state.
func (r *rig) inState(n int, want tablesync.State) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d tasks %s", n, want), func() (bool, string) {
		page, err := r.engine.Tasks(tablesync.TaskQuery{})
		if err != nil {
			return false, err.Error()
		}
		return page.Count[want] == n, fmt.Sprintf("%v %+v", page.Count, page.Tasks)
	})
}

// same waits until both servers hold the same rows, by independent dumps.
func (r *rig) same(schemas ...string) {
	r.t.Helper()
	var diff string
	eventually(r.t, "equal tables", func() (bool, string) {
		diff = ""
		a, err := r.source.Dump(r.t.Context(), schemas...)
		if err != nil {
			return false, err.Error()
		}
		b, err := r.target.Dump(r.t.Context(), schemas...)
		if err != nil {
			return false, err.Error()
		}
		for name, rows := range a {
			if b[name] != rows {
				diff = fmt.Sprintf("%s: source %.300q target %.300q", name, rows, b[name])
			}
		}
		return diff == "", diff
	})
}

func (r *rig) exec(sql ...string) {
	r.t.Helper()
	if err := r.source.Exec(r.t.Context(), sql...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) taskOf(table string) tablesync.TaskView {
	r.t.Helper()
	page, err := r.engine.Tasks(tablesync.TaskQuery{Table: table})
	if err != nil || len(page.Tasks) != 1 {
		r.t.Fatalf("task of %s: got %+v, %v", table, page.Tasks, err)
	}
	return page.Tasks[0]
}

func TestEngineCopiesAndStreams(t *testing.T) {
	t.Parallel()
	for _, metadata := range []string{"NO_LOG", "FULL"} {
		t.Run(metadata, func(t *testing.T) {
			r := newRig(t, testdb.MariaDBOptions{RowMetadata: metadata})
			r.exec("CREATE DATABASE shop", "USE shop", "CREATE TABLE shop.orders(id INT PRIMARY KEY, what VARCHAR(40) CHARACTER SET latin1, price DECIMAL(10,2))",
				"INSERT INTO shop.orders SELECT seq, CONCAT('order ', seq), seq/7 FROM seq_1_to_25000",
				"CREATE TABLE shop.items(a INT UNSIGNED, b VARCHAR(20), n BIGINT, PRIMARY KEY(a,b), UNIQUE(n))",
				"INSERT INTO shop.items SELECT seq%100, CONCAT('x', seq), seq FROM seq_1_to_1000",
				"CREATE TABLE shop.tmp_x(id INT PRIMARY KEY)", "CREATE TABLE shop.nokey(id INT)")
			r.start()
			r.apply(shopPipeline)
			r.exec("UPDATE shop.orders SET price=price+1 WHERE id%3=0", "DELETE FROM shop.orders WHERE id%10=0", "UPDATE shop.items SET a=a+1000 WHERE a<10")
			r.inState(2, tablesync.Streaming)
			r.exec("BEGIN", "INSERT INTO shop.orders VALUES(100001,'streamed',1)", "UPDATE shop.items SET n=n+100000 WHERE a=50", "COMMIT",
				"BEGIN", "INSERT INTO shop.orders VALUES(100002,'gone',1)", "ROLLBACK")
			r.exec("CREATE TABLE shop.late(id INT PRIMARY KEY, v TEXT)", "INSERT INTO shop.late VALUES(1,'behind its create')")
			r.exec("ALTER TABLE shop.orders ADD COLUMN note VARCHAR(10) DEFAULT 'n' AFTER id", "INSERT INTO shop.orders(id,note) VALUES(100003,'after')")
			r.inState(3, tablesync.Streaming)
			if err := r.source.Exec(t.Context(), "DROP TABLE shop.tmp_x, shop.nokey"); err != nil {
				t.Fatal(err)
			}
			r.same("shop")
			p := r.engine.Pipelines()
			if len(p) != 1 || len(p[0].Refused) != 1 || p[0].Refused[0].Code == "" {
				t.Errorf("refused tables: got %+v, want one for shop.nokey", p)
			}
		})
	}
}

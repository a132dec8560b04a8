package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/web"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// engine is a Control in memory. Its tasks are in id order.
type engine struct {
	sources   []tablesync.SourceView
	targets   []tablesync.TargetView
	pipelines []tablesync.PipelineView
	tasks     []tablesync.TaskView
	applied   []tablesync.Definitions
	applyErr  error
	unfit     []*change.Problem // what Check says
}

func (e *engine) Apply(_ context.Context, d tablesync.Definitions, o tablesync.ApplyOptions) ([]tablesync.Difference, error) {
	if e.applyErr != nil {
		return nil, e.applyErr
	}
	if !o.DryRun {
		e.applied = append(e.applied, d)
	}
	var out []tablesync.Difference
	for _, s := range d.Sources {
		out = append(out, tablesync.Difference{Kind: "source", Name: s.Name, Action: "unchanged"})
	}
	for _, p := range d.Pipelines {
		out = append(out, tablesync.Difference{Kind: "pipeline", Name: p.Name, Action: "create", Detail: "tables " + strings.Join(p.Tables.Include, " ")})
	}
	return out, nil
}
func (e *engine) Check(context.Context, tablesync.Definitions) []*change.Problem { return e.unfit }
func (e *engine) Sources() []tablesync.SourceView                                { return e.sources }
func (e *engine) Targets() []tablesync.TargetView                                { return e.targets }
func (e *engine) Pipelines() []tablesync.PipelineView                            { return e.pipelines }
func (e *engine) Counters() tablesync.Counters                                   { return tablesync.Counters{} }

func (e *engine) Tasks(q tablesync.TaskQuery) (tablesync.TaskPage, error) {
	p := tablesync.TaskPage{Count: map[tablesync.State]int{}}
	spec := tablesync.PipelineSpec{Tables: tablesync.TableSpec{Include: []string{q.Table}}}
	for _, t := range e.tasks {
		p.Count[t.State]++
		if q.State != "" && t.State != q.State || q.Table != "" && !spec.Matches(t.Table) {
			continue
		}
		p.Total++
		switch {
		case t.ID <= q.After:
		case len(p.Tasks) < q.Limit:
			p.Tasks = append(p.Tasks, t)
		default:
			p.Next = p.Tasks[len(p.Tasks)-1].ID
		}
	}
	return p, nil
}

func (e *engine) Task(id string) (tablesync.TaskView, error) {
	for _, t := range e.tasks {
		if t.ID == id {
			return t, nil
		}
	}
	return tablesync.TaskView{}, fmt.Errorf("task %s: %w", id, tablesync.ErrNoTask)
}

func (e *engine) Command(_ context.Context, id, verb string) error {
	for i := range e.tasks {
		t := &e.tasks[i]
		switch {
		case t.ID != id:
		case verb == "resume" && t.State != tablesync.Paused:
			return &tablesync.RefusedError{ID: id, Verb: verb, State: t.State, Remedy: "only a paused task can be resumed"}
		default:
			t.State = map[string]tablesync.State{"pause": tablesync.Paused, "resume": tablesync.Streaming}[verb]
			return nil
		}
	}
	return fmt.Errorf("task %s: %w", id, tablesync.ErrNoTask)
}

func newEngine() *engine {
	since := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	shop := tablesync.ServerSpec{Name: "shop", Type: "mysql", Address: "db1:3306", User: "runnel", PasswordFile: "/run/secrets/shop", Labels: map[string]string{"team": "orders", "env": "live"}}
	lake := tablesync.ServerSpec{Name: "lake", Type: "mysql", Address: "db2:3306", User: "runnel", PasswordEnv: "LAKE", Schema: "runnel"}
	pipe := tablesync.PipelineSpec{
		Name: "all", Source: "shop", Target: "lake", Route: tablesync.RouteSpec{Schema: "copy_of_{schema}"},
		Tables: tablesync.TableSpec{Include: []string{"shop.*", "crm.*"}, Exclude: []string{"shop.tmp_*"}},
	}
	e := &engine{
		sources: []tablesync.SourceView{{ServerSpec: shop, Tasks: 4, State: "reading", Read: "binlog.000007:4711", Frontier: "binlog.000007:4200", Groups: 12, LagSeconds: 0.25}},
		targets: []tablesync.TargetView{{ServerSpec: lake, Tasks: 4, State: "down", Reason: "db2:3306 does not answer"}},
		pipelines: []tablesync.PipelineView{{
			PipelineSpec: pipe, Tasks: 4, Count: map[tablesync.State]int{tablesync.Streaming: 3, tablesync.Failed: 1},
			Refused: []*change.Problem{{Code: "table-without-key", Subject: "table shop.log", Cause: "it has no primary key", Remedy: "ALTER TABLE shop.log ADD PRIMARY KEY (id)"}},
		}},
	}
	for i, name := range []string{"items", "orders", "users", "orders"} {
		pipeline := "all"
		if i == 3 {
			pipeline = "second"
		}
		id := change.TableID{Schema: "shop", Name: name}
		e.tasks = append(e.tasks, tablesync.TaskView{
			ID: fmt.Sprintf("sync-task/shop:0/%04d", i), Pipeline: pipeline, Source: "shop", Target: "lake", Table: id,
			Into: change.TableID{Schema: "copy_of_shop", Name: name}, State: tablesync.Streaming, Since: since, Attached: true,
			Position: "binlog.000007:4711", LagSeconds: 0.5, RowsCopied: 1000, RowsEstimate: 990, ChangesApplied: 42, Incarnation: fmt.Sprintf("i%d", i),
		})
	}
	u := &e.tasks[2]
	u.State, u.Attached, u.Attempts = tablesync.Failed, false, 3
	u.Reason, u.Remedy = "column name:\nvalue too long \x1b[31m", "widen the column, then run: runnel task retry"
	return e
}

// cli is a command line with a server behind it.
type cli struct {
	t      *testing.T
	env    map[string]string
	stdin  string
	out    bytes.Buffer
	errOut bytes.Buffer
}

func newCLI(t *testing.T, e *engine) *cli {
	t.Helper()
	c := &cli{t: t, env: map[string]string{}}
	if e == nil {
		return c
	}
	s, err := web.New(web.Config{Control: e})
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(s.Handler())
	t.Cleanup(hs.Close)
	c.env["RUNNEL_SERVER"] = hs.URL
	return c
}

// run executes one command line.
func (c *cli) run(args ...string) int {
	c.out.Reset()
	c.errOut.Reset()
	a := &app{in: strings.NewReader(c.stdin), out: &c.out, err: &c.errOut, getenv: func(k string) string { return c.env[k] }}
	return a.run(c.t.Context(), args)
}

// want runs and compares exit code and parts of the output.
func (c *cli) want(code int, parts []string, args ...string) {
	c.t.Helper()
	got := c.run(args...)
	all := c.out.String() + c.errOut.String()
	if got != code {
		c.t.Errorf("runnel %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, all)
	}
	for _, p := range parts {
		if !strings.Contains(all, p) {
			c.t.Errorf("runnel %s: output lacks %q:\n%s", strings.Join(args, " "), p, all)
		}
	}
}

// golden compares the output of a command with a file.
func (c *cli) golden(name string, args ...string) {
	c.t.Helper()
	if code := c.run(args...); code != exitOK {
		c.t.Fatalf("runnel %s: exit code %d: %s", strings.Join(args, " "), code, &c.errOut)
	}
	file := filepath.Join("testdata", name+".golden")
	if *rewrite {
		if err := os.WriteFile(file, c.out.Bytes(), 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		c.t.Fatal(err)
	}
	if got := c.out.String(); got != string(want) {
		c.t.Errorf("runnel %s: got\n%s\nwant\n%s", strings.Join(args, " "), got, want)
	}
}

package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/tablesync"
)

// fakeControl is an engine in memory.
type fakeControl struct {
	sources   []tablesync.SourceView
	targets   []tablesync.TargetView
	pipelines []tablesync.PipelineView
	tasks     []tablesync.TaskView // in id order
	counters  tablesync.Counters

	apply   func(ctx context.Context, d tablesync.Definitions, o tablesync.ApplyOptions) ([]tablesync.Difference, error)
	check   func(d tablesync.Definitions) []*change.Problem
	command func(ctx context.Context, t *tablesync.TaskView, verb string) error
}

func (f *fakeControl) Apply(ctx context.Context, d tablesync.Definitions, o tablesync.ApplyOptions) ([]tablesync.Difference, error) {
	return f.apply(ctx, d, o)
}
func (f *fakeControl) Check(_ context.Context, d tablesync.Definitions) []*change.Problem {
	return f.check(d)
}
func (f *fakeControl) Sources() []tablesync.SourceView     { return f.sources }
func (f *fakeControl) Targets() []tablesync.TargetView     { return f.targets }
func (f *fakeControl) Pipelines() []tablesync.PipelineView { return f.pipelines }
func (f *fakeControl) Counters() tablesync.Counters        { return f.counters }

func (f *fakeControl) Tasks(q tablesync.TaskQuery) (tablesync.TaskPage, error) {
	if q.Limit == 0 {
		q.Limit = 100
	}
	p := tablesync.TaskPage{Count: map[tablesync.State]int{}}
	spec := tablesync.PipelineSpec{Tables: tablesync.TableSpec{Include: []string{q.Table}}}
	for _, t := range f.tasks {
		p.Count[t.State]++
		if q.State != "" && t.State != q.State || q.Pipeline != "" && t.Pipeline != q.Pipeline ||
			q.Source != "" && t.Source != q.Source || q.Table != "" && !spec.Matches(t.Table) {
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

func (f *fakeControl) find(id string) (*tablesync.TaskView, error) {
	for i := range f.tasks {
		if f.tasks[i].ID == id {
			return &f.tasks[i], nil
		}
	}
	return nil, fmt.Errorf("task %s: %w", id, tablesync.ErrNoTask)
}

func (f *fakeControl) Task(id string) (tablesync.TaskView, error) {
	t, err := f.find(id)
	if err != nil {
		return tablesync.TaskView{}, err
	}
	return *t, nil
}

func (f *fakeControl) Command(ctx context.Context, id, verb string) error {
	t, err := f.find(id)
	if err != nil {
		return err
	}
	return f.command(ctx, t, verb)
}

var sinceForTests = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// newFake has a source and a target with three tasks.
func newFake() *fakeControl {
	server := tablesync.ServerSpec{Name: "shop", Type: "mysql", Address: "db1:3306", User: "runnel"}
	lake := server
	lake.Name, lake.Address = "lake", "db2:3306"
	pipe := tablesync.PipelineSpec{Name: "all", Source: "shop", Target: "lake", Tables: tablesync.TableSpec{Include: []string{"shop.*"}}}
	f := &fakeControl{
		sources: []tablesync.SourceView{{ServerSpec: server, Tasks: 3, State: "reading", Read: "binlog.000007:4711", Frontier: "binlog.000007:4200", Groups: 12, LagSeconds: 0.25}},
		targets: []tablesync.TargetView{{ServerSpec: lake, Tasks: 3, State: "ready"}},
		pipelines: []tablesync.PipelineView{{
			PipelineSpec: pipe, Tasks: 3, Count: map[tablesync.State]int{tablesync.Streaming: 2, tablesync.Failed: 1},
			Refused: []*change.Problem{{Code: "table-without-key", Subject: "table shop.log", Cause: "no key", Remedy: "add a primary key"}},
		}},
		counters: tablesync.Counters{RowsCopied: 1234567, ChangesApplied: 89, Transactions: 7, LagP50: 40 * time.Millisecond, LagP99: 2 * time.Second, Idle: true},
	}
	for i, name := range []string{"orders", "items", "users"} {
		id := change.TableID{Schema: "shop", Name: name}
		f.tasks = append(f.tasks, tablesync.TaskView{
			ID: fmt.Sprintf("task/shop:0/%04d", i), Pipeline: "all", Source: "shop", Target: "lake", Table: id, Into: id,
			State: tablesync.Streaming, Since: sinceForTests, Attached: true, Incarnation: fmt.Sprint("i", i),
		})
	}
	f.tasks[2].State, f.tasks[2].Reason, f.tasks[2].Remedy = tablesync.Failed, "value too long for column name", "widen the column, then run: runnel task retry"
	f.command = func(_ context.Context, t *tablesync.TaskView, verb string) error {
		if verb == "resume" && t.State != tablesync.Paused {
			return &tablesync.RefusedError{ID: t.ID, Verb: verb, State: t.State, Remedy: "only a paused task can be resumed"}
		}
		t.State = map[string]tablesync.State{"pause": tablesync.Paused, "resume": tablesync.Streaming, "remove": tablesync.Removed}[verb]
		return nil
	}
	return f
}

func newTestServer(t *testing.T, c Config) *Server {
	t.Helper()
	if c.Control == nil {
		c.Control = newFake()
	}
	if c.Version.Version == "" {
		c.Version = Version{Version: "1.2.3", Go: "go1.26", Started: sinceForTests, PID: 42}
	}
	s, err := New(c)
	if err != nil {
		t.Fatalf("make server: %v", err)
	}
	return s
}

// call sends one request to the handler.
func call(s *Server, method, target, body string, header ...string) *httptest.ResponseRecorder {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req := httptest.NewRequest(method, "http://127.0.0.1:7717"+target, r)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, req)
	return w
}

// wantProblem checks status, code and form of an error and returns it.
func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, code string) Problem {
	t.Helper()
	var p Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("answer %d is no problem document: %v\n%s", w.Code, err, w.Body)
	}
	if got, want := w.Header().Get("Content-Type"), "application/problem+json"; got != want {
		t.Errorf("content type: got %q, want %q", got, want)
	}
	if w.Code != status || p.Status != status || p.Code != code || p.Type != "urn:runnel:problem:"+code || p.Title != http.StatusText(status) {
		t.Errorf("got status %d and problem %+v, want %d and code %s", w.Code, p, status, code)
	}
	if p.Detail == "" || p.Remedy == "" {
		t.Errorf("problem %s lacks detail or remedy: %+v", code, p)
	}
	return p
}

func wantOK(t *testing.T, w *httptest.ResponseRecorder, into any) {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("got status %d: %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		t.Fatalf("decode answer: %v\n%s", err, w.Body)
	}
}

package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/cluster"
	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/persistence"
)

func TestViews(t *testing.T) {
	s := newTestServer(t, Config{})
	var sources SourceList
	wantOK(t, call(s, "GET", "/api/v1/sources", ""), &sources)
	if len(sources.Sources) != 1 || sources.Sources[0].Name != "shop" || sources.Sources[0].Read != "binlog.000007:4711" {
		t.Errorf("sources: got %+v", sources)
	}
	var target tablesync.TargetView
	wantOK(t, call(s, "GET", "/api/v1/targets/lake", ""), &target)
	if target.Address != "db2:3306" || target.State != "ready" {
		t.Errorf("target: got %+v", target)
	}
	var pipe tablesync.PipelineView
	wantOK(t, call(s, "GET", "/api/v1/pipelines/all", ""), &pipe)
	if pipe.Tasks != 3 || len(pipe.Refused) != 1 || pipe.Count[tablesync.Failed] != 1 {
		t.Errorf("pipeline: got %+v", pipe)
	}
	var n tablesync.Counters
	wantOK(t, call(s, "GET", "/api/v1/counters", ""), &n)
	if n != s.cfg.Control.Counters() {
		t.Errorf("counters: got %+v", n)
	}
	var v Version
	wantOK(t, call(s, "GET", "/api/v1/version", ""), &v)
	if v != s.cfg.Version {
		t.Errorf("version: got %+v, want %+v", v, s.cfg.Version)
	}
	for _, kind := range []string{"source", "target", "pipeline"} {
		p := wantProblem(t, call(s, "GET", "/api/v1/"+kind+"s/none", ""), 404, kind+"-not-found")
		if !strings.Contains(p.Detail, `"none"`) || !strings.Contains(p.Remedy, "runnel "+kind+" list") {
			t.Errorf("%s: got %+v", kind, p)
		}
	}
}

func TestEmptyListsAreNotNull(t *testing.T) {
	s := newTestServer(t, Config{Control: &fakeControl{}})
	for path, want := range map[string]string{
		"sources": `"sources":[]`, "targets": `"targets":[]`, "pipelines": `"pipelines":[]`, "tasks": `"tasks":[]`,
	} {
		if got := call(s, "GET", "/api/v1/"+path, "").Body.String(); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s in it", path, got, want)
		}
	}
}

func TestTaskListPagesAndFilters(t *testing.T) {
	f := newFake()
	f.tasks = nil
	for i := range 25 {
		st := tablesync.Streaming
		if i%5 == 0 {
			st = tablesync.Paused
		}
		table := change.TableID{Schema: "shop", Name: fmt.Sprintf("t%02d", i)}
		f.tasks = append(f.tasks, tablesync.TaskView{ID: fmt.Sprintf("task/shop:0/%04d", i), Source: "shop", Pipeline: "all", Table: table, State: st})
	}
	s := newTestServer(t, Config{Control: f})
	var seen []string
	for after := ""; ; {
		var p tablesync.TaskPage
		wantOK(t, call(s, "GET", "/api/v1/tasks?limit=10&after="+after, ""), &p)
		if p.Total != 25 || p.Count[tablesync.Paused] != 5 {
			t.Fatalf("page after %q: got total %d, count %v", after, p.Total, p.Count)
		}
		for _, v := range p.Tasks {
			seen = append(seen, v.ID)
		}
		if after = p.Next; after == "" {
			break
		}
	}
	if len(seen) != 25 {
		t.Errorf("got %d tasks over all pages, want 25: %v", len(seen), seen)
	}
	for query, want := range map[string]int{
		"state=paused": 5, "state=failed": 0, "table=shop.t1*": 10, "table=*.t0?": 10, "source=other": 0, "pipeline=all&state=streaming": 20,
	} {
		var p tablesync.TaskPage
		wantOK(t, call(s, "GET", "/api/v1/tasks?"+query, ""), &p)
		if p.Total != want || len(p.Tasks) != want {
			t.Errorf("%s: got total %d and %d tasks, want %d", query, p.Total, len(p.Tasks), want)
		}
	}
}

func TestTaskListRefusesWhatItDoesNotKnow(t *testing.T) {
	s := newTestServer(t, Config{})
	for query, want := range map[string]string{
		"stat=failed":  `parameter "stat" is not known`,
		"state=broken": `state "broken" is not known`,
		"limit=0":      `limit "0" is not accepted`,
		"limit=1001":   `limit "1001"`,
		"limit=ten":    `limit "ten"`,
		"table=orders": `table "orders" is no schema.table pattern`,
		"limit=5;x=1":  `limit "5;x=1"`,
	} {
		w := call(s, "GET", "/api/v1/tasks?"+query, "")
		if query == "limit=5;x=1" { // net/url drops such a pair: then it is no limit at all
			wantOK(t, w, &tablesync.TaskPage{})
			continue
		}
		if p := wantProblem(t, w, 400, "bad-query"); !strings.Contains(p.Detail, want) {
			t.Errorf("%s: got %q, want %q in it", query, p.Detail, want)
		}
	}
}

func TestTaskIDsMayBeEscapedOrNot(t *testing.T) {
	s := newTestServer(t, Config{})
	for _, id := range []string{"task/shop:0/0001", "task%2Fshop:0%2F0001", "task%2Fshop%3A0%2F0001"} {
		var v tablesync.TaskView
		wantOK(t, call(s, "GET", "/api/v1/tasks/"+id, ""), &v)
		if v.Table.Name != "items" {
			t.Errorf("%s: got %+v", id, v)
		}
		var res CommandResult
		wantOK(t, call(s, "POST", "/api/v1/tasks/"+id+"/pause", ""), &res)
		if want := (CommandResult{"task/shop:0/0001", "pause", tablesync.Paused}); res != want {
			t.Errorf("%s: got %+v, want %+v", id, res, want)
		}
	}
}

func TestCommandErrors(t *testing.T) {
	f := newFake()
	s := newTestServer(t, Config{Control: f})
	p := wantProblem(t, call(s, "POST", "/api/v1/tasks/task/shop:0/0000/resume", ""), 409, "command-refused")
	if p.State != tablesync.Streaming || p.Remedy != "only a paused task can be resumed" || strings.Contains(p.Detail, p.Remedy) {
		t.Errorf("refused: got %+v", p)
	}
	wantProblem(t, call(s, "POST", "/api/v1/tasks/task/none/pause", ""), 404, "task-not-found")
	wantProblem(t, call(s, "GET", "/api/v1/tasks/task/none", ""), 404, "task-not-found")
	p = wantProblem(t, call(s, "POST", "/api/v1/tasks/task/shop:0/0000/explode", ""), 404, "unknown-command")
	if !strings.Contains(p.Remedy, "pause, resume, resync, remove, retry") {
		t.Errorf("unknown command: got %+v", p)
	}
	wantProblem(t, call(s, "POST", "/api/v1/tasks/pause", ""), 404, "no-such-path")
	for _, tc := range []struct {
		err    error
		status int
		code   string
	}{
		{persistence.ErrBusy, 503, "busy"},
		{cluster.ErrBusy, 503, "busy"},
		{tablesync.ErrNotRunning, 503, "not-running"},
		{persistence.ErrFull, 507, "disk-full"},
		{persistence.ErrClosed, 503, "stopping"},
		{context.DeadlineExceeded, 504, "timeout"},
		{&change.Problem{Code: "read-only", Subject: "target lake", Cause: "it is read-only", Remedy: "SET GLOBAL read_only = OFF"}, 422, "read-only"},
		{errors.New("bolt from the blue"), 500, "internal"},
	} {
		f.command = func(context.Context, *tablesync.TaskView, string) error { return fmt.Errorf("pause task: %w", tc.err) }
		wantProblem(t, call(s, "POST", "/api/v1/tasks/task/shop:0/0000/pause", ""), tc.status, tc.code)
	}
}

func TestARemovedTaskMayBeGone(t *testing.T) {
	f := newFake()
	f.command = func(context.Context, *tablesync.TaskView, string) error { f.tasks = f.tasks[1:]; return nil }
	var res CommandResult
	wantOK(t, call(newTestServer(t, Config{Control: f}), "POST", "/api/v1/tasks/task/shop:0/0000/remove", ""), &res)
	if res.State != tablesync.Removed {
		t.Errorf("got %+v, want state removed", res)
	}
}

const goodDefinitions = `{"definitions":{
 "sources":[{"name":"crm","type":"mysql","address":"db3:3306","user":"u","passwordEnv":"CRM"}],
 "pipelines":[{"name":"crm","source":"crm","target":"lake","tables":{"include":["crm.*"]}}]}`

func TestApplyPassesDefinitionsOn(t *testing.T) {
	f := newFake()
	var gotDefs tablesync.Definitions
	var gotOptions tablesync.ApplyOptions
	f.apply = func(_ context.Context, d tablesync.Definitions, o tablesync.ApplyOptions) ([]tablesync.Difference, error) {
		gotDefs, gotOptions = d, o
		return []tablesync.Difference{{Kind: "source", Name: "crm", Action: "create"}}, nil
	}
	s := newTestServer(t, Config{Control: f})
	var res ApplyResult
	wantOK(t, call(s, "POST", "/api/v1/apply", goodDefinitions+`,"dryRun":true}`), &res)
	if len(res.Differences) != 1 || !res.DryRun || !gotOptions.DryRun || gotOptions.Prune {
		t.Errorf("got %+v with options %+v", res, gotOptions)
	}
	if len(gotDefs.Sources) != 1 || gotDefs.Sources[0].PasswordEnv != "CRM" || gotDefs.Pipelines[0].Tables.Include[0] != "crm.*" {
		t.Errorf("definitions: got %+v", gotDefs)
	}
	// The pipeline's target exists, but not once everything unnamed is pruned.
	p := wantProblem(t, call(s, "POST", "/api/v1/apply", goodDefinitions+`,"prune":true}`), 422, "invalid-definitions")
	if len(p.Faults) != 1 || !strings.Contains(p.Faults[0], `target "lake" does not exist`) {
		t.Errorf("prune: got %+v", p)
	}
}

func TestApplyReportsEveryFault(t *testing.T) {
	s := newTestServer(t, Config{})
	body := `{"definitions":{"sources":[{"name":"X","type":"oracle","address":"u:hunter2@h","user":""}],"pipelines":[{"name":"p","source":"no","target":"lake","tables":{"include":[]}}]}}`
	for _, path := range []string{"apply", "check"} {
		p := wantProblem(t, call(s, "POST", "/api/v1/"+path, body), 422, "invalid-definitions")
		if len(p.Faults) < 5 {
			t.Errorf("%s: got %d faults: %v", path, len(p.Faults), p.Faults)
		}
	}
}

func TestApplyReportsProblemsOfServers(t *testing.T) {
	f := newFake()
	f.apply = func(context.Context, tablesync.Definitions, tablesync.ApplyOptions) ([]tablesync.Difference, error) {
		return nil, fmt.Errorf("apply: %w", errors.Join(
			&change.Problem{Code: "binlog-format", Subject: "source crm", Cause: "binlog_format is STATEMENT", Remedy: "SET GLOBAL binlog_format = ROW"},
			change.WithClass(change.TargetWide, &change.Problem{Code: "unreachable", Subject: "target lake", Cause: "no answer", Remedy: "start it"})))
	}
	f.check = func(tablesync.Definitions) []*change.Problem {
		return []*change.Problem{{Code: "binlog-format", Subject: "source crm", Cause: "c", Remedy: "r"}}
	}
	s := newTestServer(t, Config{Control: f})
	p := wantProblem(t, call(s, "POST", "/api/v1/apply", goodDefinitions+"}"), 422, "binlog-format")
	if len(p.Problems) != 2 || p.Problems[1].Code != "unreachable" {
		t.Errorf("got problems %+v", p.Problems)
	}
	var res CheckResult
	wantOK(t, call(s, "POST", "/api/v1/check", goodDefinitions+"}"), &res)
	if len(res.Problems) != 1 || res.Problems[0].Code != "binlog-format" {
		t.Errorf("check: got %+v", res)
	}
}

func TestBodiesAreReadStrictly(t *testing.T) {
	s := newTestServer(t, Config{Limits: Limits{BodyBytes: 200}})
	for _, tc := range []struct {
		body, kind string
		status     int
		code, want string
	}{
		{`{"definition":{}}`, "application/json", 400, "bad-body", `"definition"`},
		{`{"definitions":{"sources":[{"name":"a","password":"hunter2"}]}}`, "application/json", 400, "bad-body", "a password may not be sent"},
		{`{"definitions":{"sources":{}}}`, "application/json", 400, "bad-body", "definitions.sources"},
		{`{"dryRun":"yes"}`, "application/json; charset=utf-8", 400, "bad-body", "want bool, found string"},
		{`{} {}`, "application/json", 400, "bad-body", "more than one"},
		{`no`, "application/json", 400, "bad-body", "no JSON"},
		{`{}`, "text/plain", 415, "content-type", "text/plain"},
		{`{"definitions":{"sources":[{"name":"` + strings.Repeat("x", 300) + `"}]}}`, "application/json", 413, "body-too-large", "too large"},
	} {
		p := wantProblem(t, call(s, "POST", "/api/v1/apply", tc.body, "Content-Type", tc.kind), tc.status, tc.code)
		if !strings.Contains(p.Detail, tc.want) {
			t.Errorf("%s: got %q, want %q in it", tc.body, p.Detail, tc.want)
		}
		if strings.Contains(p.Detail, "hunter2") {
			t.Errorf("%s: the password is repeated", tc.body)
		}
	}
}

func TestWhatIsNotServed(t *testing.T) {
	s := newTestServer(t, Config{})
	wantProblem(t, call(s, "GET", "/api/v2/tasks", ""), 404, "no-such-path")
	w := call(s, "DELETE", "/api/v1/tasks", "")
	wantProblem(t, w, 405, "wrong-method")
	if got, want := w.Header().Get("Allow"), "GET"; got != want {
		t.Errorf("allow: got %q, want %q", got, want)
	}
	if w := call(s, "HEAD", "/api/v1/version", ""); w.Code != 200 {
		t.Errorf("HEAD: got %d", w.Code)
	}
}

func TestSlowRequestsAreLimited(t *testing.T) {
	f := newFake()
	running, finish := make(chan struct{}), make(chan struct{})
	f.apply = func(context.Context, tablesync.Definitions, tablesync.ApplyOptions) ([]tablesync.Difference, error) {
		running <- struct{}{}
		<-finish
		return nil, nil
	}
	s := newTestServer(t, Config{Control: f, Limits: Limits{Slow: 1}})
	first := make(chan int)
	go func() { first <- call(s, "POST", "/api/v1/apply", goodDefinitions+"}").Code }()
	<-running
	w := call(s, "POST", "/api/v1/apply", goodDefinitions+"}")
	wantProblem(t, w, 503, "busy")
	if w.Header().Get("Retry-After") == "" {
		t.Error("busy answer lacks Retry-After")
	}
	close(finish)
	if got := <-first; got != 200 {
		t.Errorf("first apply: got %d, want 200", got)
	}
}

func TestARequestEndsAtItsLimit(t *testing.T) {
	f := newFake()
	f.command = func(ctx context.Context, _ *tablesync.TaskView, _ string) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	s := newTestServer(t, Config{Control: f, Limits: Limits{Command: 1}})
	p := wantProblem(t, call(s, "POST", "/api/v1/tasks/task/shop:0/0000/pause", ""), 504, "timeout")
	if !strings.Contains(p.Detail, "no answer within 1ns") {
		t.Errorf("got %q", p.Detail)
	}
}

func TestAPanicIsOneFailedRequest(t *testing.T) {
	f := newFake()
	f.command = func(context.Context, *tablesync.TaskView, string) error { panic("boom") }
	s := newTestServer(t, Config{Control: f})
	if p := wantProblem(t, call(s, "POST", "/api/v1/tasks/task/shop:0/0000/pause", ""), 500, "internal"); strings.Contains(p.Detail, "boom") {
		t.Errorf("the panic's text is sent to the client: %+v", p)
	}
	if w := call(s, "GET", "/healthz", ""); w.Code != http.StatusOK {
		t.Errorf("after the panic: got %d", w.Code)
	}
}

func TestHealthAndReadiness(t *testing.T) {
	var why error
	s := newTestServer(t, Config{Ready: func() error { return why }})
	for _, path := range []string{"/healthz", "/readyz"} {
		if w := call(s, "GET", path, "", "Host", "probe.example"); w.Code != 200 {
			t.Errorf("%s: got %d", path, w.Code)
		}
	}
	why = errors.New("the store is being read")
	if p := wantProblem(t, call(s, "GET", "/readyz", ""), 503, "not-ready"); p.Detail != why.Error() {
		t.Errorf("got %q", p.Detail)
	}
	if w := call(s, "GET", "/healthz", ""); w.Code != 200 {
		t.Errorf("health while not ready: got %d", w.Code)
	}
}

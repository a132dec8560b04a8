package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/runnel-dev/runnel/internal/tablesync"
)

func withLimit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer within %v: %w", d, context.DeadlineExceeded))
}

// SourceList, TargetList, PipelineList are the answers to the lists.
type (
	SourceList struct {
		Sources []tablesync.SourceView `json:"sources"`
	}
	TargetList struct {
		Targets []tablesync.TargetView `json:"targets"`
	}
	PipelineList struct {
		Pipelines []tablesync.PipelineView `json:"pipelines"`
	}
)

func (s *Server) getVersion(w http.ResponseWriter, _ *http.Request) { s.ok(w, s.cfg.Version) }

func (s *Server) getOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(openAPI); err != nil {
		s.cfg.Log.Debug("send answer", "error", err)
	}
}

func (s *Server) getCounters(w http.ResponseWriter, _ *http.Request) {
	s.ok(w, s.cfg.Control.Counters())
}

func (s *Server) getSources(w http.ResponseWriter, _ *http.Request) {
	s.ok(w, SourceList{notNil(s.cfg.Control.Sources())})
}

func (s *Server) getTargets(w http.ResponseWriter, _ *http.Request) {
	s.ok(w, TargetList{notNil(s.cfg.Control.Targets())})
}

func (s *Server) getPipelines(w http.ResponseWriter, _ *http.Request) {
	s.ok(w, PipelineList{notNil(s.cfg.Control.Pipelines())})
}

func (s *Server) getSource(w http.ResponseWriter, r *http.Request) {
	one(s, w, r, tablesync.KindSource, s.cfg.Control.Sources(), func(v tablesync.SourceView) string { return v.Name })
}

func (s *Server) getTarget(w http.ResponseWriter, r *http.Request) {
	one(s, w, r, tablesync.KindTarget, s.cfg.Control.Targets(), func(v tablesync.TargetView) string { return v.Name })
}

func (s *Server) getPipeline(w http.ResponseWriter, r *http.Request) {
	one(s, w, r, tablesync.KindPipeline, s.cfg.Control.Pipelines(), func(v tablesync.PipelineView) string { return v.Name })
}

// one answers with the element of the name in the path.
func one[V any](s *Server, w http.ResponseWriter, r *http.Request, kind string, all []V, name func(V) string) {
	want := r.PathValue("name")
	for _, v := range all {
		if name(v) == want {
			s.ok(w, v)
			return
		}
	}
	s.fail(w, r, problem(http.StatusNotFound, kind+"-not-found", fmt.Sprintf("there is no %s %q", kind, want), fmt.Sprintf("list them with: runnel %s list", kind)))
}

func (s *Server) getTasks(w http.ResponseWriter, r *http.Request) {
	q, err := taskQuery(r.URL.Query())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	page, err := s.cfg.Control.Tasks(q)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	page.Tasks = notNil(page.Tasks)
	s.ok(w, page)
}

// Parameters of a task list.
const maxPage = 1000

var taskParams = []string{"after", "limit", "pipeline", "source", "state", "table"}

// taskQuery reads the parameters of a task list; an unknown one is an error, since
// a misspelt filter must not select everything.
func taskQuery(v url.Values) (tablesync.TaskQuery, error) {
	bad := func(detail, remedy string) (tablesync.TaskQuery, error) {
		return tablesync.TaskQuery{}, problem(http.StatusBadRequest, "bad-query", detail, remedy)
	}
	for k := range v {
		if !slices.Contains(taskParams, k) {
			return bad(fmt.Sprintf("parameter %q is not known", k), "use "+strings.Join(taskParams, ", "))
		}
	}
	q := tablesync.TaskQuery{
		State: tablesync.State(v.Get("state")), Pipeline: v.Get("pipeline"), Source: v.Get("source"),
		Table: v.Get("table"), After: v.Get("after"),
	}
	if q.State != "" && !slices.Contains(tablesync.States, q.State) {
		return bad(fmt.Sprintf("state %q is not known", q.State), "use "+stateWords())
	}
	if q.Table != "" && !strings.Contains(q.Table, ".") {
		return bad(fmt.Sprintf("table %q is no schema.table pattern", q.Table), "use a pattern such as shop.* or *.orders")
	}
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			return bad(fmt.Sprintf("limit %q is not accepted", text), fmt.Sprintf("use 1 to %d", maxPage))
		}
		q.Limit = n
	}
	return q, nil
}

func stateWords() string {
	words := make([]string, len(tablesync.States))
	for i, st := range tablesync.States {
		words[i] = string(st)
	}
	return strings.Join(words, ", ")
}

func (s *Server) getTask(w http.ResponseWriter, r *http.Request) {
	v, err := s.cfg.Control.Task(r.PathValue("rest"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.ok(w, v)
}

func (s *Server) getHealth(w http.ResponseWriter, _ *http.Request) {
	s.ok(w, map[string]string{"status": "ok"})
}

func (s *Server) getReady(w http.ResponseWriter, r *http.Request) {
	if err := s.cfg.Ready(); err != nil {
		s.fail(w, r, problem(http.StatusServiceUnavailable, "not-ready", err.Error(), "wait until the process has started; its log tells what it waits for"))
		return
	}
	s.ok(w, map[string]string{"status": "ready"})
}

// notNil makes an empty list print as [] instead of null.
func notNil[V any](s []V) []V {
	if s == nil {
		return []V{}
	}
	return s
}

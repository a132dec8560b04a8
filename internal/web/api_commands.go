package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/tablesync"
)

// DefinitionSet is the wire form of tablesync.Definitions.
type DefinitionSet struct {
	Sources   []tablesync.ServerSpec   `json:"sources,omitempty"`
	Targets   []tablesync.ServerSpec   `json:"targets,omitempty"`
	Pipelines []tablesync.PipelineSpec `json:"pipelines,omitempty"`
}

// ApplyRequest is the body of POST /api/v1/apply.
type ApplyRequest struct {
	Definitions DefinitionSet `json:"definitions"`
	DryRun      bool          `json:"dryRun,omitempty"`
	Prune       bool          `json:"prune,omitempty"`
}

// ApplyResult is the answer to it.
type ApplyResult struct {
	Differences []tablesync.Difference `json:"differences"`
	DryRun      bool                   `json:"dryRun"`
}

// CheckRequest is the body of POST /api/v1/check.
type CheckRequest struct {
	Definitions DefinitionSet `json:"definitions"`
}

// CheckResult is the answer to it; no problems means fit.
type CheckResult struct {
	Problems []*change.Problem `json:"problems"`
}

// CommandResult tells where a task stands after a command.
type CommandResult struct {
	ID    string          `json:"id"`
	Verb  string          `json:"verb"`
	State tablesync.State `json:"state"`
}

func (s *Server) postApply(w http.ResponseWriter, r *http.Request) {
	var req ApplyRequest
	if err := decode(r, &req); err != nil {
		s.fail(w, r, err)
		return
	}
	d := tablesync.Definitions(req.Definitions)
	if err := s.validate(&d, req.Prune); err != nil {
		s.fail(w, r, err)
		return
	}
	diff, err := s.cfg.Control.Apply(r.Context(), d, tablesync.ApplyOptions{DryRun: req.DryRun, Prune: req.Prune})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if !req.DryRun {
		s.cfg.Log.Info("definitions applied", "sources", len(d.Sources), "targets", len(d.Targets), "pipelines", len(d.Pipelines), "prune", req.Prune)
	}
	s.ok(w, ApplyResult{Differences: notNil(diff), DryRun: req.DryRun})
}

func (s *Server) postCheck(w http.ResponseWriter, r *http.Request) {
	var req CheckRequest
	if err := decode(r, &req); err != nil {
		s.fail(w, r, err)
		return
	}
	d := tablesync.Definitions(req.Definitions)
	if err := s.validate(&d, false); err != nil {
		s.fail(w, r, err)
		return
	}
	s.ok(w, CheckResult{Problems: notNil(s.cfg.Control.Check(r.Context(), d))})
}

// validate reports every fault of the definitions in one problem. What exists
// already may be referred to, unless it is about to be pruned.
func (s *Server) validate(d *tablesync.Definitions, prune bool) error {
	known := make(map[string]bool)
	if !prune {
		for _, v := range s.cfg.Control.Sources() {
			known[tablesync.KindSource+"/"+v.Name] = true
		}
		for _, v := range s.cfg.Control.Targets() {
			known[tablesync.KindTarget+"/"+v.Name] = true
		}
	}
	err := d.Validate(func(kind, name string) bool { return known[kind+"/"+name] })
	if err == nil {
		return nil
	}
	faults := faultsIn(err)
	detail := faults[0]
	if len(faults) > 1 {
		detail = fmt.Sprintf("%d faults: %s", len(faults), strings.Join(faults, "; "))
	}
	p := problem(http.StatusUnprocessableEntity, "invalid-definitions", detail, "correct the definitions and apply them again; nothing was changed")
	p.Faults = faults
	return p
}

func (s *Server) postCommand(w http.ResponseWriter, r *http.Request) {
	rest := r.PathValue("rest")
	i := strings.LastIndexByte(rest, '/')
	if i <= 0 {
		s.fail(w, r, problem(http.StatusNotFound, "no-such-path", fmt.Sprintf("%q names no task and command", rest), "POST to /api/v1/tasks/{id}/{verb}"))
		return
	}
	id, verb := rest[:i], rest[i+1:]
	if !slices.Contains(Verbs, verb) {
		s.fail(w, r, problem(http.StatusNotFound, "unknown-command", fmt.Sprintf("%q is no command of a task", verb), "use "+strings.Join(Verbs, ", ")))
		return
	}
	if err := s.cfg.Control.Command(r.Context(), id, verb); err != nil {
		s.fail(w, r, err)
		return
	}
	res := CommandResult{ID: id, Verb: verb, State: tablesync.Removed}
	switch v, err := s.cfg.Control.Task(id); {
	case err == nil:
		res.State = v.State
	case !errors.Is(err, tablesync.ErrNoTask): // a removed task may be gone
		s.fail(w, r, err)
		return
	}
	s.cfg.Log.Info("task command done", "task", id, "command", verb, "state", string(res.State))
	s.ok(w, res)
}

// decode reads a JSON body strictly.
func decode(r *http.Request, into any) error {
	bad := func(detail, remedy string) error {
		return problem(http.StatusBadRequest, "bad-body", detail, remedy)
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return problem(http.StatusUnsupportedMediaType, "content-type", fmt.Sprintf("the content type is %q", r.Header.Get("Content-Type")), "send application/json")
	}
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	err = dec.Decode(into)
	if err == nil {
		if _, extra := dec.Token(); !errors.Is(extra, io.EOF) {
			return bad("more than one JSON value in the body", "send one object")
		}
		return nil
	}
	var tooLarge *http.MaxBytesError
	var wrong *json.UnmarshalTypeError
	field, unknown := strings.CutPrefix(err.Error(), "json: unknown field ")
	switch {
	case errors.As(err, &tooLarge):
		return err
	case unknown && slices.Contains([]string{`"password"`, `"passwd"`, `"secret"`}, strings.ToLower(field)):
		return bad("a password may not be sent", "write it to a file of the server and name that with passwordFile, or an environment variable with passwordEnv")
	case unknown:
		return bad("field "+field+" is not known", "see /api/v1/openapi.json for the fields")
	case errors.As(err, &wrong):
		return bad(fmt.Sprintf("field %q: want %s, found %s", wrong.Field, wrong.Type, wrong.Value), "see /api/v1/openapi.json for the fields")
	}
	return bad("the body is no JSON: "+err.Error(), "send one object, see /api/v1/openapi.json")
}

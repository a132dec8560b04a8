package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/cluster"
	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/persistence"
)

// Problem is an error of the API as RFC 9457 writes it. The client returns it as
// an error.
type Problem struct {
	Type   string `json:"type"`   // "urn:runnel:problem:" and the code
	Title  string `json:"title"`  // the status in words
	Status int    `json:"status"` // the HTTP status
	Detail string `json:"detail"` // what is wrong, with the value found
	Code   string `json:"code"`   // stable and hyphenated: "task-not-found"
	Remedy string `json:"remedy,omitempty"`
	// State is the task's state when a command was refused for it.
	State tablesync.State `json:"state,omitempty"`
	// Faults lists every fault of the definitions given.
	Faults []string `json:"faults,omitempty"`
	// Problems lists what is wrong with the servers and tables named.
	Problems []*change.Problem `json:"problems,omitempty"`
}

func (p *Problem) Error() string {
	if p.Remedy == "" {
		return p.Detail
	}
	return p.Detail + "; " + p.Remedy
}

func problem(status int, code, detail, remedy string) *Problem {
	return &Problem{
		Type: "urn:runnel:problem:" + code, Title: http.StatusText(status), Status: status,
		Detail: hidePasswords(detail), Code: code, Remedy: remedy,
	}
}

var passwordInURL = regexp.MustCompile(`(//[^\s/:@"']*):[^\s@"']+@`)

// hidePasswords takes passwords out of server addresses in a text.
func hidePasswords(s string) string { return passwordInURL.ReplaceAllString(s, "$1:***@") }

// problemOf finds the answer for an error of the engine.
func problemOf(err error) *Problem {
	var p *Problem
	var refused *tablesync.RefusedError
	var tooLarge *http.MaxBytesError
	found := problemsIn(err)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &refused):
		p = problem(http.StatusConflict, "command-refused", err.Error(), refused.Remedy)
		p.Detail = strings.TrimSuffix(p.Detail, "; "+refused.Remedy)
		p.State = refused.State
		return p
	case errors.Is(err, tablesync.ErrNoTask):
		return problem(http.StatusNotFound, "task-not-found", err.Error(), "list the tasks with: runnel task list")
	case errors.As(err, &tooLarge):
		return problem(http.StatusRequestEntityTooLarge, "body-too-large", err.Error(), "split the definitions into several requests")
	case len(found) > 0:
		p = problem(http.StatusUnprocessableEntity, found[0].Code, err.Error(), found[0].Remedy)
		p.Problems = found
		return p
	case errors.Is(err, persistence.ErrBusy), errors.Is(err, cluster.ErrBusy):
		return problem(http.StatusServiceUnavailable, "busy", err.Error(), "try again in a moment")
	case errors.Is(err, persistence.ErrFull):
		return problem(http.StatusInsufficientStorage, "disk-full", err.Error(), "free space on the disk of the data directory")
	case errors.Is(err, tablesync.ErrNotRunning), errors.Is(err, cluster.ErrNotRunning):
		return problem(http.StatusServiceUnavailable, "not-running", err.Error(), "wait until /readyz says ready, or start the process again")
	case errors.Is(err, persistence.ErrClosed), errors.Is(err, persistence.ErrDeposed):
		return problem(http.StatusServiceUnavailable, "stopping", err.Error(), "ask the process that owns the data directory now")
	case errors.Is(err, context.DeadlineExceeded):
		return problem(http.StatusGatewayTimeout, "timeout", err.Error(), "check that the servers named answer, then try again")
	case errors.Is(err, context.Canceled):
		return problem(http.StatusServiceUnavailable, "stopping", "the request was cut off: "+err.Error(), "try again when the process runs")
	}
	return problem(http.StatusInternalServerError, "internal", err.Error(), "see the log of the process")
}

// problemsIn collects the problems of an error that may join several.
func problemsIn(err error) []*change.Problem {
	if err == nil {
		return nil
	}
	if p, ok := err.(*change.Problem); ok { // this walk unwraps by itself
		return []*change.Problem{p}
	}
	switch u := err.(type) {
	case interface{ Unwrap() error }:
		return problemsIn(u.Unwrap())
	case interface{ Unwrap() []error }:
		var out []*change.Problem
		for _, e := range u.Unwrap() {
			out = append(out, problemsIn(e)...)
		}
		return out
	}
	return nil
}

// faultsIn lists the texts of joined errors.
func faultsIn(err error) []string {
	if err == nil {
		return nil
	}
	if u, ok := err.(interface{ Unwrap() []error }); ok {
		var out []string
		for _, e := range u.Unwrap() {
			out = append(out, faultsIn(e)...)
		}
		return out
	}
	return []string{hidePasswords(err.Error())}
}

// reply writes a JSON answer. An answer that cannot be encoded becomes a problem
// before anything is sent.
func (s *Server) reply(w http.ResponseWriter, status int, kind string, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		s.cfg.Log.Error("encode answer", "error", err)
		http.Error(w, "encode answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if _, err := w.Write(b.Bytes()); err != nil {
		s.cfg.Log.Debug("send answer", "error", err)
	}
}

func (s *Server) ok(w http.ResponseWriter, v any) { s.reply(w, http.StatusOK, "application/json", v) }

// fail answers with a problem; faults of our own are logged.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.Status == http.StatusInternalServerError {
		s.cfg.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	if p.Code == "busy" {
		w.Header().Set("Retry-After", "1")
	}
	s.reply(w, p.Status, "application/problem+json", p)
}

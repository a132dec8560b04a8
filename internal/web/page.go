package web

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/runnel-dev/runnel/internal/tablesync"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"number": number, "size": byteSize, "lag": lagText, "ago": func(now, t time.Time) string { return agoText(now.Sub(t)) },
	"kind": stateKind, "percent": percent,
}).Parse(pageText))

// pageTasks is how many tasks the overview shows at once.
const pageTasks = 50

// pageView is what the overview is made from.
type pageView struct {
	Nonce     string
	Now       time.Time
	Version   Version
	NotReady  string
	Counters  tablesync.Counters
	States    []stateCount
	All       int // tasks in all states
	Problems  []pageProblem
	Sick      int // servers and tables that stand still until somebody acts
	Sources   []tablesync.SourceView
	Targets   []tablesync.TargetView
	Pipelines []tablesync.PipelineView
	Query     tablesync.TaskQuery
	QueryErr  string
	Page      tablesync.TaskPage
	First     string // link to the first page, "" on it
	Next      string // link to the next page, "" on the last
	AllStates []tablesync.State
}

type stateCount struct {
	State tablesync.State
	Count int
	Link  string
	Here  bool // the list is filtered by it
}

type pageProblem struct{ Subject, Cause, Remedy string }

func (s *Server) getPage(w http.ResponseWriter, r *http.Request) {
	v := s.pageView(r)
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, v); err != nil {
		s.fail(w, r, fmt.Errorf("render overview: %w", err))
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", fmt.Sprintf("default-src 'none'; style-src 'nonce-%s'; script-src 'nonce-%s'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'", v.Nonce, v.Nonce))
	if _, err := w.Write(b.Bytes()); err != nil {
		s.cfg.Log.Debug("send overview", "error", err)
	}
}

func (s *Server) pageView(r *http.Request) *pageView {
	c := s.cfg.Control
	v := &pageView{
		Nonce: rand.Text(), Now: time.Now(), Version: s.cfg.Version, Counters: c.Counters(),
		Sources: c.Sources(), Targets: c.Targets(), Pipelines: c.Pipelines(), AllStates: tablesync.States,
	}
	if err := s.cfg.Ready(); err != nil {
		v.NotReady = err.Error()
	}
	query := r.URL.Query()
	for k := range query {
		if query.Get(k) == "" {
			query.Del(k) // a form sends its empty fields too
		}
	}
	q, err := taskQuery(query)
	if err == nil {
		q.Limit = pageTasks
		v.Page, err = c.Tasks(q)
	}
	if err != nil {
		v.QueryErr = err.Error()
		v.Page, err = c.Tasks(tablesync.TaskQuery{Limit: 1}) // for the counts
		if err != nil {
			v.QueryErr += "; " + err.Error()
		}
		v.Page.Tasks, v.Page.Next = nil, ""
	}
	v.Query = q
	v.links(query)
	v.problems()
	return v
}

// links fills the links that keep the present filter.
func (v *pageView) links(query url.Values) {
	link := func(key, value string) string {
		q := url.Values{}
		for k := range query {
			if k != "after" {
				q.Set(k, query.Get(k))
			}
		}
		if value == "" {
			q.Del(key)
		} else {
			q.Set(key, value)
		}
		return "/?" + q.Encode()
	}
	if query.Get("after") != "" {
		v.First = link("after", "")
	}
	if v.Page.Next != "" {
		v.Next = link("after", v.Page.Next)
	}
	for _, st := range tablesync.States {
		n := v.Page.Count[st]
		if st != tablesync.Removed {
			v.All += n
		}
		here := v.Query.State == st
		to := link("state", string(st))
		if here {
			to = link("state", "")
		}
		if stateKind(st) == "bad" {
			v.Sick += n
		}
		v.States = append(v.States, stateCount{st, n, to, here})
	}
}

// problems lists what a person has to look at, whole servers first.
func (v *pageView) problems() {
	for _, s := range v.Sources {
		if s.State == "failed" {
			v.Problems = append(v.Problems, pageProblem{"source " + s.Name, s.Reason, s.Remedy})
			v.Sick++
		}
	}
	for _, t := range v.Targets {
		if t.State == "down" {
			v.Problems = append(v.Problems, pageProblem{"target " + t.Name, t.Reason, ""})
			v.Sick++
		}
	}
	const most = 8
	for _, p := range v.Pipelines {
		for i, r := range p.Refused {
			if i == most {
				v.Problems = append(v.Problems, pageProblem{
					"pipeline " + p.Name, fmt.Sprintf("%d more tables have no task", len(p.Refused)-most), "runnel pipeline get " + p.Name,
				})
				break
			}
			v.Problems = append(v.Problems, pageProblem{r.Subject, r.Cause, r.Remedy})
		}
	}
}

// number groups digits: 1,234,567.
func number(v any) string {
	var s string
	switch n := v.(type) {
	case int:
		s = strconv.Itoa(n)
	case int64:
		s = strconv.FormatInt(n, 10)
	case uint64:
		s = strconv.FormatUint(n, 10)
	default:
		return fmt.Sprint(v)
	}
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

func byteSize(n int) string {
	f, units := float64(n), []string{"B", "KiB", "MiB", "GiB"}
	i := 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	if i == 0 {
		return strconv.Itoa(n) + " B"
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + " " + units[i]
}

// lagText shows seconds, or a duration, in the unit that reads best.
func lagText(v any) string {
	var d time.Duration
	switch x := v.(type) {
	case float64:
		d = time.Duration(x * float64(time.Second))
	case time.Duration:
		d = x
	}
	switch {
	case d <= 0:
		return "0"
	case d < time.Millisecond:
		return "<1 ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	}
	return agoText(d)
}

// agoText shows a duration in its two largest units.
func agoText(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%d d %d h", s/86400, s%86400/3600)
}

// stateKind groups states by how they are coloured.
func stateKind(v any) string {
	switch fmt.Sprint(v) {
	case string(tablesync.Streaming), "reading", "ready":
		return "good"
	case string(tablesync.Failed), string(tablesync.NeedsResync), string(tablesync.OwnedElsewhere), "down":
		return "bad"
	case string(tablesync.Paused), string(tablesync.Removed):
		return "quiet"
	}
	return "busy"
}

// percent tells how far a copy is; the estimate may be off, so it stays below 100.
func percent(done, estimate int64) string {
	if estimate <= 0 {
		return ""
	}
	return fmt.Sprintf("%d%%", min(99, done*100/estimate))
}

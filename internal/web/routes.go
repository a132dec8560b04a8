package web

import (
	_ "embed"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"
)

//go:embed openapi.json
var openAPI []byte

// route is one line of the table of what is served.
type route struct {
	method, path string // path as in openapi.json
	limit        time.Duration
	open         bool // needs no token
	browser      bool // a person may come here with a browser
	slow         bool // counts against the limit of slow requests
	handle       func(s *Server, w http.ResponseWriter, r *http.Request)
}

// taskRest is how the mux sees the part after /tasks/: ids hold slashes, which
// clients may or may not escape.
const taskRest = "/api/v1/tasks/{rest...}"

func (s *Server) routes() []route {
	l := s.cfg.Limits
	return []route{
		{method: "GET", path: "/api/v1/version", limit: l.View, handle: (*Server).getVersion},
		{method: "GET", path: "/api/v1/openapi.json", limit: l.View, handle: (*Server).getOpenAPI},
		{method: "GET", path: "/api/v1/counters", limit: l.View, handle: (*Server).getCounters},
		{method: "GET", path: "/api/v1/sources", limit: l.View, handle: (*Server).getSources},
		{method: "GET", path: "/api/v1/sources/{name}", limit: l.View, handle: (*Server).getSource},
		{method: "GET", path: "/api/v1/targets", limit: l.View, handle: (*Server).getTargets},
		{method: "GET", path: "/api/v1/targets/{name}", limit: l.View, handle: (*Server).getTarget},
		{method: "GET", path: "/api/v1/pipelines", limit: l.View, handle: (*Server).getPipelines},
		{method: "GET", path: "/api/v1/pipelines/{name}", limit: l.View, handle: (*Server).getPipeline},
		{method: "GET", path: "/api/v1/tasks", limit: l.View, handle: (*Server).getTasks},
		{method: "GET", path: "/api/v1/tasks/{id}", limit: l.View, handle: (*Server).getTask},
		{method: "POST", path: "/api/v1/tasks/{id}/{verb}", limit: l.Command, handle: (*Server).postCommand},
		{method: "POST", path: "/api/v1/apply", limit: l.Connect, slow: true, handle: (*Server).postApply},
		{method: "POST", path: "/api/v1/check", limit: l.Connect, slow: true, handle: (*Server).postCheck},
		{method: "GET", path: "/metrics", limit: l.View, handle: (*Server).getMetrics},
		{method: "GET", path: "/healthz", limit: l.View, open: true, handle: (*Server).getHealth},
		{method: "GET", path: "/readyz", limit: l.View, open: true, handle: (*Server).getReady},
		{method: "GET", path: "/", limit: l.View, browser: true, handle: (*Server).getPage},
	}
}

// pattern is the route in the notation of http.ServeMux.
func (rt route) pattern() string {
	switch {
	case strings.HasPrefix(rt.path, "/api/v1/tasks/{"):
		return taskRest
	case rt.path == "/":
		return "/{$}"
	}
	return rt.path
}

func (s *Server) newHandler() http.Handler {
	mux := http.NewServeMux()
	methods := make(map[string][]string)
	for _, rt := range s.routes() {
		methods[rt.pattern()] = append(methods[rt.pattern()], rt.method)
		mux.Handle(rt.method+" "+rt.pattern(), s.wrap(rt))
	}
	for pattern, allowed := range methods {
		mux.Handle(pattern, s.guard(s.wrongMethod(allowed), false))
	}
	mux.Handle("/", s.guard(http.HandlerFunc(s.noRoute), false))
	return s.recovered(mux)
}

// wrap puts around a handler what every request needs.
func (s *Server) wrap(rt route) http.Handler {
	h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { rt.handle(s, w, r) }))
	if rt.slow {
		h = s.limitSlow(h)
	}
	h = s.bounded(h, rt.limit)
	if !rt.open {
		h = s.guard(h, rt.browser)
	}
	return s.metrics.observe(rt.method+" "+rt.path, h)
}

// bounded limits body and time of a request.
func (s *Server) bounded(next http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := withLimit(r.Context(), limit)
		defer cancel()
		r.Body = http.MaxBytesReader(w, r.Body, s.cfg.Limits.BodyBytes)
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (s *Server) limitSlow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.slow <- struct{}{}:
			defer func() { <-s.slow }()
			next.ServeHTTP(w, r)
		default:
			s.fail(w, r, problem(http.StatusServiceUnavailable, "busy",
				fmt.Sprintf("%d requests of this kind are running", cap(s.slow)), "try again when one of them has ended"))
		}
	})
}

func (s *Server) wrongMethod(allowed []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := strings.Join(allowed, ", ")
		w.Header().Set("Allow", list)
		s.fail(w, r, problem(http.StatusMethodNotAllowed, "wrong-method", fmt.Sprintf("%s is not served at %s", r.Method, r.URL.Path), "use "+list))
	})
}

func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, problem(http.StatusNotFound, "no-such-path", fmt.Sprintf("nothing is served at %s", r.URL.Path), "see /api/v1/openapi.json for what is"))
}

// recovered keeps one broken request from taking the process down.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler { // the sentinel that net/http compares
				panic(v) // invariant: net/http asks handlers to pass this one on and recovers it itself
			}
			s.cfg.Log.Error("request panicked", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
			s.fail(w, r, problem(http.StatusInternalServerError, "internal", "the request ran into a fault of the program", "see the log of the process"))
		}()
		next.ServeHTTP(w, r)
	})
}

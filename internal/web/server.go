package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of one server. Zero fields take the defaults.
type Limits struct {
	BodyBytes int64         // request body; 8 MiB
	View      time.Duration // answer to a GET; 10s
	Command   time.Duration // a task command; 30s
	Connect   time.Duration // apply and check, which connect to servers; 2m
	Slow      int           // apply and check requests at once; 4
	Grace     time.Duration // for running requests at the end; 5s
}

func (l *Limits) fill() {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&l.View, 10*time.Second)
	def(&l.Command, 30*time.Second)
	def(&l.Connect, 2*time.Minute)
	def(&l.Grace, 5*time.Second)
	if l.BodyBytes == 0 {
		l.BodyBytes = 8 << 20
	}
	if l.Slow == 0 {
		l.Slow = 4
	}
}

// Config is what a Server needs.
type Config struct {
	Control Control
	// Tokens are the accepted access tokens; none: only this machine's own names
	// are served.
	Tokens Tokens
	// Version is shown by GET /api/v1/version.
	Version Version
	// Ready returns why the process cannot work yet, or nil. nil: always ready.
	Ready  func() error
	Log    *slog.Logger // nothing is logged when nil
	Limits Limits
}

// Version tells what runs.
type Version struct {
	Version string    `json:"version"`
	Commit  string    `json:"commit,omitempty"`
	Go      string    `json:"go"`
	Started time.Time `json:"started"`
	PID     int       `json:"pid"`
}

// Server serves the API. See the package documentation.
type Server struct {
	cfg     Config
	handler http.Handler
	origin  *http.CrossOriginProtection
	slow    chan struct{} // a token for each apply or check that runs
	metrics *metrics
}

// New makes a server that serves nothing yet.
func New(cfg Config) (*Server, error) {
	if cfg.Control == nil {
		return nil, errors.New("make web server: there is no control")
	}
	cfg.Limits.fill()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Ready == nil {
		cfg.Ready = func() error { return nil }
	}
	s := &Server{cfg: cfg, origin: http.NewCrossOriginProtection(), slow: make(chan struct{}, cfg.Limits.Slow)}
	m, err := newMetrics(cfg.Control, cfg.Version.Version)
	if err != nil {
		return nil, fmt.Errorf("make web server: %w", err)
	}
	s.metrics = m
	s.handler = s.newHandler()
	return s, nil
}

// Handler is everything the server serves.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers until ctx ends, then lets running requests finish for the grace
// time. It closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	hs := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      s.cfg.Limits.Connect + 30*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- hs.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	grace, done := context.WithTimeout(requests, s.cfg.Limits.Grace)
	defer done()
	err := hs.Shutdown(grace)
	if err != nil {
		cut()
		err = hs.Close()
	}
	if serr := <-ended; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	if err != nil {
		return fmt.Errorf("stop serving on %s: %w", l.Addr(), err)
	}
	return nil
}

package web

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/runnel-dev/runnel/internal/tablesync"
)

// metrics holds the registry of one server. Labels are sources, targets, states,
// routes and status codes: their number does not grow with the number of tables.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
}

func newMetrics(v Viewer, version string) (*metrics, error) {
	m := &metrics{registry: prometheus.NewRegistry()}
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "runnel_http_requests_total", Help: "Requests answered, by route and status.",
	}, []string{"route", "code"})
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "runnel_build_info", Help: "1, with the version as a label.", ConstLabels: prometheus.Labels{"version": version},
	}, func() float64 { return 1 })
	for _, c := range []prometheus.Collector{
		newViewCollector(v), m.requests, build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := m.registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (s *Server) getMetrics(w http.ResponseWriter, r *http.Request) {
	promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// observe counts the answers of one route.
func (m *metrics) observe(route string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(sw, r)
		m.requests.WithLabelValues(route, strconv.Itoa(sw.status)).Inc()
	})
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(code int) {
	w.status = code
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController reach the writer below.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// viewCollector turns the engine's views into metrics when they are asked for.
type viewCollector struct {
	view                                                Viewer
	tasks, state, lag, queued, groups, sourceTasks      *prometheus.Desc
	targetUp, targetTasks                               *prometheus.Desc
	copied, applied, transactions, lagP50, lagP99, idle *prometheus.Desc
}

func newViewCollector(v Viewer) *viewCollector {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("runnel_"+name, help, labels, nil)
	}
	return &viewCollector{
		view:         v,
		tasks:        d("tasks", "Sync tasks by source and state.", "source", "state"),
		state:        d("source_state", "1 for the state a source is in.", "source", "state"),
		lag:          d("source_lag_seconds", "Commit at the source to read here, of the last group.", "source"),
		queued:       d("source_queued_bytes", "Memory of rows that wait for their target.", "source"),
		groups:       d("source_groups_total", "Groups delivered since the process started.", "source"),
		sourceTasks:  d("source_tasks", "Sync tasks of a source.", "source"),
		targetUp:     d("target_up", "1 when a target accepts writes.", "target"),
		targetTasks:  d("target_tasks", "Sync tasks of a target.", "target"),
		copied:       d("rows_copied_total", "Rows of initial copies since the process started."),
		applied:      d("changes_applied_total", "Row changes in targets since the process started."),
		transactions: d("target_transactions_total", "Transactions at targets since the process started."),
		lagP50:       d("apply_lag_p50_seconds", "Commit at the source to commit at the target, median of the last batches."),
		lagP99:       d("apply_lag_p99_seconds", "Commit at the source to commit at the target, 99th percentile of the last batches."),
		idle:         d("idle", "1 when every attached table has what was read."),
	}
}

// Describe implements prometheus.Collector.
func (c *viewCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.tasks, c.state, c.lag, c.queued, c.groups, c.sourceTasks, c.targetUp, c.targetTasks,
		c.copied, c.applied, c.transactions, c.lagP50, c.lagP99, c.idle,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *viewCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	count := make(map[string]map[tablesync.State]int)
	for _, s := range c.view.Sources() {
		count[s.Name] = make(map[tablesync.State]int)
		gauge(c.state, 1, s.Name, s.State)
		gauge(c.lag, s.LagSeconds, s.Name)
		gauge(c.queued, float64(s.QueuedBytes), s.Name)
		counter(c.groups, float64(s.Groups), s.Name)
		gauge(c.sourceTasks, float64(s.Tasks), s.Name)
	}
	for _, p := range c.view.Pipelines() {
		for st, n := range p.Count {
			if of := count[p.Source]; of != nil {
				of[st] += n
			}
		}
	}
	for source, of := range count {
		for _, st := range tablesync.States {
			gauge(c.tasks, float64(of[st]), source, string(st))
		}
	}
	for _, t := range c.view.Targets() {
		gauge(c.targetUp, oneIf(t.State == "ready"), t.Name)
		gauge(c.targetTasks, float64(t.Tasks), t.Name)
	}
	n := c.view.Counters()
	counter(c.copied, float64(n.RowsCopied))
	counter(c.applied, float64(n.ChangesApplied))
	counter(c.transactions, float64(n.Transactions))
	gauge(c.lagP50, n.LagP50.Seconds())
	gauge(c.lagP99, n.LagP99.Seconds())
	gauge(c.idle, oneIf(n.Idle))
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

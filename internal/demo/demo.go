package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// Options of one demo.
type Options struct {
	Tables   int           // tables at the start; 200 when zero
	Duration time.Duration // of the write load; 20s when zero
	Rate     int           // row changes a second of the load; 2000 when zero
	// Command is the program that runs as the syncing process when it is given
	// "server" and flags.
	Command string
	// Keep is called in the end with everything still running; it returns when
	// the demo is to end. nil: the demo ends at once.
	Keep func(ctx context.Context, u URLs, r Result) error
	// Progress receives lines for people; nil discards them.
	Progress io.Writer
}

func (o *Options) fill() error {
	if o.Tables == 0 {
		o.Tables = 200
	}
	if o.Duration == 0 {
		o.Duration = 20 * time.Second
	}
	if o.Rate == 0 {
		o.Rate = 2000
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	err := o.Validate()
	if o.Command == "" {
		err = errors.Join(err, errors.New("there is no program to run as the syncing process"))
	}
	return err
}

// Validate reports every number that is out of range, at once. Zero is out of
// range: set the defaults first.
func (o *Options) Validate() error {
	var errs []error
	bad := func(is bool, format string, a ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, a...))
		}
	}
	bad(o.Tables < 1 || o.Tables > 100_000, "tables %d: want 1 to 100000", o.Tables)
	bad(o.Duration < time.Second || o.Duration > 24*time.Hour, "duration %v: want 1s to 24h", o.Duration)
	bad(o.Rate < 1 || o.Rate > 1_000_000, "rate %d: want 1 to 1000000", o.Rate)
	return errors.Join(errs...)
}

// URLs tell where a kept demo can be looked at.
type URLs struct {
	Overview       string // of the syncing process
	Source, Target string // server addresses; user root without a password
}

// Result is what a demo found out.
type Result struct {
	Tables         int     `json:"tables"`
	RowsCopied     int64   `json:"rows_copied"`
	ChangesApplied int64   `json:"changes_applied"`
	RowsPerSecond  float64 `json:"rows_per_second"`
	LagP50         float64 `json:"lag_p50_ms"`
	LagP99         float64 `json:"lag_p99_ms"`
	Kills          int     `json:"kills"`
	Differences    int     `json:"differences"`

	Elapsed time.Duration `json:"-"` // from apply until everything was at the target
	Load    loadCounts    `json:"-"`
	Late    []string      `json:"-"` // tables that did not catch up, and why
	Lines   []string      `json:"-"` // the first differences
	LogFile string        `json:"-"` // of the syncing process, kept when something is wrong
}

// loadCounts tell what the load did to the source.
type loadCounts struct {
	Commits, Rollbacks, Savepoints, Deletes, KeyChanges, Rows int64
}

// demo is one run.
type demo struct {
	o      Options
	began  time.Time
	rnd    *mathrand.Rand // of the goroutine of Run
	folder *folder
	secret string

	source, target *testdb.MariaDB
	child          *child
	probe          *probe
	paused         *table // between its pause and its resume

	progress sync.Mutex

	tables struct {
		sync.Mutex
		all []*table
	}
}

// Run carries out one demo. The result is valid when the error is nil; look at
// Differences and Late then.
func Run(ctx context.Context, o Options) (res Result, err error) {
	if err := o.fill(); err != nil {
		return res, err
	}
	d := &demo{o: o, began: time.Now(), rnd: mathrand.New(mathrand.NewPCG(mathrand.Uint64(), mathrand.Uint64())), secret: rand.Text()}
	d.removeDead()
	if d.folder, err = newFolder(); err != nil {
		return res, err
	}
	defer func() {
		err = interrupted(ctx, err)
		err = errors.Join(err, d.clean(&res, err))
	}()
	if err := d.prepare(ctx); err != nil {
		return res, err
	}
	applied := time.Now()
	if err := d.apply(ctx); err != nil {
		return res, err
	}
	if res.Load, err = d.underLoad(ctx); err != nil {
		return res, err
	}
	if res.Late, err = d.drain(ctx); err != nil {
		return res, err
	}
	res.Elapsed = time.Since(applied)
	if err := d.judge(ctx, &res); err != nil {
		return res, err
	}
	if o.Keep != nil {
		err = o.Keep(ctx, URLs{Overview: d.child.client.URL() + "/", Source: d.source.Addr(), Target: d.target.Addr()}, res)
	}
	return res, err
}

// interrupted says of an error that came after ctx ended that this is its cause: a
// program that was killed for it does not know.
func interrupted(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, ctx.Err()) {
		return err
	}
	return fmt.Errorf("%w (%w)", ctx.Err(), err)
}

// prepare starts servers and child and fills the tables.
func (d *demo) prepare(ctx context.Context) error {
	d.say("starting a source and a target server")
	if err := d.startServers(ctx); err != nil {
		return err
	}
	d.say("source %s, target %s", d.source.Addr(), d.target.Addr())
	if err := d.makeTables(ctx); err != nil {
		return err
	}
	c, err := newChild(d.o.Command, filepath.Join(d.folder.path, "data"), filepath.Join(d.folder.path, "runnel.log"), passwordVariable+"="+d.secret)
	if err != nil {
		return err
	}
	d.child = c
	if err := c.start(ctx); err != nil {
		return err
	}
	d.say("syncing process %d at %s/", c.pid(), c.client.URL())
	return nil
}

const (
	account          = "runnel"
	passwordVariable = "RUNNEL_DEMO_PASSWORD"
)

// startServers starts both servers and makes accounts that may do just what is
// needed.
func (d *demo) startServers(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, 2)
	start := func(i int, into **testdb.MariaDB, o testdb.MariaDBOptions, grants ...string) {
		wg.Go(func() {
			db, err := testdb.StartMariaDB(ctx, o)
			if err != nil {
				errs[i] = err
				return
			}
			*into = db
			errs[i] = db.CreateUser(ctx, account, d.secret, grants...)
		})
	}
	start(0, &d.source, testdb.MariaDBOptions{}, "SELECT", "REPLICATION SLAVE", "BINLOG MONITOR")
	start(1, &d.target, testdb.MariaDBOptions{NoBinlog: true}, "SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "INDEX", "DROP")
	wg.Wait()
	if errs[0] != nil && errs[1] != nil && errs[0].Error() == errs[1].Error() {
		return errs[0] // one cause, such as a missing program
	}
	return errors.Join(errs...)
}

// apply declares source, target and pipeline.
func (d *demo) apply(ctx context.Context) error {
	server := tablesync.ServerSpec{Name: "source", Type: "mysql", Address: d.source.Addr(), User: account, PasswordEnv: passwordVariable}
	target := server
	target.Name, target.Address = "target", d.target.Addr()
	defs := tablesync.Definitions{
		Sources: []tablesync.ServerSpec{server}, Targets: []tablesync.ServerSpec{target},
		Pipelines: []tablesync.PipelineSpec{{
			Name: "demo", Source: "source", Target: "target",
			Tables: tablesync.TableSpec{Include: []string{"demo_*.*"}, Exclude: []string{"*." + scratchTable}},
		}},
	}
	if _, err := d.child.client.Apply(ctx, defs, tablesync.ApplyOptions{}); err != nil {
		return fmt.Errorf("apply the pipeline: %w", err)
	}
	d.say("pipeline applied: every table of demo_* is a task")
	return nil
}

// judge compares the servers and fills the result.
func (d *demo) judge(ctx context.Context, res *Result) error {
	d.say("comparing both servers by mariadb-dump")
	var err error
	if res.Tables, res.Differences, res.Lines, err = compare(ctx, d.source, d.target, schemas); err != nil {
		return err
	}
	res.RowsCopied, res.ChangesApplied, res.Kills = d.child.total.RowsCopied, d.child.total.ChangesApplied, d.child.kills
	res.RowsPerSecond = float64(res.RowsCopied+res.ChangesApplied) / res.Elapsed.Seconds()
	res.LagP50, res.LagP99 = d.probe.quantile(0.50), d.probe.quantile(0.99)
	return nil
}

// clean ends what the demo started. After a failure the child's log stays.
func (d *demo) clean(res *Result, failed error) error {
	var errs []error
	if d.child != nil {
		errs = append(errs, d.child.stop())
	}
	for _, db := range []*testdb.MariaDB{d.source, d.target} {
		if db != nil {
			errs = append(errs, db.Stop())
		}
	}
	broken := failed != nil && !errors.Is(failed, context.Canceled)
	if d.child != nil && (broken || res.Differences > 0 || len(res.Late) > 0) {
		res.LogFile = d.child.logFile
		d.say("the log of the syncing process is kept in %s", res.LogFile)
		return errors.Join(append(errs, os.RemoveAll(filepath.Join(d.folder.path, "data")), d.folder.release())...)
	}
	return errors.Join(append(errs, d.folder.remove())...)
}

// removeDead tidies up after demos that were killed. What cannot be removed is no
// reason not to run.
func (d *demo) removeDead() {
	removed, err := removeDead()
	for _, text := range removed {
		d.say("removed %s, which is gone", text)
	}
	if err != nil {
		d.say("%v", err)
	}
}

// say prints one line of progress.
func (d *demo) say(format string, a ...any) {
	d.progress.Lock()
	defer d.progress.Unlock()
	fmt.Fprintf(d.o.Progress, "%6.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, a...)) // progress that nobody reads is no failure
}

// live is a copy of the list of tables.
func (d *demo) live() []*table {
	d.tables.Lock()
	defer d.tables.Unlock()
	return append([]*table(nil), d.tables.all...)
}

func (d *demo) add(t *table) {
	d.tables.Lock()
	defer d.tables.Unlock()
	d.tables.all = append(d.tables.all, t)
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, dur time.Duration) error {
	t := time.NewTimer(dur)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

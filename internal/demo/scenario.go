package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/web"
)

// commandLimit bounds how long a command is tried over a restart.
const commandLimit = 30 * time.Second

// event is something that happens at a moment of the load.
type event struct {
	at   time.Duration
	what func(ctx context.Context) error
}

// underLoad runs the load, and what happens meanwhile.
func (d *demo) underLoad(ctx context.Context) (loadCounts, error) {
	l := &load{d: d}
	d.probe = newProbe(d)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	loading, stopLoading := context.WithTimeout(ctx, d.o.Duration)
	defer stopLoading()
	looking, stopLooking := context.WithCancel(ctx)
	defer stopLooking()
	var writers, lookers sync.WaitGroup
	in := func(g *sync.WaitGroup, f func() error) {
		g.Go(func() {
			if err := f(); err != nil {
				cancel(err)
			}
		})
	}
	in(&writers, func() error { return l.run(loading) })
	probing, stopProbing := context.WithCancel(ctx)
	defer stopProbing()
	in(&lookers, func() error { return d.probe.write(probing, ctx) })
	in(&lookers, func() error { return d.probe.watch(looking) })
	in(&lookers, func() error { d.report(looking, l); return nil })
	d.say("writing for %v: transactions of several rows and tables, deletes, key changes, rollbacks", d.o.Duration)
	err := d.play(loading, d.events())
	if err != nil {
		cancel(err)
	}
	writers.Wait()
	if err == nil {
		err = d.probe.enough(ctx)
	}
	stopProbing()
	stopLooking()
	lookers.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	n := l.result()
	d.say("load stopped: %d commits, %d rollbacks, %d rollbacks to a savepoint, %d deletes, %d key changes", n.Commits, n.Rollbacks, n.Savepoints, n.Deletes, n.KeyChanges)
	return n, err
}

// events lays out when what happens: kills at random moments, one per ten seconds
// of load and at least one; a table paused and resumed; a table created.
func (d *demo) events() []event {
	at := func(share float64) time.Duration { return time.Duration(share * float64(d.o.Duration)) }
	all := []event{
		{at(0.25), d.pauseTable}, {at(0.65), d.resumeTable}, {at(0.45), d.createTable},
	}
	kills := max(1, int(d.o.Duration/(10*time.Second)))
	for i := range kills {
		share := (float64(i) + 0.1 + 0.8*d.rnd.Float64()) / float64(kills)
		all = append(all, event{at(share), func(ctx context.Context) error {
			pid := d.child.pid()
			if err := d.child.kill(ctx); err != nil {
				return err
			}
			d.say("killed process %d with SIGKILL, started %d", pid, d.child.pid())
			return nil
		}})
	}
	slices.SortFunc(all, func(a, b event) int { return int(a.at - b.at) })
	return all
}

// play lets the events happen at their times. What is under way when the load
// ends is brought to its end.
func (d *demo) play(loading context.Context, events []event) error {
	whole := context.WithoutCancel(loading)
	began := time.Now()
	for _, e := range events {
		if err := pause(loading, e.at-time.Since(began)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if err := d.child.died(); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(whole, 2*startLimit)
		stop := context.AfterFunc(loading, func() {
			if !errors.Is(loading.Err(), context.DeadlineExceeded) {
				cancel() // the demo was interrupted
			}
		})
		err := e.what(limited)
		stop()
		cancel()
		if err != nil {
			return err
		}
	}
	if err := pause(loading, d.o.Duration-time.Since(began)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return d.child.died()
}

// pauseTable pauses one table: not the first, which is the largest, unless there
// is no other. Tables may arrive before it is resumed, so it is remembered.
func (d *demo) pauseTable(ctx context.Context) error {
	all := d.live()
	d.paused = all[min(1, len(all)-1)]
	return d.command(ctx, d.paused, "pause")
}

func (d *demo) resumeTable(ctx context.Context) error {
	return d.command(ctx, d.paused, "resume")
}

// command gives a table's task a command, again while the process restarts or has
// not come to know the table yet.
func (d *demo) command(ctx context.Context, t *table, verb string) error {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	for {
		err := d.tryCommand(ctx, t, verb)
		var p *web.Problem
		switch {
		case err == nil:
			d.say("%s %s", verb, t.id())
			return nil
		case errors.As(err, &p) && p.Status < 500 && p.Code != "task-not-found":
			return fmt.Errorf("%s %s: %w", verb, t.id(), err)
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("%s %s: %w (last answer: %w)", verb, t.id(), ctx.Err(), err)
		}
	}
}

var errNoTask = errors.New("it has no task yet")

func (d *demo) tryCommand(ctx context.Context, t *table, verb string) error {
	page, err := d.child.client.Tasks(ctx, tablesync.TaskQuery{Table: t.id(), Limit: 1})
	if err != nil {
		return err
	}
	if len(page.Tasks) == 0 {
		return errNoTask
	}
	_, err = d.child.client.Command(ctx, page.Tasks[0].ID, verb)
	return err
}

// createTable makes a table that matches the pipeline and writes rows right
// behind its CREATE; the load takes it up afterwards.
func (d *demo) createTable(ctx context.Context) error {
	t := newTable(d.o.Tables, "arrived")
	c, err := connect(ctx, d.source)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.exec(ctx, t.createSQL()); err != nil {
		return err
	}
	if err := t.grow(ctx, c, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), 100); err != nil {
		return err
	}
	d.add(t)
	d.say("created %s with 100 rows behind its CREATE", t.id())
	return nil
}

// report prints a line every two seconds.
func (d *demo) report(ctx context.Context, l *load) {
	t := time.NewTicker(2 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		n := d.child.count(ctx)
		if page, err := d.child.client.Tasks(ctx, tablesync.TaskQuery{Limit: 1}); err == nil {
			d.say("written %d, copied %d, applied %d; tables: %s", l.counts[nRows].Load(), n.RowsCopied, n.ChangesApplied, stateLine(page.Count))
		}
	}
}

func stateLine(count map[tablesync.State]int) string {
	out := ""
	for _, s := range tablesync.States {
		if n := count[s]; n > 0 {
			if out != "" {
				out += ", "
			}
			out += fmt.Sprintf("%d %s", n, s)
		}
	}
	return out
}

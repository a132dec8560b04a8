package capture

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/retry"
)

// Run reads the log, journals the frontier and sweeps until ctx ends or an error
// that reopening cannot cure: change.ErrLogGone, change.ErrHistory, or a fatal
// store error. It returns when everything it started has ended.
func (c *Capture) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, part := range []func(context.Context) error{c.read, c.journal, c.sweepLoop} {
		wg.Go(func() {
			if err := part(ctx); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// incurable errors end Run: the position itself is the problem, or this process
// may not write any more.
func (c *Capture) incurable(err error) bool {
	return errors.Is(err, change.ErrLogGone) || errors.Is(err, change.ErrHistory) || c.cfg.Fatal(err)
}

// read keeps a stream open and delivers its groups.
func (c *Capture) read(ctx context.Context) error {
	for attempt := 1; ctx.Err() == nil; attempt++ {
		before := c.Status().Groups
		err := c.ReadLog(ctx)
		if ctx.Err() != nil {
			return nil
		}
		c.setErr(err)
		if c.incurable(err) {
			return err
		}
		if c.Status().Groups > before {
			attempt = 1
		}
		c.cfg.Log.Warn("log reading interrupted", "capture", c.cfg.Name, "attempt", attempt, "err", err)
		if retry.Sleep(ctx, c.cfg.Retry, attempt) != nil {
			return nil
		}
	}
	return nil
}

func (c *Capture) setErr(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.status.Err = err
}

// ReadLog opens the log at R and delivers its groups until the stream breaks, ctx
// ends or no lane makes room. Run repeats it.
func (c *Capture) ReadLog(ctx context.Context) (err error) {
	from := c.Status().Read
	stream, err := c.cfg.Source.Open(ctx, from, c.cfg.Filter)
	if err != nil {
		return fmt.Errorf("open the log at %s: %w", from.Token, err)
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	c.setErr(nil)
	for {
		room, err := c.room(ctx)
		if err != nil {
			return err
		}
		if !room {
			return errNoRoom // rather than stalling the server's socket
		}
		g, err := stream.Next(ctx)
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		if err := c.Deliver(ctx, g); err != nil {
			return err
		}
	}
}

var errNoRoom = errors.New("no lane made room in time; the log is read again from here")

// room waits until the queued rows fit the budget. When they do not for long, the
// lane with most bytes × age is reported as slow, so that it is detached.
func (c *Capture) room(ctx context.Context) (bool, error) {
	fits := func(core *Core) bool { return core.bytes < c.cfg.BudgetBytes }
	c.mu.Lock()
	now := fits(c.mu.core)
	c.mu.Unlock()
	if now {
		return true, nil
	}
	ok, err := c.waitFor(ctx, c.cfg.StallAfter, fits)
	if ok || err != nil {
		return ok, err
	}
	if l := c.heaviest(); l != nil && c.cfg.Slow != nil {
		c.cfg.Slow(l)
	}
	return false, nil
}

func (c *Capture) heaviest() *Lane {
	c.mu.Lock()
	defer c.mu.Unlock()
	var worst *Lane
	var most float64
	for l := range c.mu.core.loaded {
		if w := float64(l.bytes) * c.now().Sub(l.since).Seconds(); (l.mode == Attached || l.mode == Attaching || l.mode == Joining) && (worst == nil || w > most) {
			worst, most = l, w
		}
	}
	return worst
}

func (c *Capture) now() time.Time { return c.cfg.Now() }

// journal writes the frontier about once a second, and once more at the end.
func (c *Capture) journal(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.FrontierEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			if err := c.Advance(last); err != nil {
				c.cfg.Log.Warn("last frontier not journaled; the log is read again from the one before", "capture", c.cfg.Name, "err", err)
			}
			return nil
		case <-tick.C:
			if err := c.Advance(ctx); err != nil && ctx.Err() == nil {
				if c.incurable(err) {
					return err
				}
				c.cfg.Log.Warn("frontier not released", "capture", c.cfg.Name, "err", err)
			}
		}
	}
}

// sweepLoop runs a sweep whenever a lane wants one.
func (c *Capture) sweepLoop(ctx context.Context) error {
	for attempt := 1; ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			return nil
		case <-c.sweepNow:
		}
		err := c.Sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && c.cfg.Fatal(err):
			return err
		case err != nil:
			c.cfg.Log.Warn("sweep interrupted", "capture", c.cfg.Name, "attempt", attempt, "err", err)
			if retry.Sleep(ctx, c.cfg.Retry, attempt) != nil {
				return nil
			}
			attempt++
		default:
			attempt = 1
		}
		c.resweep()
	}
	return nil
}

// resweep asks for another sweep when lanes are waiting.
func (c *Capture) resweep() {
	c.mu.Lock()
	_, waiting := c.mu.core.SweepFrom()
	c.mu.Unlock()
	if waiting {
		c.askSweep()
	}
}

package demo

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	probeEvery = 100 * time.Millisecond // between rows
	lookEvery  = 5 * time.Millisecond   // between looks at the target
	leastLags  = 20                     // measured before the demo goes on
	lagLimit   = 60 * time.Second       // longest wait for that many
)

// probe measures the time from commit at the source until a row is visible at the
// target, by a table that only it writes. Both are taken with this process's
// clock. Times in which the syncing process was dead count.
type probe struct {
	d *demo

	mu struct {
		sync.Mutex
		committed map[int64]time.Time // rows that are not seen yet
		first     int64               // the first row that counts: those before waited for the copy
		last      int64
		lags      []time.Duration
	}
}

func newProbe(d *demo) *probe {
	p := &probe{d: d}
	p.mu.committed = make(map[int64]time.Time)
	return p
}

// write inserts a row every 100 ms until ctx ends.
func (p *probe) write(ctx, session context.Context) error {
	c, err := connect(session, p.d.source)
	if err != nil {
		return err
	}
	defer c.close()
	t := time.NewTicker(probeEvery)
	defer t.Stop()
	for id := int64(1); ; id++ {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		if err := c.exec(session, fmt.Sprintf("INSERT INTO %s.%s VALUES (%d, NOW(6))", schemas[0], probeTable, id)); err != nil {
			return err
		}
		now := time.Now()
		p.mu.Lock()
		p.mu.committed[id], p.mu.last = now, id
		p.mu.Unlock()
	}
}

// watch looks at the target until ctx ends. Rows arrive in order, so the greatest
// number tells of all below it.
func (p *probe) watch(ctx context.Context) error {
	c, err := connect(ctx, p.d.target)
	if err != nil {
		return err
	}
	defer c.close()
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		rows, err := c.query(ctx, fmt.Sprintf("SELECT MAX(id) FROM %s.%s", schemas[0], probeTable))
		switch code := serverCode(err); {
		case code == 1146 || code == 1049: // the table or its schema is not there yet
			continue
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if len(rows) == 1 && rows[0][0] != "" {
			id, err := strconv.ParseInt(rows[0][0], 10, 64)
			if err != nil {
				return fmt.Errorf("read probe: %w", err)
			}
			p.saw(id, time.Now())
		}
	}
}

// saw notes that every row up to id is at the target.
func (p *probe) saw(id int64, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.first == 0 {
		p.mu.first = p.mu.last + 1
	}
	for n, at := range p.mu.committed {
		if n > id {
			continue
		}
		delete(p.mu.committed, n)
		if n >= p.mu.first {
			p.mu.lags = append(p.mu.lags, now.Sub(at))
		}
	}
}

// enough waits until some lags are measured, which takes longer than the load when
// the probe's own table comes late. Without any the demo goes on and says 0.
func (p *probe) enough(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < lagLimit; {
		p.mu.Lock()
		n := len(p.mu.lags)
		p.mu.Unlock()
		if n >= leastLags {
			return nil
		}
		if err := pause(ctx, probeEvery); err != nil {
			return err
		}
	}
	return nil
}

// quantile returns a quantile of the lags in milliseconds, 0 without any.
func (p *probe) quantile(q float64) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.lags) == 0 {
		return 0
	}
	sorted := slices.Clone(p.mu.lags)
	slices.Sort(sorted)
	i := min(len(sorted)-1, int(q*float64(len(sorted))))
	return float64(sorted[i].Microseconds()) / 1000
}

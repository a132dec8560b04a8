package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// loaders is the number of sessions that write at the same time.
const loaders = 4

// initialRows tells how many rows the i-th table starts with: some have none, one
// has many.
func initialRows(i int) int {
	if i == 0 {
		return 20_000
	}
	return []int{0, 40, 200, 500, 1200}[i%5]
}

// makeTables creates the tables and their first rows.
func (d *demo) makeTables(ctx context.Context) error {
	var sql []string
	for _, s := range schemas {
		sql = append(sql, "CREATE DATABASE "+s)
	}
	sql = append(sql, fmt.Sprintf("CREATE TABLE %s.%s (id INT PRIMARY KEY)", schemas[0], scratchTable),
		fmt.Sprintf("CREATE TABLE %s.%s (id BIGINT PRIMARY KEY, at DATETIME(6))", schemas[0], probeTable))
	if err := d.source.Exec(ctx, sql...); err != nil {
		return err
	}
	todo := make(chan int)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var rows atomic.Int64
	made := make([]*table, d.o.Tables)
	for range 2 {
		wg.Go(func() {
			if err := d.fill(ctx, todo, made, &rows); err != nil {
				cancel(err)
			}
		})
	}
	for i := range d.o.Tables {
		select {
		case todo <- i:
		case <-ctx.Done():
		}
		if i > 0 && i%1000 == 0 {
			d.say("%d of %d tables made", i, d.o.Tables)
		}
	}
	close(todo)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for _, t := range made {
		d.add(t)
	}
	d.say("%d tables with %d rows made", d.o.Tables, rows.Load())
	return nil
}

// fill makes tables by their numbers until there are no more.
func (d *demo) fill(ctx context.Context, todo <-chan int, made []*table, rows *atomic.Int64) error {
	c, err := connect(ctx, d.source)
	if err != nil {
		return err
	}
	defer c.close()
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for i := range todo {
		t := newTable(i, fmt.Sprintf("t%04d", i))
		if err := c.exec(ctx, t.createSQL()); err != nil {
			return err
		}
		want := initialRows(i)
		if err := t.grow(ctx, c, r, want); err != nil {
			return err
		}
		rows.Add(int64(want))
		made[i] = t
	}
	return nil
}

// grow inserts rows, several in a statement.
func (t *table) grow(ctx context.Context, c *conn, r *rand.Rand, rows int) error {
	const most = 250
	for rows > 0 {
		batch := make([]int64, min(rows, most))
		for i := range batch {
			batch[i] = t.fresh()
		}
		if err := c.exec(ctx, t.insertSQL(r, batch...)); err != nil {
			return err
		}
		rows -= len(batch)
	}
	return nil
}

// load writes to the source until it is told to stop.
type load struct {
	d       *demo
	counts  [6]atomic.Int64 // in the order of loadCounts
	tickets chan struct{}   // a token for each row change that the rate allows
}

const (
	nCommits = iota
	nRollbacks
	nSavepoints
	nDeletes
	nKeyChanges
	nRows
)

func (l *load) result() loadCounts {
	n := func(i int) int64 { return l.counts[i].Load() }
	return loadCounts{n(nCommits), n(nRollbacks), n(nSavepoints), n(nDeletes), n(nKeyChanges), n(nRows)}
}

// run writes until ctx ends, which is how it always ends when all goes well.
func (l *load) run(ctx context.Context) error {
	l.tickets = make(chan struct{}, 200)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	wg.Go(func() { l.issue(ctx) })
	for range loaders {
		wg.Go(func() {
			if err := l.write(ctx); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("write load: %w", err)
	}
	return nil
}

// issue hands out tokens at the rate. What a stall did not use is not made up for.
func (l *load) issue(ctx context.Context) {
	const beat = 10 * time.Millisecond
	t := time.NewTicker(beat)
	defer t.Stop()
	due := 0.0
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		for due += float64(l.d.o.Rate) * beat.Seconds(); due >= 1; due-- {
			select {
			case l.tickets <- struct{}{}:
			default:
			}
		}
	}
}

// write runs transactions in one session.
func (l *load) write(ctx context.Context) error {
	// The session outlives ctx by the transaction that runs, so that its outcome
	// is counted.
	session, end := context.WithTimeout(context.WithoutCancel(ctx), l.d.o.Duration+2*statementLimit)
	defer end()
	c, err := connect(session, l.d.source)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.exec(session, "SET SESSION innodb_lock_wait_timeout = 5"); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for ctx.Err() == nil {
		if err := l.transaction(ctx, session, c, r); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// transaction changes rows of up to three tables and commits, mostly.
func (l *load) transaction(ctx, session context.Context, c *conn, r *rand.Rand) error {
	all := l.d.live()
	tables := make([]*table, 1+r.IntN(3))
	for i := range tables {
		tables[i] = all[r.IntN(len(all))]
	}
	if err := c.exec(session, "BEGIN"); err != nil {
		return err
	}
	savepoint := r.IntN(8) == 0
	statements := 1 + r.IntN(6)
	for i := range statements {
		if savepoint && i == statements/2 {
			if err := c.exec(session, "SAVEPOINT half"); err != nil {
				return err
			}
		}
		select {
		case <-l.tickets:
		case <-ctx.Done():
			return c.exec(session, "ROLLBACK")
		}
		switch err := l.change(session, c, r, tables[r.IntN(len(tables))]); serverCode(err) {
		case codeDuplicate: // the statement is undone, the transaction goes on
		case codeDeadlock, codeLockWait:
			return c.exec(session, "ROLLBACK")
		default:
			if err != nil {
				return err
			}
		}
	}
	if savepoint {
		l.counts[nSavepoints].Add(1)
		if err := c.exec(session, "ROLLBACK TO SAVEPOINT half"); err != nil {
			return err
		}
	}
	if r.IntN(8) == 0 {
		l.counts[nRollbacks].Add(1)
		return c.exec(session, "ROLLBACK")
	}
	l.counts[nCommits].Add(1)
	return c.exec(session, "COMMIT")
}

// change runs one statement that changes rows, or two that belong together.
func (l *load) change(ctx context.Context, c *conn, r *rand.Rand, t *table) error {
	l.counts[nRows].Add(1)
	switch p := r.IntN(100); {
	case p < 35:
		return c.exec(ctx, t.insertSQL(r, t.fresh()))
	case p < 40:
		return c.exec(ctx, t.insertSQL(r, t.fresh(), t.fresh(), t.fresh()))
	case p < 75:
		return c.exec(ctx, t.updateSQL(r, t.some(r)))
	case p < 87:
		l.counts[nDeletes].Add(1)
		return c.exec(ctx, t.deleteSQL(t.some(r)))
	case p < 95 || t.unique == "":
		l.counts[nKeyChanges].Add(1)
		return c.exec(ctx, t.moveSQL(t.some(r), t.fresh()))
	}
	return l.handOver(ctx, c, t, t.some(r), r)
}

// handOver deletes a row and gives its unique value to a new one.
func (l *load) handOver(ctx context.Context, c *conn, t *table, n int64, r *rand.Rand) error {
	rows, err := c.query(ctx, "SELECT "+t.unique+" FROM "+t.String()+t.where(n)+" AND "+t.unique+" IS NOT NULL FOR UPDATE")
	if err != nil || len(rows) == 0 {
		return err
	}
	l.counts[nDeletes].Add(1)
	if err := c.exec(ctx, t.deleteSQL(n)); err != nil {
		return err
	}
	heir := t.fresh()
	if err := c.exec(ctx, t.insertSQL(r, heir)); err != nil {
		return err
	}
	return c.exec(ctx, "UPDATE "+t.String()+" SET "+t.unique+" = '"+rows[0][0]+"'"+t.where(heir))
}

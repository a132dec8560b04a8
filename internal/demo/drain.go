package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/runnel-dev/runnel/internal/tablesync"
)

// drainLimit is how long tables may take to catch up after the load.
func (d *demo) drainLimit() time.Duration {
	return 90*time.Second + d.o.Duration + time.Duration(d.o.Tables)*20*time.Millisecond
}

// marker is the last row of a table.
type marker struct {
	t *table
	n int64
}

// drain writes a last row to each table and waits until it is at the target. It
// returns the tables where it did not come, and why.
func (d *demo) drain(ctx context.Context) (late []string, err error) {
	open, err := d.markAll(ctx)
	if err != nil {
		return nil, err
	}
	d.say("waiting until %d tables have caught up", len(open))
	c, err := connect(ctx, d.target)
	if err != nil {
		return nil, err
	}
	defer c.close()
	limit := time.Now().Add(d.drainLimit())
	told := time.Now()
	for {
		if open, err = missing(ctx, c, open); err != nil {
			return nil, err
		}
		if len(open) == 0 {
			d.child.total = d.child.count(ctx)
			return nil, nil
		}
		if err := d.child.died(); err != nil {
			return nil, err
		}
		if time.Since(told) > 2*time.Second {
			told = time.Now()
			d.say("waiting for %d tables, among them %s", len(open), open[0].t.id())
		}
		if time.Now().After(limit) || d.stuck(ctx, open) {
			d.child.total = d.child.count(ctx)
			return d.explain(ctx, open), nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// markAll inserts the markers, many tables to a transaction.
func (d *demo) markAll(ctx context.Context) ([]marker, error) {
	c, err := connect(ctx, d.source)
	if err != nil {
		return nil, err
	}
	defer c.close()
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	probe := &table{schema: schemas[0], name: probeTable, key: []column{{"id", "BIGINT", number}}}
	probe.next.Store(1 << 40)
	var out []marker
	sql := []string{}
	for _, t := range append(d.live(), probe) {
		m := marker{t, t.fresh()}
		out = append(out, m)
		sql = append(sql, t.insertSQL(r, m.n))
	}
	const most = 50
	for len(sql) > 0 {
		n := min(most, len(sql))
		for _, s := range append(append([]string{"BEGIN"}, sql[:n]...), "COMMIT") {
			if err := c.exec(ctx, s); err != nil {
				return nil, fmt.Errorf("write markers: %w", err)
			}
		}
		sql = sql[n:]
	}
	return out, nil
}

// missing returns the markers that are not at the target. It asks for the first
// 64 only: tables catch up at about the same time.
func missing(ctx context.Context, c *conn, open []marker) ([]marker, error) {
	const most = 64
	var still []marker
	for i, m := range open {
		if i >= most {
			return append(still, open[i:]...), nil
		}
		rows, err := c.query(ctx, "SELECT 1 FROM "+m.t.String()+m.t.where(m.n))
		switch code := serverCode(err); {
		case code == 1146 || code == 1049: // the table or its schema is not there yet
			still = append(still, m)
			continue
		case err != nil:
			return nil, err
		}
		if len(rows) == 0 {
			still = append(still, m)
		}
	}
	return still, nil
}

// stuck says whether every table that is missing stands in a state that only a
// person ends.
func (d *demo) stuck(ctx context.Context, open []marker) bool {
	page, err := d.child.client.Tasks(ctx, tablesync.TaskQuery{Limit: 1})
	if err != nil {
		return false
	}
	waiting := 0
	for _, s := range []tablesync.State{tablesync.NeedsResync, tablesync.OwnedElsewhere, tablesync.Paused} {
		waiting += page.Count[s]
	}
	moving := 0
	for _, s := range []tablesync.State{tablesync.Pending, tablesync.Copying, tablesync.CatchingUp, tablesync.Failed} {
		moving += page.Count[s]
	}
	return moving == 0 && waiting >= len(open)
}

// explain says of each late table what its task tells.
func (d *demo) explain(ctx context.Context, open []marker) []string {
	var out []string
	for _, m := range open {
		text := m.t.id() + ": it has no task"
		page, err := d.child.client.Tasks(ctx, tablesync.TaskQuery{Table: m.t.id(), Limit: 1})
		switch {
		case err != nil:
			text = m.t.id() + ": " + err.Error()
		case len(page.Tasks) > 0:
			v := page.Tasks[0]
			text = strings.TrimSuffix(fmt.Sprintf("%s: %s at %s: %s", m.t.id(), v.State, v.Position, v.Reason), ": ")
		}
		out = append(out, text)
	}
	return out
}

package demo

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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

// drain writes a last row to each table and waits until it is at the target and
// every task streams: a copy may still have rows to bring when the last row of the
// log is there. It returns the tables where that did not happen, and why.
func (d *demo) drain(ctx context.Context) (late []string, err error) {
	open, err := d.markAll(ctx)
	if err != nil {
		return nil, err
	}
	tables := len(open)
	d.say("waiting until %d tables have caught up", tables)
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
		if err := d.child.died(); err != nil {
			return nil, err
		}
		count := d.states(ctx)
		d.child.total = d.child.count(ctx)
		if len(open) == 0 && count[tablesync.Streaming] >= tables {
			return nil, nil
		}
		if time.Since(told) > 2*time.Second {
			told = time.Now()
			d.say("waiting for the last row of %d tables; copied %d; tables: %s", len(open), d.child.total.RowsCopied, stateLine(count))
		}
		if time.Now().After(limit) || stuck(count, tables) {
			return d.explain(ctx, open)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// states counts the tasks by state; nil when nobody answers.
func (d *demo) states(ctx context.Context) map[tablesync.State]int {
	page, err := d.child.client.Tasks(ctx, tablesync.TaskQuery{Limit: 1})
	if err != nil {
		return nil
	}
	return page.Count
}

// stuck says whether every task that does not stream stands in a state that only a
// person ends.
func stuck(count map[tablesync.State]int, tables int) bool {
	still := 0
	for _, s := range []tablesync.State{tablesync.Streaming, tablesync.NeedsResync, tablesync.OwnedElsewhere, tablesync.Paused} {
		still += count[s]
	}
	return still >= tables && count[tablesync.Streaming] < tables
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

// explain says of each late table what its task tells.
func (d *demo) explain(ctx context.Context, open []marker) ([]string, error) {
	late := make(map[string]string)
	for _, m := range open {
		late[m.t.id()] = "its last row is not there"
	}
	seen := make(map[string]bool)
	for q := (tablesync.TaskQuery{Limit: 1000}); ; {
		page, err := d.child.client.Tasks(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("list tasks: %w", err)
		}
		for _, v := range page.Tasks {
			id := v.Table.String()
			seen[id] = true
			if late[id] != "" || v.State != tablesync.Streaming {
				late[id] = strings.TrimSuffix(fmt.Sprintf("%s at %s: %s", v.State, v.Position, v.Reason), ": ")
			}
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	for _, t := range d.live() {
		if !seen[t.id()] {
			late[t.id()] = "it has no task"
		}
	}
	var out []string
	for _, id := range slices.Sorted(maps.Keys(late)) {
		out = append(out, id+": "+late[id])
	}
	return out, nil
}

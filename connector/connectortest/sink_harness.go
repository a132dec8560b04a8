package connectortest

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/change"
)

// Sink is what the suite tests.
type Sink interface {
	change.Sink
	change.TableSink
}

// SinkHarness is what a connector tells the suite about itself. The suite uses
// tables of one form: a 64-bit key "id" and a text "v" that is never NULL.
type SinkHarness struct {
	// Addr is the target's host:port.
	Addr string
	// Schema is where the suite's target tables go. It exists.
	Schema string
	// Open makes a sink that reaches the target at addr: Addr, or a proxy's.
	Open func(t *testing.T, addr string) Sink
	// Layout is the layout of a source table of the suite's form with this name,
	// with a definition that Prepare can create it from.
	Layout func(name string) *change.Layout
	// Row is a row of the layout, which has one more column, a nullable 64-bit
	// integer, after Extra ran.
	Row func(l *change.Layout, id int64, v string) []change.Value
	// BadRow is a row that the target refuses.
	BadRow func(l *change.Layout, id int64) []change.Value
	// Extra is the statement that adds the column "extra" to a source table;
	// Truncate empties one.
	Extra, Truncate func(source change.TableID) *change.Statement
	// Rows reads a table without the sink: v by id, and whether there is a column
	// "extra".
	Rows func(t *testing.T, table change.TableID) (rows map[int64]string, extra bool)
	// Waiting reports whether a session of the target waits for a lock now.
	Waiting func(t *testing.T) bool
	// IsCommit recognises a commit in what a client sends.
	IsCommit func(b []byte) bool
	// Child is the name of the test that calls RunSinkChild.
	Child string
	// FaultPrefix is what the names of the sink's fault points begin with.
	FaultPrefix string
}

const (
	suiteStore = "store-a"
	suiteLimit = 2 * time.Minute
)

// at is the n-th position of the suite's history; 0 comes before every group.
func at(n int) change.Position {
	p := change.Position{History: "suite:1", Token: fmt.Sprintf("t:%d", n)}
	binary.BigEndian.PutUint64(p.Order[8:], uint64(n))
	return p
}

// order is n of at(n).
func order(p change.Position) int { return int(binary.BigEndian.Uint64(p.Order[8:])) }

// lane is one task of the suite and the sink that it writes through.
type lane struct {
	h      *SinkHarness
	sink   Sink
	fence  change.Fence
	name   string
	layout *change.Layout
}

func (l *lane) key() change.CheckpointKey { return change.CheckpointKey{Incarnation: "inc-" + l.name} }
func (l *lane) target() change.TableID    { return change.TableID{Schema: l.h.Schema, Name: l.name} }
func (l *lane) with(f change.Fence) *lane { c := *l; c.fence = f; return &c }
func (l *lane) through(s Sink) *lane      { c := *l; c.sink = s; return &c }
func (l *lane) task() change.TaskTarget {
	return change.TaskTarget{Incarnation: l.key().Incarnation, Task: "task " + l.name, Target: l.target(), Layout: l.layout, At: at(0)}
}

// step is a batch that moves the checkpoint from n-1 to n and inserts row n.
func (l *lane) step(n int, rows ...[]change.Value) change.Batch {
	if len(rows) == 0 {
		rows = [][]change.Value{l.h.Row(l.layout, int64(n), fmt.Sprint("v", n))}
	}
	b := change.Batch{Key: l.key(), Target: l.target(), Layout: l.layout, Expected: at(n - 1), New: at(n)}
	for _, r := range rows {
		b.Changes = append(b.Changes, change.Change{Op: change.Insert, After: r})
	}
	return b
}

func (l *lane) apply(ctx context.Context, n int) error {
	return l.sink.Apply(ctx, l.fence, []change.Batch{l.step(n)})[0].Err
}

// stands fails the test unless the checkpoint is at n and exactly rows 1 to n are
// in the target.
func (l *lane) stands(t *testing.T, ctx context.Context, n int) {
	t.Helper()
	cps, err := l.sink.Resolve(ctx, l.fence, []change.CheckpointKey{l.key()})
	if err != nil {
		t.Fatalf("resolve: %v", err)
	}
	if len(cps) != 1 || cps[0].Position != at(n) {
		t.Fatalf("got checkpoint %v, want position %v", cps, at(n))
	}
	rows, _ := l.h.Rows(t, l.target())
	for i := 1; i <= n; i++ {
		if got, want := rows[int64(i)], fmt.Sprint("v", i); got != want {
			t.Errorf("row %d: got %q, want %q at checkpoint %d", i, got, want, n)
		}
	}
	if len(rows) != n {
		t.Errorf("got %d rows, want %d at checkpoint %d", len(rows), n, n)
	}
}

// newLane opens a sink of its own, claims and prepares.
func (h *SinkHarness) newLane(t *testing.T, ctx context.Context, name string) *lane {
	t.Helper()
	l := &lane{h: h, sink: h.Open(t, h.Addr), fence: change.Fence{StoreID: suiteStore, Owner: "owner-" + name, Epoch: 1}, name: name, layout: h.Layout(name)}
	if err := l.sink.Claim(ctx, l.fence); err != nil {
		t.Fatalf("claim: %v", err)
	}
	if err := l.sink.Prepare(ctx, l.fence, l.task()); err != nil {
		t.Fatalf("prepare: %v", err)
	}
	return l
}

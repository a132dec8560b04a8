package mysql

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testSource makes a source of a private server.
func testSource(t *testing.T, m *testdb.MariaDB, o SourceOptions) *Source {
	t.Helper()
	cfg, err := ParseDSN(m.DSN("root", ""))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Name = "source test"
	s, err := NewSource(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// testFilter wants what its functions say.
type testFilter struct {
	wants, wantsNew func(change.TableID) bool
	generation      atomic.Uint64
}

func (f *testFilter) Wants(t change.TableID) bool { return f.wants(t) }
func (f *testFilter) WantsNew(t change.TableID) bool {
	return f.wantsNew != nil && f.wantsNew(t)
}
func (f *testFilter) Generation() uint64 { return f.generation.Load() }

// wantSchema wants every table of a schema.
func wantSchema(schema string) *testFilter {
	return &testFilter{wants: func(t change.TableID) bool { return t.Schema == schema }}
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func execSQL(t *testing.T, m *testdb.MariaDB, sql ...string) {
	t.Helper()
	if err := m.Exec(testContext(t), sql...); err != nil {
		t.Fatal(err)
	}
}

func now(t *testing.T, s *Source) change.Position {
	t.Helper()
	p, err := s.Now(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// readTo opens the log at from and returns the groups up to now.
func readTo(t *testing.T, s *Source, from change.Position, f change.Filter) []*change.Group {
	t.Helper()
	ctx := testContext(t)
	to := now(t, s)
	st, err := s.Open(ctx, from, f)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var out []*change.Group
	for last := from; last.Before(to); last = out[len(out)-1].End {
		g, err := st.Next(ctx)
		if err != nil {
			t.Fatalf("after %v, want up to %v: %v", last, to, err)
		}
		if !g.Start.AtOrBefore(g.End) || !last.Before(g.End) {
			t.Errorf("group from %v to %v after one to %v", g.Start, g.End, last)
		}
		out = append(out, g)
	}
	return out
}

// layouts gives each table's present layout.
func layouts(t *testing.T, s *Source, tables ...change.TableID) map[change.TableID]*change.Layout {
	t.Helper()
	ctx := testContext(t)
	c, err := s.connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	out := map[change.TableID]*change.Layout{}
	for _, id := range tables {
		if out[id], err = c.layout(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// show renders the events of groups, one line each, empty groups left out.
func show(t *testing.T, s *Source, groups []*change.Group) string {
	t.Helper()
	ids := map[change.TableID]bool{}
	for _, g := range groups {
		for _, e := range g.Events {
			if e.Rows != nil {
				ids[e.Table] = true
			}
		}
	}
	var list []change.TableID
	for id := range ids {
		list = append(list, id)
	}
	ls := layouts(t, s, list...)
	var b strings.Builder
	for _, g := range groups {
		for _, e := range g.Events {
			showEvent(t, &b, e, ls)
		}
		if len(g.Events) > 0 {
			b.WriteString("end\n")
		}
	}
	return b.String()
}

func showEvent(t *testing.T, b *strings.Builder, e change.Event, ls map[change.TableID]*change.Layout) {
	t.Helper()
	if e.Statement != nil {
		fmt.Fprintf(b, "%s %v", e.Statement.Kind, e.Statement.Tables)
		for _, r := range e.Statement.Renames {
			fmt.Fprintf(b, " %v>%v", r.From, r.To)
		}
		b.WriteString("\n")
		return
	}
	err := e.Rows.Decode(ls[e.Table], new(change.Arena), func(c change.Change) error {
		fmt.Fprintf(b, "%s %s%s%s\n", [...]string{"", "insert", "update", "delete"}[c.Op], e.Table.Name, showRow(c.Before), showRow(c.After))
		return nil
	})
	if err != nil {
		t.Errorf("decode %v: %v", e.Table, err)
	}
}

func showRow(row []change.Value) string {
	if row == nil {
		return ""
	}
	var parts []string
	for _, v := range row {
		parts = append(parts, showValue(v))
	}
	return " (" + strings.Join(parts, ",") + ")"
}

func showValue(v change.Value) string {
	switch v.Kind {
	case change.Absent:
		return "-"
	case change.Null:
		return "NULL"
	case change.Int:
		return fmt.Sprint(int64(v.Num))
	case change.Uint:
		return fmt.Sprint(v.Num)
	case change.Float32:
		return fmt.Sprintf("f32:%x:%v", v.Num, math.Float32frombits(uint32(v.Num)))
	case change.Float64:
		return fmt.Sprintf("f64:%x:%v", v.Num, math.Float64frombits(v.Num))
	case change.Bytes:
		return fmt.Sprintf("x:%x", v.Data)
	case change.Text:
		return fmt.Sprintf("%q", v.Data)
	}
	return fmt.Sprintf("%d:%s", v.Kind, v.Data)
}

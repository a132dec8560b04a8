package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/testdb"
)

func TestCompareDumps(t *testing.T) {
	for _, tc := range []struct {
		name           string
		source, target map[string]string
		want           int
		line           string
	}{
		{"equal", map[string]string{"a.t": "1\n2", "a.e": ""}, map[string]string{"a.t": "1\n2", "a.e": ""}, 0, ""},
		{"missing row", map[string]string{"a.t": "1\n2\n3"}, map[string]string{"a.t": "1\n3"}, 1, "only at the source: 2"},
		{"extra row", map[string]string{"a.t": "1"}, map[string]string{"a.t": "1\n1"}, 1, "only at the target: 1"},
		{"changed row", map[string]string{"a.t": "1\n2"}, map[string]string{"a.t": "1\n3"}, 2, "only at the target: 3"},
		{"missing table", map[string]string{"a.t": "1"}, nil, 2, "the table is missing at the target"},
		{"missing empty table", map[string]string{"a.t": ""}, nil, 1, "the table is missing at the target"},
		{"extra table", nil, map[string]string{"a.t": ""}, 1, "the table is not at the source"},
	} {
		tables, got, lines := compareDumps(tc.source, tc.target)
		if got != tc.want || tables != len(tc.source) {
			t.Errorf("%s: got %d differences in %d tables, want %d in %d", tc.name, got, tables, tc.want, len(tc.source))
		}
		if !strings.Contains(strings.Join(lines, "\n"), tc.line) {
			t.Errorf("%s: got lines %q, want %q among them", tc.name, lines, tc.line)
		}
	}
}

func TestComparisonShowsTheFirstTablesOnly(t *testing.T) {
	source := map[string]string{}
	for i := range 20 {
		source[fmt.Sprintf("a.t%02d", i)] = strings.Repeat("row\n", 50) + "row"
	}
	_, got, lines := compareDumps(source, nil)
	if want := 20 * 52; got != want {
		t.Errorf("got %d differences, want %d", got, want)
	}
	if len(lines) > 30 || !strings.Contains(lines[len(lines)-1], "and 15 more tables") {
		t.Errorf("got %d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

// TestServersAcceptTheTables creates every kind of table and runs every kind of
// statement on it; the same row number always gives the same key.
func TestServersAcceptTheTables(t *testing.T) {
	db := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	ctx := t.Context()
	for _, s := range schemas {
		if err := db.Exec(ctx, "CREATE DATABASE "+s); err != nil {
			t.Fatal(err)
		}
	}
	c, err := connect(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	r := rand.New(rand.NewPCG(1, 2))
	types := map[string]bool{}
	for i := range len(keyKinds) * len(columnSets) {
		tb := newTable(i, fmt.Sprintf("t%d", i))
		for _, col := range append(slices.Clone(tb.key), tb.cols...) {
			types[strings.FieldsFunc(col.decl, func(r rune) bool { return r == ' ' || r == '(' })[0]] = true
		}
		if err := c.exec(ctx, tb.createSQL()); err != nil {
			t.Fatal(err)
		}
		if err := tb.grow(ctx, c, r, 30); err != nil {
			t.Fatal(err)
		}
		moved := tb.fresh()
		for _, sql := range []string{tb.updateSQL(r, 3), tb.updateSQL(r, 4), tb.moveSQL(5, moved), tb.deleteSQL(6)} {
			if err := c.exec(ctx, sql); err != nil && serverCode(err) != codeDuplicate {
				t.Fatal(err)
			}
		}
		rows, err := c.query(ctx, "SELECT COUNT(*) FROM "+tb.String())
		if err != nil || rows[0][0] != "29" {
			t.Errorf("%s: got %v rows, %v, want 29: a key did not select its row\n%s", tb, rows, err, tb.createSQL())
		}
		for n, want := range map[int64]int{3: 1, 5: 0, 6: 0, moved: 1} {
			rows, err := c.query(ctx, "SELECT 1 FROM "+tb.String()+tb.where(n))
			if err != nil || len(rows) != want {
				t.Errorf("%s: row %d: got %d rows, %v, want %d", tb, n, len(rows), err, want)
			}
		}
	}
	for _, want := range strings.Fields("TINYINT SMALLINT MEDIUMINT INT BIGINT DECIMAL DOUBLE FLOAT VARCHAR CHAR TEXT BLOB BINARY VARBINARY ENUM SET DATE DATETIME TIMESTAMP TIME YEAR BIT JSON UUID INET6") {
		if !types[want] {
			t.Errorf("no table has a column of type %s", want)
		}
	}
}

func TestOptionsAreCheckedAtOnce(t *testing.T) {
	o := Options{Tables: -1, Duration: time.Millisecond, Rate: -5}
	err := o.fill()
	if err == nil {
		t.Fatal("got no error")
	}
	zero := Options{Duration: time.Second, Rate: 1}
	if err := zero.Validate(); err == nil || !strings.Contains(err.Error(), "tables 0") {
		t.Errorf("got %v, want tables 0 refused: the caller asked for it", err)
	}
	for _, want := range []string{"tables -1", "duration 1ms", "rate -5", "no program"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in it", err, want)
		}
	}
}

func TestEventsHoldWhatADemoShows(t *testing.T) {
	for _, dur := range []time.Duration{time.Second, 20 * time.Second, 5 * time.Minute} {
		d := &demo{o: Options{Duration: dur}, rnd: rand.New(rand.NewPCG(3, 4))}
		got := d.events()
		if want := 3 + max(1, int(dur/(10*time.Second))); len(got) != want {
			t.Errorf("%v: got %d events, want %d", dur, len(got), want)
		}
		if !slices.IsSortedFunc(got, func(a, b event) int { return int(a.at - b.at) }) || got[0].at < 0 || got[len(got)-1].at > dur {
			t.Errorf("%v: events are out of order or outside of the load", dur)
		}
	}
}

func TestProbeCountsRowsWrittenAfterTheFirstSight(t *testing.T) {
	p := newProbe(nil)
	at := time.Now()
	for id := int64(1); id <= 5; id++ {
		p.mu.committed[id], p.mu.last = at, id
	}
	p.saw(3, at.Add(time.Hour)) // waited for the copy: no lag
	p.mu.committed[6], p.mu.last = at, 6
	p.saw(5, at.Add(time.Hour))
	p.saw(6, at.Add(30*time.Millisecond))
	if got := p.quantile(0.99); got != 30 {
		t.Errorf("got %v ms, want 30", got)
	}
	if got := newProbe(nil).quantile(0.5); got != 0 {
		t.Errorf("without lags: got %v", got)
	}
}

func TestStuck(t *testing.T) {
	count := map[tablesync.State]int{tablesync.Streaming: 8, tablesync.NeedsResync: 2}
	if !stuck(count, 10) {
		t.Error("8 streaming and 2 that need a resync: nothing will change, got false")
	}
	for _, moving := range []tablesync.State{tablesync.Copying, tablesync.Failed, tablesync.Pending, tablesync.CatchingUp} {
		if stuck(map[tablesync.State]int{tablesync.Streaming: 8, tablesync.NeedsResync: 1, moving: 1}, 10) {
			t.Errorf("one is %s: got true", moving)
		}
	}
	if stuck(map[tablesync.State]int{tablesync.Streaming: 10}, 10) || stuck(nil, 10) {
		t.Error("all stream, or nobody answers: got true")
	}
}

func TestChildThatEndsAtOnceIsAnErrorWithItsLog(t *testing.T) {
	c, err := newChild("/bin/ls", "/nonexistent", t.TempDir()+"/log")
	if err != nil {
		t.Fatal(err)
	}
	err = c.start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "ended while it started") || !strings.Contains(err.Error(), "ls:") {
		t.Errorf("got %v, want the end and the log", err)
	}
	if err := c.died(); err == nil {
		t.Error("the end of the process is not seen")
	}
}

func TestWhatBreaksAfterAnInterruptionIsItsConsequence(t *testing.T) {
	killed := errors.New("signal: killed") // as of mariadb-dump
	ctx, interrupt := context.WithCancel(t.Context())
	if got := interrupted(ctx, killed); errors.Is(got, context.Canceled) || !errors.Is(got, killed) {
		t.Errorf("before: got %v, want it as it is", got)
	}
	interrupt()
	if got := interrupted(ctx, killed); !errors.Is(got, context.Canceled) || !errors.Is(got, killed) {
		t.Errorf("afterwards: got %v, want both", got)
	}
	if got := interrupted(ctx, nil); got != nil {
		t.Errorf("without an error: got %v", got)
	}
}

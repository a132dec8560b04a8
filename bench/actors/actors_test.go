package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/bench/actors/workload"
)

// All cases of all peers give a right result and a number for it at a small scale.
func TestAllCases(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.json")
	var out, progress bytes.Buffer
	c := config{scale: .002, rounds: 1, peers: allPeers, workloads: workload.Names(), json: file, limit: time.Minute}
	if err := run(t.Context(), c, &out, &progress); err != nil {
		t.Fatalf("run: %v\n%s", err, progress.String())
	}
	for line := range strings.Lines(progress.String()) {
		// GoAKT 4.2.13 loses an answer now and then (see the design note on these
		// benchmarks); whatever else fails is a fault of this module.
		if strings.Contains(line, "FAILED") && !(strings.Contains(line, "goakt") && strings.Contains(line, "request timed out")) {
			t.Error(line)
		}
	}
	if got, want := strings.Count(progress.String(), "] round 1 "), len(allPeers)*len(workload.Names()); got != want {
		t.Errorf("got %d progress lines, want %d", got, want)
	}
	if got, want := strings.Count(out.String(), "reached")+strings.Count(out.String(), "missed"), len(requirements); got != want {
		t.Errorf("got %d verdicts, want %d:\n%s", got, want, out.String())
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	rs := &results{}
	for i := range rows {
		rs.rows = append(rs.rows, &rows[i])
	}
	for _, q := range requirements {
		for _, p := range allPeers {
			r := rs.find(q.workload, p, q.unit)
			if r == nil && p == "goakt" && q.workload == "ask" {
				continue // the lost answer again
			} else if r == nil {
				t.Errorf("no row for %s, %s, %s", q.workload, p, q.unit)
			} else if r.Value <= 0 && q.unit != "goroutines/actor" {
				t.Errorf("%s, %s: got %g %s", q.workload, p, r.Value, q.unit)
			}
		}
	}
}

func TestFaultsAreReportedAtOnce(t *testing.T) {
	err := run(t.Context(), config{peers: []string{"nobody"}, workloads: []string{"nothing"}}, nil, nil)
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"-scale", "-rounds", "nobody", "nothing"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want it to name %s", err, want)
		}
	}
}

// The best rival is chosen by medians, the ratio is taken round by round.
func TestRatio(t *testing.T) {
	rs := &results{}
	put := func(round int, peer string, v float64) {
		rs.add(round, "spawn", peer, []workload.Sample{{Value: v, Unit: "actors/s"}})
	}
	for round, v := range []float64{10, 20, 40} { // the machine gets faster
		put(round, ours, 3*v)
		put(round, "ergo", v)
		put(round, "goakt", 9)
		put(round, baseline, 1000)
	}
	q := requirement{workload: "spawn", unit: "actors/s", ratio: 2}
	best := rs.best(q, allPeers)
	if want := "ergo"; best != want {
		t.Fatalf("best: got %s, want %s", best, want)
	}
	got, ok := rs.ratio(q, best)
	if want := 3.0; !ok || got != want {
		t.Errorf("ratio: got %g %t, want %g", got, ok, want)
	}
	if verdict, _ := q.judge(60, got, ok); verdict != "reached" {
		t.Errorf("got %s, want reached", verdict)
	}
	if verdict, _ := q.judge(60, 1.9, true); verdict != "missed" {
		t.Errorf("got %s, want missed", verdict)
	}
}

// A round that a peer has failed in is left out of the ratio for both.
func TestRatioOfRoundsThatBothHave(t *testing.T) {
	rs := &results{}
	q := requirement{workload: "latency", unit: "p99 µs", fewer: true, ratio: .5}
	for round, v := range []float64{100, 1, 100} {
		rs.add(round, q.workload, ours, []workload.Sample{{Value: v, Unit: q.unit}})
		if round != 1 {
			rs.add(round, q.workload, "ergo", []workload.Sample{{Value: 200, Unit: q.unit}})
		}
	}
	if got, ok := rs.ratio(q, "ergo"); !ok || got != .5 {
		t.Errorf("got %g %t, want 0.5", got, ok)
	}
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/runnel-dev/runnel/bench/actors/workload"
)

// row is one number of one case.
type row struct {
	Workload string    `json:"workload"`
	Peer     string    `json:"peer"`
	Value    float64   `json:"value"` // median of Rounds
	Unit     string    `json:"unit"`
	Rounds   []float64 `json:"rounds"` // in the order measured

	round []int // which round each of Rounds is of: a case may have failed in one
}

// results are rows in the order in which their first round was measured, and the
// cases that gave none.
type results struct {
	rows     []*row
	failures []string
}

func (rs *results) add(round int, workloadName, peer string, samples []workload.Sample) {
	for _, s := range samples {
		r := rs.find(workloadName, peer, s.Unit)
		if r == nil {
			r = &row{Workload: workloadName, Peer: peer, Unit: s.Unit}
			rs.rows = append(rs.rows, r)
		}
		r.Rounds, r.round = append(r.Rounds, s.Value), append(r.round, round)
		r.Value = median(r.Rounds)
	}
}

// find returns nil if there is no such row.
func (rs *results) find(workloadName, peer, unit string) *row {
	i := slices.IndexFunc(rs.rows, func(r *row) bool {
		return r.Workload == workloadName && r.Peer == peer && r.Unit == unit
	})
	if i < 0 {
		return nil
	}
	return rs.rows[i]
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// units are the units of a workload, in the order of its samples.
func (rs *results) units(workloadName string) []string {
	var units []string
	for _, r := range rs.rows {
		if r.Workload == workloadName && !slices.Contains(units, r.Unit) {
			units = append(units, r.Unit)
		}
	}
	return units
}

// table writes all medians, a line for each number and a column for each peer.
func (rs *results) table(w io.Writer, workloads, peers []string) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintf(t, "| workload\t| unit\t| %s\t|\n", strings.Join(peers, "\t| "))
	fmt.Fprintf(t, "|---\t|---%s\t|\n", strings.Repeat("\t|---", len(peers)))
	for _, name := range workloads {
		for _, unit := range rs.units(name) {
			fmt.Fprintf(t, "| %s\t| %s", name, unit)
			for _, p := range peers {
				cell := "-"
				if r := rs.find(name, p, unit); r != nil {
					cell = short(r.Value)
				}
				fmt.Fprintf(t, "\t| %s", cell)
			}
			fmt.Fprint(t, "\t|\n")
		}
	}
	fmt.Fprintln(t)
	return t.Flush()
}

// requirement is what a number of Runnel must be.
type requirement struct {
	workload, unit string
	fewer          bool    // fewer is better
	ratio          float64 // of Runnel to the best rival: at least, or with fewer at most; 0 means none
	limit          float64 // at most, without regard to rivals, if ratio is 0
	rankBy         string  // unit that names the best rival; "" means unit itself
}

var requirements = []requirement{
	{workload: "memory", unit: "heap B/actor", fewer: true, limit: 300},
	{workload: "memory", unit: "goroutines/actor", fewer: true, limit: .0001},
	{workload: "spawn", unit: "actors/s", ratio: 2},
	{workload: "one-to-one", unit: "messages/s", ratio: 1},
	{workload: "ping-pong", unit: "messages/s", ratio: 2},
	{workload: "four-to-many", unit: "messages/s", ratio: 1.3},
	{workload: "latency", unit: "p99 µs", fewer: true, ratio: .5},
	{workload: "ask", unit: "asks/s", ratio: 1.3},
	{workload: "ask", unit: "p99 µs", fewer: true, ratio: 1, rankBy: "asks/s"},
}

// best returns the name of the rival with the best median, "" if there is none.
func (rs *results) best(q requirement, peers []string) string {
	unit, fewer := q.unit, q.fewer
	if q.rankBy != "" {
		unit, fewer = q.rankBy, false
	}
	name, value := "", 0.0
	for _, p := range peers {
		r := rs.find(q.workload, p, unit)
		if p == ours || p == baseline || r == nil {
			continue
		}
		if name == "" || fewer && r.Value < value || !fewer && r.Value > value {
			name, value = p, r.Value
		}
	}
	return name
}

// ratio is the median over rounds of what Runnel has to what the peer has: what
// else the machine does changes from round to round. Missing rounds do not count.
func (rs *results) ratio(q requirement, peer string) (float64, bool) {
	a, b := rs.find(q.workload, ours, q.unit), rs.find(q.workload, peer, q.unit)
	if a == nil || b == nil {
		return 0, false
	}
	var ratios []float64
	for i, round := range a.round {
		if j := slices.Index(b.round, round); j >= 0 && b.Rounds[j] != 0 {
			ratios = append(ratios, a.Rounds[i]/b.Rounds[j])
		}
	}
	if len(ratios) == 0 {
		return 0, false
	}
	return median(ratios), true
}

// verdicts writes what Runnel must reach and what it has.
func (rs *results) verdicts(w io.Writer, workloads, peers []string) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprint(t, "| workload\t| unit\t| runnel\t| best rival\t| runnel ÷ best\t| required\t| \t| runnel ÷ channel\t|\n")
	fmt.Fprintf(t, "%s|\n", strings.Repeat("|---\t", 8))
	for _, q := range requirements {
		r := rs.find(q.workload, ours, q.unit)
		if r == nil || !slices.Contains(workloads, q.workload) {
			continue
		}
		rival := rs.best(q, peers)
		ratio, compared := rs.ratio(q, rival)
		verdict, required := q.judge(r.Value, ratio, compared)
		against := "-"
		if rival != "" {
			against = rival + " " + short(rs.find(q.workload, rival, q.unit).Value)
		}
		fmt.Fprintf(t, "| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t|\n", q.workload, q.unit, short(r.Value), against,
			times(ratio, compared), required, verdict, times(rs.ratio(q, baseline)))
	}
	if len(rs.failures) > 0 {
		fmt.Fprintf(t, "\nWrong or unfinished, and left out above:\n- %s\n", strings.Join(rs.failures, "\n- "))
	}
	return t.Flush()
}

func (q requirement) judge(value, ratio float64, compared bool) (verdict, required string) {
	met := value <= q.limit
	switch {
	case q.ratio == 0 && q.limit < 1:
		required = "none"
	case q.ratio == 0:
		required = fmt.Sprintf("≤ %g", q.limit)
	case !compared:
		return "", fmt.Sprintf("%g ×", q.ratio)
	case q.fewer:
		met, required = ratio <= q.ratio, fmt.Sprintf("≤ %g ×", q.ratio)
	default:
		met, required = ratio >= q.ratio, fmt.Sprintf("≥ %g ×", q.ratio)
	}
	if met {
		return "reached", required
	}
	return "missed", required
}

func times(ratio float64, ok bool) string {
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.2f", ratio)
}

// short is a number with about three digits.
func short(v float64) string {
	switch {
	case v >= 999_500:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 9_995:
		return fmt.Sprintf("%.0fk", v/1e3)
	case v >= 99.95:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// writeJSON writes all rows.
func (rs *results) writeJSON(file string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	e := json.NewEncoder(f)
	e.SetIndent("", "  ")
	return e.Encode(rs.rows)
}

// Command actors measures the package actor beside other actor runtimes for Go and
// beside a goroutine and a channel for each actor.
//
// Each case (one workload on one runtime) runs in a process of its own, a program
// under peers/. Rounds are interleaved: all runtimes run a workload before any
// runs it again, each round begins with another runtime, and medians are
// reported, so that all of them meet the same machine. Progress goes to standard
// error, the table to standard output.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/runnel-dev/runnel/bench/actors/workload"
)

const (
	ours     = "runnel"
	baseline = "channel" // not a runtime: shown, but no rival
)

var allPeers = []string{ours, "protoactor", "hollywood", "goakt", "ergo", baseline}

type config struct {
	scale     float64
	rounds    int
	peers     []string
	workloads []string
	json      string
	profiles  string
	limit     time.Duration
}

func main() {
	c := config{}
	flag.Float64Var(&c.scale, "scale", 1, "multiplies actors, messages and durations; 1 means a million actors")
	flag.IntVar(&c.rounds, "rounds", 3, "times each case runs")
	peers := flag.String("peers", strings.Join(allPeers, ","), "runtimes to measure")
	workloads := flag.String("workloads", strings.Join(workload.Names(), ","), "workloads to run")
	flag.StringVar(&c.json, "json", "", "also write the medians to this file (relative to the working directory, bench/actors under make)")
	flag.StringVar(&c.profiles, "profiles", "", "write CPU profiles of runnel's last round to this existing folder")
	flag.DurationVar(&c.limit, "limit", 5*time.Minute, "time for one case")
	flag.Parse()
	c.peers, c.workloads = strings.Split(*peers, ","), strings.Split(*workloads, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, c, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "actors:", err)
		os.Exit(1)
	}
}

// validate reports every fault of c.
func (c config) validate() error {
	var errs []error
	if c.scale <= 0 {
		errs = append(errs, fmt.Errorf("-scale %g: must be more than 0", c.scale))
	}
	if c.rounds < 1 {
		errs = append(errs, fmt.Errorf("-rounds %d: must be at least 1", c.rounds))
	}
	for _, p := range c.peers {
		if !slices.Contains(allPeers, p) {
			errs = append(errs, fmt.Errorf("-peers: %q is none of %s", p, strings.Join(allPeers, ",")))
		}
	}
	for _, w := range c.workloads {
		if !slices.Contains(workload.Names(), w) {
			errs = append(errs, fmt.Errorf("-workloads: %q is none of %s", w, strings.Join(workload.Names(), ",")))
		}
	}
	return errors.Join(errs...)
}

// run measures all cases, writes the table to out and the file of c.json. A case
// that fails has no number and is listed; the others still run. Only a failure of
// Runnel is an error.
func run(ctx context.Context, c config, out, progress io.Writer) (err error) {
	if err := c.validate(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "actors-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(progress, "build %d programs\n", len(c.peers))
	if err := build(ctx, dir, c.peers); err != nil {
		return err
	}
	rs, err := measure(ctx, c, dir, progress)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	fmt.Fprintf(out, "%s, %d CPUs, scale %g, medians of %d rounds\n\n", runtime.Version(), runtime.GOMAXPROCS(0), c.scale, c.rounds)
	if err := rs.table(out, c.workloads, c.peers); err != nil {
		return err
	}
	if err := rs.verdicts(out, c.workloads, c.peers); err != nil {
		return err
	}
	if c.json != "" {
		err = errors.Join(err, rs.writeJSON(c.json))
	}
	return err
}

// measure runs all rounds of all cases. The error is of Runnel's cases; the results
// hold what was measured in any event.
func measure(ctx context.Context, c config, dir string, progress io.Writer) (*results, error) {
	rs := &results{}
	var failed error
	n, total := 0, c.rounds*len(c.workloads)*len(c.peers)
	for round := range c.rounds {
		for _, w := range c.workloads {
			for i := range c.peers {
				if ctx.Err() != nil {
					return rs, failed
				}
				p := c.peers[(i+round)%len(c.peers)]
				n++
				start := time.Now()
				k := childCase{peer: p, workload: w, scale: c.scale, limit: c.limit}
				if p == ours && c.profiles != "" && round == c.rounds-1 {
					k.profile = c.profiles + "/" + w + ".pprof"
				}
				samples, err := k.run(ctx, dir)
				status := ""
				if err != nil {
					rs.failures = append(rs.failures, fmt.Sprintf("round %d: %v", round+1, err))
					status = "FAILED: " + err.Error()
					if p == ours {
						failed = errors.Join(failed, err)
					}
				} else {
					rs.add(round, w, p, samples)
					status = samples[0].String()
				}
				fmt.Fprintf(progress, "[%d/%d] round %d  %-12s  %-10s  %s  (%.1f s)\n", n, total, round+1, w, p, status, time.Since(start).Seconds())
			}
		}
	}
	return rs, failed
}

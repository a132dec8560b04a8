package workload

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// runner is a case under way.
type runner[R any] struct {
	ctx   context.Context
	peer  Peer[R]
	scale float64
}

// one is a case by its name.
type one struct {
	name string
	env  Env
}

// cases are all cases, in the order that tables show them.
var cases = []one{
	{name: "memory", env: Env{Crowd: true}},
	{name: "spawn", env: Env{Crowd: true}},
	{name: "one-to-one"},
	{name: "ping-pong"},
	{name: "four-to-many"},
	{name: "latency"},
	{name: "ask"},
	{name: "ask-deadline", env: Env{AskDeadline: true}},
}

// Names are the names of all cases.
func Names() []string {
	var names []string
	for _, c := range cases {
		names = append(names, c.name)
	}
	return names
}

// run runs a case.
func (r *runner[R]) run(name string) ([]Sample, error) {
	switch name {
	case "memory":
		return r.memory()
	case "spawn":
		return r.spawn()
	case "one-to-one":
		return r.oneToOne()
	case "ping-pong":
		return r.pingPong()
	case "four-to-many":
		return r.fourToMany()
	case "latency":
		return r.latency()
	case "ask", "ask-deadline":
		return r.ask()
	}
	return nil, fmt.Errorf("no workload %q: use one of %s", name, strings.Join(Names(), ", "))
}

// scaled is n times the scale, and at least least.
func (r *runner[R]) scaled(n, least int) int { return max(least, int(float64(n)*r.scale)) }

// crowd is how many actors a case has that is about n actors, whatever the scale:
// fewer only if there are few messages.
func (r *runner[R]) crowd(n int) int { return min(n, r.scaled(20*n, n/100)) }

// Main is the whole program of a peer. It does not return.
func Main[R any](open func(ctx context.Context, env Env) (Peer[R], error)) {
	name := flag.String("workload", "", "one of "+strings.Join(Names(), ", "))
	scale := flag.Float64("scale", 1, "multiplies actors, messages and durations")
	limit := flag.Duration("limit", 5*time.Minute, "time for the whole case")
	profile := flag.String("cpuprofile", "", "write a CPU profile of the case to this file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, *limit)
	err := run(ctx, open, *name, *scale, *profile)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0) // the runtime under measurement ends with the process
}

func run[R any](ctx context.Context, open func(context.Context, Env) (Peer[R], error), name string, scale float64, profile string) (err error) {
	i := slices.IndexFunc(cases, func(c one) bool { return c.name == name })
	if i < 0 {
		return fmt.Errorf("no workload %q: use one of %s", name, strings.Join(Names(), ", "))
	}
	if scale <= 0 {
		return fmt.Errorf("scale %g: must be more than 0", scale)
	}
	p, err := open(ctx, cases[i].env)
	if err != nil {
		return fmt.Errorf("start runtime: %w", err)
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return errors.Join(err, f.Close())
		}
		defer func() {
			pprof.StopCPUProfile()
			err = errors.Join(err, f.Close())
		}()
	}
	samples, err := (&runner[R]{ctx, p, scale}).run(name)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(samples)
}

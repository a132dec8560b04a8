package workload

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Sample is one measured number. Unit tells the numbers of a case apart.
type Sample struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// rate runs f, which does n things, and returns how many a second, what each took
// of all CPUs, which other programs on the machine change less, and what it
// allocated for each.
func rate(n int, thing string, f func() error) ([]Sample, error) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, err := cpuTime()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := f(); err != nil {
		return nil, err
	}
	took := time.Since(start)
	cpuAfter, err := cpuTime()
	if err != nil {
		return nil, err
	}
	runtime.ReadMemStats(&after)
	each := float64(n)
	return []Sample{
		{each / took.Seconds(), thing + "s/s"},
		{float64(cpuAfter-cpu) / each, "CPU ns/" + thing},
		{float64(after.Mallocs-before.Mallocs) / each, "allocations/" + thing},
		{float64(after.TotalAlloc-before.TotalAlloc) / each, "allocated B/" + thing},
	}, nil
}

// cpuTime is what this process has used of all CPUs.
func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// percentiles sorts times and returns some of them.
func percentiles(times []time.Duration) []Sample {
	slices.Sort(times)
	at := func(q float64) float64 {
		i := min(len(times)-1, int(q*float64(len(times))))
		return float64(times[i]) / float64(time.Microsecond)
	}
	return []Sample{{at(.5), "p50 µs"}, {at(.99), "p99 µs"}, {at(.999), "p99.9 µs"}, {at(1), "max µs"}}
}

// footprint is the memory of the process in bytes.
type footprint struct {
	heap, stack, rss float64
	goroutines       int
}

// settle collects garbage until neither heap nor goroutines get fewer, since
// runtimes wind down in the background, and returns what is left.
func settle(ctx context.Context) (footprint, error) {
	var last footprint
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for range 40 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		now := footprint{heap: float64(m.HeapAlloc), stack: float64(m.StackInuse), goroutines: runtime.NumGoroutine()}
		if last.heap != 0 && now.heap > last.heap*.999 && now.goroutines >= last.goroutines && now.stack >= last.stack {
			rss, err := residentBytes()
			now.rss = rss
			return now, err
		}
		last = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
	}
	rss, err := residentBytes()
	last.rss = rss
	return last, err
}

// residentBytes is the part of the process that is in memory.
func residentBytes() (float64, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), " ")
	pages, _, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(pages)
	return float64(n * os.Getpagesize()), err
}

// String returns the number with its unit.
func (s Sample) String() string { return fmt.Sprintf("%.5g %s", s.Value, s.Unit) }

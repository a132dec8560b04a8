// Command decode measures how fast the log of a MariaDB server is read and decoded
// when nothing is done with the rows: by Runnel's source and, in the same run, by
// go-mysql's BinlogSyncer.
//
// It starts a private server and writes one backlog of single-row statements in
// transactions of ten rows and one of packed row events. A process of its own
// stands between the readers and the server, records what the server sends for
// each backlog and gives both readers that, so that they read the same bytes and
// the server's work is not measured. They read in turns, on one core, so that both
// meet the same machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/connector/mysql"
	"github.com/runnel-dev/runnel/internal/testdb"
)

type config struct {
	rows       int
	rounds     int
	procs      int
	ratio      float64
	allocs     float64
	cpuProfile string
	serve      string
}

func main() {
	var c config
	flag.IntVar(&c.rows, "rows", 500_000, "rows in each backlog")
	flag.IntVar(&c.rounds, "rounds", 5, "times each reader reads each backlog, in turns")
	flag.IntVar(&c.procs, "procs", 1, "GOMAXPROCS")
	flag.Float64Var(&c.ratio, "ratio", 3, "fail when Runnel does not read this many times the rows a second of go-mysql")
	flag.Float64Var(&c.allocs, "allocs", 1, "fail when Runnel makes more allocations a row")
	flag.StringVar(&c.cpuProfile, "cpuprofile", "", "write a profile of Runnel's rounds to this file")
	flag.StringVar(&c.serve, "serve", "", "be the process between readers and the server at this address")
	flag.Parse()
	if c.serve != "" {
		if err := serve(c.serve); err != nil {
			fmt.Fprintln(os.Stderr, "decode: recorder:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "decode:", err)
		stop()
		os.Exit(1)
	}
}

// reader reads a backlog and returns the number of its rows and the sum of their
// ids, which proves that both readers read the same. Taking leave of the server,
// which close does, is not measured.
type reader struct {
	name string
	read func(ctx context.Context, b *backlog) (rows, sum uint64, close func(), err error)
}

func run(ctx context.Context, c config) (err error) {
	runtime.GOMAXPROCS(c.procs)
	db, err := testdb.StartMariaDB(ctx, testdb.MariaDBOptions{ExtraArgs: []string{
		"--max-binlog-size=1G", "--binlog-row-event-max-size=65536", // the server shall not be what is measured
		"--innodb-buffer-pool-size=256M", "--innodb-log-file-size=256M"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Stop()) }()
	rec, err := startRecorder(ctx, db.Addr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rec.stop()) }()
	cfg, err := mysql.ParseDSN("mysql://root@" + rec.addr + "/")
	if err != nil {
		return err
	}
	_, portText, _ := net.SplitHostPort(rec.addr)
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return fmt.Errorf("read address of recorder: %w", err)
	}
	src, err := mysql.NewSource(cfg, mysql.SourceOptions{})
	if err != nil {
		return err
	}
	defer src.Close()
	backlogs, err := write(ctx, db, src, rec, c.rows)
	if err != nil {
		return err
	}
	ours := reader{"runnel", func(ctx context.Context, b *backlog) (uint64, uint64, func(), error) {
		return readRunnel(ctx, src, b, b.name)
	}}
	theirs := reader{"go-mysql", func(ctx context.Context, b *backlog) (uint64, uint64, func(), error) {
		return readGoMySQL(ctx, uint16(port), b)
	}}
	// What the recorder can send: nobody wants its rows, they are skipped by header.
	skips := reader{"(skipped)", func(ctx context.Context, b *backlog) (uint64, uint64, func(), error) {
		_, _, close, err := readRunnel(ctx, src, b, "")
		return b.rows, b.sum, close, err
	}}
	var failures []error
	for i := range backlogs {
		b := &backlogs[i]
		v, err := compare(ctx, c, b, ours, theirs, skips)
		if err != nil {
			return err
		}
		fmt.Printf("%-8s runnel reads %.2f times the rows a second of go-mysql, with 1/%.2f of the CPU a row\n\n", b.name, v.rate, v.cpu)
		if v.rate < c.ratio {
			failures = append(failures, fmt.Errorf("%s: %.2f times the rows a second of go-mysql, want %.1f", b.name, v.rate, c.ratio))
		}
		if v.allocs > c.allocs {
			failures = append(failures, fmt.Errorf("%s: %.2f allocations a row, want at most %.1f", b.name, v.allocs, c.allocs))
		}
	}
	return errors.Join(failures...)
}

// verdict compares Runnel with go-mysql: medians of the ratios of each round, since
// what else the machine does changes from round to round.
type verdict struct {
	rate, cpu float64 // how many times better
	allocs    float64 // of Runnel, a row
}

// compare lets the readers read a backlog in turns.
func compare(ctx context.Context, c config, b *backlog, ours, theirs, skips reader) (verdict, error) {
	readers := []reader{ours, theirs, skips}
	samples := make([][]result, len(readers))
	var rates, cpus []float64
	for round := range c.rounds {
		for i, r := range readers {
			profile := ""
			if i == 0 && round == c.rounds-1 && c.cpuProfile != "" {
				profile = c.cpuProfile + "." + b.name
			}
			s, err := measure(ctx, r, b, profile)
			if err != nil {
				return verdict{}, fmt.Errorf("%s reads %s: %w", r.name, b.name, err)
			}
			samples[i] = append(samples[i], s)
		}
		a, o := samples[0][round], samples[1][round]
		rates, cpus = append(rates, a.rate/o.rate), append(cpus, o.cpu/a.cpu)
	}
	for i, r := range readers {
		fmt.Printf("%-8s %-9s %9.0f rows/s  %6.2f allocations/row  %5.2f µs CPU/row  (medians of %d rounds, %d rows, GOMAXPROCS=%d)\n",
			b.name, r.name, medianOf(samples[i], func(s result) float64 { return s.rate }), medianOf(samples[i], func(s result) float64 { return s.allocs }),
			medianOf(samples[i], func(s result) float64 { return s.cpu }), c.rounds, b.rows, c.procs)
	}
	return verdict{median(rates), median(cpus), medianOf(samples[0], func(s result) float64 { return s.allocs })}, nil
}

// result is one round of one reader.
type result struct{ rate, allocs, cpu float64 }

func medianOf(s []result, field func(result) float64) float64 {
	var out []float64
	for _, r := range s {
		out = append(out, field(r))
	}
	return median(out)
}

func median(s []float64) float64 {
	s = slices.Sorted(slices.Values(s))
	return s[len(s)/2]
}

func measure(ctx context.Context, r reader, b *backlog, profile string) (res result, err error) {
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return result{}, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return result{}, err
		}
		defer pprof.StopCPUProfile()
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := cpuTime(), time.Now()
	rows, sum, close, err := r.read(ctx, b)
	took, used := time.Since(start), cpuTime()-cpu
	runtime.ReadMemStats(&after)
	close()
	switch {
	case err != nil:
		return result{}, err
	case rows != b.rows || sum != b.sum:
		return result{}, fmt.Errorf("got %d rows with ids that sum up to %d, want %d and %d", rows, sum, b.rows, b.sum)
	}
	n := float64(rows)
	return result{rate: n / took.Seconds(), allocs: float64(after.Mallocs-before.Mallocs) / n, cpu: float64(used.Microseconds()) / n}, nil
}

// backlog is a stretch of the log.
type backlog struct {
	name      string
	rows, sum uint64
	from, to  change.Position
	layout    *change.Layout
}

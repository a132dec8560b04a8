// Command testreport runs `go test` and shows what a person wants to see of it:
// a line per package, the whole output of what failed, and the counts of tests in
// a last line "N passed, N failed, N skipped".
//
//	go run ./scripts/testreport [-limit 20m] [-counts FILE] -- [go test arguments]
//
// A test with subtests is not counted, its subtests are, unless it failed on its
// own. A package that fails without a failed test (it does not build, or its
// process ends early) counts as one failure. The exit status is 1 when anything
// failed. When the limit is over, the tests are made to print their goroutines
// and end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// graceLimit is how long tests may take to end once they were told to.
const graceLimit = 30 * time.Second

func main() {
	limit := flag.Duration("limit", 0, "longest run; 0 is no limit")
	counts := flag.String("counts", "", "file that receives the last line too")
	flag.Parse()
	// detached: the program's own life, ended by a signal.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, *limit, fmt.Errorf("limit of %v is over", *limit))
		defer cancel()
	}
	ok, err := run(ctx, flag.Args(), *counts)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1)
	}
}

// run runs the tests and reports; ok says whether all is well.
func run(ctx context.Context, args []string, countsFile string) (ok bool, err error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = graceLimit
	endGroup(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, fmt.Errorf("connect to go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("start go test: %w", err)
	}
	r := newReport(os.Stdout)
	readErr := r.read(out)
	waitErr := cmd.Wait()
	r.finish(waitErr == nil)
	if ctx.Err() != nil {
		readErr = errors.Join(readErr, fmt.Errorf("tests were ended: %w", context.Cause(ctx)))
	}
	fmt.Println(r.counts())
	if countsFile != "" {
		if err := os.WriteFile(countsFile, []byte(r.counts()+"\n"), 0o644); err != nil {
			readErr = errors.Join(readErr, fmt.Errorf("write counts: %w", err))
		}
	}
	var exit *exec.ExitError
	if waitErr != nil && !errors.As(waitErr, &exit) {
		readErr = errors.Join(readErr, fmt.Errorf("run go test: %w", waitErr))
	}
	return waitErr == nil && r.failed == 0, readErr
}

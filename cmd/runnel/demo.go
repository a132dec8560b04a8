package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/runnel-dev/runnel/internal/demo"
)

func (a *app) demoCmd() *cobra.Command {
	var o demo.Options
	var asJSON, keep bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "Sync two private servers under load, kill the process in the middle, compare",
		Long: `Starts a private source and a private target MariaDB server, makes tables of
varied types, starts a syncing process and puts a write load on the source. In the
middle it kills the process with SIGKILL and starts it again, pauses and resumes a
table, and creates a new one. In the end it compares every table of both servers
by mariadb-dump. The exit code is 1 when there is any difference.

It needs the MariaDB server programs (apt-get install -y mariadb-server); servers
that run on this machine are not touched.`,
		Example: `  runnel demo
  runnel demo --tables 50 --duration 10s --json
  runnel demo --keep                 leave everything running and look at it`,
		Args: cobra.NoArgs,
	}
	fl := c.Flags()
	fl.IntVar(&o.Tables, "tables", 200, "tables to make at the start")
	fl.DurationVar(&o.Duration, "duration", 20*time.Second, "how long to write")
	fl.IntVar(&o.Rate, "rate", 2000, "row changes a second to write")
	fl.BoolVar(&asJSON, "json", false, "print the summary as one JSON object on the last line")
	fl.BoolVar(&keep, "keep", false, "leave everything running until Ctrl-C")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.Validate(); err != nil {
			return &usageError{err}
		}
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		o.Command, o.Progress = exe, a.err
		if keep {
			o.Keep = func(ctx context.Context, u demo.URLs, r demo.Result) error {
				a.tellKept(u)
				err := a.printDemo(r, asJSON)
				<-ctx.Done()
				return err
			}
		}
		res, err := demo.Run(cmd.Context(), o)
		if err != nil || keep {
			return err
		}
		return a.printDemo(res, asJSON)
	}
	return c
}

// tellKept tells where to look. The summary follows: its last line is for
// programs, which may read both outputs as one.
func (a *app) tellKept(u demo.URLs) {
	fmt.Fprintf(a.err, `
Everything is still running:
  overview  %s
  metrics   %smetrics
  tasks     RUNNEL_SERVER=%s runnel task list
  source    mysql://root@%s/
  target    mysql://root@%s/
Press Ctrl-C to end.

`, u.Overview, u.Overview, strings.TrimSuffix(strings.TrimPrefix(u.Overview, "http://"), "/"), u.Source, u.Target) // for people who watch
}

func (a *app) printDemo(r demo.Result, asJSON bool) error {
	for _, l := range r.Late {
		a.complain("did not catch up: %s\n", l)
	}
	for _, l := range r.Lines {
		a.complain("%s\n", l)
	}
	err := fields(a.out,
		"tables", count(r.Tables),
		"written", fmt.Sprintf("%d statements in %d commits, %d rollbacks, %d rollbacks to a savepoint, %d deletes, %d key changes",
			r.Load.Rows, r.Load.Commits, r.Load.Rollbacks, r.Load.Savepoints, r.Load.Deletes, r.Load.KeyChanges),
		"rows copied", count(r.RowsCopied),
		"changes applied", count(r.ChangesApplied),
		"rows/s", fmt.Sprintf("%.0f", r.RowsPerSecond),
		"lag p50", fmt.Sprintf("%.1f ms", r.LagP50),
		"lag p99", fmt.Sprintf("%.1f ms, restarts after a kill included", r.LagP99),
		"kills", count(r.Kills),
		"differences", count(r.Differences))
	if err != nil {
		return err
	}
	if asJSON {
		if err := json.NewEncoder(a.out).Encode(r); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	if r.Differences > 0 || len(r.Late) > 0 {
		return errFound
	}
	return nil
}

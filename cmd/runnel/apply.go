package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runnel-dev/runnel"
	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/tablesync"
)

func (a *app) applyCmd() *cobra.Command {
	var paths []string
	var o tablesync.ApplyOptions
	c := &cobra.Command{
		Use:   "apply -f FILE|FOLDER",
		Short: "Make sources, targets and pipelines as declared in YAML",
		Long: `Reads definitions from a YAML file, from every .yaml and .yml file of a folder, or
from standard input (-), and makes them true: what is new is created, what differs
is changed. Servers are checked before anything is stored. A dry run looks at the
tables of the targets too; its exit code is 1 when it finds a problem.`,
		Example: `  runnel apply -f pipelines/
  runnel apply -f pipelines/ --dry-run
  runnel apply -f pipelines/ --prune     also remove what the folder does not name
  runnel apply -f - < pipeline.yaml`,
		Args: cobra.NoArgs,
	}
	sf, out := a.addServerFlags(c), addOutputFlag(c)
	c.Flags().StringArrayVarP(&paths, "file", "f", nil, "file or folder with definitions, - for standard input; may be given again")
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "tell what would change, check servers and tables, and change nothing")
	c.Flags().BoolVar(&o.Prune, "prune", false, "remove definitions that are not named, and their tasks")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(paths) == 0 {
			return usagef("name a file or folder with -f")
		}
		d, err := a.readDefinitions(paths)
		if err != nil {
			return err
		}
		client, err := sf.client()
		if err != nil {
			return err
		}
		defer client.Close()
		diff, err := client.Apply(cmd.Context(), d, o)
		if err != nil {
			return err
		}
		if *out == outputJSON {
			err = printJSON(a.out, diff)
		} else {
			err = a.printDifferences(diff, o.DryRun)
		}
		if err != nil || !o.DryRun {
			return err
		}
		problems, err := client.Check(cmd.Context(), d)
		if err != nil {
			return err
		}
		return a.printCheck(problems, *out)
	}
	return c
}

// printCheck tells what a dry run found out about servers and tables. Problems go
// to standard error, so that the differences can be read by programs.
func (a *app) printCheck(problems []*change.Problem, out outputFlag) error {
	a.tellProblems(problems)
	text := "servers and tables were checked by the process: no problem found\n"
	if n := len(problems); n > 0 {
		text = fmt.Sprintf("servers and tables were checked by the process: %d to mend\n", n)
	}
	if out != outputJSON {
		if _, err := a.writeClean(text); err != nil {
			return err
		}
	}
	if len(problems) > 0 {
		return errFound
	}
	return nil
}

// readDefinitions reads all paths and reports the faults of all.
func (a *app) readDefinitions(paths []string) (runnel.Definitions, error) {
	var d runnel.Definitions
	var errs []error
	for _, p := range paths {
		if p == "-" {
			errs = append(errs, runnel.ReadDefinitions(&d, "standard input", a.in))
			continue
		}
		more, err := runnel.LoadDefinitions(p)
		errs = append(errs, err)
		d.Sources = append(d.Sources, more.Sources...)
		d.Targets = append(d.Targets, more.Targets...)
		d.Pipelines = append(d.Pipelines, more.Pipelines...)
	}
	if err := errors.Join(errs...); err != nil {
		return d, err
	}
	return d, notEmpty(strings.Join(paths, ", "), d)
}

// notEmpty refuses files that say nothing, which nobody means.
func notEmpty(where string, d runnel.Definitions) error {
	if len(d.Sources)+len(d.Targets)+len(d.Pipelines) > 0 {
		return nil
	}
	return fmt.Errorf("%s: there is no definition to read; a document needs a kind: source, target or pipeline", where)
}

func (a *app) printDifferences(diff []tablesync.Difference, dry bool) error {
	changed := 0
	t := newTable(a.out, "ACTION", "KIND", "NAME", "DETAIL")
	for _, d := range diff {
		if d.Action != "unchanged" {
			changed++
		}
		t.row(d.Action, d.Kind, d.Name, d.Detail)
	}
	if err := t.flush(); err != nil {
		return err
	}
	end := "changed"
	if dry {
		end = "to change; nothing was changed"
	}
	_, err := io.WriteString(a.out, fmt.Sprintf("%d of %d %s\n", changed, len(diff), end))
	return err
}

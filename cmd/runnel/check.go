package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runnel-dev/runnel"
	"github.com/runnel-dev/runnel/internal/tablesync"
)

func (a *app) checkCmd() *cobra.Command {
	var as, passwordFile string
	c := &cobra.Command{
		Use:   "check ADDRESS|FILE|FOLDER…",
		Short: "Find out whether servers and definitions are fit, and what to mend",
		Long: `Checks the server at an address, the definitions in a file or folder with every
server and table they name, or a configuration file of the process. Connects by
itself; no process needs to run, nothing is written. Every problem is printed with
its remedy, and the exit code is 1 when there is any.

The password of an address is better given with --password-file or in
RUNNEL_PASSWORD than on the command line, where other users of the machine see it.`,
		Example: `  runnel check mysql://runnel@db1:3306/ --password-file /run/secrets/db1
  RUNNEL_PASSWORD=… runnel check mysql://runnel@db2:3306/ --as target
  runnel check pipelines/
  runnel check /etc/runnel.yaml`,
		Args: cobra.MinimumNArgs(1),
	}
	out := addOutputFlag(c)
	c.Flags().StringVar(&as, "as", tablesync.KindSource, "what an address is to be: source or target")
	completeWords(c, "as", []string{tablesync.KindSource, tablesync.KindTarget})
	c.Flags().StringVar(&passwordFile, "password-file", "", "file with the password for an address without one")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if as != tablesync.KindSource && as != tablesync.KindTarget {
			return usagef("--as %q: want source or target", as)
		}
		password, err := a.password(passwordFile)
		if err != nil {
			return err
		}
		var all []runnel.Verdict
		for _, arg := range args {
			v, err := check(cmd.Context(), arg, as, password)
			if err != nil {
				return err
			}
			all = append(all, v...)
		}
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		return a.printVerdicts(all, *out)
	}
	return c
}

// password is the one for addresses that hold none.
func (a *app) password(file string) (string, error) {
	if file == "" {
		p := a.getenv("RUNNEL_PASSWORD")
		a.hide(p)
		return p, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	p := strings.TrimRight(string(b), "\r\n")
	if p == "" {
		return "", fmt.Errorf("read password: %s is empty; write the password to it, or leave --password-file out", file)
	}
	a.hide(p)
	return p, nil
}

// check finds out what an argument is.
func check(ctx context.Context, arg, as, password string) ([]runnel.Verdict, error) {
	if strings.Contains(arg, "://") {
		v, err := runnel.CheckAddress(ctx, as, arg, password)
		if err != nil {
			return nil, &usageError{err}
		}
		return []runnel.Verdict{v}, nil
	}
	if _, err := os.Stat(arg); errors.Is(err, os.ErrNotExist) {
		return nil, usagef("%q is neither an address such as mysql://user@host:3306/ nor a file or folder", arg)
	}
	if runnel.IsConfigFile(arg) {
		v, err := runnel.CheckConfig(arg)
		return []runnel.Verdict{v}, err
	}
	d, err := runnel.LoadDefinitions(arg)
	if err == nil {
		err = notEmpty(arg, d)
	}
	if err != nil {
		return nil, err
	}
	return runnel.CheckDefinitions(ctx, d), nil
}

func (a *app) printVerdicts(all []runnel.Verdict, out outputFlag) error {
	problems := 0
	for i := range all {
		problems += len(all[i].Problems)
	}
	if out == outputJSON {
		if err := printJSON(a.out, all); err != nil {
			return err
		}
	} else if _, err := a.writeClean(verdictText(all, problems)); err != nil {
		return err
	}
	if problems > 0 {
		return errFound
	}
	return nil
}

func verdictText(all []runnel.Verdict, problems int) string {
	var b strings.Builder
	for _, v := range all {
		mark := "ok  "
		if len(v.Problems) > 0 {
			mark = "FAIL"
		}
		fmt.Fprintf(&b, "%s  %s\n", mark, oneLine(v.Subject))
		for _, line := range v.Verified {
			fmt.Fprintf(&b, "      %s\n", oneLine(line))
		}
		for _, p := range v.Problems {
			fmt.Fprintf(&b, "      %s: %s: %s\n", p.Code, oneLine(p.Subject), oneLine(p.Cause))
			if p.Remedy != "" {
				fmt.Fprintf(&b, "        remedy: %s\n", oneLine(p.Remedy))
			}
		}
		for _, p := range v.Notes {
			fmt.Fprintf(&b, "      note: %s: %s; %s\n", oneLine(p.Subject), oneLine(p.Cause), oneLine(p.Remedy))
		}
	}
	switch problems {
	case 0:
		b.WriteString("no problem found\n")
	case 1:
		b.WriteString("1 problem found\n")
	default:
		fmt.Fprintf(&b, "%d problems found\n", problems)
	}
	return b.String()
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/runnel-dev/runnel"
)

func (a *app) versionCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Example: "  runnel version\n  runnel version --output json",
	}
	out := addOutputFlag(c)
	c.RunE = func(*cobra.Command, []string) error {
		v := runnel.BuildVersion()
		if *out == outputJSON {
			return printJSON(a.out, v)
		}
		commit := ""
		if v.Commit != "" {
			commit = " (" + v.Commit + ")"
		}
		_, err := fmt.Fprintf(a.out, "runnel %s%s %s\n", v.Version, commit, v.Go)
		return err
	}
	return c
}

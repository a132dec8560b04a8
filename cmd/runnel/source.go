package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/web"
)

// kindCmd makes the list and get commands of one kind of definition.
func kindCmd[V any](a *app, kind, short string, list func(context.Context, *web.Client) ([]V, error),
	get func(context.Context, *web.Client, string) (V, error), header []string, row func(V) []string, show func(V) error,
) *cobra.Command {
	ls := &cobra.Command{
		Use: "list", Short: "List all " + kind + "s", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Example: fmt.Sprintf("  runnel %s list\n  runnel %s list --output json", kind, kind),
	}
	lsServer, lsOut := a.addServerFlags(ls), addOutputFlag(ls)
	ls.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := lsServer.client()
		if err != nil {
			return err
		}
		defer c.Close()
		all, err := list(cmd.Context(), c)
		if err != nil {
			return err
		}
		if *lsOut == outputJSON {
			return printJSON(a.out, all)
		}
		t := newTable(a.out, header...)
		for _, v := range all {
			t.row(row(v)...)
		}
		return t.flush()
	}
	one := &cobra.Command{
		Use: "get NAME", Short: "Show one " + kind, Args: cobra.ExactArgs(1),
		Example: fmt.Sprintf("  runnel %s get NAME\n  runnel %s get NAME --output json", kind, kind),
	}
	oneServer, oneOut := a.addServerFlags(one), addOutputFlag(one)
	one.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := oneServer.client()
		if err != nil {
			return err
		}
		defer c.Close()
		v, err := get(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		if *oneOut == outputJSON {
			return printJSON(a.out, v)
		}
		return show(v)
	}
	return group(kind, short, []string{kind + "s"}, ls, one)
}

func (a *app) sourceCmd() *cobra.Command {
	return kindCmd(a, "source", "Show the servers that tables come from",
		func(ctx context.Context, c *web.Client) ([]tablesync.SourceView, error) { return c.Sources(ctx) },
		func(ctx context.Context, c *web.Client, n string) (tablesync.SourceView, error) {
			return c.Source(ctx, n)
		},
		[]string{"SOURCE", "STATE", "TABLES", "LAG", "READ", "FRONTIER", "ADDRESS", "REASON"},
		func(v tablesync.SourceView) []string {
			return []string{v.Name, v.State, count(v.Tasks), seconds(v.LagSeconds), v.Read, v.Frontier, v.Address, v.Reason}
		},
		func(v tablesync.SourceView) error {
			return fields(a.out, append(serverFields(v.ServerSpec),
				"state", v.State, "reason", v.Reason, "remedy", v.Remedy, "tables", count(v.Tasks),
				"read", v.Read, "frontier", v.Frontier, "lag", seconds(v.LagSeconds), "groups", count(v.Groups),
				"queued bytes", count(v.QueuedBytes), "tables catching up", yes(v.Sweeping))...)
		})
}

// serverFields are what sources and targets have in common.
func serverFields(s tablesync.ServerSpec) []string {
	password := ""
	switch {
	case s.PasswordFile != "":
		password = "in file " + s.PasswordFile
	case s.PasswordEnv != "":
		password = "in environment variable " + s.PasswordEnv
	}
	return []string{
		"name", s.Name, "type", s.Type, "address", s.Address, "user", s.User, "password", password,
		"tls", s.TLS.Mode, "labels", labelText(s.Labels),
	}
}

func labelText(labels map[string]string) string {
	var out []string
	for _, k := range sortedKeys(labels) {
		out = append(out, k+"="+labels[k])
	}
	return strings.Join(out, " ")
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

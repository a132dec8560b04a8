package main

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/web"
)

func (a *app) targetCmd() *cobra.Command {
	return kindCmd(a, "target", "Show the servers that tables go to",
		func(ctx context.Context, c *web.Client) ([]tablesync.TargetView, error) { return c.Targets(ctx) },
		func(ctx context.Context, c *web.Client, n string) (tablesync.TargetView, error) {
			return c.Target(ctx, n)
		},
		[]string{"TARGET", "STATE", "TABLES", "ADDRESS", "REASON"},
		func(v tablesync.TargetView) []string {
			return []string{v.Name, v.State, count(v.Tasks), v.Address, v.Reason}
		},
		func(v tablesync.TargetView) error {
			return fields(a.out, append(serverFields(v.ServerSpec),
				"schema", v.Schema, "state", v.State, "reason", v.Reason, "tables", count(v.Tasks))...)
		})
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/web"
)

func (a *app) pipelineCmd() *cobra.Command {
	return kindCmd(a, "pipeline", "Show what is synced from where to where",
		func(ctx context.Context, c *web.Client) ([]tablesync.PipelineView, error) { return c.Pipelines(ctx) },
		func(ctx context.Context, c *web.Client, n string) (tablesync.PipelineView, error) {
			return c.Pipeline(ctx, n)
		},
		[]string{"PIPELINE", "SOURCE", "TARGET", "INCLUDE", "EXCLUDE", "TABLES", "REFUSED"},
		func(v tablesync.PipelineView) []string {
			return []string{v.Name, v.Source, v.Target, strings.Join(v.Tables.Include, ","), strings.Join(v.Tables.Exclude, ","), count(v.Tasks), count(len(v.Refused))}
		},
		a.showPipeline)
}

func (a *app) showPipeline(v tablesync.PipelineView) error {
	var states []string
	for _, s := range tablesync.States {
		if n := v.Count[s]; n > 0 {
			states = append(states, fmt.Sprintf("%s %d", s, n))
		}
	}
	route := ""
	if v.Route != (tablesync.RouteSpec{}) {
		route = v.TargetOf(tableNamed("{schema}", "{table}")).String()
	}
	err := fields(a.out, "name", v.Name, "source", v.Source, "target", v.Target,
		"include", strings.Join(v.Tables.Include, " "), "exclude", strings.Join(v.Tables.Exclude, " "),
		"route", route, "ddl", v.DDL, "labels", labelText(v.Labels), "tables", count(v.Tasks), "states", strings.Join(states, ", "))
	if err != nil || len(v.Refused) == 0 {
		return err
	}
	fmt.Fprintf(a.out, "\n%d matching tables have no task:\n", len(v.Refused)) // the error comes back from the table
	t := newTable(a.out, "TABLE", "CODE", "CAUSE", "REMEDY")
	for _, p := range v.Refused {
		t.row(p.Subject, p.Code, p.Cause, p.Remedy)
	}
	return t.flush()
}

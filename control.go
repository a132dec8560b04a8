package runnel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/connector/mysql"
	"github.com/runnel-dev/runnel/internal/tablesync"
)

// control is the engine as the API serves it. It knows more of the servers than
// the engine does: why a named table is not in a catalog, and what stands in the
// way at the target.
type control struct{ *tablesync.Engine }

const noSuchTable = "no-such-table"

func isMissing(p *change.Problem) bool { return p.Code == noSuchTable }

// Check implements web.Definer.
func (c control) Check(ctx context.Context, d Definitions) []*change.Problem {
	out := c.Engine.Check(ctx, d)
	if slices.ContainsFunc(out, func(p *change.Problem) bool { return !isMissing(p) }) {
		return c.explained(ctx, d, out) // while servers are not fit there is little to see at the target
	}
	tables, err := c.checkTables(ctx, d, true)
	if err != nil {
		return append(out, &change.Problem{
			Code: "check-failed", Subject: "tables", Cause: err.Error(), Remedy: "mend what the message names and check again",
		})
	}
	return tables
}

// Apply implements web.Definer.
func (c control) Apply(ctx context.Context, d Definitions, o tablesync.ApplyOptions) ([]tablesync.Difference, error) {
	diff, err := c.Engine.Apply(ctx, d, o)
	var problems []*change.Problem
	for _, e := range joined(err) {
		var p *change.Problem
		if !errors.As(e, &p) {
			return diff, err
		}
		problems = append(problems, p)
	}
	if !slices.ContainsFunc(problems, isMissing) {
		return diff, err
	}
	var refused []error
	for _, p := range c.explained(ctx, d, problems) {
		refused = append(refused, p)
	}
	return diff, errors.Join(refused...)
}

// explained says of tables that are not in a catalog why they are not.
func (c control) explained(ctx context.Context, d Definitions, problems []*change.Problem) []*change.Problem {
	if !slices.ContainsFunc(problems, isMissing) {
		return problems
	}
	why, err := c.checkTables(ctx, d, false)
	if err != nil || len(why) == 0 {
		return problems // the first finding stands
	}
	return append(slices.DeleteFunc(slices.Clone(problems), isMissing), why...)
}

// checkTables looks for the tables that pipelines name, and with targets at those
// that they would write.
func (c control) checkTables(ctx context.Context, d Definitions, targets bool) (out []*change.Problem, err error) {
	for i := range d.Pipelines {
		p := &d.Pipelines[i]
		source, target, err := c.serversOf(d, p)
		if err != nil {
			return nil, err
		}
		found, err := lookUp(ctx, source, p)
		if err != nil {
			return nil, fmt.Errorf("look for tables of pipeline %s: %w", p.Name, err)
		}
		out = append(out, found.missing...)
		if !targets {
			continue
		}
		fit := slices.DeleteFunc(found.tables, func(t change.TableInfo) bool { return t.Problem != nil })
		problems, err := targetProblems(ctx, p, target, fit)
		if err != nil {
			return nil, fmt.Errorf("look at target tables of pipeline %s: %w", p.Name, err)
		}
		out = append(out, problems...)
	}
	return out, nil
}

// serversOf finds a pipeline's servers among the documents, or among what runs.
func (c control) serversOf(d Definitions, p *tablesync.PipelineSpec) (source mysql.Config, to target, err error) {
	sources, targets := slices.Clone(d.Sources), slices.Clone(d.Targets)
	for _, v := range c.Sources() {
		sources = append(sources, v.ServerSpec)
	}
	for _, v := range c.Targets() {
		targets = append(targets, v.ServerSpec)
	}
	named := func(kind, name string, all []tablesync.ServerSpec) (tablesync.ServerSpec, mysql.Config, error) {
		i := slices.IndexFunc(all, func(s tablesync.ServerSpec) bool { return s.Name == name })
		if i < 0 {
			return tablesync.ServerSpec{}, mysql.Config{}, fmt.Errorf("%s %s of pipeline %s is not declared", kind, name, p.Name)
		}
		cfg, err := mysqlConfig(kind, &all[i])
		return all[i], cfg, err
	}
	if _, source, err = named(tablesync.KindSource, p.Source, sources); err != nil {
		return source, to, err
	}
	spec, cfg, err := named(tablesync.KindTarget, p.Target, targets)
	return source, target{cfg, mysql.SinkOptions{Schema: spec.Schema}}, err
}

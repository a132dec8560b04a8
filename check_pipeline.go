package runnel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/connector/mysql"
	"github.com/runnel-dev/runnel/internal/tablesync"
)

// tableLimit is added to checkLimit for each table that is looked at.
const tableLimit = 50 * time.Millisecond

// target is a target server that can be connected to.
type target struct {
	cfg mysql.Config
	o   mysql.SinkOptions
}

// servers are those that were found fit, by name.
type servers struct {
	sources map[string]mysql.Config
	targets map[string]target
}

// targetTable is one table at one target.
type targetTable struct {
	target string
	table  change.TableID
}

func declaredNames(d Definitions) map[string]bool {
	names := make(map[string]bool)
	for _, s := range d.Sources {
		names[tablesync.KindSource+" "+s.Name] = true
	}
	for _, s := range d.Targets {
		names[tablesync.KindTarget+" "+s.Name] = true
	}
	return names
}

// checkPipeline looks up the tables that match. taken tells which pipeline writes
// a target table, over all pipelines.
func checkPipeline(ctx context.Context, p *tablesync.PipelineSpec, declared map[string]bool, fit servers, taken map[targetTable]string) Verdict {
	v := Verdict{Subject: tablesync.KindPipeline + " " + p.Name}
	for _, ref := range []string{tablesync.KindSource + " " + p.Source, tablesync.KindTarget + " " + p.Target} {
		if !declared[ref] {
			v.Problems = append(v.Problems, &change.Problem{
				Code: "not-declared", Subject: v.Subject, Cause: ref + " is not declared here, so it cannot be checked",
				Remedy: "check it together with the file that declares it: runnel check FOLDER",
			})
		}
	}
	cfg, isFit := fit.sources[p.Source]
	if len(v.Problems) > 0 {
		return v
	}
	if !isFit {
		v.fail(&change.Problem{
			Code: "source-not-fit", Subject: v.Subject, Cause: "its tables cannot be looked up while source " + p.Source + " has problems",
			Remedy: "mend the source first",
		})
		return v
	}
	found, err := lookUp(ctx, cfg, p)
	if err != nil {
		v.fail(err)
		return v
	}
	v.Notes = found.notes
	tables := v.placeTables(p, found.tables, taken)
	v.Problems = append(v.Problems, found.missing...)
	v.Verified = []string{fmt.Sprintf("%d tables of source %s match", len(found.tables), p.Source)}
	if t, ok := fit.targets[p.Target]; !ok {
		v.Notes = append(v.Notes, &change.Problem{
			Code: "target-not-fit", Subject: v.Subject, Cause: "its target tables cannot be looked at while target " + p.Target + " has problems",
			Remedy: "mend the target first",
		})
	} else {
		v.checkTargetTables(ctx, p, t, tables)
	}
	return v
}

// placeTables adds the problems of the tables that match, and returns those for
// which the target is to be looked at.
func (v *Verdict) placeTables(p *tablesync.PipelineSpec, tables []change.TableInfo, taken map[targetTable]string) (fit []change.TableInfo) {
	for _, t := range tables {
		if t.Problem != nil {
			v.Problems = append(v.Problems, t.Problem)
		}
		into := targetTable{p.Target, p.TargetOf(t.Table)}
		if other, ok := taken[into]; ok {
			v.Problems = append(v.Problems, &change.Problem{
				Code: "target-taken", Subject: "table " + t.Table.String(),
				Cause:  fmt.Sprintf("pipeline %s and %s both write table %s at target %s", p.Name, other, into.table, p.Target),
				Remedy: "exclude the table from one of them, or route it to another table",
			})
			continue
		}
		taken[into] = fmt.Sprintf("pipeline %s (table %s)", p.Name, t.Table)
		if t.Problem == nil {
			fit = append(fit, t)
		}
	}
	return fit
}

// checkTargetTables asks the target about each table. A problem of a whole schema
// is told once.
func (v *Verdict) checkTargetTables(ctx context.Context, p *tablesync.PipelineSpec, to target, tables []change.TableInfo) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit+time.Duration(len(tables))*tableLimit)
	defer cancel()
	problems, err := targetProblems(ctx, p, to, tables)
	v.Problems = append(v.Problems, problems...)
	if err != nil {
		v.fail(err)
		return
	}
	if len(problems) == 0 {
		v.Verified = append(v.Verified, fmt.Sprintf("target %s can take them in", p.Target))
	}
}

func targetProblems(ctx context.Context, p *tablesync.PipelineSpec, to target, tables []change.TableInfo) (out []*change.Problem, err error) {
	sink, err := mysql.NewSink(to.cfg, to.o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sink.Close()) }()
	told := make(map[change.Problem]bool)
	for _, t := range tables {
		found, err := sink.CheckTable(ctx, change.TaskTarget{Target: p.TargetOf(t.Table), Layout: t.Layout, Existing: existing(p)})
		if err != nil {
			return out, err
		}
		for _, f := range found {
			if !told[*f] {
				told[*f] = true
				out = append(out, f)
			}
		}
	}
	return out, nil
}

// existing is what a pipeline does about target tables that it finds.
func existing(p *tablesync.PipelineSpec) change.ExistingTable {
	switch p.Existing {
	case "empty":
		return change.EmptyTable
	case "keep":
		return change.KeepTable
	}
	return change.FreshTable
}

// matches is what a source has for a pipeline.
type matches struct {
	tables         []change.TableInfo
	missing, notes []*change.Problem
}

func lookUp(ctx context.Context, cfg mysql.Config, p *tablesync.PipelineSpec) (m matches, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	src, err := mysql.NewSource(cfg, mysql.SourceOptions{})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if m.tables, err = src.Tables(ctx, p.Matches); err != nil {
		return m, err
	}
	found := make(map[change.TableID]bool)
	var fit []change.TableID
	for _, t := range m.tables {
		found[t.Table] = true
		if t.Problem == nil {
			fit = append(fit, t.Table)
		}
	}
	for _, t := range namedTables(p) {
		if found[t] {
			continue
		}
		problem, err := whyMissing(ctx, src, p.Source, t)
		if err != nil {
			return m, err
		}
		if problem != nil {
			m.missing = append(m.missing, problem)
		}
	}
	m.notes, err = src.Notes(ctx, fit)
	return m, err
}

// namedTables are those that a pipeline includes by name, not by pattern.
func namedTables(p *tablesync.PipelineSpec) (out []change.TableID) {
	for _, pattern := range p.Tables.Include {
		schema, name, _ := strings.Cut(pattern, ".")
		if id := (change.TableID{Schema: schema, Name: name}); !strings.ContainsAny(pattern, "*?") && p.Matches(id) {
			out = append(out, id)
		}
	}
	return out
}

// whyMissing finds out why a table that a pipeline names is not in the catalog: a
// view, the account's privileges, or that it is not there; nil when it has come
// meanwhile.
func whyMissing(ctx context.Context, src *mysql.Source, source string, t change.TableID) (*change.Problem, error) {
	_, _, err := src.Pin(ctx, t)
	var p *change.Problem
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &p):
		return p, nil
	case !errors.Is(err, change.ErrNoTable):
		return nil, err
	}
	return &change.Problem{
		Code: "no-such-table", Subject: "table " + t.String(),
		Cause:  fmt.Sprintf("source %s has no table %s, or the account may not see it", source, t),
		Remedy: fmt.Sprintf("correct the pattern, create the table, or GRANT SELECT ON %s to the account", t),
	}, nil
}

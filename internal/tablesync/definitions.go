package tablesync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/persistence"
)

// definitionRouting chooses the shard that fences definitions; no source's tasks
// have it.
const definitionRouting = "definitions"

// Apply makes the definitions true and tells what that changes; with DryRun it
// only tells. Nothing is changed when any document is wrong or a change is
// refused. Tables are looked for in the background.
func (e *Engine) Apply(ctx context.Context, d Definitions, o ApplyOptions) ([]Difference, error) {
	e.applying.Lock()
	defer e.applying.Unlock()
	if err := d.Validate(func(kind, name string) bool { return !o.Prune && e.knows(kind, name) }); err != nil {
		return nil, err
	}
	plan, err := e.plan(d, o.Prune)
	if err != nil || o.DryRun {
		return plan.diffs, err
	}
	e.mu.Lock()
	running := e.mu.running
	e.mu.Unlock()
	if !running {
		return nil, ErrNotRunning
	}
	problems, refused := e.check(ctx, plan.changed)
	if len(problems) > 0 {
		return nil, joinProblems(problems)
	}
	return append(plan.diffs, refused...), e.carryOut(ctx, plan)
}

// plan is what an apply changes.
type plan struct {
	diffs   []Difference
	changed Definitions // created or updated
	removed []Difference
}

func (e *Engine) knows(kind, name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch kind {
	case KindSource:
		return e.mu.sources[name] != nil
	case KindTarget:
		return e.mu.targets[name] != nil
	}
	return e.mu.pipelines[name] != nil
}

func (e *Engine) plan(d Definitions, prune bool) (plan, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var p plan
	var errs []error
	named := map[string]bool{}
	note := func(kind, name string, exists, same bool, detail string) (changed bool) {
		named[kind+"/"+name] = true
		action := "create"
		switch {
		case exists && same:
			action = "unchanged"
		case exists:
			action = "update"
		}
		p.diffs = append(p.diffs, Difference{Kind: kind, Name: name, Action: action, Detail: detail})
		return action != "unchanged"
	}
	for _, s := range d.Sources {
		old := e.mu.sources[s.Name]
		if note(KindSource, s.Name, old != nil, old != nil && reflect.DeepEqual(old.spec, s), "") {
			p.changed.Sources = append(p.changed.Sources, s)
		}
	}
	for _, s := range d.Targets {
		if s.Connections == 0 {
			s.Connections = 2
		}
		old := e.mu.targets[s.Name]
		if note(KindTarget, s.Name, old != nil, old != nil && reflect.DeepEqual(old.spec, s), "") {
			p.changed.Targets = append(p.changed.Targets, s)
		}
	}
	for _, s := range d.Pipelines {
		old := e.mu.pipelines[s.Name]
		if old != nil {
			errs = append(errs, immovable(&old.spec, &s))
		}
		s.Created = e.cfg.Now().UTC()
		if old != nil {
			s.Created = old.spec.Created
		}
		if note(KindPipeline, s.Name, old != nil, old != nil && reflect.DeepEqual(old.spec, s), strings.Join(s.Tables.Include, ", ")) {
			p.changed.Pipelines = append(p.changed.Pipelines, s)
		}
	}
	if prune {
		for _, name := range sortedKeys(e.mu.pipelines) {
			if !named[KindPipeline+"/"+name] {
				p.removed = append(p.removed, Difference{Kind: KindPipeline, Name: name, Action: "remove", Detail: "its tasks are removed, rows at the target stay"})
			}
		}
		for _, name := range sortedKeys(e.mu.sources) {
			if !named[KindSource+"/"+name] {
				p.removed = append(p.removed, Difference{Kind: KindSource, Name: name, Action: "remove"})
			}
		}
		for _, name := range sortedKeys(e.mu.targets) {
			if !named[KindTarget+"/"+name] {
				p.removed = append(p.removed, Difference{Kind: KindTarget, Name: name, Action: "remove"})
			}
		}
		p.diffs = append(p.diffs, p.removed...)
	}
	return p, errors.Join(errs...)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// immovable refuses what would change where existing tasks read or write.
func immovable(old, now *PipelineSpec) error {
	if old.Source != now.Source || old.Target != now.Target || old.Route != now.Route {
		return fmt.Errorf("pipeline %s: source, target and route cannot change; remove the pipeline and declare another one", now.Name)
	}
	return nil
}

// Check connects to every source and target of the definitions and reports what
// would keep them from working. Nothing is stored.
func (e *Engine) Check(ctx context.Context, d Definitions) []*change.Problem {
	problems, _ := e.check(ctx, d)
	return problems
}

// check is Check, and tells which tables a pipeline's patterns match but cannot
// take in.
func (e *Engine) check(ctx context.Context, d Definitions) (out []*change.Problem, refused []Difference) {
	fail := func(kind, name string, err error) {
		var p *change.Problem
		if !errors.As(err, &p) {
			p = &change.Problem{Code: "unreachable", Subject: kind + " " + name, Cause: err.Error(), Remedy: "check address, user and password"}
		}
		out = append(out, p)
	}
	probe := func(kind, name string, open func() (checker, error)) {
		c, err := open()
		if err == nil {
			var ps []*change.Problem
			ps, err = c.Check(ctx)
			out = append(out, ps...)
			err = errors.Join(err, c.Close())
		}
		if err != nil {
			fail(kind, name, err)
		}
	}
	for _, s := range d.Sources {
		probe(KindSource, s.Name, func() (checker, error) { return e.cfg.Connect.Source(s) })
	}
	for _, s := range d.Targets {
		probe(KindTarget, s.Name, func() (checker, error) { return e.cfg.Connect.Sink(s) })
	}
	if len(out) == 0 {
		return e.checkTables(ctx, d)
	}
	return out, nil
}

type checker interface {
	Check(context.Context) ([]*change.Problem, error)
	Close() error
}

// checkTables reports tables that a pipeline names and that cannot be captured,
// and target tables that two pipelines would write. A table that only a pattern
// matches is refused alone.
func (e *Engine) checkTables(ctx context.Context, d Definitions) (out []*change.Problem, refused []Difference) {
	taken := map[intoKey]string{}
	for i := range d.Pipelines {
		p := &d.Pipelines[i]
		spec, ok := e.sourceSpec(d, p.Source)
		if !ok {
			continue // Validate has told
		}
		src, err := e.cfg.Connect.Source(spec)
		if err != nil {
			continue // the source's own problem
		}
		infos, err := src.Tables(ctx, p.Matches)
		same, target := false, ServerSpec{}
		if err == nil {
			target, same, err = e.checkPlace(ctx, d, p, src)
		}
		if err = errors.Join(err, src.Close()); err != nil {
			out = append(out, &change.Problem{Code: "catalog", Subject: "pipeline " + p.Name, Cause: "its tables cannot be listed: " + err.Error(), Remedy: "check the privileges of the source's user"})
			continue
		}
		named := namedTables(p)
		for j := range infos {
			_, explicit := named[infos[j].Table]
			delete(named, infos[j].Table)
			if problem := infos[j].Problem; problem != nil && explicit {
				out = append(out, problem)
				continue
			} else if problem != nil {
				refused = append(refused, Difference{Kind: "table", Name: infos[j].Table.String(), Action: "refused", Detail: problem.Error()})
				continue
			}
			if problem := placement(p, target.Schema, infos[j].Table, same, append(e.pipelinesOn(p.Source), *p)); problem != nil {
				out = append(out, problem)
				continue
			}
			k := intoKey{p.Target, p.TargetOf(infos[j].Table)}
			by := fmt.Sprintf("pipeline %s from %s", p.Name, infos[j].Table)
			other := taken[k]
			if other == "" {
				other = e.writerOf(k, p.Name, infos[j].Table)
			}
			if other != "" && other != by {
				out = append(out, &change.Problem{Code: "target-taken", Subject: fmt.Sprintf("target table %s on %s", k.table, k.target),
					Cause: fmt.Sprintf("it would be written by %s and by %s", other, by), Remedy: "give one pipeline another route, or exclude the table from it"})
			}
			taken[k] = by
		}
		for t := range named {
			out = append(out, &change.Problem{Code: "no-such-table", Subject: "pipeline " + p.Name, Cause: fmt.Sprintf("table %s does not exist at source %s", t, p.Source),
				Remedy: "correct the name in tables.include, or use a pattern for tables that are still to come"})
		}
	}
	return out, refused
}

// checkPlace returns a pipeline's target and whether it is its source's server.
func (e *Engine) checkPlace(ctx context.Context, d Definitions, p *PipelineSpec, src Source) (ServerSpec, bool, error) {
	spec, ok := e.serverSpec(d.Targets, p.Target, func(name string) (ServerSpec, bool) {
		t := e.mu.targets[name]
		if t == nil {
			return ServerSpec{}, false
		}
		return t.spec, true
	})
	if !ok {
		return spec, false, nil // Validate has told
	}
	sink, err := e.cfg.Connect.Sink(spec)
	if err != nil {
		return spec, false, err
	}
	same, err := sameServer(ctx, src, sink)
	return spec, same, errors.Join(err, sink.Close())
}

// pipelinesOn lists the pipelines that read a source.
func (e *Engine) pipelinesOn(source string) (out []PipelineSpec) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range sortedKeys(e.mu.pipelines) {
		if p := e.mu.pipelines[name].spec; p.Source == source {
			out = append(out, p)
		}
	}
	return out
}

// namedTables are the tables that a pipeline includes by name, not by pattern.
func namedTables(p *PipelineSpec) map[change.TableID]bool {
	named := map[change.TableID]bool{}
	for _, pat := range p.Tables.Include {
		schema, name, _ := strings.Cut(pat, ".")
		if t := (change.TableID{Schema: schema, Name: name}); !strings.ContainsAny(pat, "*?") && p.Matches(t) {
			named[t] = true
		}
	}
	return named
}

// writerOf names the task that writes a target table, unless it is the same one.
func (e *Engine) writerOf(k intoKey, pipeline string, table change.TableID) string {
	e.mu.Lock()
	t := e.mu.byTarget[k]
	e.mu.Unlock()
	if t == nil {
		return ""
	}
	st, _ := t.snapshot()
	if st.State == Removed || st.Spec.Pipeline == pipeline && st.Spec.Table == table {
		return ""
	}
	return fmt.Sprintf("pipeline %s from %s", st.Spec.Pipeline, st.Spec.Table)
}

func (e *Engine) sourceSpec(d Definitions, name string) (ServerSpec, bool) {
	return e.serverSpec(d.Sources, name, func(name string) (ServerSpec, bool) {
		s := e.mu.sources[name]
		if s == nil {
			return ServerSpec{}, false
		}
		return s.spec, true
	})
}

// serverSpec finds a server among the documents, or among what runs; running is
// called with the engine's mutex held.
func (e *Engine) serverSpec(declared []ServerSpec, name string, running func(string) (ServerSpec, bool)) (ServerSpec, bool) {
	for _, s := range declared {
		if s.Name == name {
			return s, true
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return running(name)
}

// carryOut stores the plan, then makes it true.
func (e *Engine) carryOut(ctx context.Context, p plan) error {
	if err := e.storePlan(ctx, p); err != nil {
		return err
	}
	for _, r := range p.removed {
		if r.Kind == KindPipeline {
			e.removePipeline(ctx, r.Name)
		}
	}
	if err := e.replaceServers(ctx, p.changed); err != nil {
		return err
	}
	e.mu.Lock()
	for _, s := range p.changed.Pipelines {
		e.mu.pipelines[s.Name] = &pipelineRun{spec: s}
	}
	e.refilterLocked()
	e.mu.Unlock()
	for _, s := range p.changed.Pipelines {
		e.mu.Lock()
		src := e.mu.sources[s.Source]
		e.mu.Unlock()
		e.removeUnselected(ctx, &s)
		src.lookForTables()
	}
	return e.dropServers(ctx, p.removed)
}

func (e *Engine) storePlan(ctx context.Context, p plan) error {
	shard, epoch := e.region.EpochOf(definitionRouting)
	var records []persistence.Record
	add := func(kind, name string, v any) error {
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("encode %s %s: %w", kind, name, err)
		}
		r, err := persistence.DefinitionRecord{Kind: kind, Name: name, JSON: b}.Record()
		records = append(records, r)
		return err
	}
	for _, s := range p.changed.Sources {
		if err := add(KindSource, s.Name, s); err != nil {
			return err
		}
	}
	for _, s := range p.changed.Targets {
		if err := add(KindTarget, s.Name, s); err != nil {
			return err
		}
	}
	for _, s := range p.changed.Pipelines {
		if err := add(KindPipeline, s.Name, s); err != nil {
			return err
		}
	}
	if len(records) > 0 {
		if err := e.cfg.Store.Put(ctx, persistence.PutRequest{Shard: shard, Epoch: epoch, Records: records}); err != nil {
			return fmt.Errorf("store definitions: %w", err)
		}
	}
	var keys []persistence.RecordKey
	for _, r := range p.removed {
		keys = append(keys, persistence.RecordKey{Kind: persistence.KindDefinition, Scope: r.Kind, Name: r.Name})
	}
	if len(keys) == 0 {
		return nil
	}
	if err := e.cfg.Store.Delete(ctx, persistence.DeleteRequest{Shard: shard, Epoch: epoch, Keys: keys}); err != nil {
		return fmt.Errorf("remove definitions: %w", err)
	}
	return nil
}

// removePipeline removes a pipeline and its tasks.
func (e *Engine) removePipeline(ctx context.Context, name string) {
	e.mu.Lock()
	if p := e.mu.pipelines[name]; p != nil && e.mu.sources[p.spec.Source] != nil {
		e.mu.sources[p.spec.Source].unbar(name)
	}
	delete(e.mu.pipelines, name)
	e.mu.Unlock()
	e.removeTasks(ctx, func(st taskState) bool { return st.Spec.Pipeline == name })
}

func (e *Engine) removeUnselected(ctx context.Context, p *PipelineSpec) {
	e.removeTasks(ctx, func(st taskState) bool { return st.Spec.Pipeline == p.Name && !p.Matches(st.Spec.Table) })
}

func (e *Engine) removeTasks(ctx context.Context, match func(taskState) bool) {
	e.mu.Lock()
	var tasks []*task
	for _, t := range e.mu.tasks {
		if st, _ := t.snapshot(); match(st) {
			tasks = append(tasks, t)
		}
	}
	e.mu.Unlock()
	for _, t := range tasks {
		st, _ := t.snapshot()
		e.report(ctx, t, cmdReport{Incarnation: st.Incarnation, Saw: sawEnd, Reason: "no pipeline selects the table any more"})
	}
}

// refilterLocked tells every source's filter its pipelines.
func (e *Engine) refilterLocked() {
	bySource := map[string][]PipelineSpec{}
	for _, name := range sortedKeys(e.mu.pipelines) {
		p := e.mu.pipelines[name].spec
		bySource[p.Source] = append(bySource[p.Source], p)
	}
	for name, s := range e.mu.sources {
		s.filter.setPipelines(bySource[name])
	}
}

func (e *Engine) pipelineSpec(name string) PipelineSpec {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.mu.pipelines[name]; p != nil {
		return p.spec
	}
	return PipelineSpec{Name: name}
}

func (e *Engine) pipelinesOf(s *sourceRun) []PipelineSpec {
	s.filter.mu.RLock()
	defer s.filter.mu.RUnlock()
	return s.filter.mu.pipelines
}

func (e *Engine) setRefused(pipeline string, ps []*change.Problem) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.mu.pipelines[pipeline]; p != nil {
		p.refused = ps
	}
}

func (e *Engine) addRefused(pipeline string, problem *change.Problem) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.mu.pipelines[pipeline]; p != nil {
		p.refused = append(p.refused, problem)
	}
}

func (e *Engine) closeConnectors() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, s := range e.mu.sources {
		errs = append(errs, s.conn.Close())
	}
	for _, t := range e.mu.targets {
		errs = append(errs, t.sink.Close())
	}
	return errors.Join(errs...)
}

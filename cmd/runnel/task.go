package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/web"
)

func tableNamed(schema, name string) change.TableID {
	return change.TableID{Schema: schema, Name: name}
}

func (a *app) taskCmd() *cobra.Command {
	return group("task", "Show and command the tasks, one per table", []string{"tasks"},
		a.taskListCmd(), a.taskGetCmd(),
		a.taskVerbCmd("pause", "Stop tables until they are resumed", `A paused table holds nobody back. It keeps its place in the source's log and goes
on from there when it is resumed, as long as the source keeps its log.`),
		a.taskVerbCmd("resume", "Let paused tables go on where they stood", ""),
		a.taskVerbCmd("resync", "Copy tables anew and go on from there", `Needed when rows were missed (state needs-resync), possible at any time. The
target's rows are replaced.`),
		a.taskVerbCmd("remove", "Stop syncing tables for good", `The table at the target stays as it is. A removed table that still matches its
pipeline is not taken up again by itself.`),
		a.taskVerbCmd("retry", "Try failed tables again now", ""))
}

func (a *app) taskListCmd() *cobra.Command {
	var q tablesync.TaskQuery
	var state string
	var limit int
	c := &cobra.Command{
		Use: "list", Short: "List tasks", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Example: `  runnel task list
  runnel task list --state failed
  runnel task list --table 'shop.order*' --source db1 --limit 0
  runnel task list --output json`,
	}
	sf, out := a.addServerFlags(c), addOutputFlag(c)
	fl := c.Flags()
	fl.StringVar(&state, "state", "", "only tasks in this state")
	fl.StringVar(&q.Pipeline, "pipeline", "", "only tasks of this pipeline")
	fl.StringVar(&q.Source, "source", "", "only tasks of this source")
	fl.StringVar(&q.Table, "table", "", "only tables that match this schema.table pattern")
	fl.IntVar(&limit, "limit", 100, "most tasks to print, 0 for all")
	completeWords(c, "state", stateWords())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if limit < 0 {
			return usagef("--limit %d: want 0 or more", limit)
		}
		if state != "" && !slices.Contains(stateWords(), state) {
			return usagef("--state %q: want %s", state, strings.Join(stateWords(), ", "))
		}
		if q.Table != "" && !strings.Contains(q.Table, ".") {
			return usagef("--table %q: want a schema.table pattern such as shop.* or *.orders", q.Table)
		}
		q.State = tablesync.State(state)
		client, err := sf.client()
		if err != nil {
			return err
		}
		defer client.Close()
		page, err := allTasks(cmd.Context(), client, q, limit)
		if err != nil {
			return err
		}
		if *out == outputJSON {
			return printJSON(a.out, page)
		}
		return a.printTasks(page)
	}
	return c
}

// allTasks reads pages until limit tasks are there; 0 reads all.
func allTasks(ctx context.Context, c *web.Client, q tablesync.TaskQuery, limit int) (tablesync.TaskPage, error) {
	const most = 1000
	var all tablesync.TaskPage
	for {
		q.Limit = most
		if limit > 0 {
			q.Limit = min(most, limit-len(all.Tasks))
		}
		page, err := c.Tasks(ctx, q)
		if err != nil {
			return all, err
		}
		page.Tasks = append(all.Tasks, page.Tasks...)
		all = page
		if all.Next == "" || limit > 0 && len(all.Tasks) >= limit {
			return all, nil
		}
		q.After = all.Next
	}
}

func (a *app) printTasks(p tablesync.TaskPage) error {
	t := newTable(a.out, "TABLE", "STATE", "LAG", "COPIED", "CHANGES", "PIPELINE", "ID", "REASON")
	for _, v := range p.Tasks {
		t.row(v.Table.String(), string(v.State), seconds(v.LagSeconds), count(v.RowsCopied), count(v.ChangesApplied), v.Pipeline, v.ID, v.Reason)
	}
	if err := t.flush(); err != nil {
		return err
	}
	more := ""
	if p.Next != "" {
		more = "; more with --limit 0"
	}
	_, err := fmt.Fprintf(a.out, "%d of %d tasks%s\n", len(p.Tasks), p.Total, more)
	return err
}

func (a *app) taskGetCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "get ID|SCHEMA.TABLE", Short: "Show one task", Args: cobra.ExactArgs(1),
		Example: "  runnel task get shop.orders\n  runnel task get shop.orders --output json",
	}
	sf, out := a.addServerFlags(c), addOutputFlag(c)
	c.ValidArgsFunction = sf.completeTables
	c.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := sf.client()
		if err != nil {
			return err
		}
		defer client.Close()
		v, err := findTask(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		if *out == outputJSON {
			return printJSON(a.out, v)
		}
		return a.showTask(v)
	}
	return c
}

func (a *app) showTask(v tablesync.TaskView) error {
	copied := count(v.RowsCopied)
	if v.RowsEstimate > 0 {
		copied += " of about " + count(v.RowsEstimate)
	}
	attempts := ""
	if v.Attempts > 0 {
		attempts = count(v.Attempts)
	}
	return fields(a.out, "id", v.ID, "table", v.Table.String(), "into", v.Into.String(), "source", v.Source, "target", v.Target,
		"pipeline", v.Pipeline, "state", string(v.State), "since", v.Since.UTC().Format(time.RFC3339), "reason", v.Reason, "remedy", v.Remedy,
		"attempts", attempts, "position", v.Position, "attached", yes(v.Attached), "lag", seconds(v.LagSeconds),
		"queued bytes", count(v.QueuedBytes), "rows copied", copied, "changes applied", count(v.ChangesApplied), "incarnation", v.Incarnation)
}

// taskVerbCmd makes a command that gives one verb to each task named.
func (a *app) taskVerbCmd(verb, short, long string) *cobra.Command {
	c := &cobra.Command{
		Use: verb + " ID|SCHEMA.TABLE…", Short: short, Args: cobra.MinimumNArgs(1),
		Example: fmt.Sprintf("  runnel task %s shop.orders\n  runnel task %s shop.orders shop.items", verb, verb),
	}
	if long != "" {
		c.Long = short + ". " + long
	}
	sf, out := a.addServerFlags(c), addOutputFlag(c)
	c.ValidArgsFunction = sf.completeTables
	c.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := sf.client()
		if err != nil {
			return err
		}
		defer client.Close()
		return a.commandTasks(cmd.Context(), client, verb, args, *out)
	}
	return c
}

// commandTasks goes on after a refusal, and tells in the end that there was one.
func (a *app) commandTasks(ctx context.Context, c *web.Client, verb string, names []string, out outputFlag) error {
	done := []web.CommandResult{}
	failed := false
	for _, name := range names {
		v, err := findTask(ctx, c, name)
		var res web.CommandResult
		if err == nil {
			res, err = c.Command(ctx, v.ID, verb)
		}
		switch {
		case errors.Is(err, web.ErrUnreachable) || ctx.Err() != nil:
			return err
		case err != nil:
			failed = true
			a.explain(fmt.Errorf("%s %s: %w", verb, name, err))
			continue
		}
		done = append(done, res)
		if out == outputTable {
			if _, err := fmt.Fprintf(a.out, "%s  %s\n", oneLine(v.Table.String()), res.State); err != nil {
				return fmt.Errorf("print: %w", err)
			}
		}
	}
	if out == outputJSON {
		if err := printJSON(a.out, done); err != nil {
			return err
		}
	}
	if failed {
		return errFound
	}
	return nil
}

func stateWords() []string {
	words := make([]string, len(tablesync.States))
	for i, s := range tablesync.States {
		words[i] = string(s)
	}
	return words
}

// completeTables offers the tables that begin with what is typed, as the process
// knows them.
func (f *serverFlags) completeTables(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	client, err := f.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer client.Close()
	pattern := typed + "*"
	if !strings.Contains(typed, ".") {
		pattern += ".*"
	}
	page, err := client.Tasks(cmd.Context(), tablesync.TaskQuery{Table: pattern, Limit: 200})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for _, v := range page.Tasks {
		out = append(out, cobra.CompletionWithDesc(v.Table.String(), string(v.State)))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// findTask finds a task by id, or by the name of its table when only one task has
// it.
func findTask(ctx context.Context, c *web.Client, name string) (tablesync.TaskView, error) {
	switch {
	case strings.Contains(name, "/"):
		return c.Task(ctx, name)
	case !strings.Contains(name, "."):
		return tablesync.TaskView{}, usagef("%q is neither a task's id nor schema.table", name)
	case strings.ContainsAny(name, "*?"):
		return tablesync.TaskView{}, usagef("%q is a pattern; name each table (runnel task list --table '%s' lists them)", name, name)
	}
	page, err := c.Tasks(ctx, tablesync.TaskQuery{Table: name, Limit: 1000})
	if err != nil {
		return tablesync.TaskView{}, err
	}
	var found []tablesync.TaskView
	for _, v := range page.Tasks {
		if v.State != tablesync.Removed {
			found = append(found, v)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return tablesync.TaskView{}, fmt.Errorf("no task syncs table %s; list them with: runnel task list", name)
	}
	var ids []string
	for _, v := range found {
		ids = append(ids, fmt.Sprintf("%s (pipeline %s)", v.ID, v.Pipeline))
	}
	return tablesync.TaskView{}, fmt.Errorf("table %s belongs to %d tasks, name one of: %s", name, len(found), strings.Join(ids, ", "))
}

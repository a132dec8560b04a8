package web

import (
	"context"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/tablesync"
)

// Definer makes definitions true.
type Definer interface {
	// Apply makes the definitions true, or with DryRun only tells the differences.
	Apply(ctx context.Context, d tablesync.Definitions, o tablesync.ApplyOptions) ([]tablesync.Difference, error)
	// Check connects to everything that is named and stores nothing.
	Check(ctx context.Context, d tablesync.Definitions) []*change.Problem
}

// Viewer shows what there is. Every method answers from memory.
type Viewer interface {
	Sources() []tablesync.SourceView
	Targets() []tablesync.TargetView
	Pipelines() []tablesync.PipelineView
	Tasks(q tablesync.TaskQuery) (tablesync.TaskPage, error)
	// Task returns tablesync.ErrNoTask for an unknown id.
	Task(id string) (tablesync.TaskView, error)
	Counters() tablesync.Counters
}

// Commander gives commands to tasks.
type Commander interface {
	// Command returns when the task's new state is durable. Its errors are
	// tablesync.ErrNoTask and *tablesync.RefusedError, and those of the store.
	Command(ctx context.Context, id, verb string) error
}

// Control is what the server serves: *tablesync.Engine, or a fake in tests.
type Control interface {
	Definer
	Viewer
	Commander
}

// Verbs are the commands of a task.
var Verbs = []string{"pause", "resume", "resync", "remove", "retry"}

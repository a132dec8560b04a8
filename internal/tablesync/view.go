package tablesync

import (
	"time"

	"github.com/runnel-dev/runnel/change"
)

// TaskView is what the API and the command line show of one task.
type TaskView struct {
	ID       string         `json:"id"`
	Pipeline string         `json:"pipeline"`
	Source   string         `json:"source"`
	Target   string         `json:"target"`
	Table    change.TableID `json:"table"`
	Into     change.TableID `json:"into"`
	State    State          `json:"state"`
	Reason   string         `json:"reason,omitempty"`
	Remedy   string         `json:"remedy,omitempty"`
	Since    time.Time      `json:"since"`
	Position string         `json:"position,omitempty"` // the source's own token
	Attached bool           `json:"attached"`
	// LagSeconds is the age of the oldest row not yet in the target; 0 when there
	// is none.
	LagSeconds  float64 `json:"lagSeconds"`
	QueuedBytes int     `json:"queuedBytes"`
	// RowsCopied and RowsEstimate tell the copy's progress; the estimate is the
	// source's own guess.
	RowsCopied   int64 `json:"rowsCopied"`
	RowsEstimate int64 `json:"rowsEstimate,omitempty"`
	// ChangesApplied counts row changes since the process started.
	ChangesApplied int64  `json:"changesApplied"`
	Attempts       int    `json:"attempts,omitempty"`
	Incarnation    string `json:"incarnation"`
}

// TaskQuery selects and pages tasks. Empty fields select everything.
type TaskQuery struct {
	State    State  `json:"state,omitempty"`
	Pipeline string `json:"pipeline,omitempty"`
	Source   string `json:"source,omitempty"`
	Table    string `json:"table,omitempty"` // schema.table pattern
	After    string `json:"after,omitempty"` // the last id of the page before
	Limit    int    `json:"limit,omitempty"` // 100 when zero, at most 1000
}

// TaskPage is one page in id order; Next is "" on the last.
type TaskPage struct {
	Tasks []TaskView    `json:"tasks"`
	Next  string        `json:"next,omitempty"`
	Total int           `json:"total"` // tasks that the query selects
	Count map[State]int `json:"count"` // all tasks by state
}

// SourceView is what is shown of a source.
type SourceView struct {
	ServerSpec
	Tasks    int    `json:"tasks"`
	State    string `json:"state"` // "reading", "waiting", "failed"
	Reason   string `json:"reason,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
	Read     string `json:"read,omitempty"`     // R, the source's own token
	Frontier string `json:"frontier,omitempty"` // F
	// Groups counts groups delivered since the process started.
	Groups      uint64  `json:"groups"`
	QueuedBytes int     `json:"queuedBytes"`
	Sweeping    bool    `json:"sweeping"`
	LagSeconds  float64 `json:"lagSeconds"` // commit at the source to read here, of the last group
}

// TargetView is what is shown of a target.
type TargetView struct {
	ServerSpec
	Tasks  int    `json:"tasks"`
	State  string `json:"state"` // "ready", "down"
	Reason string `json:"reason,omitempty"`
}

// PipelineView is what is shown of a pipeline.
type PipelineView struct {
	PipelineSpec
	Tasks int           `json:"tasks"`
	Count map[State]int `json:"count"`
	// Refused lists matching tables that have no task, and why.
	Refused []*change.Problem `json:"refused,omitempty"`
}

// Counters are totals since the process started.
type Counters struct {
	RowsCopied     int64 `json:"rowsCopied"`
	ChangesApplied int64 `json:"changesApplied"`
	Transactions   int64 `json:"transactions"`
	// LagP50 and LagP99 are over the last ten thousand batches: commit at the
	// source to commit at the target.
	LagP50 time.Duration `json:"lagP50"`
	LagP99 time.Duration `json:"lagP99"`
	// Idle is true when every attached lane has applied what was read.
	Idle bool `json:"idle"`
}

// Difference is one line of what an apply would change or has changed.
type Difference struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Action string `json:"action"` // "create", "update", "unchanged", "remove"; "refused" for a table that a pattern matches
	Detail string `json:"detail,omitempty"`
}

// ApplyOptions steer Engine.Apply.
type ApplyOptions struct {
	DryRun bool `json:"dryRun"`
	// Prune removes definitions that the documents do not name.
	Prune bool `json:"prune"`
}

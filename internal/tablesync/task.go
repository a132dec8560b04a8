package tablesync

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/persistence"
)

// taskType is the first part of a sync task's entity id.
const taskType = "sync-task"

// taskState is a sync task's state: the sum of its events. It is also what the
// store's row holds, so that a start needs no replay.
//
// Normal path: created (pending) → attached (copying) → copied (streaming).
// A lane that left: fell-behind (catching-up) → caught-up (copying or streaming).
// Operator: paused → resumed; resync (pending, new incarnation); removed.
// Trouble: failed → retried; needs-resync; owned-elsewhere.
//
// Invariants:
//  1. Incarnation changes only with an event that sets Copied to false.
//  2. removed is final.
//  3. A report of another incarnation changes nothing.
type taskState struct {
	Spec        taskSpec  `json:"spec"`
	State       State     `json:"state"`
	Incarnation string    `json:"incarnation"`
	Copied      bool      `json:"copied,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	Remedy      string    `json:"remedy,omitempty"`
	Attempts    int       `json:"attempts,omitempty"`
	Retry       bool      `json:"retry,omitempty"` // failed, and tried again by the engine
	Since       time.Time `json:"since"`
	// Rows is how many rows the copy brought, 0 until it is complete.
	Rows int64 `json:"rows,omitempty"`
	// Barred: removed by an operator, so the pipeline does not create it again.
	Barred bool `json:"barred,omitempty"`
	// Fresh says what Prepare does about an existing target table.
	Fresh change.ExistingTable `json:"fresh,omitempty"`
}

// taskSpec is what a task is for; it never changes.
type taskSpec struct {
	Pipeline string         `json:"pipeline"`
	Source   string         `json:"source"`
	Target   string         `json:"target"`
	Table    change.TableID `json:"table"`
	Into     change.TableID `json:"into"`
	// Estimate is the source's guess of its rows at creation.
	Estimate int64 `json:"estimate,omitempty"`
}

// The events. Their registered names are stored and never renamed.
type (
	evCreated struct {
		Spec        taskSpec             `json:"spec"`
		Incarnation string               `json:"incarnation"`
		Fresh       change.ExistingTable `json:"fresh,omitempty"`
		At          time.Time            `json:"at"`
	}
	evMoved struct { // to copying, catching-up or streaming
		To     State  `json:"to"`
		Copied bool   `json:"copied"`
		Reason string `json:"reason,omitempty"`
		// Attempts are kept until the task has made progress again.
		Attempts int `json:"attempts,omitempty"`
		// Rows is how many rows the copy has brought, once it is complete.
		Rows int64     `json:"rows,omitempty"`
		At   time.Time `json:"at"`
	}
	evStopped struct { // to paused, failed, needs-resync, owned-elsewhere or removed
		To       State     `json:"to"`
		Reason   string    `json:"reason,omitempty"`
		Remedy   string    `json:"remedy,omitempty"`
		Attempts int       `json:"attempts,omitempty"`
		Retry    bool      `json:"retry,omitempty"`
		Barred   bool      `json:"barred,omitempty"`
		At       time.Time `json:"at"`
	}
	evRenewed struct { // pending again, in a new incarnation
		Incarnation string               `json:"incarnation"`
		Fresh       change.ExistingTable `json:"fresh,omitempty"`
		At          time.Time            `json:"at"`
	}
)

func registerEvents(r *persistence.Registry) error {
	for _, reg := range []func() error{
		func() error { return persistence.RegisterEvent[evCreated](r, "sync-task-created") },
		func() error { return persistence.RegisterEvent[evMoved](r, "sync-task-moved") },
		func() error { return persistence.RegisterEvent[evStopped](r, "sync-task-stopped") },
		func() error { return persistence.RegisterEvent[evRenewed](r, "sync-task-renewed") },
	} {
		if err := reg(); err != nil {
			return err
		}
	}
	return nil
}

// applyEvent returns the state after an event.
func applyEvent(s taskState, event any) taskState {
	switch e := event.(type) {
	case evCreated:
		return taskState{Spec: e.Spec, State: Pending, Incarnation: e.Incarnation, Fresh: e.Fresh, Since: e.At}
	case evMoved:
		s.State, s.Copied, s.Reason, s.Remedy, s.Since = e.To, e.Copied, e.Reason, "", e.At
		s.Attempts, s.Retry = e.Attempts, false
		s.Rows = max(s.Rows, e.Rows)
	case evStopped:
		s.State, s.Reason, s.Remedy, s.Attempts, s.Retry, s.Since = e.To, e.Reason, e.Remedy, e.Attempts, e.Retry, e.At
		s.Barred = e.Barred
	case evRenewed:
		s = taskState{Spec: s.Spec, State: Pending, Incarnation: e.Incarnation, Fresh: e.Fresh, Since: e.At}
	}
	return s
}

// Commands.
type (
	cmdCreate struct {
		Spec        taskSpec
		Incarnation string
		Fresh       change.ExistingTable
	}
	// cmdVerb is an operator's command.
	cmdVerb struct {
		Verb        string
		Incarnation string // the new one, for resync
	}
	// cmdReport is what the engine saw of one incarnation.
	cmdReport struct {
		Incarnation string
		Saw         sight
		Reason      string
		Remedy      string
		Retry       bool
		Rows        int64
	}
	cmdGet struct{}
)

// sight is what the engine saw.
type sight string

const (
	sawAttached  sight = "attached"  // a new lane is durable: the copy may begin
	sawCopied    sight = "copied"    // the last chunk is in the target
	sawBehind    sight = "behind"    // the lane was detached and is to come back
	sawCaughtUp  sight = "caught-up" // the sweep has handed the lane over
	sawFailure   sight = "failure"   // the task cannot go on
	sawLost      sight = "lost"      // rows were missed: needs-resync
	sawElsewhere sight = "elsewhere" // another Runnel owns the table
	sawEnd       sight = "end"       // the table is gone at the source
	sawRetry     sight = "retry"     // the time to try again has come
)

// RefusedError tells that a task's state does not allow a command.
type RefusedError struct {
	ID     string
	Verb   string
	State  State
	Remedy string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s task %s: it is %s; %s", e.Verb, e.ID, e.State, e.Remedy)
}

// decide answers a command by the state alone.
func decide(id string, s taskState, cmd any, now time.Time) persistence.Decision {
	switch c := cmd.(type) {
	case cmdGet:
		return persistence.Decision{Reply: s}
	case cmdCreate:
		if s.State != "" {
			return persistence.Decision{Reply: s} // created before: the same command again
		}
		return events(s, evCreated{Spec: c.Spec, Incarnation: c.Incarnation, Fresh: c.Fresh, At: now})
	case cmdVerb:
		return decideVerb(id, s, c, now)
	case cmdReport:
		if c.Incarnation != s.Incarnation {
			return persistence.Decision{Reply: s}
		}
		return decideReport(s, c, now)
	}
	return persistence.Decision{Err: fmt.Errorf("task %s: unknown command %T", id, cmd)}
}

func events(s taskState, e any) persistence.Decision {
	return persistence.Decision{Events: []any{e}, Reply: applyEvent(s, e)}
}

// running is where a task goes on: copying until it was copied.
func (s taskState) running() State {
	if s.Copied {
		return Streaming
	}
	return Copying
}

func decideVerb(id string, s taskState, c cmdVerb, now time.Time) persistence.Decision {
	refuse := func(remedy string) persistence.Decision {
		return persistence.Decision{Err: &RefusedError{ID: id, Verb: c.Verb, State: s.State, Remedy: remedy}}
	}
	if s.State == "" || s.State == Removed && c.Verb != "remove" {
		return persistence.Decision{Err: fmt.Errorf("%s task %s: %w", c.Verb, id, ErrNoTask)}
	}
	switch c.Verb {
	case "pause":
		switch s.State {
		case Paused:
			return persistence.Decision{Reply: s}
		case Pending, Copying, CatchingUp, Streaming, Failed:
			return events(s, evStopped{To: Paused, Reason: "paused by an operator", Remedy: "resume the task", At: now})
		}
		return refuse("it does not run")
	case "resume":
		switch s.State {
		case Paused:
			return events(s, s.resumed(now))
		case Pending, Copying, CatchingUp, Streaming:
			return persistence.Decision{Reply: s}
		}
		return refuse("only a paused task can be resumed; " + remedyFor(s.State))
	case "retry":
		if s.State == Failed || s.State == OwnedElsewhere {
			return events(s, s.resumed(now))
		}
		return refuse("only a failed task can be retried; " + remedyFor(s.State))
	case "resync":
		if c.Incarnation == "" || c.Incarnation == s.Incarnation {
			return persistence.Decision{Err: fmt.Errorf("resync task %s: a new incarnation is missing", id)}
		}
		return events(s, evRenewed{Incarnation: c.Incarnation, Fresh: change.EmptyTable, At: now})
	case "remove":
		if s.State == Removed {
			return persistence.Decision{Reply: s}
		}
		return events(s, evStopped{To: Removed, Reason: "removed by an operator", Barred: true, At: now})
	}
	return persistence.Decision{Err: fmt.Errorf("task %s: unknown command %q; use pause, resume, retry, resync or remove", id, c.Verb)}
}

// resumed sends a task that stopped on its way again.
func (s taskState) resumed(now time.Time) any {
	return evMoved{To: CatchingUp, Copied: s.Copied, At: now}
}

func remedyFor(s State) string {
	switch s {
	case Paused:
		return "resume it"
	case Failed:
		return "retry it"
	case NeedsResync:
		return "resync it"
	case OwnedElsewhere:
		return "remove the other owner, then retry it"
	}
	return "it runs"
}

func decideReport(s taskState, c cmdReport, now time.Time) persistence.Decision {
	same := persistence.Decision{Reply: s}
	active := s.State == Pending || s.State == Copying || s.State == CatchingUp || s.State == Streaming
	switch c.Saw {
	case sawAttached:
		if s.State == Pending || s.State == CatchingUp {
			return events(s, evMoved{To: s.running(), Copied: s.Copied, At: now})
		}
	case sawCopied:
		if active && !s.Copied {
			return events(s, evMoved{To: Streaming, Copied: true, Rows: c.Rows, At: now})
		}
	case sawBehind:
		if active && s.State != CatchingUp {
			return events(s, evMoved{To: CatchingUp, Copied: s.Copied, Reason: c.Reason, Attempts: s.Attempts, At: now})
		}
	case sawCaughtUp:
		if s.State == CatchingUp {
			return events(s, evMoved{To: s.running(), Copied: s.Copied, At: now})
		}
	case sawRetry:
		if s.State == Failed && s.Retry {
			return events(s, evMoved{To: CatchingUp, Copied: s.Copied, Attempts: s.Attempts, At: now})
		}
	case sawFailure:
		if active {
			return events(s, evStopped{To: Failed, Reason: c.Reason, Remedy: c.Remedy, Retry: c.Retry, Attempts: s.Attempts + 1, At: now})
		}
	case sawLost:
		if s.State != Removed && s.State != NeedsResync {
			return events(s, evStopped{To: NeedsResync, Reason: c.Reason, Remedy: c.Remedy, At: now})
		}
	case sawElsewhere:
		if active {
			return events(s, evStopped{To: OwnedElsewhere, Reason: c.Reason, Remedy: c.Remedy, At: now})
		}
	case sawEnd:
		if s.State != Removed {
			return events(s, evStopped{To: Removed, Reason: c.Reason, At: now})
		}
	}
	return same
}

// foldTask keeps a task's row: the JSON of its state.
func foldTask(reg *persistence.Registry) persistence.Folder {
	return func(row []byte, ev persistence.StoredEvent) ([]byte, error) {
		var s taskState
		if row != nil {
			if err := json.Unmarshal(row, &s); err != nil {
				return nil, fmt.Errorf("read task row of %s: %w", ev.Entity, err)
			}
		}
		e, err := reg.Decode(ev.EncodedEvent)
		if err != nil {
			return nil, err
		}
		return json.Marshal(applyEvent(s, e))
	}
}

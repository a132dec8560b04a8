package change

import (
	"errors"
	"fmt"
)

// Sentinels that the engine branches on. Test with errors.Is.
var (
	// ErrHistory: two positions belong to different log histories.
	ErrHistory = errors.New("the log histories differ")
	// ErrLogGone: the log no longer holds the wanted position.
	ErrLogGone = errors.New("the source no longer keeps the log from this position")
	// ErrDeposed: a newer epoch of this owner has claimed the target.
	ErrDeposed = errors.New("deposed by a newer owner")
	// ErrOwnedElsewhere: another store owns the fence or the target table.
	ErrOwnedElsewhere = errors.New("owned by another Runnel")
	// ErrCheckpointMoved: a checkpoint was not where the batch expected it; the
	// transaction was rolled back. Reload and cut again; no failure of the task.
	ErrCheckpointMoved = errors.New("checkpoint is not where it was expected")
	// ErrUnknownOutcome: COMMIT was sent and its answer lost. Ask Resolve.
	ErrUnknownOutcome = errors.New("outcome of commit is unknown")
	// ErrLayout: the rows do not fit the layout they were to be decoded with.
	ErrLayout = errors.New("rows do not fit the table layout")
	// ErrStateGone: the target's record of progress was removed.
	ErrStateGone = errors.New("the target's record of progress is gone")
	// ErrNoTable: the table does not exist.
	ErrNoTable = errors.New("no such table")
	// ErrNoKey: the table has no primary or unique not-null key.
	ErrNoKey = errors.New("the table has no usable key")
)

// Class says what the engine does about an error.
type Class string

// The classes.
const (
	// Transient: retry with backoff (deadlock, lock wait, lost connection).
	Transient Class = "transient"
	// PermanentRow: one row cannot be written; its neighbours can.
	PermanentRow Class = "permanent-row"
	// PermanentTask: retry cannot cure this task; others are not concerned.
	PermanentTask Class = "permanent-task"
	// TargetWide: the target as a whole is unreachable or refuses writes.
	TargetWide Class = "target-wide"
	// SourceWide: the source as a whole cannot be read.
	SourceWide Class = "source-wide"
)

// ClassError gives an error a class.
type ClassError struct {
	Class Class
	Err   error
}

func (e *ClassError) Error() string { return e.Err.Error() }
func (e *ClassError) Unwrap() error { return e.Err }

// WithClass wraps err; nil stays nil.
func WithClass(c Class, err error) error {
	if err == nil {
		return nil
	}
	return &ClassError{c, err}
}

// ClassOf returns the innermost given class, PermanentTask for a *Problem
// without one, and Transient for an error that nobody classed.
func ClassOf(err error) Class {
	var ce *ClassError
	if errors.As(err, &ce) {
		return ce.Class
	}
	var p *Problem
	if errors.As(err, &p) {
		return PermanentTask
	}
	return Transient
}

// Problem is something a person must mend. It is an error.
type Problem struct {
	// Code is stable and hyphenated: "binlog-format", "table-without-key".
	Code string `json:"code"`
	// Subject names the thing: "source shop", "table shop.orders".
	Subject string `json:"subject"`
	// Cause says what is wrong, with the found value.
	Cause string `json:"cause"`
	// Remedy says what to do, with the statement to run where there is one.
	Remedy string `json:"remedy"`
}

func (p *Problem) Error() string {
	s := fmt.Sprintf("%s: %s", p.Subject, p.Cause)
	if p.Remedy != "" {
		s += "; " + p.Remedy
	}
	return s
}

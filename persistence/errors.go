package persistence

import (
	"errors"
	"fmt"
)

// Sentinels that callers branch on. Test with errors.Is.
var (
	// ErrConflict: the entity has more or fewer events than the writer expected;
	// nothing was written. Recover and decide again.
	ErrConflict = errors.New("the entity moved on")
	// ErrDeposed: the shard has another epoch than the writer's; nothing was
	// written. The writer stops; the shard's new owner goes on.
	ErrDeposed = errors.New("deposed by a newer owner of the shard")
	// ErrBusy: a bounded queue is full; nothing was written. Try again later.
	ErrBusy = errors.New("the queue is full")
	// ErrUnknownOutcome: the caller stopped waiting while the write was under way,
	// or the disk failed during the commit. Read the entity to learn the truth.
	ErrUnknownOutcome = errors.New("outcome of the write is unknown")
	// ErrClosed: the store is closed or closing.
	ErrClosed = errors.New("the store is closed")
	// ErrFailed: the store met a fault after which it writes nothing more.
	ErrFailed = errors.New("the store stopped after a fault")
	// ErrFull: the disk or quota is full; nothing was written.
	ErrFull = errors.New("the disk is full")
	// ErrReadOnly: the store's files may not be written.
	ErrReadOnly = errors.New("the store is read-only")
	// ErrCorrupt: stored data contradicts itself.
	ErrCorrupt = errors.New("the store is corrupt")
	// ErrFormat: the store has a format that this version does not know.
	ErrFormat = errors.New("unknown store format")
	// ErrLocked: another process holds the data directory.
	ErrLocked = errors.New("the data directory is in use")
	// ErrUnknownEvent: an event's type is not registered, or its version is newer
	// than the registered one.
	ErrUnknownEvent = errors.New("unknown event")
	// ErrTooLarge: an event or record is over the size limit.
	ErrTooLarge = errors.New("too large")
	// ErrNotFound: no record has this key.
	ErrNotFound = errors.New("not found")
)

// ConflictError says how far an entity was from where the writer expected it.
// errors.Is(err, ErrConflict) holds.
type ConflictError struct {
	Entity EntityID
	// Expected and Stored are the last seq the writer and the store know; 0 is an
	// entity without events.
	Expected, Stored uint64
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("append to %s after seq %d: the stored seq is %d: %v", e.Entity, e.Expected, e.Stored, ErrConflict)
}

func (e *ConflictError) Unwrap() error { return ErrConflict }

// DeposedError says which epoch a shard has. errors.Is(err, ErrDeposed) holds.
type DeposedError struct {
	Shard uint32
	// Epoch is the writer's, Stored the shard's; 0 is a shard nobody acquired.
	Epoch, Stored uint64
}

func (e *DeposedError) Error() string {
	return fmt.Sprintf("write to shard %d with epoch %d: the stored epoch is %d: %v", e.Shard, e.Epoch, e.Stored, ErrDeposed)
}

func (e *DeposedError) Unwrap() error { return ErrDeposed }

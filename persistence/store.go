package persistence

import (
	"context"
	"time"
)

// DefaultShards is the number of shards of a new store; it is fixed from then on.
const DefaultShards = 256

// EncodedEvent is an event as it is stored.
type EncodedEvent struct {
	// Type is the registered name, Version counts from 1.
	Type    string
	Version uint32
	// Data is JSON.
	Data []byte
}

// StoredEvent is an event with its place in the journal.
type StoredEvent struct {
	// Row is the journal's dense ascending number, from 1.
	Row    uint64
	Entity EntityID
	// Seq is dense from 1 within the entity.
	Seq uint64
	// Prev is the row of the entity's previous event, 0 for its first.
	Prev uint64
	// At is when the writer took it, in microseconds, UTC.
	At time.Time
	EncodedEvent
}

// AppendRequest is one atomic addition to one entity's events.
type AppendRequest struct {
	// Shard is the entity's; Epoch is what AcquireShard returned for it.
	Shard uint32
	Epoch uint64
	// Entity is whose events these are.
	Entity EntityID
	// Expected is the last seq the writer knows, 0 for an entity without events.
	Expected uint64
	// Events are stored all or none, with ascending seq; at least one.
	Events []EncodedEvent
}

// Snapshot is an entity's saved state.
type Snapshot struct {
	Entity EntityID
	// Seq is the last event that is in the state.
	Seq uint64
	// At is when it was written.
	At time.Time
	// Version is the state's format, chosen by the entity's definition.
	Version uint32
	// Data is JSON.
	Data []byte
}

// Row is what the store's table knows of an entity without loading it.
type Row struct {
	Entity EntityID
	// Seq is the entity's last event, and Last its journal row.
	Seq, Last uint64
	// Data is what the type's Folder made of all events up to DataSeq; nil without
	// a Folder.
	Data    []byte
	DataSeq uint64
	// Fault is why Data could not be folded past DataSeq; "" when it was.
	Fault string
}

// Folder adds one event to an entity's row. row is nil before the first event
// and must not be changed in place. It runs in the store's own goroutine, only
// after the event is durable. An error is kept in Row.Fault and the same event is
// offered again with the entity's next event and at the next open.
type Folder func(row []byte, ev StoredEvent) ([]byte, error)

// Journal holds the events. Its methods are safe for concurrent use.
type Journal interface {
	// AcquireShard raises the shard's epoch by one, durably, and returns it. Every
	// write with an older epoch that is not yet committed fails with ErrDeposed.
	AcquireShard(ctx context.Context, shard uint32) (epoch uint64, err error)
	// Append stores the events and returns the last one's seq once they are
	// durable. While the queue is full it waits. Errors: ErrConflict, ErrDeposed,
	// ErrBusy with ctx's cause while the queue stayed full, ErrUnknownOutcome when
	// ctx ended during the commit; before it, nothing is written and the error is
	// ctx's cause.
	Append(ctx context.Context, req AppendRequest) (lastSeq uint64, err error)
	// AppendAsync is Append without a waiting goroutine. done is called exactly
	// once, in the writer's goroutine or, if the request is refused at once, before
	// AppendAsync returns. It must not block. A full queue is ErrBusy. The request's
	// slices belong to the store until done is called.
	AppendAsync(req AppendRequest, done func(lastSeq uint64, err error))
	// ReadEntity calls fn with each event whose seq is above after, ascending. An
	// entity without events calls nothing. An event's Data is fn's to keep. fn must
	// not call the store: it holds one of few reading connections.
	ReadEntity(ctx context.Context, id EntityID, after uint64, fn func(StoredEvent) error) error
	// LastSeq is the entity's last durable seq, 0 without events. It reads memory.
	LastSeq(id EntityID) uint64
}

// Snapshots keeps at most one snapshot an entity.
type Snapshots interface {
	// SaveSnapshot replaces the entity's snapshot. It is fenced like an append and
	// refused when the journal does not hold s.Seq yet.
	SaveSnapshot(ctx context.Context, epoch uint64, s Snapshot) error
	// LoadSnapshot returns false when there is none.
	LoadSnapshot(ctx context.Context, id EntityID) (Snapshot, bool, error)
}

// Rows is the table of all entities, folded from the journal.
type Rows interface {
	// ScanRows calls fn for every entity of the type ("" is every type) in id
	// order, as of now: it folds first. fn must not call the store.
	ScanRows(ctx context.Context, typ string, fn func(Row) error) error
	// Fold brings the table up to the last event that was durable at the call.
	Fold(ctx context.Context) error
}

// Records keeps small values by key. Its methods are safe for concurrent use.
type Records interface {
	// Put stores every record of the request in one transaction and returns when
	// they are durable. Errors as for Journal.Append.
	Put(ctx context.Context, req PutRequest) error
	// Delete removes the keys; absent ones are no error.
	Delete(ctx context.Context, req DeleteRequest) error
	// Get returns ErrNotFound for an absent key.
	Get(ctx context.Context, key RecordKey) (Record, error)
	// Scan calls fn for each record of the kind, in scope ("" is every scope), by
	// scope and name ascending. fn must not call the store.
	Scan(ctx context.Context, kind, scope string, fn func(Record) error) error
}

// Store is everything of a data directory that must survive.
type Store interface {
	Journal
	Snapshots
	Rows
	Records
	// StoreID is made once, when the store is, and never changes.
	StoreID() string
	// Shards is the number of shards, fixed when the store was made.
	Shards() uint32
	// Close writes what is queued, fails what comes later with ErrClosed, and waits
	// for everything the store started.
	Close() error
}

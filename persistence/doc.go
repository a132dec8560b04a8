// Package persistence keeps entities: actors whose state is the sum of their
// journaled events.
//
// # Usage
//
// Register event types in a [Registry], describe an entity as a [Definition],
// open a [Store] (persistence/sqlite) and hand all three to a cluster.Region,
// which is the only way to an entity. Small values that are no entity's state
// are [Records].
//
// # Concurrency
//
// A Store has one writer and is safe for concurrent use. An entity handles one
// command at a time and holds no goroutine while it waits for the disk.
//
// # Ordering
//
// An entity's events have dense seqs from 1. Events are durable before they are
// applied, and applied before effects run and before the reply.
//
// # Failure
//
// Every write names its shard's epoch: an old one is [ErrDeposed]. A wrong
// expected seq is [ErrConflict]. An event of an unknown type or newer version is
// an error that names both; nothing is skipped. After a fault of the disk the
// store writes nothing more ([ErrFailed]).
//
// # Testing
//
// persistence/sqlite on a temporary directory is fast enough for tests.
package persistence

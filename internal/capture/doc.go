// Package capture runs one log reader per source for all of its tables and keeps
// the frontier: how far every attached lane has applied the log.
//
// # What
//
// Core is the pure state: the ring of delivered groups, the lanes with their
// queues, and the transitions between attached and detached. Capture is the
// shell around it: it reads the source, journals the frontier, and runs the
// catch-up sweep that brings detached lanes back. The algorithm and its
// invariants I1 to I5 are in docs/design/frontier.md.
//
// # Usage
//
// The engine adds lanes, calls Run, takes batches with Cut and reports each
// commit with Applied. Rows never travel through mailboxes.
//
// # Concurrency
//
// Capture is safe for concurrent use; one mutex guards Core. A Lane is a handle:
// its fields are read through Capture. Callbacks run without the mutex held.
//
// # Ordering
//
// A lane gets its groups in log order and has at most one batch in flight.
// D (release) follows J (journaled frontier), J follows T (the target's commit).
//
// # Failure
//
// A broken stream is opened again at the last delivered group, with backoff. A
// lost history or a purged log concerns every lane of the source and is reported
// through Events. A lane that cannot go on is detached and holds nothing back.
//
// # Testing
//
// The model test in internal/tablesync drives Capture and the lane procedures
// with random programs and crashes between any two steps.
package capture

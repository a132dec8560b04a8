// Package sqlite is the store of a single node: one SQLite database in one data
// directory.
//
// # Usage
//
//	st, err := sqlite.Open(ctx, dir, sqlite.Options{})
//	defer st.Close()
//
// # Concurrency
//
// One goroutine writes, all others read through a pool or from memory. A third
// connection checkpoints the log, a fourth goroutine folds entity rows. Store is
// safe for concurrent use; Close waits for all four.
//
// # Ordering
//
// The writer takes everything that waits into one transaction, commands before
// background work, and calls back after the commit with synchronous=FULL.
//
// # Failure
//
// A full disk fails the writes of that transaction and no others. After an I/O
// error or corruption the store writes nothing more (persistence.ErrFailed),
// since nobody knows what reached the disk; a new start reads the truth. A second
// process is refused with the holder's pid.
//
// # Testing
//
// docs/format/store.md describes the files; testdata/ holds stores of every
// format.
package sqlite

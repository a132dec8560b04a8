// Package runnel keeps tables in sync: it reads the log of source servers and
// writes rows to target servers, one durable task per table, all in one process.
//
// # What
//
// This package is the only place that knows every other one. It reads
// configuration ([Config]) and definitions ([LoadDefinitions]), checks servers
// ([Check]) and wires store, engine and HTTP API into one process ([Run]).
//
// # Usage
//
//	cfg, err := runnel.LoadConfig("runnel.yaml")
//	err = runnel.Run(ctx, cfg, runnel.RunOptions{Log: log})
//
// # Concurrency
//
// Config and Definitions are plain values: share them as long as nobody writes.
// Run returns only when everything it started has ended.
//
// # Ordering
//
// Run opens the store before it listens, so that two processes never serve one
// data directory, and closes it last.
//
// # Failure
//
// Faults of a configuration or of definitions are reported all at once, each with
// file and line. Faults of servers are change.Problem values with a remedy.
//
// # Testing
//
// Tests parse good and bad files, and check real servers from internal/testdb.
package runnel

// Package demo shows the whole of Runnel at work on two private servers and
// judges the outcome by tools that are not Runnel's.
//
// # What
//
// Run starts a source and a target MariaDB server, fills tables of varied types,
// starts the syncing process as a child, puts a write load on the source, kills
// the child at random moments, and in the end compares what mariadb-dump says of
// both servers.
//
// # Usage
//
//	res, err := demo.Run(ctx, demo.Options{Tables: 50, Duration: 10 * time.Second, Progress: os.Stderr})
//
// # Concurrency
//
// One Run at a time per call; several Runs in one process do not meet.
//
// # Ordering
//
// The marker rows that end the load are the last rows of their tables: a table
// that has its marker at the target has everything before it.
//
// # Failure
//
// Everything Run starts has ended when it returns, also when it fails or its
// context ends; the kernel ends the child and the servers if this process is
// killed, and the next Run removes the folder that it left. A table that does not catch up within the deadline is named with the
// state of its task.
//
// # Testing
//
// The command's test runs a small demo; the tests here prove that the comparison
// sees differences and that generated values are accepted by a server.
package demo

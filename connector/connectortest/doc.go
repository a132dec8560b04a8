// Package connectortest holds the conformance suites that a connector passes
// before anybody relies on its contracts.
//
// # What
//
// [RunSink] proves change.Sink and change.TableSink: a claim waits for what older
// epochs have open, rows and checkpoint are one, one refused batch harms no other,
// a lost answer to COMMIT is settled, chunks load once, and a process that dies at
// any fault point of the sink leaves nothing that the next owner cannot finish.
//
// # Usage
//
// A connector fills a [SinkHarness] with what only it knows (how to open a sink,
// what a row looks like, how to read a table without the sink) and calls RunSink
// from a test. A second test, which does nothing unless [IsSinkChild], calls
// [RunSinkChild]: the suite runs the test binary again to have a process to kill.
//
// # Concurrency
//
// A suite runs its parts one after another on one target. Functions of a harness
// may be called from several goroutines.
//
// # Failure
//
// A fault point that the child never reaches fails the suite.
//
// # Testing
//
// The suites are tested by the connectors that pass them; the MySQL connector also
// runs the sink suite against sinks that it broke on purpose.
package connectortest

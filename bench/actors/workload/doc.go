// Package workload is what every actor runtime is measured with: the messages,
// the code of the actors, the cases and the checks of their results.
//
// # What
//
// A [Peer] adapts one runtime: it spawns actors under names, tells and asks, in
// the way that runtime's users would. Everything else is shared, so that two
// peers differ in nothing but the runtime. Each peer is a program of its own that
// calls [Main]: heaps, goroutines and global registries of two runtimes never mix.
//
// # Usage
//
//	func main() { workload.Main(newPeer) }
//
// The program runs one case, named by -workload, and writes one JSON list of
// [Sample] to its standard output.
//
// # Concurrency
//
// A process runs one case. A [State] belongs to its actor.
//
// # Ordering
//
// Messages carry a sequence number for each sender and actor. An actor counts a
// message that is not the next one as wrong.
//
// # Failure
//
// A case whose messages are lost, doubled, overtaken or answered by nobody is an
// error and has no numbers: a wrong peer is never fast.
//
// # Testing
//
// The test of the command above runs all cases of all peers at a small scale.
package workload

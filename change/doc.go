// Package change is the vocabulary of change data: what a position, a group, a
// row change, a layout and a checkpoint are, and the contracts that connectors
// implement (Source, ChunkReader, Sink).
//
// # Usage
//
// The engine reads Groups from a Source, hands the RowBlocks of one table to
// that table's lane, decodes them there with the Layout valid at that position,
// and gives Batches to a Sink, which commits rows and Checkpoint in one target
// transaction. docs/design/contracts.md is the prose form of these contracts.
//
// # Concurrency
//
// Values are plain data and may be shared once nobody writes them. A Stream has
// one reader. RowBlock.Decode may run concurrently for different blocks. A Sink
// is safe for concurrent use.
//
// # Ordering
//
// Groups arrive in log order. Positions of one history are totally ordered;
// positions of different histories do not compare.
//
// # Failure
//
// Errors carry a Class (what the engine does about them). Errors that a person
// must mend are *Problem values, which name the subject, the cause and the remedy.
//
// # Testing
//
// connector/connectortest holds the conformance suites for sources and sinks.
package change

// Package mysql connects to MySQL and MariaDB: it reads their binary log, their
// catalog and their tables, and writes to them.
//
// # Usage
//
//	cfg, err := mysql.ParseDSN("mysql://runnel:secret@db1:3306/?tls=true")
//	src, err := mysql.NewSource(cfg, mysql.SourceOptions{})
//	problems, err := src.Check(ctx)
//	at, err := src.Now(ctx)
//	stream, err := src.Open(ctx, at, filter)
//
// A Source is a change.Source, a change.Catalog and a change.ChunkReader.
//
//	sink, err := mysql.NewSink(cfg, mysql.SinkOptions{})
//	err = sink.Claim(ctx, fence)
//	results := sink.Apply(ctx, fence, batches)
//
// A Sink is a change.Sink and a change.TableSink. It keeps tables of its own in the
// schema "runnel" of the target: fence, checkpoint, chunk, layout and owner.
//
// # Concurrency
//
// Source is safe for concurrent use. A Stream has one reader; a goroutine of its
// own reads ahead, bounded in bytes, and ends with Close or with the context
// given to Open. Row blocks of one stream may be decoded concurrently.
//
// Sink is safe for concurrent use. It starts no goroutine that outlives a call; a
// call holds one connection, two while it runs a DDL statement. Connections are
// bounded for each use: rows, chunks, statements, everything else.
//
// # Ordering
//
// Groups come in binary log order. A position is the file number and the byte
// offset in it; its token names the file, an offset the server can be asked to
// start from, and a GTID that must be in the log before it.
//
// A Sink writes the changes of a batch in their order. Where the server compares
// keys as bytes and the table has no other unique index, only the last state of
// each key is written: first what is gone, then what is there.
//
// # Failure
//
// A stream that returned an error is finished; open another at the last End. The
// first read of an unknown event, a checksum that does not match and a position
// that another server's log cannot hold are errors with the thing named, never
// skipped rows. Rows that the log does not carry (statement format, partition
// exchange, partial images) are Statements of the kinds LostRows and
// RowsByStatement. So are rows that a foreign key changes by ON DELETE or ON
// UPDATE: the map of the child table beside row events of its parent is the trace,
// and the catalog says whether the key was concerned. It is believed when the
// definitions are older than the statement, by the clock of the server. A table
// that such keys lead back to is refused.
//
// Errors of a Sink have the change.Class that the server's error number means. A
// statement that is refused in a transaction of many batches costs its own batch
// only. Whatever goes wrong with COMMIT is change.ErrUnknownOutcome. Problems that
// a person must mend are *change.Problem values.
//
// # Testing
//
// Tests run a private MariaDB from internal/testdb. The central one writes every
// type with its edge values and compares what the log decoder gives with what the
// chunk reader gives, column by column.
package mysql

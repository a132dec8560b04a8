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
// # Concurrency
//
// Source is safe for concurrent use. A Stream has one reader; a goroutine of its
// own reads ahead, bounded in bytes, and ends with Close or with the context
// given to Open. Row blocks of one stream may be decoded concurrently.
//
// # Ordering
//
// Groups come in binary log order. A position is the file number and the byte
// offset in it; its token names the file, an offset the server can be asked to
// start from, and a GTID that must be in the log before it.
//
// # Failure
//
// A stream that returned an error is finished; open another at the last End. The
// first read of an unknown event, a checksum that does not match and a position
// that another server's log cannot hold are errors with the thing named, never
// skipped rows. Rows that the log does not carry (statement format, partition
// exchange, partial images) are Statements of the kinds LostRows and
// RowsByStatement.
//
// # Testing
//
// Tests run a private MariaDB from internal/testdb. The central one writes every
// type with its edge values and compares what the log decoder gives with what the
// chunk reader gives, column by column.
package mysql

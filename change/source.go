package change

import "context"

// SourceFeatures declares what a source can do.
type SourceFeatures struct {
	// Reopen: Open can start at any position the log still holds, however old.
	// Without it a detached lane cannot be caught up from the source.
	Reopen bool
	// WantsRelease: the source keeps its log until Release says otherwise.
	WantsRelease bool
}

// Filter says which tables a stream delivers. It is read on every table's first
// rows after Generation changed; both methods must be cheap and safe for
// concurrent use.
type Filter interface {
	Wants(TableID) bool
	// WantsNew reports whether CREATE TABLE or RENAME of this name is delivered
	// although Wants is still false: a pipeline's pattern matches it.
	WantsNew(TableID) bool
	// Generation changes whenever an answer may have changed.
	Generation() uint64
}

// Source is one server's log and catalog. Safe for concurrent use.
type Source interface {
	Features() SourceFeatures
	// Check verifies reachability, privileges and settings and returns every
	// Problem found; an empty slice means fit to capture. The error is for the
	// case that nothing can be said (ctx ended).
	Check(ctx context.Context) ([]*Problem, error)
	// Now returns the current end of the log: no group with an End at or before
	// it is still to be written.
	Now(ctx context.Context) (Position, error)
	// Oldest returns the position at which the log that is still kept begins.
	Oldest(ctx context.Context) (Position, error)
	// Open delivers every group whose End is after from, also one that started
	// before it (an XA transaction prepared earlier): the token of a position
	// says where reading has to begin for that. The position's History must be
	// the server's present one (ErrHistory) and its log must still exist
	// (ErrLogGone).
	Open(ctx context.Context, from Position, f Filter) (Stream, error)
	// Release tells the source that the log before p is no longer needed.
	Release(ctx context.Context, p Position) error
	Close() error
}

// Identifier is a source or sink that can tell which server it talks to.
type Identifier interface {
	// Identity is the same string for two connectors exactly when one server
	// process answers both, however they reach it. It holds no secret.
	Identity(ctx context.Context) (string, error)
}

// Stream delivers groups in log order. One goroutine uses it.
type Stream interface {
	// Next blocks until a group ended, the stream broke (an error; open again at
	// the last End) or ctx ended.
	Next(ctx context.Context) (*Group, error)
	Close() error
}

// Mark answers what a read of a table has seen.
type Mark interface {
	// Includes reports whether the read saw the group that ends at end.
	Includes(end Position) bool
	// High is a position such that every group after it is not included.
	High() Position
}

// Chunk is one key range of a table as it was at its Mark.
type Chunk struct {
	Rows   []Row
	Arena  *Arena // owns the rows
	Layout *Layout
	Mark   Mark
	// Last is the bound at which the next chunk starts (exclusive); nil with
	// no rows. Opaque: only the server compares bounds.
	Last []byte
	// Done: no rows are left up to the upper bound.
	Done bool
}

// Catalog reads definitions. Safe for concurrent use.
type Catalog interface {
	// Tables lists the base tables for which match is true, with layouts, in
	// bulk. System schemas are never offered.
	Tables(ctx context.Context, match func(TableID) bool) ([]TableInfo, error)
	// Pin reads one table's layout together with the mark at which it is valid:
	// in a consistent snapshot, after the table was touched. ErrNoTable.
	Pin(ctx context.Context, t TableID) (*Layout, Mark, error)
}

// TableInfo is what a catalog tells about one table.
type TableInfo struct {
	Table TableID
	// Layout was valid at some moment of the call: bracket the call with two
	// positions, or Pin. Its Definition is empty, since that costs a query a
	// table. nil when Problem says why there is none.
	Layout *Layout
	// RowsEstimate and SizeBytesEstimate are the server's own guesses.
	RowsEstimate, SizeBytesEstimate int64
	// Problem is why the table cannot be captured (no key, an engine without
	// transactions, a type nobody decodes), nil when it can.
	Problem *Problem
}

// ChunkReader reads tables in chunks, without locks and without writing to the
// source. Safe for concurrent use; each call takes a connection of its own.
type ChunkReader interface {
	// Upper returns the greatest key now, as a bound; nil for an empty table.
	Upper(ctx context.Context, l *Layout) ([]byte, error)
	// ReadChunk reads at most limit rows with lower < key ≤ upper in key order
	// (lower nil: from the start) in one consistent snapshot. ErrLayout when the
	// table's definition is no longer l: Chunk then carries the new Layout and
	// Mark and no rows. ErrNoTable when it is gone.
	ReadChunk(ctx context.Context, l *Layout, lower, upper []byte, limit int) (*Chunk, error)
}

package change

import "context"

// SinkFeatures declares what a sink guarantees; its conformance suite proves it.
type SinkFeatures struct {
	// Transactional: rows and checkpoint commit together, so each row takes
	// effect once. Without it delivery is at least once.
	Transactional bool
	// DDL: ApplyDDL changes target tables.
	DDL bool
	// Connections is the number of transactions worth running at once.
	Connections int
}

// Batch is one lane's next step: changes of whole groups, in log order, and the
// checkpoint that moves with them.
type Batch struct {
	Key CheckpointKey
	// Target is where the rows go.
	Target TableID
	// Layout describes the values in Changes (the source's layout).
	Layout *Layout
	// Changes are in log order.
	Changes []Change
	// Expected is the checkpoint before, New after. Apply moves it by
	// compare-and-set.
	Expected, New Position
}

// BatchResult is the outcome of one batch of an Apply.
type BatchResult struct {
	// Err is nil when rows and checkpoint are committed. Otherwise nothing of
	// this batch is in the target, except with ErrUnknownOutcome.
	Err error
	// RowIndex is the change at which a PermanentRow error happened, -1 if unknown.
	RowIndex int
}

// ChunkLoad is one chunk's rows for the target. Rows overwrite what is there.
type ChunkLoad struct {
	Incarnation string
	Target      TableID
	Layout      *Layout
	// Index numbers the chunks of an incarnation from 0; Bound is the chunk's
	// Last, stored so that a restart goes on after it.
	Index int
	Bound []byte
	Done  bool // the last chunk of the table
	Rows  []Row
}

// CopyProgress is what chunk rows of an incarnation say.
type CopyProgress struct {
	Chunks int    // chunks loaded: indexes 0 to Chunks-1
	Bound  []byte // of the newest chunk; nil before the first
	Done   bool
	Rows   int64
}

// TaskTarget describes a task's place at the target.
type TaskTarget struct {
	Incarnation string
	// Task is the task's id, for people who look into the target.
	Task   string
	Target TableID
	Layout *Layout
	// At is the checkpoint to start from.
	At Position
	// Existing says what to do about rows that the target table holds already.
	Existing ExistingTable
}

// ExistingTable is what Prepare does about a target table that exists.
type ExistingTable string

// What to do about an existing target table.
const (
	// FreshTable: a table that holds rows is refused; nobody can tell whose they are.
	FreshTable ExistingTable = "fresh"
	// KeepTable: rows stay until the copy overwrites them; a different definition
	// is refused.
	KeepTable ExistingTable = ""
	// EmptyTable: the rows go; the table belonged to an earlier life of this task.
	EmptyTable ExistingTable = "empty"
)

// Sink writes to one target. Safe for concurrent use. Every call carries the
// fence and fails with ErrDeposed or ErrOwnedElsewhere when it no longer holds, and
// with ErrStateGone when the target has no record of it: nobody else owns it then,
// somebody removed it.
type Sink interface {
	Features() SinkFeatures
	// Check returns every Problem that would keep the sink from working.
	Check(ctx context.Context) ([]*Problem, error)
	// Claim raises the fence of (StoreID, Owner) to Epoch. It waits for open
	// transactions of older epochs; when it returns none can commit any more.
	Claim(ctx context.Context, f Fence) error
	// Load returns all checkpoints of the owner, in bulk. Only after Claim.
	Load(ctx context.Context, f Fence) ([]Checkpoint, error)
	// Apply commits the batches, in one transaction where it can. When one
	// fails the others are tried without it. One result per batch.
	Apply(ctx context.Context, f Fence, batches []Batch) []BatchResult
	// Resolve reads checkpoints with a lock, on a new connection, after
	// ErrUnknownOutcome: the answer is final. Missing rows are left out.
	Resolve(ctx context.Context, f Fence, keys []CheckpointKey) ([]Checkpoint, error)
	Close() error
}

// TableSink is the part of a sink that knows tables. Safe for concurrent use.
type TableSink interface {
	// Prepare makes the target ready for a task: creates the table from the
	// layout's definition when absent, compares it when present, takes the table's
	// owner row and inserts the checkpoint row and the layout. Idempotent for one
	// incarnation; an existing checkpoint row is moved to At.
	Prepare(ctx context.Context, f Fence, t TaskTarget) error
	// LoadLayout returns the source layout valid at the checkpoint.
	LoadLayout(ctx context.Context, f Fence, incarnation string) (*Layout, error)
	// LoadChunk commits rows and chunk row in one transaction. Idempotent: a
	// chunk that is already recorded is left as it is.
	LoadChunk(ctx context.Context, f Fence, c ChunkLoad) error
	// Progress reads the chunk rows of an incarnation.
	Progress(ctx context.Context, f Fence, incarnation string) (CopyProgress, error)
	// ApplyDDL runs a statement with its intent recorded first, and settles an
	// intent that a crash left behind. The lane is drained: nothing else writes
	// this table meanwhile.
	ApplyDDL(ctx context.Context, f Fence, d DDL) (*Layout, error)
	// Forget removes checkpoint, chunk, layout and owner rows of an incarnation,
	// and the rows of the table itself if asked to. Idempotent.
	Forget(ctx context.Context, f Fence, incarnation string) error
}

// DDL is a statement to bring to the target.
type DDL struct {
	Key       CheckpointKey
	Target    TableID
	Layout    *Layout // the source layout before
	Statement *Statement
	// Source is the table at the source that the lane captures.
	Source TableID
	// Expected is the checkpoint before; Group the End of the statement's group,
	// which becomes the checkpoint.
	Expected, Group Position
}

package tablesync

// State is where a sync task stands. The words are stored and never renamed.
//
//	pending ──▶ copying ──▶ catching-up ──▶ streaming
//	   any ──▶ paused, failed, needs-resync, owned-elsewhere, removed
//
// Every transition is in task.go.
type State string

// The states and who moves a task on from each.
const (
	Pending        State = "pending"         // the engine, once the lane is attached
	Copying        State = "copying"         // the engine, after the last chunk
	CatchingUp     State = "catching-up"     // the engine, at the hand-over from the sweep
	Streaming      State = "streaming"       // nobody: the goal
	Paused         State = "paused"          // the operator: resume
	Failed         State = "failed"          // the engine's retry, or the operator: retry
	NeedsResync    State = "needs-resync"    // the operator: resync
	OwnedElsewhere State = "owned-elsewhere" // the operator: end the other owner, then retry
	Removed        State = "removed"         // final
)

// States lists all states in the order they are shown.
var States = []State{Pending, Copying, CatchingUp, Streaming, Paused, Failed, NeedsResync, OwnedElsewhere, Removed}

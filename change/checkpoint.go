package change

// Fence is the right to write to a target. A sink refuses everything that
// carries an older epoch than the one it has stored for (StoreID, Owner).
type Fence struct {
	// StoreID identifies one Runnel's store; another id is another Runnel.
	StoreID string
	// Owner names what is owned: one capture ("shop/0").
	Owner string
	// Epoch grows by one with each new owner, from 1.
	Epoch uint64
}

// CheckpointKey names one checkpoint: a part of one life of a task.
type CheckpointKey struct {
	// Incarnation is the task's unique id for one life: deleting and creating a
	// task again never reuses it.
	Incarnation string
	// Part is 0 for a lane that is not split.
	Part uint16
}

// Checkpoint is durable progress of one part at the target.
type Checkpoint struct {
	CheckpointKey
	// Position is the end of the last group whose rows are in the target.
	Position Position
	// Intent is the DDL that was about to run when the checkpoint was written;
	// nil when there is none.
	Intent *Intent
}

// Intent is a DDL statement announced before it runs, since DDL commits by itself.
type Intent struct {
	// Group is the End of the statement's group.
	Group Position `json:"group"`
	// SQL is the statement as it runs on the target.
	SQL string `json:"sql"`
	// Target is the table it changes there.
	Target TableID `json:"target"`
	// Before and After are the target layouts' fingerprints; "" means no table.
	Before string `json:"before"`
	After  string `json:"after"`
	// Layout is the source layout after the statement, nil when the table is gone.
	Layout *Layout `json:"layout,omitempty"`
}

package capture

import (
	"context"

	"github.com/runnel-dev/runnel/change"
)

// Frontier is J: one record per capture.
type Frontier struct {
	Capture string
	// At is F: the frontier.
	At change.Position
	// From is where the log is needed from: At, or the start of an open group.
	From change.Position
}

// LaneRecord is the durable relation of a lane to the frontier.
type LaneRecord struct {
	Capture     string
	Incarnation string
	Attached    bool
	// Why says what detached the lane: "paused", "failed", "slow".
	Why string
	// Bound is a lower bound of the lane's checkpoint, for the case that the
	// target cannot be read.
	Bound change.Position
}

// Journal is where a capture keeps what must survive. Each call returns only
// when its record is durable and refuses an epoch that is no longer the stored
// one. Safe for concurrent use.
type Journal interface {
	PutFrontier(ctx context.Context, f Frontier) error
	PutLane(ctx context.Context, r LaneRecord) error
	DeleteLane(ctx context.Context, capture, incarnation string) error
}

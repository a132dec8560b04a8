package tablesync

import (
	"context"
	"fmt"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/capture"
	"github.com/runnel-dev/runnel/persistence"
)

// laneGroup is the only lane group yet: a source's tasks share one capture.
const laneGroup = "0"

// captureName is the routing of a source's tasks and the owner in its fences.
func captureName(source string) string { return source + ":" + laneGroup }

// recordJournal keeps a capture's records in the store, fenced by its shard.
type recordJournal struct {
	store persistence.Store
	shard uint32
	epoch uint64
}

func (j recordJournal) put(ctx context.Context, r persistence.Record, err error) error {
	if err != nil {
		return err
	}
	return j.store.Put(ctx, persistence.PutRequest{Shard: j.shard, Epoch: j.epoch, Records: []persistence.Record{r}})
}

// PutFrontier implements capture.Journal.
func (j recordJournal) PutFrontier(ctx context.Context, f capture.Frontier) error {
	r, err := persistence.Frontier{Capture: f.Capture, Position: f.At.String(), From: f.From.String()}.Record()
	return j.put(ctx, r, err)
}

// PutLane implements capture.Journal.
func (j recordJournal) PutLane(ctx context.Context, l capture.LaneRecord) error {
	p := persistence.Lane{Capture: l.Capture, Incarnation: l.Incarnation, State: persistence.LaneDetached, Why: l.Why, Bound: l.Bound.String()}
	if l.Attached {
		p.State, p.Why = persistence.LaneAttached, ""
	}
	r, err := p.Record()
	return j.put(ctx, r, err)
}

// DeleteLane implements capture.Journal.
func (j recordJournal) DeleteLane(ctx context.Context, name, incarnation string) error {
	key := persistence.RecordKey{Kind: persistence.KindLane, Scope: name, Name: incarnation}
	return j.store.Delete(ctx, persistence.DeleteRequest{Shard: j.shard, Epoch: j.epoch, Keys: []persistence.RecordKey{key}})
}

// load reads what a capture journaled: its frontier (false: none yet) and the
// records of its lanes.
func (j recordJournal) load(ctx context.Context, name string) (f capture.Frontier, known bool, lanes map[string]capture.LaneRecord, err error) {
	f.Capture = name
	err = j.store.Scan(ctx, persistence.KindFrontier, name, func(r persistence.Record) error {
		p, err := persistence.ParseFrontier(r)
		if err != nil {
			return err
		}
		known = true
		if f.At, err = change.ParsePosition(p.Position); err != nil {
			return err
		}
		f.From, err = change.ParsePosition(p.From)
		return err
	})
	if err != nil {
		return f, known, nil, fmt.Errorf("read frontier of %s: %w", name, err)
	}
	lanes = map[string]capture.LaneRecord{}
	err = j.store.Scan(ctx, persistence.KindLane, name, func(r persistence.Record) error {
		p, err := persistence.ParseLane(r)
		if err != nil {
			return err
		}
		bound, err := change.ParsePosition(p.Bound)
		if err != nil {
			return err
		}
		lanes[p.Incarnation] = capture.LaneRecord{Capture: name, Incarnation: p.Incarnation, Attached: p.State == persistence.LaneAttached, Why: p.Why, Bound: bound}
		return nil
	})
	if err != nil {
		return f, known, nil, fmt.Errorf("read lanes of %s: %w", name, err)
	}
	return f, known, lanes, nil
}

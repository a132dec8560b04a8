package capture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/runnel-dev/runnel/change"
)

// Sweep re-reads the log from the lowest position that a lane which wants to run
// has reached, feeds them, and hands each over to the capture at a group boundary. It
// returns when no lane is left in it; nil when there was nothing to do. At most
// one runs at a time per capture.
func (c *Capture) Sweep(ctx context.Context) error {
	sw := &sweep{c: c, in: map[*Lane]struct{}{}}
	ok := false
	c.update(func(core *Core, _ func(*Lane)) {
		if sw.at, ok = core.SweepFrom(); ok {
			sw.join(core)
		}
	})
	if !ok {
		return nil
	}
	defer sw.leave()
	stream, err := c.cfg.Source.Open(ctx, sw.at, c.cfg.Filter)
	if err != nil {
		if errors.Is(err, change.ErrLogGone) || errors.Is(err, change.ErrHistory) {
			return sw.lost(ctx, err)
		}
		return fmt.Errorf("open the log for the sweep: %w", err)
	}
	err = sw.run(ctx, stream)
	return errors.Join(err, stream.Close())
}

// sweep is one run of the catch-up reader.
type sweep struct {
	c  *Capture
	in map[*Lane]struct{}
	at change.Position // S: everything up to here was delivered to the lanes in it
	// goal is the end of the log when it was last looked at; reaching it quickly
	// means that the sweep is near.
	goal   change.Position
	goalAt time.Time
	rounds int
}

// sweepScanEvery is how many groups pass between two looks at all lanes in the
// sweep while it is far behind, so that a group costs no scan.
const sweepScanEvery = 64

// nearAfter is how fast the sweep has to reach the former end of the log to be
// called near; after maxRounds tries it hands over anyway.
const (
	nearAfter = 2 * time.Second
	maxRounds = 5
)

func (s *sweep) run(ctx context.Context, stream change.Stream) error {
	for n := 0; ; n++ {
		if n%sweepScanEvery == 0 || s.goal.AtOrBefore(s.at) {
			waiting, err := s.scan(ctx)
			switch {
			case err != nil:
				return err
			case len(s.in) == 0:
				return nil
			case waiting:
				n = -1 // everybody has what the sweep can give: look again, read nothing
				continue
			}
		}
		g, err := stream.Next(ctx)
		if err != nil {
			return fmt.Errorf("read the log for the sweep: %w", err)
		}
		if g.End.AtOrBefore(s.at) {
			continue
		}
		if err := s.deliver(ctx, g); err != nil {
			return err
		}
	}
}

// join takes in the lanes that the sweep has not passed yet.
func (s *sweep) join(core *Core) {
	if len(core.wanting) == 0 {
		return
	}
	for _, l := range core.SweepJoin(s.at) {
		s.in[l] = struct{}{}
	}
	s.goal, s.goalAt, s.rounds = core.read, s.c.now(), 0
	s.c.mu.status.Sweeping, s.c.mu.status.SweepAt = true, s.at
}

// scan looks at every lane in the sweep: drops those that left, begins hand-overs
// when the end of the log is near, and stores those that are complete. waiting is
// true when the sweep has nothing more to give and lanes still apply.
func (s *sweep) scan(ctx context.Context) (waiting bool, err error) {
	var covered []*Lane
	pending := 0
	s.c.update(func(core *Core, ready func(*Lane)) {
		s.join(core)
		near := s.near(core)
		for l := range s.in {
			if l.mode == Sweeping && near {
				core.JoinBegin(l)
				s.goal = core.read
			}
			core.SweepReached(l, s.at, ready)
			switch {
			case l.mode != Sweeping && l.mode != Joining:
				delete(s.in, l)
			case core.JoinCovered(l):
				covered = append(covered, l)
			case l.mode == Joining && l.sweepDone:
				pending++
			}
		}
	})
	for _, l := range covered {
		if err := s.handOver(ctx, l); err != nil {
			return false, err
		}
	}
	if len(s.in) == 0 || pending < len(s.in) {
		return false, nil
	}
	return true, s.c.wait(ctx, func(core *Core) bool {
		for l := range s.in {
			if l.mode != Joining || core.JoinCovered(l) {
				return true
			}
		}
		return len(core.wanting) > 0 && core.canJoin(s.at)
	})
}

// near reports that the sweep reached the end of the log as it was a short time
// ago; otherwise it sets the next goal.
func (s *sweep) near(core *Core) bool {
	if s.at.Before(s.goal) {
		return false
	}
	if s.c.now().Sub(s.goalAt) <= nearAfter || s.rounds >= maxRounds {
		return true
	}
	s.goal, s.goalAt = core.read, s.c.now()
	s.rounds++
	return !s.at.Before(s.goal)
}

// handOver is step c: T covers everything up to the hand-over position, so the
// lane may be attached durably.
func (s *sweep) handOver(ctx context.Context, l *Lane) error {
	var bound change.Position
	err := s.c.lockStoring(ctx, l, func(core *Core) bool {
		bound = l.low
		return core.JoinCovered(l)
	})
	if errors.Is(err, errLaneMode) {
		return nil // it left meanwhile; the next scan drops it
	}
	if err != nil {
		return err
	}
	err = s.c.putLane(ctx, l, LaneRecord{Attached: true, Bound: bound})
	s.c.update(func(core *Core, _ func(*Lane)) {
		l.storing = false
		if err == nil {
			core.AttachDurable(l)
		}
	})
	if err == nil {
		delete(s.in, l)
		if s.c.cfg.Attached != nil {
			s.c.cfg.Attached(l)
		}
	}
	return err
}

// deliver gives a group to the lanes it concerns once they have room; a lane that
// stays full leaves.
func (s *sweep) deliver(ctx context.Context, g *change.Group) error {
	var work []Work
	full := func(core *Core) bool {
		for i := range work {
			if l := work[i].Lane; (l.mode == Sweeping || l.mode == Joining && !l.sweepDone) && l.bytes > s.c.cfg.LaneBudgetBytes {
				return true
			}
		}
		return false
	}
	crowded := false
	s.c.update(func(core *Core, _ func(*Lane)) {
		work = core.route(g)
		crowded = full(core)
	})
	if crowded {
		if _, err := s.c.waitFor(ctx, s.c.cfg.SweepFullFor, func(core *Core) bool { return !full(core) }); err != nil {
			return err
		}
	}
	s.c.update(func(core *Core, ready func(*Lane)) {
		for i := range work {
			if l := work[i].Lane; l.mode == Sweeping && l.bytes > s.c.cfg.LaneBudgetBytes {
				core.SweepLeave(l)
				delete(s.in, l)
			}
		}
		core.SweepDeliver(g.End, work, ready)
		s.at = g.End
		s.c.mu.status.SweepAt = s.at
	})
	return nil
}

// lost takes out the lanes whose next groups the source no longer keeps and tells
// the engine. The others stay and are swept again.
func (s *sweep) lost(ctx context.Context, cause error) error {
	var first change.Position
	if errors.Is(cause, change.ErrLogGone) {
		var err error
		if first, err = s.c.cfg.Source.Oldest(ctx); err != nil {
			return fmt.Errorf("read where the log begins: %w", err)
		}
	}
	var lanes []*Lane
	s.c.update(func(core *Core, _ func(*Lane)) {
		for l := range s.in {
			// A lane at or after the oldest position is lost too when a group that
			// was open at its checkpoint began before: the lowest one always is.
			if first.IsZero() || l.low.Before(first) || l.low == s.at {
				core.DetachBegin(l)
				lanes = append(lanes, l)
				delete(s.in, l)
			}
		}
	})
	if s.c.cfg.Lost != nil {
		s.c.cfg.Lost(lanes, cause)
	}
	return nil
}

// leave puts back whoever is still in the sweep when it ends.
func (s *sweep) leave() {
	s.c.update(func(core *Core, _ func(*Lane)) {
		for l := range s.in {
			if !l.storing { // a record on its way decides; the capture is ending
				core.SweepLeave(l)
			}
		}
		s.c.mu.status.Sweeping = false
	})
}

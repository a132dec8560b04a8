package capture

import "github.com/runnel-dev/runnel/change"

// Want asks for the sweep: the detached lane is to be brought back.
func (c *Core) Want(l *Lane) {
	if l.mode == Detached && !l.removed {
		c.wanting[l] = struct{}{}
	}
}

// SweepFrom returns the lowest covered position of the lanes that want to run, which is
// where a sweep has to start; ok is false when there is none.
func (c *Core) SweepFrom() (from change.Position, ok bool) {
	for l := range c.wanting {
		if l.waiting() && (!ok || l.low.Before(from)) {
			from, ok = l.low, true
		}
	}
	return from, ok
}

// waiting lanes have no batch in flight: its outcome could still move ckpt.
func (l *Lane) waiting() bool {
	return l.mode == Detached && len(l.inflight) == 0
}

// SweepJoin moves every waiting lane that the sweep at s has not passed into it
// and returns the lanes that joined. A lane needs all groups after its low, so
// s ≤ low.
func (c *Core) SweepJoin(s change.Position) []*Lane {
	var joined []*Lane
	for l := range c.wanting {
		if l.waiting() && s.AtOrBefore(l.low) {
			l.mode = Sweeping
			joined = append(joined, l)
		}
	}
	return joined
}

// canJoin reports whether SweepJoin(s) would take a lane in.
func (c *Core) canJoin(s change.Position) bool {
	for l := range c.wanting {
		if l.waiting() && s.AtOrBefore(l.low) {
			return true
		}
	}
	return false
}

// SweepDeliver gives a group that the sweep read to the lanes in it.
func (c *Core) SweepDeliver(end change.Position, work []Work, ready func(*Lane)) {
	for i := range work {
		l, it := work[i].Lane, work[i].Item
		if l.removed || end.AtOrBefore(l.low) {
			continue
		}
		if l.mode == Sweeping || l.mode == Joining && !l.sweepDone && end.AtOrBefore(l.joinAt) {
			c.push(l, &l.queue, it)
			ready(l)
		}
	}
}

// JoinBegin is step a of a hand-over, on the capture loop: groups after the
// returned position go to the lane's second queue and are counted.
func (c *Core) JoinBegin(l *Lane) (at change.Position, ok bool) {
	if l.mode != Sweeping {
		return change.Position{}, false
	}
	l.mode, l.joinAt, l.sweepDone = Joining, c.read, false
	return c.read, true
}

// SweepReached tells that the sweep has delivered everything up to s; a joining
// lane whose hand-over position is passed goes on with its second queue (step b).
func (c *Core) SweepReached(l *Lane, s change.Position, ready func(*Lane)) {
	if l.mode != Joining || l.sweepDone || s.Before(l.joinAt) {
		return
	}
	l.sweepDone = true
	l.queue = append(l.queue, l.second...)
	l.second = nil
	if len(l.queue) > 0 {
		ready(l)
	}
}

// JoinCovered reports that T covers all groups up to the hand-over position, so
// that Attached may be stored (step c).
func (c *Core) JoinCovered(l *Lane) bool {
	return l.mode == Joining && l.sweepDone && l.drainedTo(l.joinAt)
}

// SweepLeave takes a lane out of the sweep: it stays detached and still wants.
func (c *Core) SweepLeave(l *Lane) {
	if l.mode == Sweeping || l.mode == Joining {
		c.leaveSweep(l)
		c.wanting[l] = struct{}{}
	}
}

// leaveSweep drops what is queued and, for a joining lane, what it counts: the
// lane is durable detached, so the log is read again from its checkpoint.
func (c *Core) leaveSweep(l *Lane) {
	c.release(l)
	c.dropQueues(l)
	c.reroute(l)
	l.mode, l.sweepDone = Detached, false
}

// LogStartsAt returns the detached lanes whose next group the source no longer
// keeps (I2); the caller makes them needs-resync.
func (c *Core) LogStartsAt(first change.Position) []*Lane {
	var lost []*Lane
	for _, l := range c.lanes {
		if (l.mode == Detached || l.mode == Sweeping) && l.low.Before(first) {
			lost = append(lost, l)
		}
	}
	return lost
}

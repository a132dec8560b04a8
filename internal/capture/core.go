package capture

import (
	"fmt"
	"time"

	"github.com/runnel-dev/runnel/change"
)

// Mode is a lane's relation to the frontier.
type Mode uint8

// The modes. "Durable" is what the store says about the lane.
const (
	// Detached: durable; the log passes the lane by. The sweep moves it on.
	Detached Mode = iota
	// Attaching: a new task; live and counted, Attached is not durable yet.
	Attaching
	// Attached: durable and live. Holds the frontier while rows are undone.
	Attached
	// Detaching: no longer live but still counted, until Detached is durable.
	Detaching
	// Sweeping: durable detached; the sweep fills the queue.
	Sweeping
	// Joining: durable detached; the sweep fills the queue up to joinAt, the
	// capture fills what comes after, counted. Attached is not durable yet.
	Joining
)

func (m Mode) String() string {
	return [...]string{"detached", "attaching", "attached", "detaching", "sweeping", "joining"}[m]
}

// Item is one group's part for one lane.
type Item struct {
	End        change.Position
	Events     []change.Event
	Bytes      int // memory that Events keep alive
	CommitTime time.Time
	ReadTime   time.Time
	// Barrier: the item holds a statement and must be alone in its batch.
	Barrier bool
}

// Lane is the handle of one table's path. Its unexported fields belong to Core.
type Lane struct {
	// Table, Incarnation and Task are fixed when the lane is added.
	Table       change.TableID
	Incarnation string
	// Task is the engine's own data; capture never looks at it.
	Task any

	mode      Mode
	removed   bool
	storing   bool // an attach or detach record is on its way to the store
	ended     bool // the table was dropped or renamed away: no rows are routed here
	sweepDone bool // joining: the sweep has given everything up to joinAt
	holding   bool // a chunk waits; nothing after holdAt may be cut

	ckpt change.Position // T: what the checkpoint row in the target says
	// low ≥ ckpt: every row of l in groups at or below it is in the target. It runs
	// ahead of ckpt while the table is idle, so that a lane which detaches needs the
	// log from where it detached and not from its last change.
	low    change.Position
	joinAt change.Position
	holdAt change.Position

	queue    []Item   // to be cut, in log order
	second   []Item   // joining: groups after joinAt
	inflight []Item   // cut and not yet reported
	undone   []uint64 // ring sequences counted and not yet under T, ascending
	bytes    int      // queue + second + inflight
	building int      // index+1 into the group's work while it is routed
	since    time.Time
}

type ringEntry struct {
	end, openFrom change.Position
	left          int32 // lanes whose rows of this group are not under T
}

// Core is the frontier's state machine: no goroutine, no clock, no I/O. The
// caller serialises access. See docs/design/frontier.md for the steps.
//
// Invariants kept here:
//   - left of an entry = number of lanes that have its sequence in undone;
//   - undone of a lane is ascending, and every counted item in its queues has
//     its sequence there;
//   - a Detached or Sweeping lane has nothing in undone.
type Core struct {
	lanes   map[string]*Lane           // by incarnation
	byTable map[change.TableID][]*Lane // lanes that rows are routed to
	wanting map[*Lane]struct{}         // detached lanes that want the sweep
	loaded  map[*Lane]struct{}         // lanes that keep rows in memory

	ring []ringEntry
	base uint64 // sequence of ring[0]

	read      change.Position // R: end of the last delivered group
	popped    change.Position // f: end of the last entry popped, to be journaled
	poppedAt  change.Position // from that goes with popped
	journaled change.Position // F
	bytes     int
}

// NewCore returns the state of a capture whose frontier was journaled at f, where
// its reader opens the log; the log was needed from from.
func NewCore(f, from change.Position) *Core {
	return &Core{
		lanes: map[string]*Lane{}, byTable: map[change.TableID][]*Lane{},
		wanting: map[*Lane]struct{}{}, loaded: map[*Lane]struct{}{}, base: 1,
		read: f, popped: f, poppedAt: from, journaled: f,
	}
}

// AddLane registers a lane with its durable mode (Attached or Detached), its
// checkpoint in the target, and the stored position up to which all of its rows
// are in the target. An attached lane has everything up to the frontier (I1).
func (c *Core) AddLane(l *Lane, attached bool, ckpt, bound change.Position) error {
	if _, dup := c.lanes[l.Incarnation]; dup {
		return fmt.Errorf("add lane %s of %s: the incarnation exists", l.Incarnation, l.Table)
	}
	l.mode, l.ckpt, l.low = Detached, ckpt, later(ckpt, bound)
	if attached {
		l.mode, l.low = Attached, later(l.low, c.journaled)
	}
	c.lanes[l.Incarnation] = l
	c.byTable[l.Table] = append(c.byTable[l.Table], l)
	return nil
}

// StartLane makes a new task's lane live at the present end of the log, on the
// capture loop: every later group is counted for it. Its position is returned.
func (c *Core) StartLane(l *Lane) (change.Position, error) {
	if err := c.AddLane(l, false, c.read, c.read); err != nil {
		return change.Position{}, err
	}
	l.mode = Attaching
	return c.read, nil
}

func later(p, q change.Position) change.Position {
	if p.Before(q) {
		return q
	}
	return p
}

// SetCheckpoint tells a detached lane what its checkpoint row says, when the
// target could not be read before.
func (c *Core) SetCheckpoint(l *Lane, ckpt change.Position) {
	if l.mode == Detached && len(l.inflight) == 0 {
		l.ckpt, l.low = ckpt, later(l.low, ckpt)
	}
}

// AttachDurable ends Attaching or Joining: the store says Attached.
func (c *Core) AttachDurable(l *Lane) {
	if l.mode == Attaching || l.mode == Joining {
		l.mode = Attached
		delete(c.wanting, l)
	}
}

// Remove forgets a lane. It must hold nothing: detach it first.
func (c *Core) Remove(l *Lane) {
	c.release(l)
	c.dropQueues(l)
	l.removed, l.mode = true, Detached
	delete(c.lanes, l.Incarnation)
	delete(c.wanting, l)
	c.unroute(l)
}

// reroute lets an ended lane that detaches meet its end again in the sweep.
func (c *Core) reroute(l *Lane) {
	if l.ended {
		l.ended = false
		c.byTable[l.Table] = append(c.byTable[l.Table], l)
	}
}

// unroute ends the routing of rows to l.
func (c *Core) unroute(l *Lane) {
	ls := c.byTable[l.Table]
	for i := range ls {
		if ls[i] == l {
			ls = append(ls[:i:i], ls[i+1:]...)
			break
		}
	}
	if len(ls) == 0 {
		delete(c.byTable, l.Table)
	} else {
		c.byTable[l.Table] = ls
	}
}

// Work is one lane's item of a group.
type Work struct {
	Lane *Lane
	Item Item
}

// Deliver takes a group's end with the items of the lanes it concerns. Groups at
// or below R are known already (the log was opened again) and are ignored. ready
// is called for each lane that got something to cut.
func (c *Core) Deliver(end, openFrom change.Position, work []Work, ready func(*Lane)) {
	if end.AtOrBefore(c.read) {
		return
	}
	seq := c.base + uint64(len(c.ring))
	left := int32(0)
	for i := range work {
		l, it := work[i].Lane, work[i].Item
		if l.removed || end.AtOrBefore(l.low) { // I3: it is in the target
			continue
		}
		switch l.mode {
		case Attached, Attaching:
			c.push(l, &l.queue, it)
			ready(l)
		case Joining:
			if l.sweepDone {
				c.push(l, &l.queue, it)
				ready(l)
			} else {
				c.push(l, &l.second, it)
			}
		case Detaching: // counted, bytes dropped
		default:
			continue
		}
		l.undone = append(l.undone, seq)
		left++
	}
	c.ring = append(c.ring, ringEntry{end: end, openFrom: openFrom, left: left})
	c.read = end
}

func (c *Core) push(l *Lane, q *[]Item, it Item) {
	if l.bytes == 0 {
		l.since = it.ReadTime
		c.loaded[l] = struct{}{}
	}
	*q = append(*q, it)
	l.bytes += it.Bytes
	c.bytes += it.Bytes
}

// unload takes back the memory of an item that left l.
func (c *Core) unload(l *Lane, it *Item) {
	l.bytes -= it.Bytes
	c.bytes -= it.Bytes
	if l.bytes == 0 {
		delete(c.loaded, l)
	}
}

// Cut takes the lane's next items, at most limitBytes of them but at least one,
// and marks them in flight. nil: nothing to do, a batch is in flight, or a chunk
// holds the lane. A barrier comes alone.
func (c *Core) Cut(l *Lane, limitBytes int) []Item {
	if len(l.inflight) > 0 || len(l.queue) == 0 {
		return nil
	}
	if l.mode != Attached && l.mode != Sweeping && l.mode != Joining {
		return nil // Attaching: the checkpoint row is not in the target yet
	}
	n, size := 0, 0
	for n < len(l.queue) {
		it := &l.queue[n]
		if l.holding && l.holdAt.Before(it.End) {
			break
		}
		if n > 0 && (it.Barrier || l.queue[n-1].Barrier || size+it.Bytes > limitBytes) {
			break
		}
		size += it.Bytes
		n++
	}
	if n == 0 {
		return nil
	}
	l.inflight = l.queue[:n:n]
	l.queue = l.queue[n:]
	if len(l.queue) == 0 {
		l.queue = nil
	}
	return l.inflight
}

// Applied reports T: every row of l in groups up to end is in the target.
func (c *Core) Applied(l *Lane, end change.Position) {
	l.ckpt = later(l.ckpt, end)
	l.low = later(l.low, end)
	rest := l.inflight[:0:0]
	for _, it := range l.inflight {
		if it.End.AtOrBefore(end) {
			c.unload(l, &it)
		} else {
			rest = append(rest, it)
		}
	}
	if l.inflight = rest; len(rest) == 0 {
		l.inflight = nil
	}
	n := 0
	for n < len(l.undone) && c.entry(l.undone[n]).end.AtOrBefore(end) {
		c.entry(l.undone[n]).left--
		n++
	}
	if l.undone = l.undone[n:]; len(l.undone) == 0 {
		l.undone = nil
	}
}

// Requeue puts the batch in flight back: it is not in the target. A lane that
// was detached meanwhile drops it.
func (c *Core) Requeue(l *Lane) {
	items := l.inflight
	l.inflight = nil
	if l.mode == Detached || l.mode == Detaching {
		for _, it := range items {
			c.unload(l, &it)
		}
		return
	}
	if len(items) > 0 {
		l.queue = append(items[:len(items):len(items)], l.queue...)
	}
}

// Reload sets the checkpoint to what the target says, after a lost outcome or a
// mismatch, and drops what it covers. It reports false when the target is behind
// what the lane has already let go: then the lane must detach and be swept.
func (c *Core) Reload(l *Lane, at change.Position) bool {
	c.Requeue(l)
	if at.Before(l.ckpt) {
		l.ckpt, l.low = at, at
		return false
	}
	c.Applied(l, at)
	n := 0
	for n < len(l.queue) && l.queue[n].End.AtOrBefore(at) {
		c.unload(l, &l.queue[n])
		n++
	}
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil
	}
	return true
}

// DetachBegin is step 1 of a detach: the lane is no longer live. It still counts
// while it was attached (also an idle lane must hold the frontier until Detached
// is durable). The result is the lower bound to store, and whether a record has
// to be stored at all: a lane that is durable detached only leaves the sweep.
func (c *Core) DetachBegin(l *Lane) (bound change.Position, store bool) {
	delete(c.wanting, l)
	c.Unhold(l)
	switch l.mode {
	case Attached, Attaching:
		if len(l.undone) == 0 {
			l.low = later(l.low, c.read) // nothing is missing up to R
		}
		l.mode = Detaching
		c.dropQueues(l)
		c.reroute(l)
		return l.low, true
	case Joining, Sweeping:
		c.leaveSweep(l)
	case Detaching:
		return l.low, true
	}
	return l.low, false
}

// DetachDurable is step 3: only now may the frontier pass the lane's rows.
func (c *Core) DetachDurable(l *Lane) {
	if l.mode == Detaching {
		c.release(l)
		l.mode = Detached
	}
}

// release takes back everything the lane counts.
func (c *Core) release(l *Lane) {
	for _, s := range l.undone {
		c.entry(s).left--
	}
	l.undone = nil
}

func (c *Core) dropQueues(l *Lane) {
	for _, q := range [][]Item{l.queue, l.second} {
		for i := range q {
			c.unload(l, &q[i])
		}
	}
	l.queue, l.second = nil, nil
}

func (c *Core) entry(seq uint64) *ringEntry { return &c.ring[seq-c.base] }

// Advance pops what every attached lane has applied. It returns the frontier to
// journal and the position the log is needed from; ok is false when neither
// moved since the last Journaled. Cost: O(entries popped).
func (c *Core) Advance() (f, from change.Position, ok bool) {
	n := 0
	for n < len(c.ring) && c.ring[n].left == 0 {
		e := &c.ring[n]
		c.popped, c.poppedAt = e.end, e.end
		if !e.openFrom.IsZero() {
			c.poppedAt = e.openFrom
		}
		n++
	}
	c.ring = c.ring[n:]
	c.base += uint64(n)
	if len(c.ring) == 0 {
		c.ring = nil
	}
	return c.popped, c.poppedAt, c.journaled != c.popped
}

// Journaled reports J: the frontier f is durable.
func (c *Core) Journaled(f change.Position) { c.journaled = f }

// Hold lets nothing after at be cut, so that a chunk can be placed there.
func (c *Core) Hold(l *Lane, at change.Position) { l.holding, l.holdAt = true, at }

// BarrierBefore reports whether a statement at or below at waits in l's queue.
func (c *Core) BarrierBefore(l *Lane, at change.Position) bool {
	for i := range l.queue {
		if l.queue[i].Barrier && l.queue[i].End.AtOrBefore(at) {
			return true
		}
	}
	return false
}

// Unhold lets the lane go on.
func (c *Core) Unhold(l *Lane) { l.holding, l.holdAt = false, change.Position{} }

// Held reports that everything of l up to its hold is under T: R has passed the
// hold, and neither queue nor flight holds an item at or below it.
func (c *Core) Held(l *Lane) bool {
	return l.holding && l.mode == Attached && l.holdAt.AtOrBefore(c.read) && l.drainedTo(l.holdAt)
}

func (l *Lane) drainedTo(at change.Position) bool {
	return len(l.inflight) == 0 && (len(l.queue) == 0 || at.Before(l.queue[0].End))
}

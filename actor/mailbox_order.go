package actor

// Prioritized is what messages implement for a mailbox whose Order is
// ByPriority. A higher number is handled first; messages without it have 0.
type Prioritized interface{ Priority() int }

// Control is what messages implement that overtake the others in a mailbox whose
// Order is ControlFirst.
type Control interface{ ControlMessage() }

// ordered is the part of a mailbox that is not FIFO; cell.mu guards it. It exists
// only while it holds something.
type ordered struct {
	control queue    // ControlFirst: what overtakes cell.q
	heap    []ranked // ByPriority: all, best first
	front   int64    // seq of what was last given back to the front, falling from 0
	back    int64    // seq of what was last pushed, rising from 0
}

// ranked is an envelope in a heap.
type ranked struct {
	e    any
	rank int
	seq  int64 // within a rank, smaller first
}

func (r ranked) before(o ranked) bool {
	return r.rank > o.rank || r.rank == o.rank && r.seq < o.seq
}

// lowest is the rank of a Terminated, so that it comes after all messages of the
// actor that has stopped.
const lowest = -1 << 63

// content is the message that an envelope carries, as far as it is known before
// its turn.
func content(e any) any {
	switch e := e.(type) {
	case *future:
		return e.msg
	case *timer:
		return e.msg
	case *kept:
		return e.msg
	}
	return e
}

func rankOf(e any) int {
	if _, ok := e.(*termination); ok {
		return lowest
	}
	if p, ok := content(e).(Prioritized); ok {
		return max(p.Priority(), lowest+1)
	}
	return 0
}

func isControl(e any) bool {
	_, ok := content(e).(Control)
	return ok
}

// orderedLocked returns the ordered part, made if absent.
func (c *cell) orderedLocked() *ordered {
	l := c.linksLocked()
	if l.box == nil {
		l.box = &ordered{}
	}
	return l.box
}

// pushLocked appends an envelope to the mailbox.
func (c *cell) pushLocked(e any) {
	switch c.spec.mb.Order {
	case ByPriority:
		o := c.orderedLocked()
		o.back++
		o.push(ranked{e, rankOf(e), o.back})
	case ControlFirst:
		if isControl(e) {
			c.orderedLocked().control.push(e)
			return
		}
		c.q.push(e)
	default:
		c.q.push(e)
	}
}

func (c *cell) emptyLocked() bool {
	if !c.q.empty() {
		return false
	}
	return c.links == nil || c.links.box == nil
}

// popLocked takes the first envelope of a mailbox that is not empty.
func (c *cell) popLocked() any {
	if c.links == nil || c.links.box == nil {
		return c.q.pop()
	}
	o := c.links.box
	var e any
	if len(o.heap) > 0 {
		e = o.pop(0)
	} else {
		e = o.control.pop()
	}
	c.trimLocked()
	return e
}

// trimLocked drops an ordered part that holds nothing.
func (c *cell) trimLocked() {
	if o := c.links.box; o != nil && len(o.heap) == 0 && o.control.empty() {
		c.links.box = nil
	}
}

// unpopLocked puts envelopes back in front of all others of their rank, in their
// order.
func (c *cell) unpopLocked(es []any) {
	if len(es) == 0 {
		return
	}
	switch c.spec.mb.Order {
	case ByPriority:
		o := c.orderedLocked()
		for i := len(es) - 1; i >= 0; i-- {
			o.front--
			o.push(ranked{es[i], rankOf(es[i]), o.front})
		}
	case ControlFirst:
		var control, rest []any
		for _, e := range es {
			if isControl(e) {
				control = append(control, e)
			} else {
				rest = append(rest, e)
			}
		}
		if len(control) > 0 {
			c.orderedLocked().control.unpop(control)
		}
		c.q.unpop(rest)
	default:
		c.q.unpop(es)
	}
}

// evictLocked removes the message of a sender that a full mailbox can best spare:
// the oldest; in a mailbox by priority the oldest of the lowest rank; in one
// with control first a control message only if there is no other.
func (c *cell) evictLocked() (any, bool) {
	if e, ok := c.q.popOldestMessage(); ok {
		return e, true
	}
	if c.links == nil || c.links.box == nil {
		return nil, false
	}
	defer c.trimLocked()
	o := c.links.box
	if !o.control.empty() {
		return o.control.popOldestMessage()
	}
	worst := -1
	for i, r := range o.heap {
		if isOwn(r.e) {
			continue
		}
		if worst < 0 || r.rank < o.heap[worst].rank || r.rank == o.heap[worst].rank && r.seq < o.heap[worst].seq {
			worst = i
		}
	}
	if worst < 0 {
		return nil, false
	}
	return o.pop(worst), true
}

func (o *ordered) push(r ranked) {
	o.heap = append(o.heap, r)
	o.up(len(o.heap) - 1)
}

// pop removes the envelope at heap[i]. A heap that was much larger gives its
// memory back.
func (o *ordered) pop(i int) any {
	e := o.heap[i].e
	last := len(o.heap) - 1
	o.heap[i] = o.heap[last]
	o.heap[last] = ranked{}
	o.heap = o.heap[:last]
	if i < last {
		o.up(i)
		o.down(i)
	}
	if cap(o.heap) > 64 && last < cap(o.heap)/4 {
		o.heap = append(make([]ranked, 0, cap(o.heap)/2), o.heap...)
	}
	return e
}

func (o *ordered) up(i int) {
	h := o.heap
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].before(h[parent]) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func (o *ordered) down(i int) {
	h := o.heap
	for {
		best := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(h); k++ {
			if h[k].before(h[best]) {
				best = k
			}
		}
		if best == i {
			return
		}
		h[i], h[best] = h[best], h[i]
		i = best
	}
}

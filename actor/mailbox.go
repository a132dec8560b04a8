package actor

import "sync"

// chunkLen makes a chunk 128 bytes, what an actor with one waiting message costs.
const chunkLen = 7

// chunk is a piece of a mailbox; e[r:w] is filled.
type chunk struct {
	next *chunk
	r, w int32
	e    [chunkLen]any
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// queue is a FIFO of envelopes in pooled chunks, without a buffer while empty.
// The owner's mutex guards it.
//
// An envelope is the message itself, or a pointer to one of the package's own
// carriers: *future (an asked message), *timer, *piped, *termination, *kept.
type queue struct {
	head, tail *chunk
}

func (q *queue) empty() bool { return q.head == nil }

func (q *queue) push(e any) {
	t := q.tail
	if t == nil || t.w == chunkLen {
		c := chunks.Get().(*chunk)
		if t == nil {
			q.head = c
		} else {
			t.next = c
		}
		q.tail, t = c, c
	}
	t.e[t.w] = e
	t.w++
}

// pop requires a queue that is not empty.
func (q *queue) pop() any {
	c := q.head
	e := c.e[c.r]
	c.e[c.r] = nil
	if c.r++; c.r == c.w {
		q.dropHead()
	}
	return e
}

func (q *queue) dropHead() {
	c := q.head
	if q.head = c.next; q.head == nil {
		q.tail = nil
	}
	c.next, c.r, c.w = nil, 0, 0
	chunks.Put(c)
}

// unpop puts envelopes back in front, in their order.
func (q *queue) unpop(es []any) {
	for len(es) > 0 {
		n := min(len(es), chunkLen)
		c := chunks.Get().(*chunk)
		copy(c.e[:n], es[len(es)-n:])
		c.w = int32(n)
		if c.next = q.head; q.head == nil {
			q.tail = c
		}
		q.head = c
		es = es[:len(es)-n]
	}
}

// popOldestMessage removes the first envelope that is a message of a sender, and
// reports whether there was one. What stands before it keeps its order.
func (q *queue) popOldestMessage() (any, bool) {
	var before []any
	for !q.empty() {
		e := q.pop()
		if !isOwn(e) {
			q.unpop(before)
			return e, true
		}
		before = append(before, e)
	}
	q.unpop(before)
	return nil, false
}

// isOwn reports whether the actor itself asked for e, so that capacity does not
// apply to it.
func isOwn(e any) bool {
	switch e.(type) {
	case *timer, *piped, *termination, *kept:
		return true
	}
	return false
}

package sqlite

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/runnel-dev/runnel/persistence"
)

// Bounds of what waits for the writer and of one transaction.
const (
	maxQueued      = 8192     // operations waiting, commands and background each
	maxQueuedBytes = 64 << 20 // of all that wait
	maxBatch       = 1024     // operations in one transaction
	maxBatchBytes  = 8 << 20  // and their bytes; one operation may exceed it alone
	fillBatch      = 256      // background work fills a transaction up to this many
	minBackground  = 16       // and gets this many places however many commands wait
)

// op is one operation on its way through the writer.
//
//	queued ──take──▶ taken ──commit──▶ done is called
//	   └──withdraw──▶ withdrawn, nothing is written
type op struct {
	// run checks the operation against the batch so far and adds it, or returns
	// why it is refused and adds nothing.
	run func(b *batch) (uint64, error)
	// done is called once unless the operation was withdrawn.
	done  func(uint64, error)
	size  int // bytes
	state atomic.Int32
}

const (
	opQueued int32 = iota
	opTaken
	opWithdrawn
)

// queue is the bounded hand-over to the writer: commands and background work.
type queue struct {
	mu struct {
		sync.Mutex
		command    []*op
		background []*op
		bytes      int
		closed     error         // why nothing more is taken in
		room       chan struct{} // closed when the writer has taken something
	}
	wake chan struct{} // has a token when there may be something to take
}

func newQueue() *queue {
	q := &queue{wake: make(chan struct{}, 1)}
	q.mu.room = make(chan struct{})
	return q
}

// push adds o; without room the error is ErrBusy and room is what to wait on.
func (q *queue) push(o *op, background bool) (room <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed != nil {
		return nil, q.mu.closed
	}
	list := &q.mu.command
	if background {
		list = &q.mu.background
	}
	if len(*list) >= maxQueued || q.mu.bytes > 0 && q.mu.bytes+o.size > maxQueuedBytes {
		return q.mu.room, fmt.Errorf("queue a write behind %d others: %w", len(*list), persistence.ErrBusy)
	}
	*list = append(*list, o)
	q.mu.bytes += o.size
	q.signal()
	return nil, nil
}

// pushWait is push that waits for room until ctx is done.
func (q *queue) pushWait(ctx context.Context, o *op, background bool) error {
	for {
		room, err := q.push(o, background)
		if err == nil || room == nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns the next transaction's operations. closed is set once nothing
// more will ever come.
func (q *queue) take() (ops []*op, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := 0
	size = q.takeFrom(&q.mu.command, &ops, maxBatch, size)
	size = q.takeFrom(&q.mu.background, &ops, max(fillBatch, len(ops)+minBackground), size)
	q.mu.bytes -= size
	if len(ops) > 0 {
		close(q.mu.room)
		q.mu.room = make(chan struct{})
	}
	if len(q.mu.command)+len(q.mu.background) > 0 {
		q.signal()
	}
	return ops, q.mu.closed != nil && len(ops) == 0
}

func (q *queue) takeFrom(list *[]*op, ops *[]*op, limit, size int) int {
	n := 0
	for _, o := range *list {
		if len(*ops) >= limit || size > 0 && size+o.size > maxBatchBytes {
			break
		}
		*ops = append(*ops, o)
		size += o.size
		n++
	}
	if n == len(*list) {
		*list = (*list)[:0]
		return size
	}
	// Copying down keeps one array per list instead of a window that wanders.
	*list = append((*list)[:0], (*list)[n:]...)
	return size
}

// close lets nothing more in; what is queued is still taken. The first cause stays.
func (q *queue) close(cause error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed == nil {
		q.mu.closed = cause
	}
	q.signal()
}

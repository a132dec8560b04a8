package tablesync

import (
	"container/heap"
	"context"
	"sync"
)

// copyQueue gives tables to a source's copy workers, small ones first.
type copyQueue struct {
	readers int
	wake    chan struct{}
	mu      struct {
		sync.Mutex
		heap copyHeap
		seq  uint64
	}
}

type copyItem struct {
	t    *task
	rows int64
	seq  uint64
}

func newCopyQueue(readers int) *copyQueue {
	return &copyQueue{readers: readers, wake: make(chan struct{}, readers)}
}

func (q *copyQueue) push(t *task, rows int64) {
	q.mu.Lock()
	q.mu.seq++
	heap.Push(&q.mu.heap, copyItem{t, rows, q.mu.seq})
	q.mu.Unlock()
	q.signal()
}

func (q *copyQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *copyQueue) pop() *task {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.mu.heap) == 0 {
		return nil
	}
	it := heap.Pop(&q.mu.heap).(copyItem)
	if len(q.mu.heap) > 0 {
		q.signal()
	}
	return it.t
}

func (q *copyQueue) clear() {
	q.mu.Lock()
	q.mu.heap = nil
	q.mu.Unlock()
}

// run is one worker: it copies tables one after the other until ctx ends.
func (q *copyQueue) run(ctx context.Context, copyTable func(context.Context, *task)) {
	for ctx.Err() == nil {
		if t := q.pop(); t != nil {
			copyTable(ctx, t)
			continue
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
		}
	}
}

// copyHeap orders by estimated rows, then by arrival.
type copyHeap []copyItem

func (h copyHeap) Len() int { return len(h) }
func (h copyHeap) Less(i, j int) bool {
	if h[i].rows != h[j].rows {
		return h[i].rows < h[j].rows
	}
	return h[i].seq < h[j].seq
}
func (h copyHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *copyHeap) Push(x any) { *h = append(*h, x.(copyItem)) }

// Pop implements heap.Interface.
func (h *copyHeap) Pop() any {
	old := *h
	it := old[len(old)-1]
	old[len(old)-1] = copyItem{}
	*h = old[:len(old)-1]
	return it
}

package tablesync

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// meter counts what the process has done.
type meter struct {
	rowsCopied, changes, transactions atomic.Int64
	lag                               lagWindow
}

func (m *meter) copied(rows int) { m.rowsCopied.Add(int64(rows)) }

// observe takes the lag of a group (negative: none) and what a batch applied.
func (m *meter) observe(lag time.Duration, changes, transactions int) {
	if lag >= 0 {
		m.lag.add(lag)
	}
	m.changes.Add(int64(changes))
	m.transactions.Add(int64(transactions))
}

// lagWindow is a histogram of the last minute's lags in two halves: buckets grow
// by an eighth, from a microsecond.
type lagWindow struct {
	mu      sync.Mutex
	now     [lagBuckets]uint32
	before  [lagBuckets]uint32
	started time.Time
}

const (
	lagBuckets  = 40 * 8
	lagHalfTime = 30 * time.Second
)

func lagBucket(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 1))
	exp := bits.Len64(us) - 1
	frac := 0
	if exp >= 3 {
		frac = int(us>>(exp-3)) & 7
	} else {
		frac = int(us<<(3-exp)) & 7
	}
	return min(exp*8+frac, lagBuckets-1)
}

// lagAt is the upper bound of a bucket.
func lagAt(b int) time.Duration {
	us := (uint64(1) << (b / 8)) * uint64(8+b%8+1) / 8
	return time.Duration(us) * time.Microsecond
}

func (w *lagWindow) add(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rotateLocked(time.Now())
	w.now[lagBucket(d)]++
}

func (w *lagWindow) rotateLocked(now time.Time) {
	switch age := now.Sub(w.started); {
	case age < lagHalfTime:
		return
	case age < 2*lagHalfTime:
		w.before = w.now
	default:
		w.before = [lagBuckets]uint32{}
	}
	w.now, w.started = [lagBuckets]uint32{}, now
}

// quantiles returns the lags below which the given shares of groups were.
func (w *lagWindow) quantiles(qs ...float64) []time.Duration {
	w.mu.Lock()
	w.rotateLocked(time.Now())
	sum := w.now
	for i, n := range w.before {
		sum[i] += n
	}
	w.mu.Unlock()
	total := uint64(0)
	for _, n := range sum {
		total += uint64(n)
	}
	out := make([]time.Duration, len(qs))
	for i, q := range qs {
		seen := uint64(0)
		for b, n := range sum {
			if seen += uint64(n); n > 0 && float64(seen) >= q*float64(total) {
				out[i] = lagAt(b)
				break
			}
		}
	}
	return out
}

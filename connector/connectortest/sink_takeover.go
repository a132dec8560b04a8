package connectortest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/runnel-dev/runnel/change"
)

// takeover is writers with a lane each that go on while somebody else claims again
// and again.
type takeover struct {
	lanes []*lane
	epoch atomic.Uint64 // the newest that was claimed
	stop  chan struct{}

	mu      sync.Mutex
	commits []takenCommit
	found   map[uint64][]int // by epoch: where each lane stood at its claim
}

// takenCommit is a commit that a writer was told of.
type takenCommit struct {
	lane  int
	epoch uint64
	pos   int
}

// takeovers: what an epoch committed must be what the next one found at its claim.
func takeovers(t *testing.T, ctx context.Context, h *SinkHarness) {
	const writers, rounds = 4, 300
	x := &takeover{stop: make(chan struct{}), found: map[uint64][]int{}}
	x.epoch.Store(1)
	base := h.newLane(t, ctx, "take_0")
	for i := range writers {
		l := base.through(h.Open(t, h.Addr))
		l.name = fmt.Sprint("take_", i)
		l.layout = h.Layout(l.name)
		if err := l.sink.Prepare(ctx, l.fence, l.task()); err != nil {
			t.Fatal(err)
		}
		x.lanes = append(x.lanes, l)
	}
	var wg sync.WaitGroup
	for i := range x.lanes {
		wg.Go(func() { x.write(t, ctx, i) })
	}
	for r := range rounds {
		if err := x.takeOver(ctx, base, uint64(r+2)); err != nil {
			t.Errorf("take over: %v", err)
			break
		}
	}
	close(x.stop)
	wg.Wait()
	if len(x.commits) < rounds/4 {
		t.Errorf("got %d commits under %d takeovers: the writers hardly ran", len(x.commits), rounds)
	}
	x.judge(t, ctx)
	t.Logf("%d commits of %d writers under %d takeovers", len(x.commits), writers, rounds)
}

// write applies step after step of one lane, with the newest epoch that it knows.
func (x *takeover) write(t *testing.T, ctx context.Context, i int) {
	for !x.stopped() {
		l := x.lanes[i]
		w := l.with(change.Fence{StoreID: l.fence.StoreID, Owner: l.fence.Owner, Epoch: x.epoch.Load()})
		at, err := x.positions(ctx, w)
		for n := at[i] + 1; err == nil && !x.stopped(); n++ {
			if err = w.apply(ctx, n); err == nil {
				x.mu.Lock()
				x.commits = append(x.commits, takenCommit{i, w.fence.Epoch, n})
				x.mu.Unlock()
			}
		}
		if err != nil && !errors.Is(err, change.ErrDeposed) && change.ClassOf(err) != change.Transient {
			t.Errorf("writer %d: %v", i, err)
			return
		}
	}
}

func (x *takeover) stopped() bool {
	select {
	case <-x.stop:
		return true
	default:
		return false
	}
}

// positions loads where each lane stands.
func (x *takeover) positions(ctx context.Context, w *lane) ([]int, error) {
	cps, err := w.sink.Load(ctx, w.fence)
	at := make([]int, len(x.lanes))
	for _, cp := range cps {
		for i, l := range x.lanes {
			if cp.CheckpointKey == l.key() {
				at[i] = order(cp.Position)
			}
		}
	}
	return at, err
}

func (x *takeover) takeOver(ctx context.Context, base *lane, epoch uint64) error {
	l := base.with(change.Fence{StoreID: base.fence.StoreID, Owner: base.fence.Owner, Epoch: epoch})
	if err := l.sink.Claim(ctx, l.fence); err != nil {
		return err
	}
	at, err := x.positions(ctx, l)
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.found[epoch] = at
	x.mu.Unlock()
	x.epoch.Store(epoch)
	return nil
}

// judge looks for commits that came after the next epoch had looked, and for rows
// that do not agree with the last checkpoint.
func (x *takeover) judge(t *testing.T, ctx context.Context) {
	last := make([]int, len(x.lanes))
	for _, c := range x.commits {
		last[c.lane] = max(last[c.lane], c.pos)
		if next, ok := x.found[c.epoch+1]; ok && c.pos > next[c.lane] {
			t.Errorf("lane %d: epoch %d committed position %d after epoch %d had found %d", c.lane, c.epoch, c.pos, c.epoch+1, next[c.lane])
		}
	}
	for i, l := range x.lanes {
		l.with(change.Fence{StoreID: l.fence.StoreID, Owner: l.fence.Owner, Epoch: x.epoch.Load()}).stands(t, ctx, last[i])
	}
}

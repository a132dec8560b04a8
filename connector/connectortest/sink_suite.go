package connectortest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/runnel-dev/runnel/change"
)

// RunSink runs the suite. The target must be empty of earlier runs.
func RunSink(t *testing.T, h SinkHarness) {
	for _, part := range []struct {
		name string
		run  func(*testing.T, context.Context, *SinkHarness)
	}{
		{"CheckFindsNothing", checkFindsNothing},
		{"PreparedTaskStands", preparedTaskStands},
		{"TargetHasOneOwner", targetHasOneOwner},
		{"OldEpochIsDeposed", oldEpochIsDeposed},
		{"OtherStoreIsRefused", otherStoreIsRefused},
		{"CheckpointIsCompared", checkpointIsCompared},
		{"BadBatchIsLeftOut", badBatchIsLeftOut},
		{"ClaimWaitsForOpenTransaction", claimWaits},
		{"LostCommit", func(t *testing.T, ctx context.Context, h *SinkHarness) { lostCommit(t, ctx, h, commitLost, 1) }},
		{"LostAnswer", func(t *testing.T, ctx context.Context, h *SinkHarness) { lostCommit(t, ctx, h, commitAnswerLost, 2) }},
		{"ResolveWaitsForHeldCommit", resolveWaits},
		{"ChunksLoadOnce", chunksLoadOnce},
		{"ForgetLeavesNothing", forgetLeavesNothing},
		{"StatementsMoveTheLayout", statementsMoveTheLayout},
		{"TakeoversUnderWriters", takeovers},
		{"CrashAtEveryFaultPoint", crashEverywhere},
	} {
		t.Run(part.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
			defer cancel()
			part.run(t, ctx, &h)
		})
	}
}

func checkFindsNothing(t *testing.T, ctx context.Context, h *SinkHarness) {
	problems, err := h.Open(t, h.Addr).Check(ctx)
	if err != nil || len(problems) > 0 {
		t.Errorf("got problems %v (%v), want none", problems, err)
	}
}

func preparedTaskStands(t *testing.T, ctx context.Context, h *SinkHarness) {
	l := h.newLane(t, ctx, "prepared")
	l.stands(t, ctx, 0)
	got, err := l.sink.LoadLayout(ctx, l.fence, l.key().Incarnation)
	if err != nil || got.Fingerprint() != l.layout.Fingerprint() || got.Table != l.layout.Table {
		t.Errorf("got layout %+v (%v), want %+v", got, err, l.layout)
	}
	if err := l.apply(ctx, 1); err != nil {
		t.Fatal(err)
	}
	again := l.task()
	again.At = at(7)
	if err := l.sink.Prepare(ctx, l.fence, again); err != nil {
		t.Fatalf("prepare again: %v", err)
	}
	cps, err := l.sink.Load(ctx, l.fence)
	if err != nil || len(cps) != 1 || cps[0].Position != at(7) || cps[0].CheckpointKey != l.key() {
		t.Errorf("got %v (%v), want one checkpoint at 7", cps, err)
	}
	if _, err := l.sink.LoadLayout(ctx, l.fence, "nobody"); !errors.Is(err, change.ErrStateGone) {
		t.Errorf("got %v for an unknown incarnation, want ErrStateGone", err)
	}
}

func targetHasOneOwner(t *testing.T, ctx context.Context, h *SinkHarness) {
	l := h.newLane(t, ctx, "owned")
	second := l.task()
	second.Incarnation, second.Task = "inc-second", "another task"
	err := l.sink.Prepare(ctx, l.fence, second)
	var p *change.Problem
	if !errors.Is(err, change.ErrOwnedElsewhere) || !errors.As(err, &p) || p.Code != "target-owned" {
		t.Errorf("got %v, want a target-owned Problem that is ErrOwnedElsewhere", err)
	}
	cps, err := l.sink.Load(ctx, l.fence)
	if err != nil || len(cps) != 1 {
		t.Errorf("got %v (%v), want the first incarnation's checkpoint alone", cps, err)
	}
	other := change.Fence{StoreID: "store-b", Owner: "owner-owned-b", Epoch: 1}
	if err := l.sink.Claim(ctx, other); err != nil {
		t.Fatal(err)
	}
	if err := l.sink.Prepare(ctx, other, l.task()); !errors.Is(err, change.ErrOwnedElsewhere) {
		t.Errorf("got %v for another store, want ErrOwnedElsewhere", err)
	}
}

// calls are all operations of a sink that carry a fence.
func (l *lane) calls(ctx context.Context) map[string]error {
	out := map[string]error{}
	_, out["Load"] = l.sink.Load(ctx, l.fence)
	out["Apply"] = l.apply(ctx, 1)
	_, out["Resolve"] = l.sink.Resolve(ctx, l.fence, []change.CheckpointKey{l.key()})
	out["Prepare"] = l.sink.Prepare(ctx, l.fence, l.task())
	_, out["LoadLayout"] = l.sink.LoadLayout(ctx, l.fence, l.key().Incarnation)
	out["LoadChunk"] = l.sink.LoadChunk(ctx, l.fence, change.ChunkLoad{Incarnation: l.key().Incarnation, Target: l.target(), Layout: l.layout,
		Rows: []change.Row{l.h.Row(l.layout, 9, "stale")}})
	_, out["Progress"] = l.sink.Progress(ctx, l.fence, l.key().Incarnation)
	_, out["ApplyDDL"] = l.sink.ApplyDDL(ctx, l.fence, l.ddl(1, l.h.Extra(l.layout.Table)))
	out["Forget"] = l.sink.Forget(ctx, l.fence, l.key().Incarnation)
	return out
}

func oldEpochIsDeposed(t *testing.T, ctx context.Context, h *SinkHarness) {
	old := h.newLane(t, ctx, "deposed")
	newer := old.fence
	newer.Epoch = 5
	if err := old.sink.Claim(ctx, newer); err != nil {
		t.Fatal(err)
	}
	for name, err := range old.calls(ctx) {
		if !errors.Is(err, change.ErrDeposed) {
			t.Errorf("%s: got %v, want ErrDeposed", name, err)
		}
	}
	if err := old.sink.Claim(ctx, old.fence); !errors.Is(err, change.ErrDeposed) {
		t.Errorf("claim of an older epoch: got %v, want ErrDeposed", err)
	}
	if err := old.sink.Claim(ctx, newer); err != nil {
		t.Errorf("claim of the same epoch again: got %v, want nil", err)
	}
	old.with(newer).stands(t, ctx, 0)
	never := change.Fence{StoreID: suiteStore, Owner: "owner-never", Epoch: 1}
	if err := old.with(never).apply(ctx, 1); !errors.Is(err, change.ErrStateGone) {
		t.Errorf("apply without a fence at the target: got %v, want ErrStateGone", err)
	}
}

func otherStoreIsRefused(t *testing.T, ctx context.Context, h *SinkHarness) {
	l := h.newLane(t, ctx, "elsewhere")
	other := l.with(change.Fence{StoreID: "store-b", Owner: l.fence.Owner, Epoch: 99})
	if err := other.sink.Claim(ctx, other.fence); !errors.Is(err, change.ErrOwnedElsewhere) {
		t.Errorf("claim: got %v, want ErrOwnedElsewhere", err)
	}
	for name, err := range other.calls(ctx) {
		if !errors.Is(err, change.ErrOwnedElsewhere) {
			t.Errorf("%s: got %v, want ErrOwnedElsewhere", name, err)
		}
	}
	l.stands(t, ctx, 0)
}

func checkpointIsCompared(t *testing.T, ctx context.Context, h *SinkHarness) {
	a, b := h.newLane(t, ctx, "cas_a"), h.newLane(t, ctx, "cas_b")
	b.fence = a.fence
	if err := b.sink.Prepare(ctx, b.fence, b.task()); err != nil {
		t.Fatal(err)
	}
	if err := b.apply(ctx, 2); !errors.Is(err, change.ErrCheckpointMoved) {
		t.Errorf("got %v, want ErrCheckpointMoved", err)
	}
	res := a.sink.Apply(ctx, a.fence, []change.Batch{a.step(1), b.step(5), a.step(2)})
	if res[0].Err != nil || !errors.Is(res[1].Err, change.ErrCheckpointMoved) || res[2].Err != nil {
		t.Errorf("got %v, want only the second moved", res)
	}
	a.stands(t, ctx, 2)
	b.stands(t, ctx, 0)
	if got := a.sink.Apply(ctx, a.fence, nil); len(got) != 0 {
		t.Errorf("got %d results for no batch", len(got))
	}
}

func badBatchIsLeftOut(t *testing.T, ctx context.Context, h *SinkHarness) {
	const lanes, bad = 40, 17
	first := h.newLane(t, ctx, "many_0")
	all := []*lane{first}
	var batches []change.Batch
	for i := range lanes {
		if i > 0 {
			l := &lane{h: h, sink: first.sink, fence: first.fence, name: fmt.Sprint("many_", i), layout: h.Layout(fmt.Sprint("many_", i))}
			if err := l.sink.Prepare(ctx, l.fence, l.task()); err != nil {
				t.Fatal(err)
			}
			all = append(all, l)
		}
		batches = append(batches, all[i].step(1))
	}
	l := all[bad]
	batches[bad] = l.step(1, h.Row(l.layout, 1, "v1"), h.Row(l.layout, 2, "v2"), h.BadRow(l.layout, 3), h.Row(l.layout, 4, "v4"))
	for i, r := range first.sink.Apply(ctx, first.fence, batches) {
		if i != bad {
			if r.Err != nil {
				t.Errorf("batch %d: %v", i, r.Err)
			}
			all[i].stands(t, ctx, 1)
			continue
		}
		if change.ClassOf(r.Err) != change.PermanentRow || r.RowIndex != 2 {
			t.Errorf("got class %s at row %d (%v), want permanent-row at 2", change.ClassOf(r.Err), r.RowIndex, r.Err)
		}
		l.stands(t, ctx, 0)
	}
}

// An older epoch's commit is under way while a newer one claims: when the claim
// returns, the old transaction is decided, and nothing of it comes later.
func claimWaits(t *testing.T, ctx context.Context, h *SinkHarness) {
	l := h.newLane(t, ctx, "waits")
	commit := l.holdCommit(t, ctx)
	newer := l.with(change.Fence{StoreID: suiteStore, Owner: l.fence.Owner, Epoch: 2})
	claimed := make(chan error, 1)
	go func() { claimed <- l.sink.Claim(ctx, newer.fence) }()
	early := h.blocks(t, ctx, claimed)
	if early { // the server gave the old transaction up, or the claim did not wait
		newer.stands(t, ctx, 0)
	}
	commit.release()
	<-commit.gone
	if early {
		newer.stands(t, ctx, 0)
		return
	}
	if err := <-claimed; err != nil {
		t.Fatal(err)
	}
	newer.stands(t, ctx, 1)
}

// holdCommit applies step 1 through a proxy that holds its commit.
func (l *lane) holdCommit(t *testing.T, ctx context.Context) *armed {
	t.Helper()
	proxy := newCommitProxy(t, l.h.Addr, l.h.IsCommit)
	commit := proxy.arm(commitHeld)
	if err := l.through(l.h.Open(t, proxy.addr())).apply(ctx, 1); !errors.Is(err, change.ErrUnknownOutcome) {
		t.Fatalf("got %v from a commit that is held, want ErrUnknownOutcome", err)
	}
	<-commit.seen
	return commit
}

// blocks returns false once some session waits for a lock, true when done came
// first.
func (h *SinkHarness) blocks(t *testing.T, ctx context.Context, done <-chan error) (early bool) {
	t.Helper()
	for ctx.Err() == nil {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return true
		default:
		}
		if h.Waiting(t) {
			return false
		}
	}
	t.Fatal("neither waiting nor done")
	return false
}

// The commit's fate decides where the checkpoint stands; Resolve tells.
func lostCommit(t *testing.T, ctx context.Context, h *SinkHarness, fate commitFate, suffix int) {
	l := h.newLane(t, ctx, fmt.Sprint("lost_", suffix))
	proxy := newCommitProxy(t, h.Addr, h.IsCommit)
	through := l.through(h.Open(t, proxy.addr()))
	if err := through.apply(ctx, 1); err != nil {
		t.Fatalf("apply through the proxy: %v", err)
	}
	commit := proxy.arm(fate)
	if err := through.apply(ctx, 2); !errors.Is(err, change.ErrUnknownOutcome) {
		t.Fatalf("got %v, want ErrUnknownOutcome", err)
	}
	<-commit.seen
	want := 1
	if fate == commitAnswerLost {
		want = 2
	}
	l.stands(t, ctx, want)
	if err := through.apply(ctx, want+1); err != nil {
		t.Errorf("apply after the outcome is known: %v", err)
	}
	l.stands(t, ctx, want+1)
}

// A plain read would find the old position; the locking one waits.
func resolveWaits(t *testing.T, ctx context.Context, h *SinkHarness) {
	l := h.newLane(t, ctx, "resolve")
	commit := l.holdCommit(t, ctx)
	var cps []change.Checkpoint
	resolved := make(chan error, 1)
	go func() {
		var err error
		cps, err = l.sink.Resolve(ctx, l.fence, []change.CheckpointKey{l.key(), {Incarnation: "nobody"}})
		resolved <- err
	}()
	want := 1
	if h.blocks(t, ctx, resolved) {
		want = 0
	}
	commit.release()
	<-commit.gone
	if want == 1 {
		if err := <-resolved; err != nil {
			t.Fatal(err)
		}
	}
	if len(cps) != 1 || cps[0].Position != at(want) {
		t.Fatalf("got %v, want one checkpoint at %d", cps, want)
	}
	l.stands(t, ctx, want)
}

func chunksLoadOnce(t *testing.T, ctx context.Context, h *SinkHarness) {
	l := h.newLane(t, ctx, "chunks")
	load := func(index int, done bool, rows ...change.Row) change.ChunkLoad {
		return change.ChunkLoad{Incarnation: l.key().Incarnation, Target: l.target(), Layout: l.layout, Index: index, Bound: []byte{byte(index), 0, '\''}, Done: done, Rows: rows}
	}
	r := func(id int64, v string) change.Row { return h.Row(l.layout, id, v) }
	for _, c := range []change.ChunkLoad{
		load(0, false, r(1, "old"), r(1, "v1"), r(2, "v2")), load(2, true, r(3, "v3")),
		load(0, false, r(1, "again"), r(9, "again")),
	} {
		if err := l.sink.LoadChunk(ctx, l.fence, c); err != nil {
			t.Fatalf("chunk %d: %v", c.Index, err)
		}
	}
	p, err := l.sink.Progress(ctx, l.fence, l.key().Incarnation)
	if err != nil || p.Chunks != 1 || p.Done || p.Rows != 3 || string(p.Bound) != "\x00\x00'" {
		t.Errorf("got %+v (%v), want one chunk before the gap", p, err)
	}
	if err := l.sink.LoadChunk(ctx, l.fence, load(1, false)); err != nil {
		t.Fatal(err)
	}
	p, err = l.sink.Progress(ctx, l.fence, l.key().Incarnation)
	if err != nil || p.Chunks != 3 || !p.Done || p.Rows != 4 || string(p.Bound) != "\x02\x00'" {
		t.Errorf("got %+v (%v), want three chunks, done", p, err)
	}
	err = l.sink.LoadChunk(ctx, l.fence, load(3, false, r(7, "v"), h.BadRow(l.layout, 8)))
	if change.ClassOf(err) != change.PermanentRow {
		t.Errorf("got %v for a bad row, want class permanent-row", err)
	}
	rows, _ := h.Rows(t, l.target())
	if got, want := fmt.Sprint(rows), fmt.Sprint(map[int64]string{1: "v1", 2: "v2", 3: "v3"}); got != want {
		t.Errorf("got rows %s, want %s", got, want)
	}
	cps, err := l.sink.Load(ctx, l.fence)
	if err != nil || len(cps) != 1 || cps[0].Position != at(0) {
		t.Errorf("got %v (%v), want the checkpoint where it was", cps, err)
	}
	if p, err := l.sink.Progress(ctx, l.fence, "nobody"); err != nil || p.Chunks != 0 || p.Bound != nil || p.Done {
		t.Errorf("got %+v (%v) for an unknown incarnation, want nothing", p, err)
	}
}

func forgetLeavesNothing(t *testing.T, ctx context.Context, h *SinkHarness) {
	l := h.newLane(t, ctx, "forget")
	if err := l.apply(ctx, 1); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.sink.Forget(ctx, l.fence, l.key().Incarnation); err != nil {
			t.Fatal(err)
		}
	}
	if cps, err := l.sink.Load(ctx, l.fence); err != nil || len(cps) != 0 {
		t.Errorf("got %v (%v), want no checkpoint", cps, err)
	}
	if err := l.apply(ctx, 2); !errors.Is(err, change.ErrCheckpointMoved) {
		t.Errorf("got %v, want ErrCheckpointMoved", err)
	}
	next := l.task()
	next.Incarnation = "inc-forget-2"
	if err := l.sink.Prepare(ctx, l.fence, next); err != nil {
		t.Errorf("prepare the next incarnation: %v", err)
	}
	if rows, _ := h.Rows(t, l.target()); rows[1] != "v1" {
		t.Errorf("got rows %v, want the table as it was", rows)
	}
}

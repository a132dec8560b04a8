package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/persistence"
)

// Commands from many goroutines to few entities, while entities are put to sleep
// all the time: every one is decided once, those of one goroutine in order.
func TestConcurrentAsksAcrossPassivation(t *testing.T) {
	n := newNode(t, t.TempDir(), definition(), RegionConfig{IdleAfter: time.Millisecond, MaxResident: 3})
	const entities, writers, each = 6, 8, 60
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				id := listID(t, (w+i)%entities)
				cmd := add{2 * (w*each + i)}
				for {
					_, err := n.region.Ask(t.Context(), id, cmd)
					if errors.Is(err, ErrBusy) {
						continue // room is made by others' turns; the test's end is the limit
					}
					if err != nil {
						t.Error(err)
						return
					}
					break
				}
			}
		})
	}
	quit, slept := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(slept)
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			default:
				n.sleep(listID(t, i%entities))
			}
		}
	}()
	wg.Wait()
	close(quit)
	<-slept
	got := map[int]int{}
	for e := range entities {
		last := map[int]int{} // by writer
		for _, x := range n.ask(listID(t, e), get{}).([]int) {
			got[x]++
			w := x / 2 / each
			if x < last[w] {
				t.Errorf("entity %d: writer %d: %d came after %d", e, w, x, last[w])
			}
			last[w] = x
		}
	}
	for x := range writers * each {
		if got[2*x] != 1 {
			t.Errorf("number %d: got %d times, want once", 2*x, got[2*x])
		}
	}
	if n.region.mu.spawned < 20 {
		t.Errorf("got %d incarnations, want many: nothing was passivated", n.region.mu.spawned)
	}
}

// Tells that come while an entity stops go to its next incarnation, in order.
func TestTellsWhilePassivating(t *testing.T) {
	def := definition()
	gate := make(chan struct{})
	n := newNode(t, t.TempDir(), def, RegionConfig{MaxPending: 8})
	id := listID(t, 1)
	n.ask(id, get{}) // loads it: a recovering entity would keep on
	if err := n.region.Tell(t.Context(), id, waitFor{gate}); err != nil {
		t.Fatal(err)
	}
	n.sleep(id) // the request waits behind the command that holds the entity
	for i := range 7 {
		if err := n.region.Tell(t.Context(), id, add{2 * i}); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.region.Tell(t.Context(), id, add{100}); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want %v", err, ErrBusy)
	}
	close(gate)
	until(t, "the commands are answered", func() bool {
		n.region.mu.Lock()
		defer n.region.mu.Unlock()
		s := n.region.mu.slots[id]
		return s.pending == 0 && s.buffer == nil
	})
	if got, want := fmt.Sprint(n.ask(id, get{})), "[0 2 4 6 8 10 12]"; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := n.region.mu.spawned, uint64(2); got != want {
		t.Errorf("got %d incarnations, want %d", got, want)
	}
}

func TestIdleEntitiesStop(t *testing.T) {
	n := newNode(t, t.TempDir(), definition(), RegionConfig{IdleAfter: 5 * time.Millisecond})
	for i := range 50 {
		n.ask(listID(t, i), add{2})
	}
	until(t, "no entity is resident", func() bool { return n.region.Resident() == 0 })
	if got, want := fmt.Sprint(n.ask(listID(t, 7), get{})), "[2]"; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Over the cap the longest unused entity goes, and never one at work.
func TestResidentCap(t *testing.T) {
	n := newNode(t, t.TempDir(), definition(), RegionConfig{MaxResident: 4})
	gate := make(chan struct{})
	defer close(gate)
	if err := n.region.Tell(t.Context(), listID(t, 0), waitFor{gate}); err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 80; i++ {
		until(t, "room for an entity", func() bool {
			_, err := n.region.Ask(t.Context(), listID(t, i), add{2})
			if err != nil && !errors.Is(err, ErrBusy) {
				t.Fatal(err)
			}
			return err == nil
		})
		if got, want := n.region.Resident(), 4+1+spareResident; got > want {
			t.Fatalf("got %d resident, want at most %d", got, want)
		}
	}
	n.region.mu.Lock()
	s := n.region.mu.slots[listID(t, 0)]
	n.region.mu.Unlock()
	if s == nil || s.pending != 1 {
		t.Errorf("the entity at work is gone")
	}
}

// A panic costs the command that caused it, nothing else.
func TestPanicRestarts(t *testing.T) {
	n := newNode(t, t.TempDir(), definition(), RegionConfig{})
	id := listID(t, 1)
	n.ask(id, add{2})
	if _, err := n.region.Ask(t.Context(), id, crash{}); !errors.Is(err, persistence.ErrRestarted) || !strings.Contains(err.Error(), "told to") {
		t.Errorf("got %v, want %v with the panic", err, persistence.ErrRestarted)
	}
	if got, want := fmt.Sprint(n.ask(id, get{})), "[2]"; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	n.ask(id, add{4})
	if got, want := fmt.Sprint(n.ask(id, get{})), "[2 4]"; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A panic in Effects leaves events that are durable; the entity replays them.
func TestPanicInEffects(t *testing.T) {
	def := definition()
	var once atomic.Bool
	def.Effects = func(persistence.EffectContext, numbers, []any) {
		if !once.Swap(true) {
			panic("effects")
		}
	}
	n := newNode(t, t.TempDir(), def, RegionConfig{})
	id := listID(t, 1)
	if _, err := n.region.Ask(t.Context(), id, add{2}); !errors.Is(err, persistence.ErrRestarted) {
		t.Errorf("got %v, want %v", err, persistence.ErrRestarted)
	}
	if got, want := n.ask(id, add{4}), 2; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// An entity whose events nobody knows answers every command with the reason, and
// recovers once they are known.
func TestRecoveryFails(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir, definition(), RegionConfig{})
	id := listID(t, 1)
	n.ask(id, add{2})
	shard := id.Shard(n.store.Shards())
	if _, err := n.store.Append(t.Context(), persistence.AppendRequest{Shard: shard, Epoch: n.region.Epoch(shard), Entity: id, Expected: 1,
		Events: []persistence.EncodedEvent{{Type: "added", Version: 7, Data: []byte(`{"N":4}`)}}}); err != nil {
		t.Fatal(err)
	}
	n.sleep(id)
	var fault *persistence.RecoveryError
	for range 3 {
		_, err := n.region.Ask(t.Context(), id, get{})
		if !errors.As(err, &fault) || !errors.Is(err, persistence.ErrUnknownEvent) || !strings.Contains(err.Error(), "added version 7") {
			t.Errorf("got %v, want a RecoveryError that names type and version", err)
		}
	}
	n.sleep(id)
	until(t, "the broken entity stops", func() bool { return n.region.Resident() == 0 })
}

// Events appended behind the entity's back make it recover and decide again.
func TestConflictDecidesAgain(t *testing.T) {
	n := newNode(t, t.TempDir(), definition(), RegionConfig{})
	id := listID(t, 1)
	n.ask(id, add{2})
	shard := id.Shard(n.store.Shards())
	if _, err := n.store.Append(t.Context(), persistence.AppendRequest{Shard: shard, Epoch: n.region.Epoch(shard), Entity: id, Expected: 1,
		Events: []persistence.EncodedEvent{{Type: "added", Version: 1, Data: []byte(`{"N":10}`)}}}); err != nil {
		t.Fatal(err)
	}
	if got, want := n.ask(id, add{4}), 3; got != want {
		t.Errorf("got reply %v, want %v: the command was decided by a state that is not stored", got, want)
	}
	if got, want := fmt.Sprint(n.ask(id, get{})), "[2 10 4]"; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A newer owner of the shard ends this one's entities there, and only there.
func TestDeposed(t *testing.T) {
	n := newNode(t, t.TempDir(), definition(), RegionConfig{})
	id, other := listID(t, 1), listID(t, 2)
	n.ask(id, add{2})
	n.ask(other, add{2})
	if _, err := n.store.AcquireShard(t.Context(), id.Shard(n.store.Shards())); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := n.region.Ask(t.Context(), id, add{4}); !errors.Is(err, persistence.ErrDeposed) {
			t.Errorf("got %v, want %v", err, persistence.ErrDeposed)
		}
	}
	if got, want := n.region.Epoch(id.Shard(n.store.Shards())), uint64(0); got != want {
		t.Errorf("got epoch %d, want %d", got, want)
	}
	until(t, "the entity stops", func() bool { return n.region.Resident() == 1 })
	n.ask(other, add{4})
}

func TestSnapshots(t *testing.T) {
	dir := t.TempDir()
	def := definition()
	var applied atomic.Int64
	apply := def.Apply
	def.Apply = func(s numbers, ev any) numbers { applied.Add(1); return apply(s, ev) }
	n := newNode(t, dir, def, RegionConfig{})
	id := listID(t, 1)
	for i := range 19 {
		n.ask(id, add{2 * i})
	}
	n.sleep(id)
	until(t, "the entity stops", func() bool { return n.region.Resident() == 0 })
	if _, ok, err := n.store.LoadSnapshot(t.Context(), id); ok || err != nil {
		t.Errorf("after 19 events: got a snapshot %v, %v, want none", ok, err)
	}
	n.ask(id, add{38})
	n.sleep(id)
	until(t, "the entity stops", func() bool { return n.region.Resident() == 0 })
	sn, ok, err := n.store.LoadSnapshot(t.Context(), id)
	if !ok || err != nil || sn.Seq != 20 {
		t.Fatalf("after 20 events: got %v seq %d, %v, want one of seq 20", ok, sn.Seq, err)
	}
	n.ask(id, add{40})
	n.sleep(id)
	until(t, "the entity stops", func() bool { return n.region.Resident() == 0 })
	applied.Store(0)
	got := n.ask(id, get{}).([]int)
	if want := int64(1); applied.Load() != want || len(got) != 21 {
		t.Errorf("got %d events replayed to %d numbers, want %d to 21", applied.Load(), len(got), want)
	}
	n.stop()
	// Another format of the state: the snapshot is not used, the journal tells all.
	def.SnapshotVersion = 2
	n = newNode(t, dir, def, RegionConfig{})
	applied.Store(0)
	got = n.ask(id, get{}).([]int)
	if want := int64(21); applied.Load() != want || len(got) != 21 {
		t.Errorf("got %d events replayed to %d numbers, want %d to 21", applied.Load(), len(got), want)
	}
}

// What Effects starts comes back as commands and keeps the entity resident.
func TestEffects(t *testing.T) {
	def := definition()
	release := make(chan struct{})
	var recovered atomic.Int64
	def.Recovered = func(persistence.EffectContext, numbers) { recovered.Add(1) }
	def.Effects = func(x persistence.EffectContext, s numbers, events []any) {
		switch n := events[0].(added).N; n {
		case 2:
			if err := x.Pipe(func(ctx context.Context) any {
				select {
				case <-release:
					return add{4}
				case <-ctx.Done():
					return nil
				}
			}); err != nil {
				t.Error(err)
			}
		case 4:
			if _, err := x.After(time.Millisecond, add{6}); err != nil {
				t.Error(err)
			}
		case 6:
			stop, err := x.After(time.Hour, add{1000})
			if err != nil || !stop() {
				t.Errorf("got %v, want a timer that can be stopped", err)
			}
			if err := x.Tell(add{8}); err != nil {
				t.Error(err)
			}
		}
	}
	n := newNode(t, t.TempDir(), def, RegionConfig{})
	id := listID(t, 1)
	n.ask(id, add{2})
	n.sleep(id)
	n.ask(id, get{})
	if got, want := n.region.mu.spawned, uint64(1); got != want {
		t.Errorf("got %d incarnations, want %d: the entity slept over its own work", got, want)
	}
	close(release)
	until(t, "all effects have come back", func() bool { return fmt.Sprint(n.ask(id, get{})) == "[2 4 6 8]" })
	n.sleep(id)
	until(t, "the entity stops", func() bool { return n.region.Resident() == 0 })
	n.ask(id, get{})
	if got, want := recovered.Load(), int64(2); got != want {
		t.Errorf("got %d calls of Recovered, want %d", got, want)
	}
}

// Stop answers what was given, also to entities that have work of their own.
func TestStopDrains(t *testing.T) {
	def := definition()
	def.Effects = func(x persistence.EffectContext, s numbers, _ []any) {
		if err := x.Pipe(func(ctx context.Context) any { <-ctx.Done(); return nil }); err != nil && len(s.Numbers) < 60 {
			t.Error(err)
		}
	}
	n := newNode(t, t.TempDir(), def, RegionConfig{})
	const entities, each = 10, 20
	var wg sync.WaitGroup
	var ok, refused atomic.Int64
	for e := range entities {
		for i := range each {
			wg.Go(func() {
				switch _, err := n.region.Ask(t.Context(), listID(t, e), add{2 * i}); {
				case err == nil:
					ok.Add(1)
				case errors.Is(err, ErrNotRunning):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
	}
	until(t, "some were answered", func() bool { return ok.Load() > 5 })
	n.stop()
	wg.Wait()
	if got, want := ok.Load()+refused.Load(), int64(entities*each); got != want {
		t.Errorf("got %d answers, want %d", got, want)
	}
	if got := n.region.Resident(); got != 0 {
		t.Errorf("got %d resident, want 0", got)
	}
}

// Random commands, sleeps, panics, reopenings and crashes against a plain map.
func TestRandomAgainstReference(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	n := newNode(t, dir, definition(), RegionConfig{MaxResident: 5})
	const entities = 12
	want := map[int][]int{}
	for step := range 1000 {
		e := rnd.IntN(entities)
		id := listID(t, e)
		switch k := rnd.IntN(100); {
		case k < 50:
			x := rnd.IntN(1000)
			reply, err := n.region.Ask(t.Context(), id, add{x})
			if x%2 != 0 {
				if !errors.Is(err, errOdd) {
					t.Fatalf("seed %d step %d: got %v, want %v", seed, step, err, errOdd)
				}
				continue
			}
			want[e] = append(want[e], x)
			if err != nil || reply != len(want[e]) {
				t.Fatalf("seed %d step %d: got %v, %v, want %d", seed, step, reply, err, len(want[e]))
			}
		case k < 65:
			n.ask(id, addTwice{step})
			want[e] = append(want[e], step, step)
		case k < 85:
			if got := fmt.Sprint(n.ask(id, get{})); got != fmt.Sprint(append([]int{}, want[e]...)) {
				t.Fatalf("seed %d step %d entity %d: got %s, want %v", seed, step, e, got, want[e])
			}
		case k < 97:
			n.sleep(id)
		case k < 98:
			if _, err := n.region.Ask(t.Context(), id, crash{}); !errors.Is(err, persistence.ErrRestarted) {
				t.Fatalf("seed %d step %d: got %v, want %v", seed, step, err, persistence.ErrRestarted)
			}
		case k < 99:
			n.stop()
			n = newNode(t, dir, definition(), RegionConfig{MaxResident: 5})
		default:
			dir = n.crash()
			n = newNode(t, dir, definition(), RegionConfig{MaxResident: 5})
		}
	}
	for e := range entities {
		if got := fmt.Sprint(n.ask(listID(t, e), get{})); got != fmt.Sprint(append([]int{}, want[e]...)) {
			t.Errorf("seed %d entity %d: got %s, want %v", seed, e, got, want[e])
		}
	}
}

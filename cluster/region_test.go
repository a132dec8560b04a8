package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/runnel-dev/runnel/actor"
	"github.com/runnel-dev/runnel/persistence"
	"github.com/runnel-dev/runnel/persistence/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The test entity is a list of numbers.
type (
	added    struct{ N int }
	numbers  struct{ Numbers []int }
	add      struct{ N int }
	addTwice struct{ N int }
	get      struct{}
	crash    struct{}
	unknown  struct{}
	waitFor  struct{ c <-chan struct{} }
)

var errOdd = errors.New("odd numbers are refused")

func decide(s numbers, cmd any) persistence.Decision {
	switch c := cmd.(type) {
	case add:
		if c.N%2 != 0 {
			return persistence.Decision{Err: errOdd}
		}
		return persistence.Decision{Events: []any{added(c)}, Reply: len(s.Numbers) + 1}
	case addTwice:
		return persistence.Decision{Events: []any{added(c), added(c)}, Reply: len(s.Numbers) + 2}
	case get:
		return persistence.Decision{Reply: slices.Clone(s.Numbers)}
	case crash:
		panic("told to")
	case unknown:
		return persistence.Decision{Events: []any{struct{ X int }{1}}}
	case waitFor:
		<-c.c
		return persistence.Decision{}
	}
	return persistence.Decision{Err: fmt.Errorf("unknown command %T", cmd)}
}

func definition() persistence.Definition[numbers] {
	return persistence.Definition[numbers]{
		Type:            "list",
		Initial:         func(persistence.EntityID) numbers { return numbers{} },
		Decide:          decide,
		Apply:           func(s numbers, ev any) numbers { s.Numbers = append(s.Numbers, ev.(added).N); return s },
		SnapshotVersion: 1,
	}
}

type node struct {
	t      *testing.T
	dir    string
	store  *sqlite.Store
	system *actor.System
	region *Region
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// storeOptions leave the database file alone until Close, so that its copy and the
// log's are what a crash leaves.
func storeOptions() sqlite.Options {
	return sqlite.Options{Log: quiet(), FoldEvery: time.Hour, CheckpointEvery: time.Hour}
}

// crash stops the node and returns a directory as it would be if it had died now.
func (n *node) crash() (dir string) {
	n.t.Helper()
	dir = n.t.TempDir()
	for _, name := range []string{sqlite.FileName, sqlite.FileName + "-wal"} {
		data, err := os.ReadFile(filepath.Join(n.dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
	n.stop()
	return dir
}

func registry(t *testing.T) *persistence.Registry {
	t.Helper()
	reg := persistence.NewRegistry()
	if err := persistence.RegisterEvent[added](reg, "added"); err != nil {
		t.Fatal(err)
	}
	return reg
}

// newNode starts a store, a system and a region on dir; the test's end stops them.
func newNode(t *testing.T, dir string, def persistence.Definition[numbers], cfg RegionConfig) *node {
	t.Helper()
	n := &node{t: t, dir: dir}
	var err error
	if n.store, err = sqlite.Open(t.Context(), dir, storeOptions()); err != nil {
		t.Fatal(err)
	}
	if n.system, err = actor.New(actor.Config{}); err != nil {
		t.Fatal(err)
	}
	cfg.System, cfg.Store, cfg.Registry, cfg.Kinds = n.system, n.store, registry(t), []persistence.Kind{def.Kind()}
	if n.region, err = NewRegion(cfg); err != nil {
		t.Fatal(err)
	}
	if err := n.region.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.stop)
	return n
}

func (n *node) stop() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := errors.Join(n.region.Stop(ctx), n.system.Shutdown(ctx), n.store.Close()); err != nil {
		n.t.Error(err)
	}
}

func (n *node) ask(id persistence.EntityID, cmd any) any {
	n.t.Helper()
	reply, err := n.region.Ask(n.t.Context(), id, cmd)
	if err != nil {
		n.t.Fatal(err)
	}
	return reply
}

func (n *node) sleep(ids ...persistence.EntityID) {
	n.t.Helper()
	n.region.mu.Lock()
	for _, id := range ids {
		if s := n.region.mu.slots[id]; s != nil {
			n.region.passivateLocked(s, false)
		}
	}
	n.region.mu.Unlock()
}

// until polls cond; the region has no signal for an entity's end.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(20 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func listID(t *testing.T, k int) persistence.EntityID {
	t.Helper()
	id, err := persistence.EntityIDOf("list", fmt.Sprintf("shop-%d:0", k%7), fmt.Sprintf("e%d", k))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestAskTellAndReopen(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir, definition(), RegionConfig{})
	id := listID(t, 1)
	if got, want := n.ask(id, add{2}), 1; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := n.region.Ask(t.Context(), id, add{3}); !errors.Is(err, errOdd) {
		t.Errorf("got %v, want %v", err, errOdd)
	}
	if err := n.region.Tell(t.Context(), id, addTwice{4}); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(n.ask(id, get{})), "[2 4 4]"; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := n.region.Ask(t.Context(), id, unknown{}); !errors.Is(err, persistence.ErrUnknownEvent) {
		t.Errorf("got %v, want %v", err, persistence.ErrUnknownEvent)
	}
	none, err := persistence.EntityIDOf("none", "x", "y")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.region.Ask(t.Context(), none, get{}); !errors.Is(err, ErrUnknownType) {
		t.Errorf("got %v, want %v", err, ErrUnknownType)
	}
	shard, epoch := n.region.EpochOf(id.Routing())
	if got, want := epoch, uint64(1); got != want || shard != id.Shard(256) {
		t.Errorf("got shard %d epoch %d, want %d epoch %d", shard, got, id.Shard(256), want)
	}
	n.stop()
	if _, err := n.region.Ask(t.Context(), id, get{}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v, want %v", err, ErrNotRunning)
	}
	n2 := newNode(t, dir, definition(), RegionConfig{})
	if got, want := fmt.Sprint(n2.ask(id, get{})), "[2 4 4]"; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := n2.region.Epoch(shard), uint64(2); got != want {
		t.Errorf("got epoch %d, want %d", got, want)
	}
}

func TestConfigFaults(t *testing.T) {
	kind := definition().Kind()
	bad := definition()
	bad.Type, bad.Apply = "List", nil
	_, err := NewRegion(RegionConfig{MaxPending: -1, Kinds: []persistence.Kind{kind, kind, bad.Kind(), {}}})
	for _, want := range []string{"System is nil", "Store is nil", "Registry is nil", "MaxPending is -1", `two kinds have the type "list"`, `"List"`, "set Initial, Decide and Apply", "Definition.Kind"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}

func TestStartsOnce(t *testing.T) {
	n := newNode(t, t.TempDir(), definition(), RegionConfig{})
	if err := n.region.Start(t.Context()); err == nil {
		t.Error("second Start: got nil, want an error")
	}
	id := listID(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.region.Tell(ctx, id, add{2}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if _, err := n.region.Ask(ctx, id, add{2}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if got := fmt.Sprint(n.ask(id, get{})); got != "[]" {
		t.Errorf("got %s, want []: a cancelled command was carried out", got)
	}
	// A deadline ends the wait for an entity that does not answer.
	gate := make(chan struct{})
	defer close(gate)
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := n.region.Ask(ctx, id, waitFor{gate}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
}

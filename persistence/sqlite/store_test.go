package sqlite

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/persistence"
)

func testOptions() Options { return Options{Log: slog.New(slog.DiscardHandler)} }

func testOpen(t *testing.T, dir string, opt Options) *Store {
	t.Helper()
	st, err := Open(t.Context(), dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

func entityID(t *testing.T, s string) persistence.EntityID {
	t.Helper()
	id, err := persistence.ParseEntityID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func request(st *Store, id persistence.EntityID, epoch, expected uint64, data ...string) persistence.AppendRequest {
	req := persistence.AppendRequest{Shard: id.Shard(st.Shards()), Epoch: epoch, Entity: id, Expected: expected}
	for _, d := range data {
		req.Events = append(req.Events, persistence.EncodedEvent{Type: "noted", Version: 1, Data: []byte(d)})
	}
	return req
}

func acquire(t *testing.T, st *Store, id persistence.EntityID) uint64 {
	t.Helper()
	e, err := st.AcquireShard(t.Context(), id.Shard(st.Shards()))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func events(t *testing.T, st *Store, id persistence.EntityID, after uint64) string {
	t.Helper()
	var b strings.Builder
	err := st.ReadEntity(t.Context(), id, after, func(ev persistence.StoredEvent) error {
		fmt.Fprintf(&b, "%d:%s ", ev.Seq, ev.Data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// What one store is told, the next one on the same directory knows.
func TestAppendAndReopen(t *testing.T) {
	dir := t.TempDir()
	st := testOpen(t, dir, testOptions())
	a, b := entityID(t, "note/shop:0/a"), entityID(t, "note/shop:0/b")
	epoch := acquire(t, st, a)
	for i, want := range []uint64{2, 3} {
		seq, err := st.Append(t.Context(), request(st, a, epoch, uint64(i*2), []string{"1", "2"}[:2-i]...))
		if err != nil || seq != want {
			t.Fatalf("got seq %d, %v, want %d", seq, err, want)
		}
		if _, err := st.Append(t.Context(), request(st, b, epoch, uint64(i), fmt.Sprint(10+i))); err != nil {
			t.Fatal(err)
		}
	}
	storeID := st.StoreID()
	for range 2 {
		if got, want := events(t, st, a, 0), "1:1 2:2 3:1"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got, want := events(t, st, a, 2), "3:1"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got, want := events(t, st, b, 0), "1:10 2:11"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got, want := st.LastSeq(a), uint64(3); got != want {
			t.Errorf("got last seq %d, want %d", got, want)
		}
		if got, want := events(t, st, entityID(t, "note/shop:0/none"), 0), ""; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		st = testOpen(t, dir, testOptions())
		if got := st.StoreID(); got != storeID {
			t.Errorf("got store id %s, want %s", got, storeID)
		}
	}
	if got, want := acquire(t, st, a), epoch+1; got != want {
		t.Errorf("got epoch %d, want %d", got, want)
	}
}

func TestRefusals(t *testing.T) {
	st := testOpen(t, t.TempDir(), testOptions())
	id := entityID(t, "note/shop:0/a")
	if _, err := st.Append(t.Context(), request(st, id, 0, 0, "1")); !errors.Is(err, persistence.ErrDeposed) {
		t.Errorf("epoch 0: got %v, want %v", err, persistence.ErrDeposed)
	}
	old := acquire(t, st, id)
	if _, err := st.Append(t.Context(), request(st, id, old, 0, "1")); err != nil {
		t.Fatal(err)
	}
	epoch := acquire(t, st, id)
	key := persistence.RecordKey{Kind: "frontier", Scope: "shop:0"}
	shard := id.Shard(st.Shards())
	put := func(epoch uint64) error {
		return st.Put(t.Context(), persistence.PutRequest{Shard: shard, Epoch: epoch, Records: []persistence.Record{{RecordKey: key, Data: []byte(`{}`)}}})
	}
	var conflict *persistence.ConflictError
	tests := []struct {
		name string
		err  error
		want error
	}{
		{"append, old epoch", appendErr(t, st, request(st, id, old, 1, "2")), persistence.ErrDeposed},
		{"append, future epoch", appendErr(t, st, request(st, id, epoch+1, 1, "2")), persistence.ErrDeposed},
		{"append, seq behind", appendErr(t, st, request(st, id, epoch, 0, "2")), persistence.ErrConflict},
		{"append, seq ahead", appendErr(t, st, request(st, id, epoch, 2, "2")), persistence.ErrConflict},
		{"append, too large", appendErr(t, st, request(st, id, epoch, 1, strings.Repeat("x", persistence.MaxEventBytes+1))), persistence.ErrTooLarge},
		{"put, old epoch", put(old), persistence.ErrDeposed},
		{"delete, old epoch", st.Delete(t.Context(), persistence.DeleteRequest{Shard: shard, Epoch: old, Keys: []persistence.RecordKey{key}}), persistence.ErrDeposed},
		{"snapshot, old epoch", st.SaveSnapshot(t.Context(), old, persistence.Snapshot{Entity: id, Seq: 1, Version: 1}), persistence.ErrDeposed},
	}
	for _, tt := range tests {
		if !errors.Is(tt.err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, tt.err, tt.want)
		}
		if errors.As(tt.err, &conflict) && conflict.Stored != 1 {
			t.Errorf("%s: got stored seq %d, want 1", tt.name, conflict.Stored)
		}
	}
	if err := st.SaveSnapshot(t.Context(), epoch, persistence.Snapshot{Entity: id, Seq: 2, Version: 1}); err == nil {
		t.Error("snapshot ahead of the journal: got nil, want an error")
	}
	wrong := request(st, id, epoch, 1, "2")
	wrong.Shard++
	if err := appendErr(t, st, wrong); err == nil {
		t.Error("wrong shard: got nil, want an error")
	}
	if got, want := events(t, st, id, 0), "1:1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := st.Get(t.Context(), key); !errors.Is(err, persistence.ErrNotFound) {
		t.Errorf("got %v, want %v", err, persistence.ErrNotFound)
	}
}

func appendErr(t *testing.T, st *Store, req persistence.AppendRequest) error {
	t.Helper()
	_, err := st.Append(t.Context(), req)
	return err
}

func TestRecords(t *testing.T) {
	dir := t.TempDir()
	st := testOpen(t, dir, testOptions())
	epoch, err := st.AcquireShard(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	put := func(rs ...persistence.Record) {
		t.Helper()
		if err := st.Put(t.Context(), persistence.PutRequest{Shard: 7, Epoch: epoch, Records: rs}); err != nil {
			t.Fatal(err)
		}
	}
	must := func(r persistence.Record, err error) persistence.Record {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	put(must(persistence.Frontier{Capture: "shop:0", Position: "h|00|1", From: "h|00|0"}.Record()))
	put(must(persistence.Frontier{Capture: "shop:0", Position: "h|01|2", From: "h|00|1"}.Record()))
	put(must(persistence.Lane{Capture: "shop:0", Incarnation: "b", State: persistence.LaneDetached, Why: "slow", Bound: "h|00|0"}.Record()),
		must(persistence.Lane{Capture: "shop:0", Incarnation: "a", State: persistence.LaneAttached, Bound: "h|00|0"}.Record()),
		must(persistence.Lane{Capture: "shop:1", Incarnation: "c", State: persistence.LaneAttached, Bound: ""}.Record()))
	if err := st.Delete(t.Context(), persistence.DeleteRequest{Shard: 7, Epoch: epoch, Keys: []persistence.RecordKey{{Kind: persistence.KindLane, Scope: "shop:1", Name: "c"}, {Kind: "none"}}}); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	st = testOpen(t, dir, testOptions())
	r, err := st.Get(t.Context(), persistence.RecordKey{Kind: persistence.KindFrontier, Scope: "shop:0"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := persistence.ParseFrontier(r)
	if want := (persistence.Frontier{Capture: "shop:0", Position: "h|01|2", From: "h|00|1"}); f != want || err != nil || r.Version != 2 {
		t.Errorf("got %+v version %d, %v, want %+v version 2", f, r.Version, err, want)
	}
	var got []persistence.Lane
	if err := st.Scan(t.Context(), persistence.KindLane, "", func(r persistence.Record) error {
		l, err := persistence.ParseLane(r)
		got = append(got, l)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	want := []persistence.Lane{
		{Capture: "shop:0", Incarnation: "a", State: persistence.LaneAttached, Bound: "h|00|0"},
		{Capture: "shop:0", Incarnation: "b", State: persistence.LaneDetached, Why: "slow", Bound: "h|00|0"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The directory's files are the owner's alone, and a second opener learns who has it.
func TestDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data with space?and#more")
	st := testOpen(t, dir, testOptions())
	acquire(t, st, entityID(t, "note/x/y"))
	for name, want := range map[string]os.FileMode{"": 0o700, FileName: 0o600, FileName + "-wal": 0o600, FileName + "-shm": 0o600, "lock": 0o600} {
		fi, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := fi.Mode().Perm(); got != want {
			t.Errorf("%q: got mode %o, want %o", name, got, want)
		}
	}
	_, err := Open(t.Context(), dir, testOptions())
	if !errors.Is(err, persistence.ErrLocked) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("got %v, want ErrLocked with the directory and the pid", err)
	}
}

func TestCheckSettings(t *testing.T) {
	tests := []struct {
		version, mode string
		sync          int
		ok            bool
	}{
		{"3.51.3", "wal", 2, true},
		{"3.100.0", "wal", 2, true},
		{"4.0.0", "wal", 2, true},
		{"3.51.2", "wal", 2, false},
		{"3.51", "wal", 2, false},
		{"x", "wal", 2, false},
		{"3.53.0", "delete", 2, false},
		{"3.53.0", "wal", 1, false},
	}
	for _, tt := range tests {
		if err := checkSettings(tt.version, tt.mode, tt.sync); (err == nil) != tt.ok {
			t.Errorf("%+v: got %v", tt, err)
		}
	}
}

// Every append is answered once, whoever closes the store meanwhile.
func TestCloseAnswersAll(t *testing.T) {
	st := testOpen(t, t.TempDir(), testOptions())
	id := entityID(t, "note/shop:0/a")
	epoch := acquire(t, st, id)
	const n = 500
	answers := make(chan error, n)
	for i := range n {
		st.AppendAsync(request(st, id, epoch, uint64(i), "1"), func(_ uint64, err error) { answers <- err })
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	for range n {
		select {
		case err := <-answers:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("an append was not answered")
		}
	}
	if err := appendErr(t, st, request(st, id, epoch, n, "1")); !errors.Is(err, persistence.ErrClosed) {
		t.Errorf("got %v, want %v", err, persistence.ErrClosed)
	}
	if err := st.Fold(t.Context()); !errors.Is(err, persistence.ErrClosed) {
		t.Errorf("got %v, want %v", err, persistence.ErrClosed)
	}
}

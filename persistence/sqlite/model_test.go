package sqlite

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/persistence"
)

// model is the store as maps, without time, threads or disk.
type model struct {
	epochs  map[uint32]uint64
	events  map[persistence.EntityID][]string
	snaps   map[persistence.EntityID]uint64
	records map[persistence.RecordKey]string
	puts    map[persistence.RecordKey]uint64
}

func newModel() *model {
	return &model{map[uint32]uint64{}, map[persistence.EntityID][]string{}, map[persistence.EntityID]uint64{}, map[persistence.RecordKey]string{}, map[persistence.RecordKey]uint64{}}
}

// crashCopy copies the files of an open store, as a crash would leave them: the
// caller makes sure that no commit is under way.
func crashCopy(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range []string{FileName, FileName + "-wal"} {
		src, err := os.Open(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		dst, err := os.Create(filepath.Join(to, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(dst, src); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(src.Close(), dst.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func modelOptions() Options {
	opt := testOptions()
	opt.FoldEvery = time.Hour // crashCopy wants a store at rest
	opt.Folders = map[string]persistence.Folder{"model": countFolder}
	return opt
}

// Random operations, right and wrong, with folds, reopenings and crashes.
func TestModel(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	st, m := testOpen(t, dir, modelOptions()), newModel()
	var ids []persistence.EntityID
	for i := range 40 {
		ids = append(ids, entityID(t, fmt.Sprintf("model/r%d/e%d", i%6, i)))
	}
	fail := func(step int, format string, args ...any) {
		t.Helper()
		t.Fatalf("seed %d step %d: "+format, append([]any{seed, step}, args...)...)
	}
	for step := range 1000 {
		id := ids[rnd.IntN(len(ids))]
		shard := id.Shard(st.Shards())
		epoch := m.epochs[shard]
		stale := rnd.IntN(10) == 0
		if stale {
			epoch += uint64(rnd.IntN(2)*2) - 1
		}
		fenced := stale || epoch == 0
		switch k := rnd.IntN(100); {
		case k < 5:
			m.epochs[shard]++
			if got := acquire(t, st, id); got != m.epochs[shard] {
				fail(step, "acquire: got epoch %d, want %d", got, m.epochs[shard])
			}
		case k < 60:
			expected := uint64(len(m.events[id]))
			if rnd.IntN(8) == 0 {
				expected += uint64(rnd.IntN(2)*2) - 1
			}
			data := []string{fmt.Sprint(step), fmt.Sprint(step, "b")}[:1+rnd.IntN(2)]
			seq, err := st.Append(t.Context(), request(st, id, epoch, expected, data...))
			switch {
			case fenced:
				if !errors.Is(err, persistence.ErrDeposed) {
					fail(step, "append with epoch %d of %d: got %v", epoch, m.epochs[shard], err)
				}
			case expected != uint64(len(m.events[id])):
				if !errors.Is(err, persistence.ErrConflict) {
					fail(step, "append after %d of %d: got %v", expected, len(m.events[id]), err)
				}
			default:
				m.events[id] = append(m.events[id], data...)
				if err != nil || seq != uint64(len(m.events[id])) {
					fail(step, "append: got %d, %v, want %d", seq, err, len(m.events[id]))
				}
			}
		case k < 75:
			key := persistence.RecordKey{Kind: []string{"lane", "frontier"}[rnd.IntN(2)], Scope: id.Routing(), Name: fmt.Sprint(rnd.IntN(4))}
			var err error
			if rnd.IntN(3) > 0 {
				err = st.Put(t.Context(), persistence.PutRequest{Shard: shard, Epoch: epoch, Background: rnd.IntN(2) == 0, Records: []persistence.Record{{RecordKey: key, Data: []byte(fmt.Sprint(step))}}})
				if !fenced {
					m.records[key] = fmt.Sprint(step)
					m.puts[key]++
				}
			} else {
				err = st.Delete(t.Context(), persistence.DeleteRequest{Shard: shard, Epoch: epoch, Keys: []persistence.RecordKey{key}})
				if !fenced {
					delete(m.records, key)
					delete(m.puts, key)
				}
			}
			if fenced != errors.Is(err, persistence.ErrDeposed) || !fenced && err != nil {
				fail(step, "record: fenced %v, got %v", fenced, err)
			}
		case k < 80:
			seq := uint64(rnd.IntN(len(m.events[id]) + 2))
			ok := !fenced && seq > 0 && seq <= uint64(len(m.events[id]))
			err := st.SaveSnapshot(t.Context(), epoch, persistence.Snapshot{Entity: id, Seq: seq, Version: 1, Data: []byte("{}")})
			if (err == nil) != ok {
				fail(step, "snapshot of seq %d of %d, fenced %v: got %v", seq, len(m.events[id]), fenced, err)
			}
			if ok {
				m.snaps[id] = seq
			}
		case k < 96:
			if err := st.Fold(t.Context()); err != nil {
				fail(step, "fold: %v", err)
			}
		default:
			if rnd.IntN(2) == 0 {
				if err := st.Close(); err != nil {
					fail(step, "close: %v", err)
				}
			} else {
				dir = crashCopy(t, dir)
			}
			st = testOpen(t, dir, modelOptions())
			compare(t, st, m, ids)
		}
	}
	compare(t, st, m, ids)
}

func compare(t *testing.T, st *Store, m *model, ids []persistence.EntityID) {
	t.Helper()
	for _, id := range ids {
		want := ""
		for i, d := range m.events[id] {
			if i > 0 {
				want += " "
			}
			want += fmt.Sprintf("%d:%s", i+1, d)
		}
		if got := events(t, st, id, 0); got != want {
			t.Fatalf("%s: got %q, want %q", id, got, want)
		}
		sn, ok, err := st.LoadSnapshot(t.Context(), id)
		if err != nil || ok != (m.snaps[id] > 0) || sn.Seq != m.snaps[id] {
			t.Fatalf("snapshot of %s: got %d, %v, %v, want seq %d", id, sn.Seq, ok, err, m.snaps[id])
		}
	}
	records := map[persistence.RecordKey]string{}
	for _, kind := range []string{"lane", "frontier"} {
		if err := st.Scan(t.Context(), kind, "", func(r persistence.Record) error {
			records[r.RecordKey] = string(r.Data)
			if r.Version != m.puts[r.RecordKey] {
				t.Errorf("%v: got version %d, want %d", r.RecordKey, r.Version, m.puts[r.RecordKey])
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if !maps.Equal(records, m.records) {
		t.Fatalf("got records %v, want %v", records, m.records)
	}
	var rows []string
	if err := st.ScanRows(t.Context(), "model", func(r persistence.Row) error {
		rows = append(rows, fmt.Sprintf("%s %d %s", r.Entity, r.Seq, r.Data))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var want []string
	for id, evs := range m.events {
		want = append(want, fmt.Sprintf("%s %d %d", id, len(evs), len(evs)))
	}
	slices.Sort(want)
	if !slices.Equal(rows, want) {
		t.Fatalf("got rows %v, want %v", rows, want)
	}
}

// Many writers of one entity: those that expected the right seq win, one each.
func TestConcurrentAppends(t *testing.T) {
	st := testOpen(t, t.TempDir(), testOptions())
	id := entityID(t, "note/shop:0/a")
	epoch := acquire(t, st, id)
	const writers, each = 16, 30
	var wg sync.WaitGroup
	var conflicts atomic.Int64
	for range writers {
		wg.Go(func() {
			for done := 0; done < each; {
				seq := st.LastSeq(id)
				got, err := st.Append(t.Context(), request(st, id, epoch, seq, "1"))
				switch {
				case errors.Is(err, persistence.ErrConflict):
					conflicts.Add(1)
				case err != nil || got != seq+1:
					t.Errorf("got %d, %v, want %d", got, err, seq+1)
					return
				default:
					done++
				}
			}
		})
	}
	wg.Wait()
	if got, want := st.LastSeq(id), uint64(writers*each); got != want {
		t.Errorf("got %d events, want %d", got, want)
	}
	if conflicts.Load() == 0 {
		t.Error("got no conflict: the writers did not meet")
	}
}

// The table against a map, across growth of its index and chunks.
func TestEntityTable(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	table, want := newEntityTable(), map[persistence.EntityID]place{}
	for range 60_000 {
		id, err := persistence.EntityIDOf("t", fmt.Sprintf("r%d", rnd.IntN(50)), fmt.Sprintf("%d", rnd.IntN(1000)))
		if err != nil {
			t.Fatal(err)
		}
		if got := table.get(id); got != want[id] {
			t.Fatalf("seed %d: %s: got %v, want %v", seed, id, got, want[id])
		}
		want[id] = place{want[id].seq + 1, rnd.Uint64()}
		table.set(id, want[id])
	}
	for id, w := range want {
		if got := table.get(id); got != w {
			t.Errorf("seed %d: %s: got %v, want %v", seed, id, got, w)
		}
	}
}

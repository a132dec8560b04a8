package sqlite

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/persistence"
)

var benchData = []byte(`{"state":"streaming","phase":"steady","position":"7f3a|0000000000a1b2c3|mysql-bin.000123:4567890","lag_ms":1234,"why":"caught up"}`)

func benchOpen(b *testing.B, opt Options) *Store {
	b.Helper()
	opt.Log = slog.New(slog.DiscardHandler)
	st, err := Open(b.Context(), b.TempDir(), opt)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := st.Close(); err != nil {
			b.Error(err)
		}
	})
	return st
}

func acquireAll(tb testing.TB, st *Store) []uint64 {
	tb.Helper()
	epochs := make([]uint64, st.Shards())
	var wg sync.WaitGroup
	for i := range epochs {
		wg.Go(func() {
			e, err := st.AcquireShard(tb.Context(), uint32(i))
			if err != nil {
				tb.Error(err)
			}
			epochs[i] = e
		})
	}
	wg.Wait()
	return epochs
}

// fill gives each of n entities one event.
func fill(tb testing.TB, st *Store, epochs []uint64, n int) []persistence.EntityID {
	tb.Helper()
	ids := make([]persistence.EntityID, n)
	var wg sync.WaitGroup
	const at = 512
	for w := range at {
		wg.Go(func() {
			for i := w; i < n; i += at {
				id, err := persistence.NewEntityID("sync-task", fmt.Sprintf("shop-%d:0", i%97))
				if err != nil {
					tb.Error(err)
					return
				}
				ids[i] = id
				shard := id.Shard(st.Shards())
				if _, err := st.Append(tb.Context(), persistence.AppendRequest{Shard: shard, Epoch: epochs[shard], Entity: id,
					Events: []persistence.EncodedEvent{{Type: "task-created", Version: 1, Data: benchData}}}); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return ids
}

// BenchmarkAppend is 64 writers that each wait for a durable answer; the entities
// are 200,000, their rows are folded meanwhile.
func BenchmarkAppend(b *testing.B) {
	for _, every := range []time.Duration{time.Hour, 3 * time.Second} {
		b.Run("fold="+every.String(), func(b *testing.B) {
			st := benchOpen(b, Options{FoldEvery: every})
			epochs := acquireAll(b, st)
			ids := fill(b, st, epochs, 200_000)
			benchAppend(b, st, epochs, ids, 64)
		})
	}
}

func benchAppend(b *testing.B, st *Store, epochs []uint64, ids []persistence.EntityID, writers int) {
	took := make([][]time.Duration, writers)
	b.ResetTimer()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			// A stride that is coprime to the count visits entities in random order.
			k := uint64(w) * 7919
			for i := w; i < b.N; i += writers {
				k += 2654435761 * uint64(writers)
				// Each writer has its own residue class, so seqs are its own to count.
				j := (k/uint64(writers)%(uint64(len(ids))/uint64(writers)))*uint64(writers) + uint64(w)
				id := ids[j]
				shard := id.Shard(st.Shards())
				start := time.Now()
				if _, err := st.Append(b.Context(), persistence.AppendRequest{Shard: shard, Epoch: epochs[shard], Entity: id, Expected: st.LastSeq(id),
					Events: []persistence.EncodedEvent{{Type: "task-moved", Version: 1, Data: benchData}}}); err != nil {
					b.Error(err)
					return
				}
				took[w] = append(took[w], time.Since(start))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(took...)
	slices.Sort(all)
	b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "appends/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkStart opens a store of 1,000,000 entities.
func BenchmarkStart(b *testing.B) {
	const n = 1_000_000
	dir := b.TempDir()
	st, err := Open(b.Context(), dir, Options{FoldEvery: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	fill(b, st, acquireAll(b, st), n)
	b.ReportMetric(float64(n)/time.Since(start).Seconds(), "filled/s")
	start = time.Now()
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(n)/time.Since(start).Seconds(), "folded/s")
	st = nil
	if fi, err := os.Stat(dir + "/" + FileName); err == nil {
		b.ReportMetric(float64(fi.Size())/n, "file-B/entity")
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	b.ResetTimer()
	for range b.N {
		st, err := Open(b.Context(), dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		b.ReportMetric(float64(heap()-before)/n, "heap-B/entity")
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/start")
}

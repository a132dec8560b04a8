package cluster

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/actor"
	"github.com/runnel-dev/runnel/persistence"
	"github.com/runnel-dev/runnel/persistence/sqlite"
)

// BenchmarkAsk is 64 callers that each wait for a durable state change of one of
// 5,000 resident entities.
func BenchmarkAsk(b *testing.B) {
	const callers, entities = 64, 5_000
	st, err := sqlite.Open(b.Context(), b.TempDir(), sqlite.Options{Log: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	sys, err := actor.New(actor.Config{})
	if err != nil {
		b.Fatal(err)
	}
	reg := persistence.NewRegistry()
	if err := persistence.RegisterEvent[added](reg, "added"); err != nil {
		b.Fatal(err)
	}
	sum := persistence.Definition[int]{
		Type: "sum", Initial: func(persistence.EntityID) int { return 0 },
		Decide: func(s int, cmd any) persistence.Decision {
			return persistence.Decision{Events: []any{added(cmd.(add))}, Reply: s}
		},
		Apply: func(s int, ev any) int { return s + ev.(added).N },
	}
	r, err := NewRegion(RegionConfig{System: sys, Store: st, Registry: reg, Kinds: []persistence.Kind{sum.Kind()}})
	if err != nil {
		b.Fatal(err)
	}
	if err := r.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	ids := make([]persistence.EntityID, entities)
	for i := range ids {
		if ids[i], err = persistence.EntityIDOf("sum", fmt.Sprintf("shop-%d:0", i%97), fmt.Sprintf("e%d", i)); err != nil {
			b.Fatal(err)
		}
	}
	took := make([][]time.Duration, callers)
	ask := func(n int) {
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				for i := c; i < n; i += callers {
					start := time.Now()
					if _, err := r.Ask(b.Context(), ids[i*7919%entities], add{2}); err != nil {
						b.Error(err)
						return
					}
					took[c] = append(took[c], time.Since(start))
				}
			})
		}
		wg.Wait()
	}
	ask(entities) // loads them all
	clear(took)
	b.ResetTimer()
	ask(b.N)
	b.StopTimer()
	all := slices.Concat(took...)
	slices.Sort(all)
	b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "changes/s")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	if err := r.Stop(b.Context()); err != nil {
		b.Error(err)
	}
	if err := sys.Shutdown(b.Context()); err != nil {
		b.Error(err)
	}
	if err := st.Close(); err != nil {
		b.Error(err)
	}
}

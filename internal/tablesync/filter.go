package tablesync

import (
	"sync"
	"sync/atomic"

	"github.com/runnel-dev/runnel/change"
)

// sourceFilter says which tables of a source are read: those of its tasks and
// those that its pipelines match, so that the rows right behind a CREATE TABLE
// are not missed.
type sourceFilter struct {
	gen atomic.Uint64
	mu  struct {
		sync.RWMutex
		tables    map[change.TableID]int // tasks of the table
		pipelines []PipelineSpec
	}
}

func newSourceFilter() *sourceFilter {
	f := &sourceFilter{}
	f.mu.tables = map[change.TableID]int{}
	return f
}

// Wants implements change.Filter.
func (f *sourceFilter) Wants(t change.TableID) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.mu.tables[t] > 0 || f.matchesLocked(t)
}

// WantsNew implements change.Filter.
func (f *sourceFilter) WantsNew(t change.TableID) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.matchesLocked(t)
}

// Generation implements change.Filter.
func (f *sourceFilter) Generation() uint64 { return f.gen.Load() }

func (f *sourceFilter) matchesLocked(t change.TableID) bool {
	for i := range f.mu.pipelines {
		if f.mu.pipelines[i].Matches(t) {
			return true
		}
	}
	return false
}

func (f *sourceFilter) add(t change.TableID, n int) {
	f.mu.Lock()
	if f.mu.tables[t] += n; f.mu.tables[t] <= 0 {
		delete(f.mu.tables, t)
	}
	f.mu.Unlock()
	f.gen.Add(1)
}

func (f *sourceFilter) setPipelines(ps []PipelineSpec) {
	f.mu.Lock()
	f.mu.pipelines = ps
	f.mu.Unlock()
	f.gen.Add(1)
}

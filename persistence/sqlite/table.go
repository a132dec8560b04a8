package sqlite

import (
	"hash/maphash"
	"strings"
	"sync"

	"github.com/runnel-dev/runnel/persistence"
)

const (
	entryChunk = 1 << 14 // entries in a chunk
	arenaPage  = 1 << 18 // bytes in an arena page
)

// entityTable knows (seq, last row) of every entity of the store. It is what
// guards (entity, seq): the journal has no index that could. Only the writer
// changes it, after a commit; everyone reads.
//
// An entity costs its random part, 32 bytes of entry and 5 to 11 bytes of index:
// the `type/routing/` before it is kept once for all that share it. Entries and
// text lie in chunks that never move, so growth copies only the index.
type entityTable struct {
	mu       sync.RWMutex
	seed     maphash.Seed
	prefixes map[string]uint32
	names    []string // prefix by number
	arena    [][]byte
	entries  [][]entry
	count    uint32
	index    []uint32 // open addressing, linear probing: entry number + 1, 0 is free
	lastRow  uint64   // last journal row that is committed
}

type entry struct {
	last   uint64
	seq    uint64
	page   uint32 // of the arena
	off    uint32
	prefix uint32
	size   uint16
}

// place is the end of an entity's chain of events; the zero place has none.
type place struct{ seq, last uint64 }

func newEntityTable() *entityTable {
	return &entityTable{seed: maphash.MakeSeed(), prefixes: map[string]uint32{}, index: make([]uint32, 1<<10)}
}

func split(id persistence.EntityID) (prefix, suffix string) {
	s := id.String()
	i := strings.LastIndexByte(s, '/') + 1
	return s[:i], s[i:]
}

func (t *entityTable) at(n uint32) *entry { return &t.entries[n/entryChunk][n%entryChunk] }

func (t *entityTable) suffix(e *entry) []byte {
	return t.arena[e.page][e.off : e.off+uint32(e.size)]
}

func (t *entityTable) hash(prefix uint32, suffix []byte) uint64 {
	return maphash.Bytes(t.seed, suffix) ^ uint64(prefix)*0x9e3779b97f4a7c15
}

// find returns the slot of the entity, and its entry number if it is there.
func (t *entityTable) find(prefix uint32, suffix []byte) (slot uint64, n uint32, ok bool) {
	mask := uint64(len(t.index) - 1)
	for slot = t.hash(prefix, suffix) & mask; ; slot = (slot + 1) & mask {
		v := t.index[slot]
		if v == 0 {
			return slot, 0, false
		}
		if e := t.at(v - 1); e.prefix == prefix && string(t.suffix(e)) == string(suffix) {
			return slot, v - 1, true
		}
	}
}

// get returns the entity's place; the zero place if it has no events.
func (t *entityTable) get(id persistence.EntityID) place {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p, suffix := split(id)
	prefix, ok := t.prefixes[p]
	if !ok {
		return place{}
	}
	_, n, ok := t.find(prefix, []byte(suffix))
	if !ok {
		return place{}
	}
	e := t.at(n)
	return place{e.seq, e.last}
}

// set stores the entity's place.
func (t *entityTable) set(id persistence.EntityID, p place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setLocked(id, p)
}

func (t *entityTable) setLocked(id persistence.EntityID, p place) {
	pre, suf := split(id)
	prefix, ok := t.prefixes[pre]
	if !ok {
		prefix = uint32(len(t.names))
		pre = strings.Clone(pre)
		t.names = append(t.names, pre)
		t.prefixes[pre] = prefix
	}
	suffix := []byte(suf)
	slot, n, ok := t.find(prefix, suffix)
	if !ok {
		n = t.add(prefix, suffix)
		t.index[slot] = n + 1
		if uint64(t.count)*4 > uint64(len(t.index))*3 {
			t.grow()
		}
	}
	e := t.at(n)
	e.seq, e.last = p.seq, p.last
}

func (t *entityTable) add(prefix uint32, suffix []byte) uint32 {
	n := t.count
	t.count++
	if n%entryChunk == 0 {
		t.entries = append(t.entries, make([]entry, entryChunk))
	}
	if k := len(t.arena); k == 0 || len(t.arena[k-1])+len(suffix) > arenaPage {
		t.arena = append(t.arena, make([]byte, 0, arenaPage))
	}
	page := len(t.arena) - 1
	*t.at(n) = entry{prefix: prefix, page: uint32(page), off: uint32(len(t.arena[page])), size: uint16(len(suffix))}
	t.arena[page] = append(t.arena[page], suffix...)
	return n
}

func (t *entityTable) grow() {
	t.index = make([]uint32, len(t.index)*2)
	mask := uint64(len(t.index) - 1)
	for n := range t.count {
		e := t.at(n)
		slot := t.hash(e.prefix, t.suffix(e)) & mask
		for t.index[slot] != 0 {
			slot = (slot + 1) & mask
		}
		t.index[slot] = n + 1
	}
}

// journalEnd is the last row of the journal that is committed.
func (t *entityTable) journalEnd() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.lastRow
}

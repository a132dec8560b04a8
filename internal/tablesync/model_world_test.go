package tablesync

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/capture"
)

// The world of the model test: a source log, a target and a store that survive,
// and processes (coroutines) that run the real procedures of capture and
// tablesync against them. Every call to the outside yields before and after its
// effect, so that the scheduler can run somebody else, or crash, between any two
// steps.

const (
	modelTables = 3
	modelKeys   = 4
)

// bug is a planted fault: each breaks one invariant.
type bug string

const (
	noBug          bug = ""
	bugI1Detach    bug = "I1: a detach is acknowledged before it is durable"
	bugI1Frontier  bug = "I1: rows count as applied before the target commits"
	bugI2Jump      bug = "I2: a purged log is opened where it begins now"
	bugI3TwoCommit bug = "I3: rows and checkpoint commit one after the other"
	bugI4NoWait    bug = "I4: claim does not wait and an apply only compares once"
	bugI5NoHold    bug = "I5: a chunk is placed without waiting for its mark"
	bugI5Mark      bug = "I5: the mark is read after the rows"
)

type modelChange struct{ table, key, val int } // val 0: deleted

type modelGroup struct {
	start    int // where a reader sees all of it
	openFrom int // lowest start of groups open at its end, -1 for none
	changes  []modelChange
}

type version struct{ end, val int }

type openTxn struct {
	epoch  uint64
	commit func() // applies the effect
	done   bool
}

type modelTask struct {
	incarnation string
	table       int
	from        int // its start in the log
	lost        bool
}

var errCrashed = errors.New("crashed")

type world struct {
	rnd *rand.Rand
	bug bug

	// source
	log      []modelGroup // log[n-1] ends at n
	purged   int          // the log is kept from here
	released int
	open     []int // starts of prepared groups
	hist     [modelTables][modelKeys][]version
	lastOf   [modelTables][]int // ends of groups with rows of the table

	// store
	frontier capture.Frontier
	records  map[string]capture.LaneRecord
	tasks    [modelTables]*modelTask
	epoch    uint64
	serial   int
	upperAt  [modelTables]int // end of the log when the upper bound was read

	// target
	fence  uint64
	loaded uint64 // newest epoch that has read checkpoints
	ckpt   map[string]int
	chunks map[string]change.CopyProgress
	rows   map[string]*[modelKeys]int
	txns   []*openTxn

	// scheduling
	procs    []*proc
	cur      *proc
	calm     bool // drain: no faults any more
	dirty    bool
	violated error
	hits     map[string]int
	late     []func() // bugI1Detach: records not yet written
}

func newWorld(seed uint64, b bug) *world {
	return &world{
		rnd: rand.New(rand.NewPCG(seed, 1)), bug: b,
		records: map[string]capture.LaneRecord{}, ckpt: map[string]int{},
		chunks: map[string]change.CopyProgress{}, rows: map[string]*[modelKeys]int{}, hits: map[string]int{},
		frontier: capture.Frontier{At: modelPos(0), From: modelPos(0)},
	}
}

var positions = func() []change.Position {
	ps := make([]change.Position, 400)
	for n := range ps {
		ps[n] = change.Position{History: "model", Token: strconv.Itoa(n)}
		binary.BigEndian.PutUint64(ps[n].Order[8:], uint64(n))
	}
	return ps
}()

func modelPos(n int) change.Position { return positions[n] }

func modelNum(p change.Position) int { return int(binary.BigEndian.Uint64(p.Order[8:])) }

func (w *world) end() int          { return len(w.log) }
func (w *world) chance(n int) bool { return !w.calm && w.rnd.IntN(n) == 0 }

// state is the value of a key after the groups up to at, 0 when absent.
func (w *world) state(table, key, at int) int {
	v := 0
	for _, h := range w.hist[table][key] {
		if h.end > at {
			break
		}
		v = h.val
	}
	return v
}

// write ends a group at the source; prepared ones end later than they start.
func (w *world) write() {
	if len(w.open) < 2 && w.rnd.IntN(8) == 0 {
		w.open = append(w.open, w.end())
		return
	}
	start := w.end()
	if len(w.open) > 0 && w.rnd.IntN(4) == 0 {
		i := w.rnd.IntN(len(w.open))
		start = w.open[i]
		w.open = append(w.open[:i:i], w.open[i+1:]...)
	}
	g := modelGroup{start: start, openFrom: -1}
	end := w.end() + 1
	for range w.rnd.IntN(4) {
		c := modelChange{w.rnd.IntN(modelTables), w.rnd.IntN(modelKeys), 0}
		if w.rnd.IntN(4) > 0 {
			c.val = end*10 + len(g.changes)
		}
		if w.state(c.table, c.key, end) == 0 && c.val == 0 {
			continue
		}
		g.changes = append(g.changes, c)
		h := &w.hist[c.table][c.key]
		if n := len(*h); n > 0 && (*h)[n-1].end == end {
			(*h)[n-1].val = c.val
		} else {
			*h = append(*h, version{end, c.val})
		}
		if n := len(w.lastOf[c.table]); n == 0 || w.lastOf[c.table][n-1] != end {
			w.lastOf[c.table] = append(w.lastOf[c.table], end)
		}
	}
	for _, s := range w.open {
		if g.openFrom < 0 || s < g.openFrom {
			g.openFrom = s
		}
	}
	w.log = append(w.log, g)
	w.dirty = true
}

// needs is where the log must begin for a reader that opens at at.
func (w *world) needs(at int) int {
	for n := at + 1; n <= w.end(); n++ {
		if s := w.log[n-1].start; s < at {
			at = s
		}
	}
	for _, s := range w.open {
		at = min(at, s)
	}
	return at
}

// proc is a coroutine that runs one procedure.
type proc struct {
	name string
	next func() (struct{}, bool)
	stop func()
	out  func(struct{}) bool
	dead bool
}

// start runs body as a coroutine; it is forgotten when body returns. A process
// that has crashed starts nothing.
func (w *world) start(name string, body func()) {
	if w.cur != nil && w.cur.dead {
		return
	}
	p := &proc{name: name}
	p.next, p.stop = iter.Pull(func(yield func(struct{}) bool) {
		p.out = yield
		body()
	})
	w.procs = append(w.procs, p)
}

// yield lets somebody else run; an error means that the process has crashed.
func (w *world) yield() error {
	p := w.cur
	if p.dead || !p.out(struct{}{}) {
		p.dead = true
		return errCrashed
	}
	return nil
}

// resume runs process i until it yields or ends.
func (w *world) resume(i int) {
	p := w.procs[i]
	w.cur = p
	if _, more := p.next(); !more {
		w.procs = append(w.procs[:i], w.procs[i+1:]...)
	}
	w.cur = nil
}

// crash ends the process: whatever is in memory is gone, transactions that were
// open at the target may still commit.
func (w *world) crash() {
	for _, p := range w.procs {
		p.dead = true
		w.cur = p
		p.stop()
	}
	w.cur, w.procs, w.late = nil, nil, nil
	for _, t := range w.txns {
		if !t.done && w.rnd.IntN(3) == 0 {
			t.done = true // the server noticed the lost connection
		}
	}
	w.hits["crash"]++
}

// zombie lets a transaction of a dead process end, one way or the other.
func (w *world) zombie() {
	for _, t := range w.txns {
		if !t.done {
			t.done = true
			if w.rnd.IntN(2) == 0 {
				t.commit()
				w.hits["zombie commit"]++
			}
			break
		}
	}
	w.reap()
}

func (w *world) reap() {
	keep := w.txns[:0]
	for _, t := range w.txns {
		if !t.done {
			keep = append(keep, t)
		}
	}
	w.txns = keep
}

func (w *world) violate(format string, a ...any) {
	if w.violated == nil {
		w.violated = fmt.Errorf(format, a...)
	}
}

// check asserts the invariants of frontier.md over what is durable.
func (w *world) check() {
	if !w.dirty || w.violated != nil {
		return
	}
	w.dirty = false
	f := modelNum(w.frontier.At)
	for _, t := range w.tasks {
		if t == nil {
			continue
		}
		rec, has := w.records[t.incarnation]
		at, hasCkpt := w.ckpt[t.incarnation]
		if has && rec.Attached {
			for _, end := range w.lastOf[t.table] {
				if end > t.from && end <= f && (!hasCkpt || end > at) {
					w.violate("I1: %s is attached, F=%d, its group %d is not committed (checkpoint %d)", t.incarnation, f, end, at)
				}
			}
		}
		if hasCkpt {
			w.checkRows(t, at)
		}
	}
}

// checkRows asserts I3 (and what I5 promises): every key that the copy or the log
// has brought is exactly as it was at the checkpoint.
func (w *world) checkRows(t *modelTask, at int) {
	rows := w.rows[t.incarnation]
	p := w.chunks[t.incarnation]
	copied := -1
	if p.Bound != nil {
		copied = int(p.Bound[0])
	}
	if p.Done {
		copied = modelKeys
	}
	for k := range modelKeys {
		want := w.state(t.table, k, at)
		logged := false
		for _, h := range w.hist[t.table][k] {
			logged = logged || h.end > t.from && h.end <= at
		}
		got := rows[k]
		if got == want || got == 0 && k > copied && !logged {
			continue
		}
		// A key above the upper bound that was deleted before the bound was read is
		// not copied; its delete is still to come by the log.
		if u := w.upperAt[t.table]; got == 0 && at < u && w.state(t.table, k, u) == 0 {
			continue
		}
		w.violate("I3: %s key %d is %d at checkpoint %d, want %d (copied to %d, logged %v): %s", t.incarnation, k, got, at, want, copied, logged, w.dump(t))
	}
}

// Source.

type modelSource struct{ w *world }

func (s modelSource) Features() change.SourceFeatures {
	return change.SourceFeatures{Reopen: true, WantsRelease: true}
}
func (s modelSource) Check(context.Context) ([]*change.Problem, error) { return nil, nil }
func (s modelSource) Close() error                                     { return nil }

func (s modelSource) Now(context.Context) (change.Position, error) {
	if err := s.w.yield(); err != nil {
		return change.Position{}, err
	}
	at := modelPos(s.w.end())
	return at, s.w.yield()
}

func (s modelSource) Oldest(context.Context) (change.Position, error) {
	if err := s.w.yield(); err != nil {
		return change.Position{}, err
	}
	return modelPos(s.w.purged), nil
}

func (s modelSource) Release(_ context.Context, p change.Position) error {
	if err := s.w.yield(); err != nil {
		return err
	}
	if w := s.w; modelNum(p) > w.released {
		if f := modelNum(w.frontier.From); modelNum(p) > f {
			w.violate("D passed J: released %d, journaled %d", modelNum(p), f)
		}
		w.released = modelNum(p)
	}
	return s.w.yield()
}

func (s modelSource) Open(_ context.Context, from change.Position, _ change.Filter) (change.Stream, error) {
	if err := s.w.yield(); err != nil {
		return nil, err
	}
	at := modelNum(from)
	if need := s.w.needs(at); need < s.w.purged {
		if s.w.bug != bugI2Jump {
			s.w.hits["log gone"]++
			return nil, change.ErrLogGone
		}
		at = s.w.purged
	}
	return &modelStream{w: s.w, asked: modelNum(from), at: at}, nil
}

type modelStream struct {
	w     *world
	asked int // every group after it must be seen
	at    int
}

var errBroken = errors.New("connection lost")

func (s *modelStream) Next(context.Context) (*change.Group, error) {
	for {
		if err := s.w.yield(); err != nil {
			return nil, err
		}
		if s.w.chance(40) {
			return nil, errBroken
		}
		if s.at < s.w.end() {
			break
		}
	}
	s.at++
	if s.at > s.asked+1 {
		s.w.violate("I2: a reader that needs the log from %d goes on at %d", s.asked, s.at)
	}
	s.asked = s.at
	g := s.w.log[s.at-1]
	if g.start < s.w.purged && s.w.bug != bugI2Jump {
		if s.w.cur.name == "read" {
			s.w.violate("D: the log of group %d was released too early", s.at)
		}
		return nil, errBroken // purged under the sweep: it finds out when it opens again
	}
	out := &change.Group{Start: modelPos(g.start), End: modelPos(s.at)}
	if g.openFrom >= 0 {
		out.OpenFrom = modelPos(g.openFrom)
	}
	for i := range g.changes {
		t := modelTable(g.changes[i].table)
		if n := len(out.Events); n > 0 && out.Events[n-1].Table == t {
			b := out.Events[n-1].Rows.(*modelBlock)
			b.changes = append(b.changes, g.changes[i])
			continue
		}
		out.Events = append(out.Events, change.Event{Table: t, Rows: &modelBlock{changes: []modelChange{g.changes[i]}}})
	}
	return out, nil
}

func (s *modelStream) Close() error { return nil }

func modelTable(n int) change.TableID {
	return change.TableID{Schema: "m", Name: string(rune('a' + n))}
}

type modelBlock struct{ changes []modelChange }

func (b *modelBlock) SizeBytes() int { return 100 * len(b.changes) }

func (b *modelBlock) Decode(_ *change.Layout, a *change.Arena, emit func(change.Change) error) error {
	for _, c := range b.changes {
		row := modelRow(a, c.key, c.val)
		ch := change.Change{Op: change.Update, Before: row, After: row}
		if c.val == 0 {
			ch = change.Change{Op: change.Delete, Before: row}
		}
		if err := emit(ch); err != nil {
			return err
		}
	}
	return nil
}

func modelRow(a *change.Arena, key, val int) change.Row {
	row := a.Values(2)
	row[0] = change.Value{Kind: change.Int, Num: uint64(key)}
	row[1] = change.Value{Kind: change.Int, Num: uint64(val)}
	return row
}

var modelLayout = &change.Layout{Columns: []change.Column{{Name: "k"}, {Name: "v"}}, Key: []int{0}}

// Chunks.

type modelMark struct {
	at    int
	shown int  // what the engine is told
	low   bool // bugI5NoHold: High does not say where the chunk belongs
}

func (m modelMark) Includes(end change.Position) bool { return modelNum(end) <= m.shown }
func (m modelMark) High() change.Position {
	if m.low {
		return modelPos(0)
	}
	return modelPos(m.shown)
}

type modelReader struct {
	w     *world
	table int
}

func (r modelReader) Upper(context.Context, *change.Layout) ([]byte, error) {
	if err := r.w.yield(); err != nil {
		return nil, err
	}
	r.w.upperAt[r.table] = r.w.end()
	for k := modelKeys - 1; k >= 0; k-- {
		if r.w.state(r.table, k, r.w.end()) != 0 {
			return []byte{byte(k)}, nil
		}
	}
	return nil, nil
}

func (r modelReader) ReadChunk(_ context.Context, l *change.Layout, lower, upper []byte, limit int) (*change.Chunk, error) {
	w := r.w
	if err := w.yield(); err != nil {
		return nil, err
	}
	// A group can be in the log before reads see it.
	m := modelMark{at: max(w.end()-w.rnd.IntN(2), 0)}
	m.shown, m.low = m.at, w.bug == bugI5NoHold
	arena := smallArena()
	c := &change.Chunk{Layout: l, Arena: &arena, Done: true}
	lo, hi := 0, -1
	if lower != nil {
		lo = int(lower[0]) + 1
	}
	if upper != nil {
		hi = int(upper[0])
	}
	for k := lo; k <= hi; k++ {
		v := w.state(r.table, k, m.at)
		if v == 0 {
			continue
		}
		if len(c.Rows) == limit {
			c.Done = false
			break
		}
		c.Rows = append(c.Rows, modelRow(c.Arena, k, v))
		c.Last = []byte{byte(k)}
	}
	if c.Done {
		c.Last = []byte{modelKeys}
	}
	if err := w.yield(); err != nil {
		return nil, err
	}
	if w.bug == bugI5Mark {
		m.shown = w.end()
	}
	c.Mark = m
	return c, w.yield()
}

// Store.

type modelJournal struct{ w *world }

func (j modelJournal) PutFrontier(_ context.Context, f capture.Frontier) error {
	if err := j.w.yield(); err != nil {
		return err
	}
	if f.At.Before(j.w.frontier.At) {
		j.w.violate("the frontier went back from %s to %s", j.w.frontier.At.Token, f.At.Token)
	}
	j.w.frontier, j.w.dirty = f, true
	return j.w.yield()
}

func (j modelJournal) PutLane(_ context.Context, r capture.LaneRecord) error {
	if err := j.w.yield(); err != nil {
		return err
	}
	put := func() { j.w.records[r.Incarnation], j.w.dirty = r, true }
	if j.w.bug == bugI1Detach && !r.Attached {
		j.w.late = append(j.w.late, put)
		return nil
	}
	put()
	return j.w.yield()
}

func (j modelJournal) DeleteLane(_ context.Context, _, incarnation string) error {
	if err := j.w.yield(); err != nil {
		return err
	}
	delete(j.w.records, incarnation)
	j.w.dirty = true
	return j.w.yield()
}

func (w *world) dump(t *modelTask) string {
	s := fmt.Sprintf("%+v rows %v hist", *t, w.rows[t.incarnation])
	for k := range modelKeys {
		s += fmt.Sprintf(" %d:%v", k, w.hist[t.table][k])
	}
	return s
}

// smallArena is an arena for a few rows: most programs need no more.
func smallArena() change.Arena { return change.NewArena(16) }

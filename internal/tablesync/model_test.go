package tablesync

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/capture"
	"github.com/runnel-dev/runnel/retry"
)

var (
	modelPrograms = flag.Int("model.programs", 100_000, "random programs of the model test")
	modelSeed     = flag.Uint64("model.seed", 0, "run this one program and print it")
)

// life is one process: everything in it is lost at a crash.
type life struct {
	w     *world
	ctx   context.Context
	cap   *capture.Capture
	pool  *pool
	lanes map[string]*tableLane
	fence change.Fence
	sweep bool
}

func (w *world) boot() *life {
	w.epoch++
	lf := &life{w: w, ctx: context.Background(), pool: newPool(2), lanes: map[string]*tableLane{},
		fence: change.Fence{StoreID: "store", Owner: "model", Epoch: w.epoch}}
	lf.cap = capture.New(capture.Config{
		Name: "model", Source: modelSource{w}, Journal: modelJournal{w},
		Ready:           func(l *capture.Lane) { lf.pool.schedule(l.Task.(*tableLane)) },
		Attached:        func(*capture.Lane) { w.hits["hand-over"]++ },
		Lost:            lf.lost,
		Fatal:           func(err error) bool { return true },
		Now:             func() time.Time { return time.Unix(0, 0) },
		LaneBudgetBytes: 150,
		Retry:           retry.Policy{Initial: time.Nanosecond, MaxAttempts: 1},
	}, w.frontier)
	lf.cap.SetWait(func(ctx context.Context, cond func(*capture.Core) bool) error {
		_, timed := ctx.Deadline()
		for !lf.cap.Try(cond) {
			if err := w.yield(); err != nil {
				return err
			}
			if timed && w.rnd.IntN(10) == 0 {
				return context.DeadlineExceeded
			}
		}
		return nil
	})
	w.start("boot", lf.run)
	return lf
}

func (lf *life) lane(t *modelTask) *tableLane {
	tl := &tableLane{cap: lf.cap, sink: modelSink{lf.w}, fence: func() change.Fence { return lf.fence }, pool: lf.pool,
		handle: &capture.Lane{Table: modelTable(t.table), Incarnation: t.incarnation}}
	tl.handle.Task = tl
	lf.lanes[t.incarnation] = tl
	return tl
}

// run is the start of a process: frontier.md, start(owner, epoch).
func (lf *life) run() {
	w := lf.w
	var lanes []*tableLane
	for _, t := range w.tasks {
		if t != nil {
			lanes = append(lanes, lf.lane(t))
		}
	}
	back, err := restore(lf.ctx, lf.cap, modelSink{w}, lf.fence, lanes, maps.Clone(w.records))
	if err != nil {
		lf.failed("start", err)
		return
	}
	if len(back.gone) > 0 {
		w.violate("a lane with a record has no checkpoint: %v", back.gone[0].handle.Incarnation)
	}
	fresh := back.fresh
	for _, t := range lanes {
		if lf.cap.Lane(t.handle).Mode == capture.Detached && !slices.Contains(fresh, t) {
			lf.cap.Want(t.handle)
		}
	}
	w.start("read", func() { lf.loop("read", func() error { return lf.cap.ReadLog(lf.ctx) }) })
	w.start("advance", func() { lf.loop("advance", func() error { return lf.cap.Advance(lf.ctx) }) })
	w.start("sweep", func() { lf.loop("sweep", func() error { return lf.cap.Sweep(lf.ctx) }) })
	for range 2 {
		w.start("apply", lf.apply)
	}
	for table := range modelTables {
		w.start("copy", func() { lf.control(table, slices.Contains(fresh, lf.laneOf(table))) })
	}
}

func (lf *life) laneOf(table int) *tableLane {
	if t := lf.w.tasks[table]; t != nil {
		return lf.lanes[t.incarnation]
	}
	return nil
}

// failed records an error that no program may meet.
func (lf *life) failed(where string, err error) {
	if err != nil && !lf.w.cur.dead {
		lf.w.violate("%s: %w", where, err)
	}
}

func (lf *life) loop(name string, once func() error) {
	for {
		if err := once(); err != nil && !errors.Is(err, errBroken) {
			lf.failed(name, err)
			return
		}
		if lf.w.yield() != nil {
			return
		}
	}
}

func (lf *life) apply() {
	a := &applier{now: func() time.Time { return time.Unix(0, 0) }, arena: smallArena()}
	for {
		if lanes := lf.pool.take(); lanes != nil {
			for _, v := range a.step(lf.ctx, lanes) {
				lf.verdict(v)
			}
			for _, t := range lanes {
				lf.pool.done(t)
			}
		}
		if lf.w.yield() != nil {
			return
		}
	}
}

func (lf *life) verdict(v verdict) {
	switch {
	case lf.w.cur.dead:
	case errors.Is(v.err, errBehind):
		if lf.cap.Detach(lf.ctx, v.lane.handle, "behind") == nil {
			lf.cap.Want(v.lane.handle)
		}
	case errors.Is(v.err, errAgain), errors.Is(v.err, errRolledBack):
		lf.cap.Kick(v.lane.handle)
	case errors.Is(v.err, errCheckpointGone): // the task was made anew meanwhile
	default:
		lf.failed("apply", v.err)
	}
}

// control is one table's task: it starts, is copied, pauses and resumes, is made
// anew.
func (lf *life) control(table int, fresh bool) {
	w := lf.w
	for {
		if w.yield() != nil {
			return
		}
		t := lf.laneOf(table)
		var err error
		switch {
		case t == nil:
			if w.calm || w.rnd.IntN(4) == 0 {
				w.serial++
				w.tasks[table] = &modelTask{incarnation: fmt.Sprintf("%s%d", modelTable(table).Name, w.serial), table: table}
				lf.lane(w.tasks[table])
				fresh = true
			}
		case fresh:
			if err = lf.begin(t); err == nil {
				fresh = false
			}
		case w.tasks[table].lost || w.chance(60):
			if err = lf.cap.Remove(lf.ctx, t.handle); err == nil {
				w.tasks[table] = nil
				err = modelSink{w}.Forget(lf.ctx, lf.fence, t.handle.Incarnation)
				w.hits["remove"]++
			}
		default:
			err = lf.steady(t)
		}
		if err != nil && !errors.Is(err, capture.ErrNotAttached) && !errors.Is(err, errAgain) {
			lf.failed("control", err)
			return
		}
	}
}

// steady copies what is left, detaches and asks back.
func (lf *life) steady(t *tableLane) error {
	w := lf.w
	st := lf.cap.Lane(t.handle)
	switch {
	case st.Mode == capture.Attached && w.chance(6), (st.Mode == capture.Sweeping || st.Mode == capture.Joining) && w.chance(25):
		w.hits["detach "+st.Mode.String()]++
		return lf.cap.Detach(lf.ctx, t.handle, "paused")
	case st.Mode == capture.Detached && (w.calm || w.rnd.IntN(4) == 0):
		lf.cap.Want(t.handle)
	case st.Mode == capture.Attached:
		c := &copier{lane: t, reader: modelReader{w, int(t.handle.Table.Name[0] - 'a')}, limit: 2}
		return c.table(lf.ctx)
	}
	return nil
}

func (lf *life) begin(t *tableLane) error {
	at, err := lf.cap.StartLanes(lf.ctx, []*capture.Lane{t.handle})
	if err != nil {
		return err
	}
	pin := func(context.Context, change.TableID) (*change.Layout, change.Mark, error) {
		m := modelMark{at: lf.w.end(), shown: lf.w.end()}
		return modelLayout, m, lf.w.yield()
	}
	return prepare(lf.ctx, t, at, pin, change.TaskTarget{Task: "task"})
}

func (lf *life) lost(lanes []*capture.Lane, _ error) {
	for _, l := range lanes {
		for _, t := range lf.w.tasks {
			if t != nil && t.incarnation == l.Incarnation {
				t.lost = true
				lf.w.hits["lost"]++
			}
		}
	}
}

// program runs one random program and returns the violated invariant.
func program(seed uint64, b bug, trace func(string, ...any)) (map[string]int, error) {
	w := newWorld(seed, b)
	lf := w.boot()
	steps := 60 + w.rnd.IntN(500)
	step := func() {
		if len(w.procs) == 0 {
			return
		}
		i := w.rnd.IntN(len(w.procs))
		if trace != nil {
			trace("%s R=%s F=%s end=%d tasks=%v ckpt=%v records=%d", w.procs[i].name, lf.cap.Status().Read.Token, w.frontier.At.Token, w.end(), w.tasks, w.ckpt, len(w.records))
		}
		w.resume(i)
		w.check()
	}
	for range steps {
		switch n := w.rnd.IntN(100); {
		case n < 8 && w.end() < 60:
			w.write()
		case n < 10:
			w.purge()
		case n < 12:
			w.zombie()
			w.check()
		case n < 13:
			w.crash()
			w.check()
			lf = w.boot()
		case n < 15 && len(w.late) > 0:
			w.late[0]()
			w.late = w.late[1:]
		default:
			step()
		}
		if w.violated != nil {
			return w.hits, w.violated
		}
	}
	w.calm, w.open = true, nil
	for n := 0; !w.settled(lf); n++ {
		if n > 60_000 {
			return w.hits, fmt.Errorf("stuck: nothing settles; R=%s F=%s end=%d, tasks %v, checkpoints %v", lf.cap.Status().Read.Token, w.frontier.At.Token, w.end(), w.describe(lf), w.ckpt)
		}
		if len(w.txns) > 0 && n%50 == 0 {
			w.zombie()
			w.check()
		}
		step()
		if w.violated != nil {
			return w.hits, w.violated
		}
	}
	w.crash()
	return w.hits, nil
}

func (w *world) describe(lf *life) (out []string) {
	for i, t := range w.tasks {
		if t != nil {
			out = append(out, fmt.Sprintf("%s %+v chunks %+v", t.incarnation, lf.cap.Lane(lf.laneOf(i).handle), w.chunks[t.incarnation]))
		}
	}
	return out
}

// purge drops the part of the log that was released, and sometimes more, as a
// server does that keeps its log for a time only.
func (w *world) purge() {
	to := w.released
	if w.rnd.IntN(3) > 0 {
		return
	}
	w.purged = max(w.purged, to)
	w.hits["purge"]++
}

// settled: every table is attached and copied, and the target equals the source.
func (w *world) settled(lf *life) bool {
	for table, t := range w.tasks {
		if t == nil || t.lost || !w.records[t.incarnation].Attached || !w.chunks[t.incarnation].Done {
			return false
		}
		tl := lf.laneOf(table)
		if tl == nil {
			return false
		}
		if st := lf.cap.Lane(tl.handle); st.Mode != capture.Attached || st.Queued > 0 {
			return false
		}
	}
	if modelNum(lf.cap.Status().Read) != w.end() || len(w.txns) > 0 || len(w.late) > 0 {
		return false
	}
	for table, t := range w.tasks {
		for k := range modelKeys {
			if got, want := w.rows[t.incarnation][k], w.state(table, k, w.end()); got != want {
				w.violate("end: %s key %d is %d, want %d", t.incarnation, k, got, want)
			}
		}
	}
	return true
}

// TestModel runs random programs with crashes between any two steps; after every
// step I1 to I5 hold over what is durable, and in the end the target equals the
// source.
func TestModel(t *testing.T) {
	if *modelSeed != 0 {
		if _, err := program(*modelSeed, noBug, t.Logf); err != nil {
			t.Fatalf("seed %d: %v", *modelSeed, err)
		}
		return
	}
	const workers = 2
	hits := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			mine := map[string]int{}
			for seed := worker + 1; seed <= *modelPrograms; seed += workers {
				h, err := program(uint64(seed), noBug, nil)
				for k, n := range h {
					mine[k] += n
				}
				if err != nil {
					t.Errorf("seed %d: %v (run again with -model.seed=%d)", seed, err, seed)
					break
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for k, n := range mine {
				hits[k] += n
			}
		})
	}
	wg.Wait()
	t.Logf("%d programs; reached: %v", *modelPrograms, hits)
	for _, k := range []string{"crash", "zombie commit", "lost outcome", "lost answer", "hand-over", "remove", "chunk", "purge", "log gone", "lost",
		"detach attached", "detach sweeping", "detach joining"} {
		if hits[k] == 0 && !t.Failed() {
			t.Errorf("no program reached %q", k)
		}
	}
}

// TestModelCatchesPlantedBugs breaks each invariant once: a model that cannot see
// a planted bug proves nothing.
func TestModelCatchesPlantedBugs(t *testing.T) {
	for _, b := range []bug{bugI1Detach, bugI1Frontier, bugI2Jump, bugI3TwoCommit, bugI4NoWait, bugI5NoHold, bugI5Mark} {
		t.Run(string(b), func(t *testing.T) {
			for seed := uint64(1); seed <= 20_000; seed++ {
				if _, err := program(seed, b, nil); err != nil {
					t.Logf("caught by program %d: %v", seed, err)
					return
				}
			}
			t.Errorf("20,000 programs did not catch: %s", b)
		})
	}
}

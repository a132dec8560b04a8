package connectortest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/fault"
)

const (
	childName = "RUNNEL_TEST_SINK_CHILD" // the lane that the child works on
	childAddr = "RUNNEL_TEST_SINK_ADDR"
)

// IsSinkChild reports whether this process was started by the suite to be killed.
func IsSinkChild() bool { return os.Getenv(childName) != "" }

// SinkChildAddr is the target's address as the parent gave it.
func SinkChildAddr() string { return os.Getenv(childAddr) }

// RunSinkChild lives the whole life of a task until a fault point ends the process.
func RunSinkChild(t *testing.T, h SinkHarness) {
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	if err := liveOn(t, ctx, &h, os.Getenv(childName), 1); err != nil {
		t.Fatal(err)
	}
}

// lifeSteps are the steps of a task's life; step n moves the checkpoint to n.
const lifeSteps = 6

// liveOn takes a task up where it stands and lives it to its end: claim, prepare,
// two chunks, rows, a column more, rows, truncate, rows.
func liveOn(t *testing.T, ctx context.Context, h *SinkHarness, name string, epoch uint64) error {
	l := &lane{h: h, sink: h.Open(t, h.Addr), fence: change.Fence{StoreID: suiteStore, Owner: "owner-" + name, Epoch: epoch}, name: name, layout: h.Layout(name)}
	if err := l.sink.Claim(ctx, l.fence); err != nil {
		return err
	}
	cps, err := l.sink.Load(ctx, l.fence)
	if err != nil {
		return err
	}
	step := 0
	if len(cps) == 0 {
		if err := l.sink.Prepare(ctx, l.fence, l.task()); err != nil {
			return err
		}
	} else {
		step = order(cps[0].Position)
	}
	if err := l.copyTwoChunks(ctx); err != nil {
		return err
	}
	if l.layout, err = l.sink.LoadLayout(ctx, l.fence, l.key().Incarnation); err != nil {
		return err
	}
	for step++; step <= lifeSteps; step++ {
		if err := l.live(ctx, step); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return nil
}

// copyTwoChunks loads what Progress says is missing.
func (l *lane) copyTwoChunks(ctx context.Context) error {
	p, err := l.sink.Progress(ctx, l.fence, l.key().Incarnation)
	if err != nil || p.Done {
		return err
	}
	for i := p.Chunks; i < 2; i++ {
		err := l.sink.LoadChunk(ctx, l.fence, change.ChunkLoad{
			Incarnation: l.key().Incarnation, Target: l.target(), Layout: l.layout, Index: i, Bound: []byte{byte(i)}, Done: i == 1,
			Rows: []change.Row{l.h.Row(l.layout, int64(100+i), "copied")},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *lane) ddl(n int, st *change.Statement) change.DDL {
	return change.DDL{Key: l.key(), Target: l.target(), Layout: l.layout, Statement: st, Source: l.layout.Table, Expected: at(n - 1), Group: at(n)}
}

// live does one step, whatever its outcome was before.
func (l *lane) live(ctx context.Context, n int) error {
	var st *change.Statement
	switch n {
	case 3:
		st = l.h.Extra(l.layout.Table)
	case 5:
		st = l.h.Truncate(l.layout.Table)
	default:
		return l.apply(ctx, n)
	}
	after, err := l.sink.ApplyDDL(ctx, l.fence, l.ddl(n, st))
	if err == nil && after == nil {
		err = errors.New("got no layout after the statement")
	}
	if err == nil {
		l.layout = after
	}
	return err
}

func statementsMoveTheLayout(t *testing.T, ctx context.Context, h *SinkHarness) {
	if err := liveOn(t, ctx, h, "life", 1); err != nil {
		t.Fatal(err)
	}
	l := &lane{h: h, sink: h.Open(t, h.Addr), fence: change.Fence{StoreID: suiteStore, Owner: "owner-life", Epoch: 1}, name: "life", layout: h.Layout("life")}
	l.lived(t, ctx)
	// Applied again it is done already, and says so with the layout that is valid.
	after, err := l.sink.LoadLayout(ctx, l.fence, l.key().Incarnation)
	if err != nil || len(after.Columns) != len(l.layout.Columns)+1 || after.Table != l.layout.Table {
		t.Fatalf("got layout %+v (%v), want one column more", after, err)
	}
	l.layout = after
	for range 2 {
		got, err := l.sink.ApplyDDL(ctx, l.fence, l.ddl(lifeSteps+1, h.Truncate(l.layout.Table)))
		if err != nil || got.Fingerprint() != after.Fingerprint() {
			t.Fatalf("got %+v (%v), want the same layout", got, err)
		}
	}
	if rows, _ := h.Rows(t, l.target()); len(rows) != 0 {
		t.Errorf("got rows %v after truncate, want none", rows)
	}
	if _, err := l.sink.ApplyDDL(ctx, l.fence, l.ddl(3, h.Truncate(l.layout.Table))); !errors.Is(err, change.ErrCheckpointMoved) {
		t.Errorf("got %v for a statement of the past, want ErrCheckpointMoved", err)
	}
}

// lived fails the test unless the target is as a whole life leaves it.
func (l *lane) lived(t *testing.T, ctx context.Context) {
	t.Helper()
	cps, err := l.sink.Load(ctx, l.fence)
	if err != nil || len(cps) != 1 || cps[0].Position != at(lifeSteps) || cps[0].Intent != nil {
		t.Errorf("got %+v (%v), want one checkpoint at %d without intent", cps, err, lifeSteps)
	}
	rows, extra := l.h.Rows(t, l.target())
	if got, want := fmt.Sprint(rows, extra), fmt.Sprint(map[int64]string{6: "v6"}, true); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	p, err := l.sink.Progress(ctx, l.fence, l.key().Incarnation)
	if err != nil || !p.Done || p.Chunks != 2 || p.Rows != 2 {
		t.Errorf("got %+v (%v), want two chunks, done", p, err)
	}
}

// maxPasses bounds the passes of one fault point in a life.
const maxPasses = 12

// crashEverywhere kills a child at every pass of every fault point of the sink and
// lets a next owner finish. Right after the crash rows and checkpoint must agree.
func crashEverywhere(t *testing.T, ctx context.Context, h *SinkHarness) {
	total := 0
	for _, point := range fault.Names() {
		if !strings.HasPrefix(point, h.FaultPrefix) {
			continue
		}
		pass := 1
		for killed := true; killed && pass <= maxPasses; pass++ {
			t.Run(fmt.Sprint(point, ":", pass), func(t *testing.T) { killed = h.crashOnce(t, ctx, point, pass) })
		}
		t.Logf("%s: killed at %d passes", point, pass-2)
		total += pass - 2
	}
	if total == 0 {
		t.Errorf("no fault point begins with %q", h.FaultPrefix)
	}
}

// crashOnce kills a child at one pass and finishes its life. It returns false when
// the child lived to its end, which the first pass must not allow.
func (h *SinkHarness) crashOnce(t *testing.T, ctx context.Context, point string, pass int) (killed bool) {
	name := fmt.Sprint("crash_", strings.NewReplacer(".", "_", "-", "_").Replace(point), "_", pass)
	killed = h.crash(t, ctx, name, point+":"+strconv.Itoa(pass))
	if !killed && pass == 1 {
		t.Error("the child never came to this point")
	}
	if killed {
		h.agrees(t, ctx, name)
	}
	if err := liveOn(t, ctx, h, name, 3); err != nil {
		t.Fatalf("the next owner: %v", err)
	}
	l := &lane{h: h, sink: h.Open(t, h.Addr), fence: change.Fence{StoreID: suiteStore, Owner: "owner-" + name, Epoch: 3}, name: name, layout: h.Layout(name)}
	l.lived(t, ctx)
	return killed
}

// crash runs a child that is to die at a point and reports whether it did.
func (h *SinkHarness) crash(t *testing.T, ctx context.Context, name, point string) bool {
	t.Helper()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+h.Child+"$")
	cmd.Env = append(os.Environ(), childName+"="+name, childAddr+"="+h.Addr, fault.Env+"="+point)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("the child failed before it was killed: %v\n%s", err, out)
	}
	return true
}

// agrees fails the test unless rows and checkpoint agree: each step's row is there
// exactly when the checkpoint has passed the step.
func (h *SinkHarness) agrees(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	l := &lane{h: h, sink: h.Open(t, h.Addr), fence: change.Fence{StoreID: suiteStore, Owner: "owner-" + name, Epoch: 2}, name: name, layout: h.Layout(name)}
	if err := l.sink.Claim(ctx, l.fence); err != nil {
		t.Fatal(err)
	}
	cps, err := l.sink.Load(ctx, l.fence)
	if err != nil {
		t.Fatal(err)
	}
	if len(cps) == 0 {
		return // it died before the task was there
	}
	n := order(cps[0].Position)
	rows, extra := h.Rows(t, l.target())
	open := cps[0].Intent != nil
	for _, step := range []int{1, 2, 4, 6} {
		_, has := rows[int64(step)]
		emptied := step < 5 && (n >= 5 || n == 4 && open && !has) // an open TRUNCATE may have run
		if want := n >= step && !emptied; has != want {
			t.Errorf("checkpoint %d (open intent: %v): got row %d there: %v, want %v", n, open, step, has, want)
		}
	}
	if want := n >= 3; extra != want && !(n == 2 && open) {
		t.Errorf("checkpoint %d (open intent: %v): got column there: %v, want %v", n, open, extra, want)
	}
}

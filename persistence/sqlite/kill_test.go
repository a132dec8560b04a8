package sqlite

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/runnel-dev/runnel/internal/fault"
	"github.com/runnel-dev/runnel/persistence"
)

// childEnv makes this test binary a child that works on the named directory.
const childEnv = "RUNNEL_STORE_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const (
	killEntities = 450 // three fold slices
	killWriters  = 16
)

// child appends to all entities until it is killed, and says on stdout what was
// acknowledged: "ack", pid, entity, seq, Unix nanoseconds. It ends by itself when nobody listens any more.
func child(dir string) error {
	ctx := context.Background()
	st, err := Open(ctx, dir, Options{
		FoldEvery: 30 * time.Millisecond, CheckpointEvery: time.Millisecond, LogBytes: 256 << 10,
		Folders: map[string]persistence.Folder{"kill": countFolder}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	fmt.Println("open", st.StoreID())
	epochs := map[uint32]uint64{}
	ids := make([]persistence.EntityID, killEntities)
	for i := range ids {
		ids[i] = killID(i)
		shard := ids[i].Shard(st.Shards())
		if epochs[shard] == 0 {
			if epochs[shard], err = st.AcquireShard(ctx, shard); err != nil {
				return err
			}
		}
	}
	out := bufio.NewWriter(os.Stdout)
	var mu sync.Mutex // guards out
	errs := make(chan error, killWriters)
	for w := range killWriters {
		go func() { errs <- childWriter(ctx, st, epochs, ids, w, out, &mu) }()
	}
	return <-errs
}

func childWriter(ctx context.Context, st *Store, epochs map[uint32]uint64, ids []persistence.EntityID, w int, out *bufio.Writer, mu *sync.Mutex) error {
	for {
		for i := w; i < len(ids); i += killWriters {
			id := ids[i]
			seq := st.LastSeq(id)
			var evs []persistence.EncodedEvent
			for k := range 1 + rand.IntN(3) {
				data := fmt.Sprintf(`{"pid":%d,"entity":%d,"seq":%d}`, os.Getpid(), i, seq+uint64(k)+1)
				evs = append(evs, persistence.EncodedEvent{Type: "counted", Version: 1, Data: []byte(data)})
			}
			shard := id.Shard(st.Shards())
			last, err := st.Append(ctx, persistence.AppendRequest{Shard: shard, Epoch: epochs[shard], Entity: id, Expected: seq, Events: evs})
			if err != nil {
				return err
			}
			at := time.Now().UnixNano()
			mu.Lock()
			fmt.Fprintln(out, "ack", os.Getpid(), i, last, at)
			err = out.Flush()
			mu.Unlock()
			if err != nil {
				return err
			}
		}
	}
}

func killID(i int) persistence.EntityID {
	id, err := persistence.EntityIDOf("kill", fmt.Sprintf("s%d:0", i%5), fmt.Sprintf("e%04d", i))
	if err != nil {
		panic(err)
	}
	return id
}

// countFolder counts events; its rows must equal the journal.
func countFolder(row []byte, ev persistence.StoredEvent) ([]byte, error) {
	n := uint64(0)
	if row != nil {
		var err error
		if n, err = strconv.ParseUint(string(row), 10, 64); err != nil {
			return nil, err
		}
	}
	if ev.Seq != n+1 {
		return nil, fmt.Errorf("folded %d events, the next is seq %d", n, ev.Seq)
	}
	return strconv.AppendUint(nil, ev.Seq, 10), nil
}

// acked is what a child has said: the last acknowledged seq by entity.
type acked map[int]uint64

// Ten times a child is killed under load, at a chosen place or anywhere. What it
// had acknowledged is there, once, and every entity's seqs are dense.
func TestKill(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	points := []string{"", commitBefore, commitAfter, foldSliced, foldMark}
	total := acked{}
	for round := range 10 {
		point := points[round%len(points)]
		env := ""
		if point != "" {
			n := 10 + rnd.IntN(20) // past the shards' commits
			if point == foldSliced || point == foldMark {
				n = 1 + rnd.IntN(4)
			}
			env = fmt.Sprintf("%s:%d", point, n)
		}
		got, lines := runChild(t, dir, env, 100+rnd.IntN(900))
		for e, seq := range got {
			total[e] = max(total[e], seq)
		}
		events := checkStore(t, dir, total)
		t.Logf("seed %d round %d: killed at %q after %d acknowledgements; %d events", seed, round, env, lines, events)
		if lines == 0 {
			t.Errorf("round %d: nothing was acknowledged before the kill", round)
		}
	}
}

// runChild runs a child until it dies at the fault point, or is killed after some
// acknowledgements.
func runChild(t *testing.T, dir, faultEnv string, killAfter int) (got acked, lines int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	if faultEnv != "" {
		cmd.Env = append(cmd.Env, fault.Env+"="+faultEnv)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	got = acked{}
	in := bufio.NewReader(stdout)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break // a line cut by the kill says nothing
		}
		var pid, entity int
		var seq uint64
		if _, err := fmt.Sscanf(line, "ack %d %d %d", &pid, &entity, &seq); err != nil {
			continue
		}
		got[entity] = seq
		if lines++; faultEnv == "" && lines == killAfter {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" || ctx.Err() != nil {
		t.Fatalf("child with fault %q: got %v, want death by SIGKILL; stderr: %s", faultEnv, err, stderr.String())
	}
	return got, lines
}

// checkStore opens the store after a crash and compares it with what was acknowledged.
func checkStore(t *testing.T, dir string, want acked) (events int) {
	t.Helper()
	opt := testOptions()
	opt.Folders = map[string]persistence.Folder{"kill": countFolder}
	st, err := Open(t.Context(), dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	for i := range killEntities {
		id, seq := killID(i), uint64(0)
		err := st.ReadEntity(t.Context(), id, 0, func(ev persistence.StoredEvent) error {
			seq++
			events++
			var d struct {
				PID, Entity int
				Seq         uint64
			}
			if err := json.Unmarshal(ev.Data, &d); err != nil {
				return err
			}
			if ev.Seq != seq || d.Seq != seq || d.Entity != i {
				t.Errorf("%s: got seq %d with data %s, want seq %d", id, ev.Seq, ev.Data, seq)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if seq < want[i] || seq != st.LastSeq(id) {
			t.Errorf("%s: got %d events, last seq %d, want at least %d", id, seq, st.LastSeq(id), want[i])
		}
	}
	rows := 0
	if err := st.ScanRows(t.Context(), "kill", func(r persistence.Row) error {
		rows++
		if last := st.LastSeq(r.Entity); r.Seq != last || r.DataSeq != last || string(r.Data) != fmt.Sprint(last) || r.Fault != "" {
			t.Errorf("row of %s: got %+v, want all at seq %d", r.Entity, r, last)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var inJournal, lastRow int
	if err := st.rdb.QueryRowContext(t.Context(), `SELECT count(*), coalesce(max("row"), 0) FROM journal`).Scan(&inJournal, &lastRow); err != nil {
		t.Fatal(err)
	}
	if inJournal != events || lastRow != events {
		t.Errorf("got %d events by entity, %d in the journal, last row %d: rows are not dense or one is nobody's", events, inJournal, lastRow)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return events
}

// A directory that another process holds is refused with its pid, and free once
// that process is dead.
func TestLockAcrossProcesses(t *testing.T) {
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); !strings.HasPrefix(line, "open ") {
		t.Fatalf("got %q, %v from the child, want open", line, err)
	}
	_, err = Open(t.Context(), dir, testOptions())
	if want := fmt.Sprint("process ", cmd.Process.Pid); !errors.Is(err, persistence.ErrLocked) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want ErrLocked with %s and %q", err, dir, want)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("got a child that ended well, want one that was killed")
	}
	testOpen(t, dir, testOptions())
}

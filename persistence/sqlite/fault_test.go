package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/internal/fault"
	"github.com/runnel-dev/runnel/persistence"
)

// hold keeps the writer busy until the returned function is called.
func hold(t *testing.T, st *Store) (release func()) {
	t.Helper()
	gate, held := make(chan struct{}), make(chan struct{})
	o := &op{done: func(uint64, error) {}, run: func(*batch) (uint64, error) {
		close(held)
		<-gate
		return 0, errors.New("nothing to write")
	}}
	if _, err := st.queue.push(o, false); err != nil {
		t.Fatal(err)
	}
	<-held
	return func() { close(gate) }
}

func TestQueueIsBounded(t *testing.T) {
	st := testOpen(t, t.TempDir(), testOptions())
	id := entityID(t, "note/shop:0/a")
	epoch := acquire(t, st, id)
	release := hold(t, st)
	answers := make(chan error, maxQueued)
	for i := range maxQueued {
		st.AppendAsync(request(st, id, epoch, uint64(i), "1"), func(_ uint64, err error) { answers <- err })
	}
	var refused error
	st.AppendAsync(request(st, id, epoch, maxQueued, "1"), func(_ uint64, err error) { refused = err })
	if !errors.Is(refused, persistence.ErrBusy) {
		t.Errorf("got %v, want %v", refused, persistence.ErrBusy)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := st.Append(ctx, request(st, id, epoch, maxQueued, "1")); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, persistence.ErrBusy) {
		t.Errorf("got %v, want ErrBusy until the deadline", err)
	}
	release()
	for range maxQueued {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
	if got, want := st.LastSeq(id), uint64(maxQueued); got != want {
		t.Errorf("got %d events, want %d", got, want)
	}
}

// A caller that leaves before its turn writes nothing.
func TestWithdraw(t *testing.T) {
	st := testOpen(t, t.TempDir(), testOptions())
	id := entityID(t, "note/shop:0/a")
	epoch := acquire(t, st, id)
	release := hold(t, st)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := st.Append(ctx, request(st, id, epoch, 0, "1"))
		left <- err
	}()
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) || errors.Is(err, persistence.ErrUnknownOutcome) {
		t.Errorf("got %v, want %v and a known outcome", err, context.Canceled)
	}
	release()
	if _, err := st.Append(t.Context(), request(st, id, epoch, 0, "2")); err != nil {
		t.Fatal(err)
	}
	if got, want := events(t, st, id, 0), "1:2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A caller that leaves during the commit is told that it does not know.
func TestLeaveDuringCommit(t *testing.T) {
	st := testOpen(t, t.TempDir(), testOptions())
	id := entityID(t, "note/shop:0/a")
	epoch := acquire(t, st, id)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gate := make(chan struct{})
	defer fault.Set(commitBefore, func() error { cancel(); <-gate; return nil })()
	if _, err := st.Append(ctx, request(st, id, epoch, 0, "1")); !errors.Is(err, persistence.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, persistence.ErrUnknownOutcome)
	}
	close(gate)
	if _, err := st.Append(t.Context(), request(st, id, epoch, 1, "2")); err != nil {
		t.Fatal(err)
	}
}

// Commands go before background work, which still moves under a full load of them.
func TestCommandsGoFirst(t *testing.T) {
	q := newQueue()
	var backgrounds, commands []*op
	for range 3000 {
		backgrounds, commands = append(backgrounds, &op{}), append(commands, &op{})
		for _, err := range []error{pushErr(q, backgrounds[len(backgrounds)-1], true), pushErr(q, commands[len(commands)-1], false)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	want := slices.Concat(commands[:maxBatch], backgrounds[:minBackground])
	if got, _ := q.take(); !slices.Equal(got, want) {
		t.Errorf("got %d operations, want %d commands and then %d in the background, in order", len(got), maxBatch, minBackground)
	}
	total := len(want)
	for range 100 {
		got, _ := q.take()
		total += len(got)
	}
	if want := 6000; total != want {
		t.Errorf("got %d operations in all, want %d", total, want)
	}
	big := &op{size: maxQueuedBytes}
	if err := pushErr(q, big, false); err != nil {
		t.Errorf("one large operation: got %v, want nil", err)
	}
	if err := pushErr(q, &op{size: 1}, false); !errors.Is(err, persistence.ErrBusy) {
		t.Errorf("over the bytes: got %v, want %v", err, persistence.ErrBusy)
	}
}

func pushErr(q *queue, o *op, background bool) error {
	_, err := q.push(o, background)
	return err
}

// A full disk or a read-only file fails writes by name; afterwards writing goes on.
func TestWriteErrors(t *testing.T) {
	tests := []struct {
		name, breakIt, mend string
		want                error
	}{
		{"full", "PRAGMA max_page_count = 60", "PRAGMA max_page_count = 1000000", persistence.ErrFull},
		{"read-only", "PRAGMA query_only = 1", "PRAGMA query_only = 0", persistence.ErrReadOnly},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			st := testOpen(t, t.TempDir(), testOptions())
			id := entityID(t, "note/shop:0/a")
			epoch := acquire(t, st, id)
			pragma := func(q string) {
				t.Helper()
				var x int
				if err := st.writer.conn.QueryRowContext(t.Context(), q).Scan(&x); err != nil && !strings.Contains(err.Error(), "no rows") {
					t.Fatal(err)
				}
			}
			pragma(tt.breakIt)
			n, data := uint64(0), strings.Repeat("x", 50_000)
			var err error
			for range 100 {
				if _, err = st.Append(t.Context(), request(st, id, epoch, n, data)); err != nil {
					break
				}
				n++
			}
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), st.Dir()) {
				t.Fatalf("got %v after %d events, want %v with the directory", err, n, tt.want)
			}
			pragma(tt.mend)
			if _, err := st.Append(t.Context(), request(st, id, epoch, n, "after")); err != nil {
				t.Fatal(err)
			}
			if got := st.LastSeq(id); got != n+1 {
				t.Errorf("got %d events, want %d", got, n+1)
			}
		})
	}
}

// After a commit of unknown outcome nothing is written until the store is opened
// again, which then tells the truth.
func TestUnknownCommitStopsTheStore(t *testing.T) {
	dir := t.TempDir()
	st := testOpen(t, dir, testOptions())
	id := entityID(t, "note/shop:0/a")
	epoch := acquire(t, st, id)
	restore := fault.Set(commitAfter, func() error { return errors.New("disk says no") })
	_, err := st.Append(t.Context(), request(st, id, epoch, 0, "1"))
	restore()
	if !errors.Is(err, persistence.ErrUnknownOutcome) {
		t.Errorf("got %v, want %v", err, persistence.ErrUnknownOutcome)
	}
	if _, err := st.Append(t.Context(), request(st, id, epoch, 0, "1")); !errors.Is(err, persistence.ErrFailed) || !strings.Contains(err.Error(), "disk says no") {
		t.Errorf("got %v, want %v with its cause", err, persistence.ErrFailed)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	st = testOpen(t, dir, testOptions())
	if got, want := events(t, st, id, 0), "1:1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A failed commit takes nothing of its transaction with it.
func TestFailedCommitRollsBack(t *testing.T) {
	st := testOpen(t, t.TempDir(), testOptions())
	id := entityID(t, "note/shop:0/a")
	epoch := acquire(t, st, id)
	boom := errors.New("boom")
	restore := fault.Set(commitBefore, func() error { return boom })
	if _, err := st.Append(t.Context(), request(st, id, epoch, 0, "1")); !errors.Is(err, boom) {
		t.Errorf("got %v, want %v", err, boom)
	}
	if _, err := st.AcquireShard(t.Context(), id.Shard(st.Shards())); !errors.Is(err, boom) {
		t.Errorf("got %v, want %v", err, boom)
	}
	restore()
	if seq, err := st.Append(t.Context(), request(st, id, epoch, 0, "2")); seq != 1 || err != nil {
		t.Errorf("got %d, %v, want 1", seq, err)
	}
	if got, want := events(t, st, id, 0), "1:2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A pass that ends between two of its transactions leaves rows ahead of the mark;
// neither a further pass nor a crash at that point counts an event twice.
func TestFoldStopsHalfway(t *testing.T) {
	dir := t.TempDir()
	opt := testOptions()
	opt.FoldEvery = time.Hour
	opt.Folders = map[string]persistence.Folder{"note": countFolder}
	st := testOpen(t, dir, opt)
	const n = 2*foldSlice + 10
	epochs := acquireAll(t, st)
	note := func(st *Store, epochs []uint64, times int) {
		t.Helper()
		for i := range n {
			id := entityID(t, fmt.Sprintf("note/r%d/e%04d", i%3, i))
			for range times {
				if _, err := st.Append(t.Context(), request(st, id, epochs[id.Shard(st.Shards())], st.LastSeq(id), "1")); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	note(st, epochs, 2)
	boom := errors.New("boom")
	for _, point := range []string{foldMark, foldSliced} {
		passes := 0
		restore := fault.Set(point, func() error {
			if passes++; point == foldSliced && passes < 2 {
				return nil
			}
			return boom
		})
		if err := st.Fold(t.Context()); !errors.Is(err, boom) {
			t.Errorf("%s: got %v, want %v", point, err, boom)
		}
		restore()
		note(st, epochs, 1)
	}
	crashed := testOpen(t, crashCopy(t, dir), opt)
	if crashed.mark != 0 {
		t.Errorf("got fold mark %d after the crash, want 0: no pass was completed", crashed.mark)
	}
	for _, s := range []*Store{st, crashed} {
		rows := 0
		if err := s.ScanRows(t.Context(), "note", func(r persistence.Row) error {
			if rows++; r.Seq != 4 || string(r.Data) != "4" || r.Fault != "" {
				t.Errorf("got %+v, want seq and count 4", r)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if rows != n {
			t.Errorf("got %d rows, want %d", rows, n)
		}
	}
}

// An event that the Folder cannot read is kept in the row and offered again.
func TestFolderFault(t *testing.T) {
	dir := t.TempDir()
	opt := testOptions()
	refuse := true
	opt.Folders = map[string]persistence.Folder{"note": func(row []byte, ev persistence.StoredEvent) ([]byte, error) {
		if refuse && ev.Seq == 2 {
			return nil, persistence.ErrUnknownEvent
		}
		return countFolder(row, ev)
	}}
	st := testOpen(t, dir, opt)
	id := entityID(t, "note/shop:0/a")
	epoch := acquire(t, st, id)
	row := func() (r persistence.Row) {
		t.Helper()
		if err := st.ScanRows(t.Context(), "", func(x persistence.Row) error { r = x; return nil }); err != nil {
			t.Fatal(err)
		}
		return r
	}
	if _, err := st.Append(t.Context(), request(st, id, epoch, 0, "1", "2", "3")); err != nil {
		t.Fatal(err)
	}
	if r := row(); r.Seq != 3 || r.DataSeq != 1 || !strings.Contains(r.Fault, "noted version 1") {
		t.Errorf("got %+v, want data of seq 1 and the fault", r)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	refuse = false
	st = testOpen(t, dir, opt)
	if r := row(); r.Seq != 3 || r.DataSeq != 3 || r.Fault != "" {
		t.Errorf("got %+v, want data of seq 3", r)
	}
}

// The log starts again from its beginning although the writer never pauses.
func TestLogIsBounded(t *testing.T) {
	opt := testOptions()
	opt.LogBytes, opt.CheckpointEvery = 1<<20, time.Millisecond
	dir := t.TempDir()
	st := testOpen(t, dir, opt)
	id := entityID(t, "note/shop:0/a")
	epoch := acquire(t, st, id)
	data := strings.Repeat("x", 100_000)
	answers := make(chan error, 8)
	const n = 1000 // 100 MB
	for i := range n {
		if i >= cap(answers) {
			if err := <-answers; err != nil {
				t.Fatal(err)
			}
		}
		st.AppendAsync(request(st, id, epoch, uint64(i), data), func(_ uint64, err error) { answers <- err })
	}
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
	fi, err := os.Stat(filepath.Join(dir, FileName+"-wal"))
	if err != nil {
		t.Fatal(err)
	}
	if got, limit := fi.Size(), int64(60<<20); got > limit {
		t.Errorf("got a log of %d bytes after 100 MB, want at most %d", got, limit)
	}
}

// Stores that this version must not touch are refused by name.
func TestRefusedFiles(t *testing.T) {
	tests := []struct {
		name string
		sql  string
		want error
		text string
	}{
		{"newer format", `UPDATE meta SET value = '2' WHERE name = 'format'`, persistence.ErrFormat, "format 2"},
		{"another program", `PRAGMA application_id = 77`, persistence.ErrFormat, "another program"},
		{"no store id", `DELETE FROM meta WHERE name = 'store-id'`, persistence.ErrCorrupt, "store-id"},
		{"mark past the journal", `UPDATE meta SET value = '900' WHERE name = 'fold-mark'`, persistence.ErrCorrupt, "900"},
		{"gap in the tail", `DELETE FROM journal WHERE "row" = 2; UPDATE meta SET value = '0' WHERE name = 'fold-mark'; DELETE FROM entity`, persistence.ErrCorrupt, "row 3"},
		{"torn chain", `UPDATE journal SET prev = 1 WHERE "row" = 3; UPDATE meta SET value = '0' WHERE name = 'fold-mark'; DELETE FROM entity`, persistence.ErrCorrupt, "row 3"},
		{"bad id", `UPDATE entity SET id = 'x'`, persistence.ErrCorrupt, `"x"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			st := testOpen(t, dir, testOptions())
			id := entityID(t, "note/shop:0/a")
			if _, err := st.Append(t.Context(), request(st, id, acquire(t, st, id), 0, "1", "2", "3")); err != nil {
				t.Fatal(err)
			}
			if err := st.Fold(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := st.writer.conn.ExecContext(t.Context(), tt.sql); err != nil {
				t.Fatal(err)
			}
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
			_, err := Open(t.Context(), dir, testOptions())
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v, want %v with %q and the directory", err, tt.want, tt.text)
			}
		})
	}
	t.Run("garbage", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, FileName), []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), dir, testOptions()); !errors.Is(err, persistence.ErrCorrupt) {
			t.Errorf("got %v, want %v", err, persistence.ErrCorrupt)
		}
	})
	t.Run("other number of shards", func(t *testing.T) {
		dir := t.TempDir()
		opt := testOptions()
		opt.Shards = 16
		st := testOpen(t, dir, opt)
		if got, want := st.Shards(), uint32(16); got != want {
			t.Errorf("got %d shards, want %d", got, want)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		opt.Shards = 32
		if _, err := Open(t.Context(), dir, opt); err == nil || !strings.Contains(err.Error(), "16") {
			t.Errorf("got %v, want a refusal that names 16", err)
		}
	})
}

// A chain that contradicts itself is found by whoever reads it.
func TestReadEntityFindsCorruption(t *testing.T) {
	st := testOpen(t, t.TempDir(), testOptions())
	a, b := entityID(t, "note/shop:0/a"), entityID(t, "note/shop:0/b")
	epoch := acquire(t, st, a)
	for _, id := range []persistence.EntityID{a, b} {
		if _, err := st.Append(t.Context(), request(st, id, epoch, 0, "1", "2", "3")); err != nil {
			t.Fatal(err)
		}
	}
	for _, sql := range []string{`UPDATE journal SET prev = 1 WHERE "row" = 6`, `UPDATE journal SET prev = 0 WHERE "row" = 6`, `DELETE FROM journal WHERE "row" = 5`} {
		if _, err := st.writer.conn.ExecContext(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		err := st.ReadEntity(t.Context(), b, 0, func(persistence.StoredEvent) error { return nil })
		if !errors.Is(err, persistence.ErrCorrupt) {
			t.Errorf("%s: got %v, want %v", sql, err, persistence.ErrCorrupt)
		}
	}
}

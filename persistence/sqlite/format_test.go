package sqlite

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/persistence"
)

var rewrite = flag.Bool("rewrite", false, "write the fixture of the present format anew")

// Fixtures hold a store of each format, with the fold mark in the middle of the
// journal, as a crash leaves it. A released one is never written again.
func fixture(format int) string { return filepath.Join("testdata", fmt.Sprintf("format-%d", format)) }

// writeFixture makes the fixture of the present format.
func writeFixture(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	opt := fixtureOptions()
	st := testOpen(t, dir, opt)
	a, b := entityID(t, "note/shop:0/a"), entityID(t, "note/shop:0/b")
	var epoch uint64
	for range 2 {
		epoch = acquire(t, st, a)
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(appendErr(t, st, request(st, a, epoch, 0, `{"text":"first"}`, `{"text":"second"}`)))
	do(appendErr(t, st, request(st, b, epoch, 0, `{"text":"other"}`)))
	do(st.Fold(t.Context()))
	do(appendErr(t, st, request(st, a, epoch, 2, `{"text":"third"}`)))
	do(appendErr(t, st, request(st, b, epoch, 1, `{"text":"Größe"}`)))
	do(st.SaveSnapshot(t.Context(), epoch, persistence.Snapshot{Entity: a, Seq: 2, Version: 3, Data: []byte(`{"n":2}`)}))
	f, err := persistence.Frontier{Capture: "shop:0", Position: "h|0a|t", From: "h|09|s"}.Record()
	do(err)
	l, err := persistence.Lane{Capture: "shop:0", Incarnation: "01abc", State: persistence.LaneDetached, Why: "target slow", Bound: "h|08|r"}.Record()
	do(err)
	d, err := persistence.DefinitionRecord{Kind: "source", Name: "shop", JSON: []byte(`{"type":"mysql"}`)}.Record()
	do(err)
	do(st.Put(t.Context(), persistence.PutRequest{Shard: a.Shard(st.Shards()), Epoch: epoch, Records: []persistence.Record{f, l, d}}))
	do(st.Put(t.Context(), persistence.PutRequest{Shard: a.Shard(st.Shards()), Epoch: epoch, Records: []persistence.Record{d}}))
	var busy, frames, moved int
	do(st.writer.conn.QueryRowContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved))
	data, err := os.ReadFile(filepath.Join(dir, FileName))
	do(err)
	to := fixture(len(migrations))
	do(os.MkdirAll(to, 0o755))
	do(os.WriteFile(filepath.Join(to, FileName), data, 0o644))
}

func fixtureOptions() Options {
	opt := testOptions()
	opt.FoldEvery, opt.CheckpointEvery = time.Hour, time.Hour
	opt.Folders = map[string]persistence.Folder{"note": countFolder}
	return opt
}

func TestFormats(t *testing.T) {
	if *rewrite {
		writeFixture(t)
	}
	for format := 1; format <= len(migrations); format++ {
		t.Run(fmt.Sprint(format), func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(fixture(format), FileName))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, FileName), data, 0o600); err != nil {
				t.Fatal(err)
			}
			checkFixture(t, testOpen(t, dir, fixtureOptions()))
		})
	}
}

func checkFixture(t *testing.T, st *Store) {
	t.Helper()
	a, b := entityID(t, "note/shop:0/a"), entityID(t, "note/shop:0/b")
	if got, want := st.mark, uint64(3); got != want {
		t.Errorf("got fold mark %d, want %d", got, want)
	}
	if len(st.StoreID()) != 26 || st.Shards() != 256 {
		t.Errorf("got store id %q and %d shards, want 26 characters and 256", st.StoreID(), st.Shards())
	}
	for id, want := range map[persistence.EntityID]string{
		a: `1:{"text":"first"} 2:{"text":"second"} 3:{"text":"third"}`,
		b: `1:{"text":"other"} 2:{"text":"Größe"}`,
	} {
		if got := events(t, st, id, 0); got != want {
			t.Errorf("%s: got %s, want %s", id, got, want)
		}
	}
	sn, ok, err := st.LoadSnapshot(t.Context(), a)
	if !ok || err != nil || sn.Seq != 2 || sn.Version != 3 || string(sn.Data) != `{"n":2}` || sn.At.Year() < 2026 {
		t.Errorf("got snapshot %+v, %v, %v", sn, ok, err)
	}
	var rows, records []string
	if err := st.ScanRows(t.Context(), "note", func(r persistence.Row) error {
		rows = append(rows, fmt.Sprintf("%s %d %d %d %s", r.Entity, r.Seq, r.Last, r.DataSeq, r.Data))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(rows, "; "), "note/shop:0/a 3 4 3 3; note/shop:0/b 2 5 2 2"; got != want {
		t.Errorf("got rows %s, want %s", got, want)
	}
	for _, kind := range []string{persistence.KindFrontier, persistence.KindLane, persistence.KindDefinition} {
		if err := st.Scan(t.Context(), kind, "", func(r persistence.Record) error {
			records = append(records, fmt.Sprintf("%s/%s/%s v%d %s", r.Kind, r.Scope, r.Name, r.Version, r.Data))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	want := `frontier/shop:0/ v1 {"position":"h|0a|t","from":"h|09|s"}
lane/shop:0/01abc v1 {"state":"detached","why":"target slow","bound":"h|08|r"}
definition/source/shop v2 {"type":"mysql"}`
	if got := strings.Join(records, "\n"); got != want {
		t.Errorf("got records\n%s\nwant\n%s", got, want)
	}
	if got, want := acquire(t, st, a), uint64(3); got != want {
		t.Errorf("got epoch %d, want %d", got, want)
	}
}

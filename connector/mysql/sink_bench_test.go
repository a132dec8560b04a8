package mysql

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// benchTarget has n tables of about 220 bytes a row, each with a task.
func benchTarget(b *testing.B, n int) (*Sink, change.Fence, []*change.Layout) {
	b.Helper()
	db := testdb.MariaDBFor(b, testdb.MariaDBOptions{ExtraArgs: []string{
		"--innodb-buffer-pool-size=1G", "--innodb-log-file-size=512M", "--table-open-cache=4000", "--table-definition-cache=4000"}})
	ctx := b.Context()
	if err := db.Exec(ctx, "CREATE DATABASE t"); err != nil {
		b.Fatal(err)
	}
	s, err := NewSink(targetConfig(db), SinkOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	f := change.Fence{StoreID: "s", Owner: "o", Epoch: 1}
	if err := s.Claim(ctx, f); err != nil {
		b.Fatal(err)
	}
	layouts := make([]*change.Layout, n)
	for i := range layouts {
		name := fmt.Sprint("t", i)
		layouts[i] = &change.Layout{
			Table: change.TableID{Schema: "t", Name: name}, Key: []int{0}, Engine: "InnoDB",
			Columns: []change.Column{{Name: "id", Type: "bigint(20)", Base: "bigint"}, {Name: "k", Type: "int(11)", Base: "int"},
				{Name: "c", Type: "char(120)", Base: "char", Charset: "latin1", Collation: "latin1_swedish_ci"},
				{Name: "pad", Type: "char(60)", Base: "char", Charset: "latin1", Collation: "latin1_swedish_ci"},
				{Name: "at", Type: "datetime(3)", Base: "datetime"}},
			Definition: "CREATE TABLE `x` (id BIGINT NOT NULL, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL, at DATETIME(3) NOT NULL, PRIMARY KEY (id)) ENGINE=InnoDB DEFAULT CHARSET=latin1",
		}
		err := s.Prepare(ctx, f, change.TaskTarget{Incarnation: name, Target: layouts[i].Table, Layout: layouts[i], At: pos(0)})
		if err != nil {
			b.Fatal(err)
		}
	}
	return s, f, layouts
}

// benchBatch is rows of table i for its n-th batch: half new, half existing.
func benchBatch(l *change.Layout, n, rows int) change.Batch {
	b := change.Batch{Key: change.CheckpointKey{Incarnation: l.Table.Name}, Target: l.Table, Layout: l, Expected: pos(uint64(n)), New: pos(uint64(n + 1))}
	c, pad := strings.Repeat("0123456789-", 10), strings.Repeat("abcdefgh-", 6)
	for i := range rows {
		b.Changes = append(b.Changes, insert(num(int64(n*rows/2+i)), num(int64(n)), text(c), text(pad), moment("2026-01-01 00:00:00.123")))
	}
	return b
}

// benchApply applies changes of all tables, each table always from one goroutine.
func benchApply(b *testing.B, tables, group, rows, workers int) {
	s, f, layouts := benchTarget(b, tables)
	ctx := b.Context()
	round := 0
	total := 0
	b.ResetTimer()
	for b.Loop() {
		var wg sync.WaitGroup
		share := (tables + workers - 1) / workers
		for w := range workers {
			wg.Go(func() {
				for from := w * share; from < min(tables, (w+1)*share); from += group {
					var batches []change.Batch
					for _, l := range layouts[from:min(tables, (w+1)*share, from+group)] {
						batches = append(batches, benchBatch(l, round, rows))
					}
					for _, r := range s.Apply(ctx, f, batches) {
						if r.Err != nil {
							b.Error(r.Err)
						}
					}
				}
			})
		}
		wg.Wait()
		round++
		total += tables * rows
	}
	b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkApplyOneTable(b *testing.B)       { benchApply(b, 1, 1, 1000, 1) }
func BenchmarkApplyTwoTables(b *testing.B)      { benchApply(b, 2, 1, 1000, 2) }
func BenchmarkApplyThousandTables(b *testing.B) { benchApply(b, 1000, 50, 10, 2) }

// benchLoad loads chunks of new rows into one table.
func benchLoad(b *testing.B, workers int, bulk bool) {
	s, f, layouts := benchTarget(b, 1)
	s.noBulk.Store(!bulk)
	const rows = 5000
	batch := benchBatch(layouts[0], 0, rows)
	n, total := 0, 0
	b.ResetTimer()
	for b.Loop() {
		var wg sync.WaitGroup
		for range workers {
			ch := change.ChunkLoad{Incarnation: "t0", Target: layouts[0].Table, Layout: layouts[0], Index: n, Bound: []byte{1}}
			for i, c := range batch.Changes {
				r := append(change.Row(nil), c.After...)
				r[0] = num(int64(n*rows + i))
				ch.Rows = append(ch.Rows, r)
			}
			n++
			wg.Go(func() {
				if err := s.LoadChunk(b.Context(), f, ch); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		total += workers * rows
	}
	b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkLoadChunk(b *testing.B)         { benchLoad(b, 1, true) }
func BenchmarkLoadChunkTwo(b *testing.B)      { benchLoad(b, 2, true) }
func BenchmarkLoadChunkByInsert(b *testing.B) { benchLoad(b, 2, false) }

// BenchmarkScript is the client's share of the work: changes to statements.
func BenchmarkScript(b *testing.B) {
	l := &change.Layout{Table: change.TableID{Schema: "t", Name: "t0"}, Key: []int{0}, Columns: []change.Column{
		{Name: "id", Base: "bigint"}, {Name: "k", Base: "int"}, {Name: "c", Base: "char", Charset: "latin1"},
		{Name: "pad", Base: "char", Charset: "latin1"}, {Name: "at", Base: "datetime"}}}
	batch := benchBatch(l, 1, 1000)
	var sc script
	b.ReportAllocs()
	for b.Loop() {
		sc.reset(1 << 24)
		t, err := newTableWriter(l, l.Table, true)
		if err != nil {
			b.Fatal(err)
		}
		w := newRowWriter(t, &sc, 0, false)
		if err := w.writeChanges(batch.Changes); err != nil {
			b.Fatal(err)
		}
		w.done()
	}
	b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

package mysql

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/connector/connectortest"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// sinkHarness tells the conformance suite about the sink. db is nil in the child.
func sinkHarness(addr string, db *testdb.MariaDB) connectortest.SinkHarness {
	columns := []change.Column{
		{Name: "id", Type: "bigint(20)", Base: "bigint"},
		{Name: "v", Type: "varchar(20)", Base: "varchar", Charset: "utf8mb4", Collation: "utf8mb4_general_ci", LengthBytes: 80},
	}
	return connectortest.SinkHarness{
		Addr: addr, Schema: "dst", Child: "TestSinkSuiteChild", FaultPrefix: "sink.",
		Open: func(t *testing.T, addr string) connectortest.Sink {
			return newTestSink(t, Config{Name: "target suite", Addr: addr, User: "root"}, SinkOptions{})
		},
		Layout: func(name string) *change.Layout {
			return &change.Layout{
				Table: change.TableID{Schema: "src", Name: name}, Columns: columns, Key: []int{0}, Engine: "InnoDB",
				Definition: "CREATE TABLE `" + name + "` (\n  `id` bigint(20) NOT NULL,\n  `v` varchar(20) NOT NULL,\n  PRIMARY KEY (`id`)\n)" +
					" ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci",
			}
		},
		Row: func(l *change.Layout, id int64, v string) []change.Value {
			r := row(num(id), text(v))
			if len(l.Columns) > len(r) {
				r = append(r, null())
			}
			return r
		},
		BadRow: func(l *change.Layout, id int64) []change.Value { return row(num(id), null()) },
		Extra: func(source change.TableID) *change.Statement {
			return &change.Statement{Kind: change.AlterTable, DefaultSchema: "src", Tables: []change.TableID{source},
				SQL: "ALTER TABLE " + quoteName(source.Name) + " ADD COLUMN extra BIGINT NULL, ADD INDEX (extra)"}
		},
		Truncate: func(source change.TableID) *change.Statement {
			return &change.Statement{Kind: change.TruncateTable, DefaultSchema: "src", Tables: []change.TableID{source},
				SQL: "TRUNCATE " + quoteName(source.Name)}
		},
		Rows: func(t *testing.T, table change.TableID) (map[int64]string, bool) { return suiteRows(t, db, table) },
		Waiting: func(t *testing.T) bool {
			// information_schema.INNODB_TRX does not change while it is read often.
			rows, err := db.Query(t.Context(), "SHOW ENGINE INNODB STATUS")
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(rows[0][2], "LOCK WAIT")
		},
		IsCommit: func(b []byte) bool { return bytes.Equal(b[4:], []byte("\x03COMMIT")) },
	}
}

// suiteRows reads a table of the suite with a client that is not the sink's.
func suiteRows(t *testing.T, db *testdb.MariaDB, table change.TableID) (map[int64]string, bool) {
	t.Helper()
	columns, err := db.Query(t.Context(), "SELECT COUNT(*) FROM information_schema.COLUMNS WHERE COLUMN_NAME='extra' AND TABLE_SCHEMA='"+
		table.Schema+"' AND TABLE_NAME='"+table.Name+"'")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := db.Query(t.Context(), "SELECT id, v FROM "+quoteTable(table))
	if err != nil {
		t.Fatal(err)
	}
	out := map[int64]string{}
	for _, r := range rows {
		id, err := strconv.ParseInt(r[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		out[id] = r[1]
	}
	return out, columns[0][0] == "1"
}

func TestSinkSuite(t *testing.T) {
	db := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	if err := db.Exec(t.Context(), "CREATE DATABASE dst"); err != nil {
		t.Fatal(err)
	}
	connectortest.RunSink(t, sinkHarness(db.Addr(), db))
}

// TestSinkSuiteChild is what the suite runs in a process of its own to kill it.
func TestSinkSuiteChild(t *testing.T) {
	if connectortest.IsSinkChild() {
		connectortest.RunSinkChild(t, sinkHarness(connectortest.SinkChildAddr(), nil))
	}
}

// brokenSink is a sink with one promise broken.
type brokenSink struct {
	*Sink
	breaks string
	chunks int
}

func (b *brokenSink) Apply(ctx context.Context, f change.Fence, batches []change.Batch) []change.BatchResult {
	switch b.breaks {
	case "epoch": // "at least as large" is enough
		f.Epoch = b.newest(ctx, f)
	case "outcome":
		res := b.Sink.Apply(ctx, f, batches)
		for i := range res {
			if errors.Is(res[i].Err, change.ErrUnknownOutcome) {
				res[i].Err = nil
			}
		}
		return res
	case "expected":
		if cps, err := b.Sink.Load(ctx, f); err == nil {
			for i := range batches {
				for _, cp := range cps {
					if cp.CheckpointKey == batches[i].Key {
						batches[i].Expected = cp.Position
					}
				}
			}
		}
	case "together":
		res := b.Sink.Apply(ctx, f, batches[:1])
		return append(res, make([]change.BatchResult, len(batches)-1)...)
	}
	return b.Sink.Apply(ctx, f, batches)
}

func (b *brokenSink) newest(ctx context.Context, f change.Fence) (epoch uint64) {
	for epoch = f.Epoch; ; epoch++ {
		f.Epoch = epoch
		if _, err := b.Sink.Load(ctx, f); !errors.Is(err, change.ErrDeposed) || epoch > 1000 {
			return epoch
		}
	}
}

func (b *brokenSink) Resolve(ctx context.Context, f change.Fence, keys []change.CheckpointKey) ([]change.Checkpoint, error) {
	if b.breaks != "plain-read" {
		return b.Sink.Resolve(ctx, f, keys)
	}
	cps, err := b.Sink.Load(ctx, f)
	return slices.DeleteFunc(cps, func(cp change.Checkpoint) bool { return !slices.Contains(keys, cp.CheckpointKey) }), err
}

func (b *brokenSink) LoadChunk(ctx context.Context, f change.Fence, c change.ChunkLoad) error {
	if b.breaks == "chunk" {
		if err := b.Sink.LoadChunk(ctx, f, c); err != nil {
			return err
		}
		b.chunks++
		c.Index = 1000 + b.chunks
	}
	return b.Sink.LoadChunk(ctx, f, c)
}

func (b *brokenSink) ApplyDDL(ctx context.Context, f change.Fence, d change.DDL) (*change.Layout, error) {
	l, err := b.Sink.ApplyDDL(ctx, f, d)
	if b.breaks == "layout" && err == nil {
		return d.Layout, nil
	}
	return l, err
}

const brokenEnv = "RUNNEL_TEST_BROKEN_SINK"

// The suite is worth something only if a sink that breaks a promise fails it.
func TestSuiteCatchesBrokenSinks(t *testing.T) {
	for _, tc := range [][2]string{
		{"", "OldEpochIsDeposed"}, {"epoch", "OldEpochIsDeposed"}, {"epoch", "TakeoversUnderWriters"}, {"outcome", "LostCommit"},
		{"expected", "CheckpointIsCompared"}, {"together", "BadBatchIsLeftOut"}, {"plain-read", "ResolveWaits"},
		{"chunk", "ChunksLoadOnce"}, {"layout", "StatementsMoveTheLayout"},
	} {
		breaks, part := tc[0], tc[1]
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBrokenSink$/^"+part)
		cmd.Env = append(os.Environ(), brokenEnv+"="+breaks+".")
		out, err := cmd.CombinedOutput()
		if failed := err != nil; failed != (breaks != "") || failed && !bytes.Contains(out, []byte("--- FAIL: TestBrokenSink/"+part)) {
			t.Errorf("a sink that breaks %q against %s: got %v\n%s", breaks, part, err, out)
		}
	}
}

// TestBrokenSink is what TestSuiteCatchesBrokenSinks runs in a process of its own.
func TestBrokenSink(t *testing.T) {
	breaks := os.Getenv(brokenEnv)
	if breaks == "" {
		return
	}
	db := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	if err := db.Exec(t.Context(), "CREATE DATABASE dst"); err != nil {
		t.Fatal(err)
	}
	h := sinkHarness(db.Addr(), db)
	open := h.Open
	h.Open = func(t *testing.T, addr string) connectortest.Sink {
		return &brokenSink{Sink: open(t, addr).(*Sink), breaks: strings.TrimSuffix(breaks, ".")}
	}
	connectortest.RunSink(t, h)
}

package mysql

import (
	"bytes"
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

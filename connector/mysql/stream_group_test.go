package mysql

import (
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

var longXID = "'" + strings.Repeat("g", 64) + "','" + strings.Repeat("b", 64) + "',2147483647"

// TestGroups runs scripts and looks at the groups that come out.
func TestGroups(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{Own: []change.TableID{{Schema: "runnel", Name: "checkpoint"}}})
	for _, c := range []struct {
		name string
		sql  []string
		want string
	}{
		{"L-10 rollback with a table without transactions", []string{
			"CREATE TABLE ar (id INT PRIMARY KEY) ENGINE=Aria", "BEGIN", "INSERT INTO ar VALUES (1)", "INSERT INTO t VALUES (1,1)", "ROLLBACK",
		}, "create-table [d.ar]\nend\ninsert ar (1)\nend\n"},
		{"L-11 rollback to a savepoint", []string{
			"BEGIN", "INSERT INTO t VALUES (1,1)", "SAVEPOINT s", "INSERT INTO t VALUES (2,2)", "ROLLBACK TO s", "INSERT INTO t VALUES (3,3)", "COMMIT",
		}, "insert t (1,1)\ninsert t (3,3)\nend\n"},
		{"L-11 rollback to a savepoint that is in the log", []string{
			"CREATE TABLE ar (id INT PRIMARY KEY) ENGINE=Aria",
			"BEGIN", "INSERT INTO t VALUES (1,1)", "SAVEPOINT `S x`", "INSERT INTO t VALUES (2,2)", "SAVEPOINT `S x`", "INSERT INTO t VALUES (4,4)",
			"INSERT INTO ar VALUES (1)", "ROLLBACK TO `s X`", "INSERT INTO t VALUES (3,3)", "COMMIT",
		}, "create-table [d.ar]\nend\ninsert ar (1)\nend\ninsert t (1,1)\ninsert t (2,2)\ninsert t (3,3)\nend\n"},
		{"L-12 XA", []string{
			"XA START 'a','b',7", "INSERT INTO t VALUES (1,1)", "XA END 'a','b',7", "XA PREPARE 'a','b',7", "XA ROLLBACK 'a','b',7",
			"XA START 'x'", "INSERT INTO t VALUES (2,2)", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'",
			"XA START 'y'", "INSERT INTO t VALUES (3,3)", "XA END 'y'", "XA COMMIT 'y' ONE PHASE",
			"XA START " + longXID, "INSERT INTO t VALUES (4,4)", "XA END " + longXID, "XA PREPARE " + longXID, "XA COMMIT " + longXID,
		}, "insert t (2,2)\nend\ninsert t (3,3)\nend\ninsert t (4,4)\nend\n"},
		{"L-13 rollback that is in the log", []string{
			"CREATE TEMPORARY TABLE x AS SELECT 40 id", "BEGIN", "INSERT INTO t SELECT id, 5 FROM x", "DROP TEMPORARY TABLE x", "ROLLBACK",
		}, ""},
		{"L-16 ALTER in two phases", []string{
			"SET SESSION binlog_alter_two_phase=1", "INSERT INTO t VALUES (1,1),(2,1)", "ALTER TABLE t ADD z INT", "!ALTER TABLE t ADD UNIQUE (v)", "INSERT INTO t VALUES (3,3,3)",
		}, "insert t (1,1)\ninsert t (2,1)\nend\nalter-table [d.t]\nend\ninsert t (3,3,3)\nend\n"},
		{"L-08 statement format", []string{
			"SET SESSION binlog_format=STATEMENT", "INSERT INTO t VALUES (1,1)", "UPDATE other.o SET id=id+1", "UPDATE t SET v=2", "INSERT INTO other.o SELECT id FROM t",
			"DELETE FROM t WHERE v=3",
			"DELETE t FROM t JOIN other.o ON o.id=t.id",
		}, "rows-by-statement [d.t]\nend\nrows-by-statement [d.t]\nend\nrows-by-statement [d.t]\nend\nrows-by-statement [d.DELETE d.t d.FROM d.JOIN d.other d.ON d.o]\nend\n"},
		{"L-05 statements in a log that is compressed", []string{
			"SET GLOBAL log_bin_compress=ON", "SET GLOBAL log_bin_compress_min_len=10", "ALTER TABLE t COMMENT '" + strings.Repeat("long ", 50) + "'",
			"INSERT INTO t VALUES (1,1),(2,2)", "UPDATE t SET v=v+1", "DELETE FROM t WHERE id=1", "SET GLOBAL log_bin_compress=OFF",
		}, "alter-table [d.t]\nend\ninsert t (1,1)\ninsert t (2,2)\nend\nupdate t (1,1) (1,2)\nupdate t (2,2) (2,3)\nend\ndelete t (1,2)\nend\n"},
		{"own groups are empty", []string{
			"BEGIN", "INSERT INTO t VALUES (1,1)", "INSERT INTO runnel.checkpoint VALUES (RAND()*1000000)", "COMMIT", "INSERT INTO t VALUES (2,2)",
		}, "insert t (2,2)\nend\n"},
		{"D-08 partitions", []string{
			"CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))",
			"CREATE TABLE other.x (id INT PRIMARY KEY)", "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE other.x", "ALTER TABLE p TRUNCATE PARTITION p0",
			"ALTER TABLE p DROP PARTITION p0", "ALTER TABLE p ADD PARTITION (PARTITION p2 VALUES LESS THAN (30))", "DROP TABLE other.x",
		}, "create-table [d.p]\nend\nlost-rows [d.p]\nend\nlost-rows [d.p]\nend\nlost-rows [d.p]\nend\nalter-table [d.p]\nend\n"},
		{"D-04 D-06 renames", []string{
			"CREATE TABLE _t_new LIKE t", "RENAME TABLE t TO other.t_old, _t_new TO t", "INSERT INTO t VALUES (1,1)", "DROP TABLE other.t_old",
			"ALTER TABLE t RENAME TO u", "ALTER TABLE u RENAME t, ADD INDEX (v)", "TRUNCATE t", "CREATE INDEX i ON t(v)", "DROP INDEX i ON t", "DROP TABLE IF EXISTS t, nope",
			"CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, v INT)",
		}, "create-table [d._t_new]\nend\nrename-table [d.t d._t_new] d.t>other.t_old d._t_new>d.t\nend\ninsert t (1,1)\nend\n" +
			"alter-table [d.t d.u] d.t>d.u\nend\nalter-table [d.u d.t] d.u>d.t\nend\ntruncate-table [d.t]\nend\nalter-table [d.t]\nend\nalter-table [d.t]\nend\n" +
			"drop-table [d.t d.nope]\nend\ncreate-table [d.t]\nend\n"},
		{"CREATE … SELECT", []string{"INSERT INTO t VALUES (1,1)", "CREATE TABLE c (PRIMARY KEY (id)) SELECT * FROM t", "CREATE OR REPLACE TABLE c (PRIMARY KEY (id)) SELECT * FROM t"},
			"insert t (1,1)\nend\ncreate-table [d.c]\ninsert c (1,1)\nend\ncreate-table [d.c]\ninsert c (1,1)\nend\n"},
		{"statements that change no table", []string{
			"CREATE VIEW w AS SELECT * FROM t", "DROP VIEW w", "CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.v=NEW.v", "DROP TRIGGER tr",
			"ANALYZE TABLE t", "OPTIMIZE TABLE t", "CREATE USER tu", "GRANT SELECT ON d.t TO tu", "DROP USER tu", "CREATE SEQUENCE sq", "DO NEXTVAL(sq)", "DROP SEQUENCE sq",
			"CREATE TEMPORARY TABLE t (x INT)", "DROP TEMPORARY TABLE t", "FLUSH TABLES",
		}, "insert sq (1001,1,9223372036854775806,1,1,1000,0,0)\nend\n"},
		{"K-23 cascades", []string{
			"CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES t (id) ON DELETE CASCADE ON UPDATE SET NULL)",
			"CREATE TABLE r (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES t (id))", "CREATE TABLE au (id INT PRIMARY KEY)",
			"CREATE TRIGGER tr AFTER DELETE ON t FOR EACH ROW IF OLD.id>100 THEN INSERT INTO au VALUES (OLD.id); END IF",
			"INSERT INTO t VALUES (1,1),(2,2)", "INSERT INTO c VALUES (1,1),(2,2)", "DELETE FROM t WHERE id=1", "DELETE FROM c", "ALTER TABLE c DROP FOREIGN KEY c_ibfk_1", "DELETE FROM t",
		}, "create-table [d.c]\nend\ncreate-table [d.r]\nend\ncreate-table [d.au]\nend\ninsert t (1,1)\ninsert t (2,2)\nend\ninsert c (1,1)\ninsert c (2,2)\nend\n" +
			"delete t (1,1)\nlost-rows [d.c]\nend\ndelete c (2,2)\nend\nalter-table [d.c]\nend\ndelete t (2,2)\nend\n"},
		{"K-23 cascades of a parent that nobody wants", []string{
			"INSERT INTO other.o VALUES (1),(2)", "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES other.o (id) ON DELETE SET NULL)",
			"BEGIN", "INSERT INTO t VALUES (5,5)", "DELETE FROM other.o", "COMMIT",
		}, "create-table [d.c]\nend\ninsert t (5,5)\nlost-rows [d.c]\nend\n"},
		{"D-19 drop of a schema", []string{"CREATE DATABASE gone", "DROP DATABASE gone"}, "drop-schema [gone.]\nend\n"},
		{"D-13 names", []string{
			"CREATE TABLE `a.b` (id INT PRIMARY KEY)", "CREATE TABLE `se``lect` (id INT PRIMARY KEY)", "SET SESSION sql_mode='ANSI_QUOTES'",
			`ALTER TABLE "d"."a.b" ADD "x y" INT`, "SET SESSION sql_mode=''", "ALTER /*!50000 TABLE */ /* t */ `se``lect` -- t\n ADD y INT",
			"SET NAMES latin1", "CREATE TABLE `\xe4` (id INT PRIMARY KEY)", "INSERT INTO `\xe4` VALUES (1)",
		}, "create-table [d.a.b]\nend\ncreate-table [d.se`lect]\nend\nalter-table [d.a.b]\nend\nalter-table [d.se`lect]\nend\ncreate-table [d.ä]\nend\ninsert ä (1)\nend\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			execSQL(t, m, "DROP DATABASE IF EXISTS d", "DROP DATABASE IF EXISTS other", "CREATE OR REPLACE DATABASE d", "CREATE DATABASE other", "CREATE DATABASE IF NOT EXISTS runnel",
				"CREATE TABLE d.t (id INT PRIMARY KEY, v INT)", "CREATE TABLE other.o (id INT PRIMARY KEY)", "CREATE TABLE IF NOT EXISTS runnel.checkpoint (id INT PRIMARY KEY)")
			from := now(t, s)
			sql := []string{"USE d"}
			for _, q := range c.sql {
				if q, fails := strings.CutPrefix(q, "!"); fails {
					if err := m.Exec(testContext(t), append(sql, q)...); err == nil {
						t.Fatalf("%s: got no error", q)
					}
					sql = []string{"USE d"}
					continue
				}
				sql = append(sql, q)
			}
			execSQL(t, m, sql...)
			groups := readTo(t, s, from, wantSchema("d"))
			if got := showNamed(t, s, groups); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// showNamed is show for tables that may be gone or changed: their layouts are made
// up as integers.
func showNamed(t *testing.T, s *Source, groups []*change.Group) string {
	t.Helper()
	var b strings.Builder
	for _, g := range groups {
		for _, e := range g.Events {
			ls := map[change.TableID]*change.Layout{}
			if block, ok := e.Rows.(*rowBlock); ok {
				l := &change.Layout{Table: e.Table}
				for _, w := range block.tables.types {
					base := map[byte]string{typeLong: "int", typeLongLong: "bigint", typeTiny: "tinyint"}[w]
					l.Columns = append(l.Columns, change.Column{Base: base})
				}
				ls[e.Table] = l
			}
			showEvent(t, &b, e, ls)
		}
		if len(g.Events) > 0 {
			b.WriteString("end\n")
		}
	}
	return b.String()
}

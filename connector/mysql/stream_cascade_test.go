package mysql

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// later makes statements look as if they ran after every definition was made.
const later = "SET SESSION timestamp=UNIX_TIMESTAMP()+100"

// TestK23Cascades: rows that a foreign key changes beside the log are told of, and
// statements that cannot have changed any are not.
func TestK23Cascades(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	child := func(action string) string {
		return "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES t (id) " + action + ")"
	}
	for _, c := range []struct {
		name        string
		before, sql []string // before and after the place that the stream begins at
		want        string
	}{
		{"a table's own foreign key", []string{
			"CREATE TABLE n (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES n (id) ON DELETE CASCADE)", "INSERT INTO n VALUES (1,NULL),(2,1),(3,2)",
		}, []string{later, "DELETE FROM n WHERE id=1"}, "delete n (1,NULL)\nlost-rows [d.n]\nend\n"},
		{"a table's own foreign key, updated", []string{
			"CREATE TABLE n (id INT PRIMARY KEY, p INT, v INT, FOREIGN KEY (p) REFERENCES n (id) ON UPDATE SET NULL)", "INSERT INTO n VALUES (1,NULL,0),(2,1,0)",
		}, []string{later, "UPDATE n SET v=1 WHERE id=1", "DELETE FROM n WHERE id=2"}, "update n (1,NULL,0) (1,NULL,1)\nend\ndelete n (2,1,0)\nend\n"},
		{"a table's own foreign key that comes with ALTER", []string{
			"CREATE TABLE n (id INT PRIMARY KEY, p INT, KEY (p))", "INSERT INTO n VALUES (1,NULL),(2,1),(3,2)",
		}, []string{
			"DELETE FROM n WHERE id=3", "ALTER TABLE n ADD CONSTRAINT own FOREIGN KEY (p) REFERENCES n (id) ON DELETE SET NULL", "DELETE FROM n WHERE id=1",
		}, "delete n (3,2)\nend\nalter-table [d.n]\nend\ndelete n (1,NULL)\nlost-rows [d.n]\nend\n"},
		{"a circle", []string{
			"CREATE TABLE a (id INT PRIMARY KEY, b INT)", "CREATE TABLE b (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES a (id) ON DELETE CASCADE)",
			"ALTER TABLE a ADD FOREIGN KEY (b) REFERENCES b (id) ON DELETE CASCADE", "INSERT INTO a VALUES (1,NULL)", "INSERT INTO b VALUES (1,1)", "INSERT INTO a VALUES (2,1)",
		}, []string{later, "DELETE FROM a WHERE id=1"}, "delete a (1,NULL)\nlost-rows [d.a]\nlost-rows [d.b]\nend\n"},
		{"a child that a trigger writes in the same statement", []string{
			child("ON DELETE CASCADE"), "CREATE TRIGGER tr BEFORE DELETE ON t FOR EACH ROW INSERT INTO c VALUES (OLD.id+100,OLD.id)",
			"INSERT INTO t VALUES (1,1)", "INSERT INTO c VALUES (1,1)",
		}, []string{later, "DELETE FROM t"}, "insert c (101,1)\ndelete t (1,1)\nlost-rows [d.c]\nend\n"},
		{"a child that is deleted from in the same statement", []string{
			child("ON DELETE CASCADE"), "INSERT INTO t VALUES (1,1),(2,2)", "INSERT INTO c VALUES (1,1),(2,1)",
		}, []string{later, "DELETE t, c FROM t JOIN c ON c.p=t.id WHERE c.id=1"}, "delete c (1,1)\ndelete t (1,1)\nlost-rows [d.c]\nend\n"},
		{"a grandchild", []string{
			child("ON DELETE CASCADE"), "CREATE TABLE g (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES c (id) ON DELETE SET NULL)",
			"INSERT INTO t VALUES (1,1)", "INSERT INTO c VALUES (1,1)", "INSERT INTO g VALUES (1,1)",
		}, []string{later, "DELETE FROM t"}, "delete t (1,1)\nlost-rows [d.c]\nlost-rows [d.g]\nend\n"},
		{"a foreign key that is gone since", []string{
			"CREATE TABLE c (id INT PRIMARY KEY, p INT, CONSTRAINT f FOREIGN KEY (p) REFERENCES t (id) ON DELETE CASCADE)", "INSERT INTO t VALUES (1,1)", "INSERT INTO c VALUES (1,1)",
		}, []string{"DELETE FROM t", "ALTER TABLE c DROP FOREIGN KEY f"}, "delete t (1,1)\nlost-rows [d.c]\nend\nalter-table [d.c]\nend\n"},
		{"F-12 updates of other columns", []string{
			child("ON UPDATE CASCADE ON DELETE CASCADE"), "INSERT INTO t VALUES (1,1),(2,2)", "INSERT INTO c VALUES (1,1)",
		}, []string{
			later, "UPDATE t SET v=v+1 WHERE id=1", "BEGIN", "UPDATE t SET v=9 WHERE id=2", "UPDATE t SET v=NULL WHERE id=1", "COMMIT",
			"INSERT INTO t VALUES (2,0) ON DUPLICATE KEY UPDATE v=7", "UPDATE t SET id=5 WHERE id=1", "INSERT INTO c VALUES (2,5)",
		}, "update t (1,1) (1,2)\nend\nupdate t (2,2) (2,9)\nupdate t (1,2) (1,NULL)\nend\nupdate t (2,9) (2,7)\nend\nupdate t (1,NULL) (5,NULL)\nlost-rows [d.c]\nend\ninsert c (2,5)\nend\n"},
		{"F-12 in a compressed log", []string{
			child("ON UPDATE CASCADE"), "INSERT INTO t SELECT seq, seq FROM seq_1_to_3", "SET GLOBAL log_bin_compress=ON", "SET GLOBAL log_bin_compress_min_len=10",
		}, []string{later, "UPDATE t SET v=v+1", "UPDATE t SET id=id+10 WHERE id=3", "SET GLOBAL log_bin_compress=OFF"},
			"update t (1,1) (1,2)\nupdate t (2,2) (2,3)\nupdate t (3,3) (3,4)\nend\nupdate t (3,4) (13,4)\nlost-rows [d.c]\nend\n"},
		{"only what the action is for", []string{
			child("ON UPDATE SET NULL"), "INSERT INTO t VALUES (1,1)",
		}, []string{later, "DELETE FROM t"}, "delete t (1,1)\nend\n"},
		{"columns that moved", []string{
			child("ON UPDATE CASCADE"), "INSERT INTO t VALUES (1,1)", "INSERT INTO c VALUES (1,1)",
		}, []string{
			"ALTER TABLE t MODIFY v INT FIRST", later, "UPDATE t SET v=2", "UPDATE t SET id=2",
		}, "alter-table [d.t]\nend\nupdate t (1,1) (2,1)\nend\nupdate t (2,1) (2,2)\nlost-rows [d.c]\nend\n"},
		{"a session without foreign key checks", []string{
			child("ON DELETE CASCADE"), "INSERT INTO t VALUES (1,1)", "INSERT INTO c VALUES (1,1)",
		}, []string{later, "SET SESSION foreign_key_checks=0", "DELETE FROM t"}, "delete t (1,1)\nend\n"},
		{"a table that only a trigger opens", []string{
			"CREATE TABLE au (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1,1)",
			"CREATE TRIGGER tr AFTER DELETE ON t FOR EACH ROW IF OLD.id>100 THEN INSERT INTO au VALUES (OLD.id); END IF",
		}, []string{later, "DELETE FROM t"}, "delete t (1,1)\nend\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			execSQL(t, m, "SET foreign_key_checks=0", "DROP DATABASE IF EXISTS d", "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)")
			execSQL(t, m, append([]string{"USE d"}, c.before...)...)
			from := now(t, s)
			execSQL(t, m, append([]string{"USE d"}, c.sql...)...)
			if got := showNamed(t, s, readTo(t, s, from, wantSchema("d"))); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestK23CompareImages: an update of one column of a row with every type touches
// that column and no other.
func TestK23CompareImages(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	columns := []struct{ name, declared, from, to string }{
		{"a", "TINYINT", "1", "2"}, {"b", "SMALLINT UNSIGNED", "1", "2"}, {"c", "MEDIUMINT", "1", "2"}, {"d", "BIGINT", "1", "2"}, {"e", "FLOAT", "1", "2"},
		{"f", "DOUBLE", "1", "2"}, {"g", "DECIMAL(30,7)", "1", "2"}, {"h", "BIT(11)", "1", "2"}, {"i", "YEAR", "2001", "2002"}, {"j", "DATE", "'2001-01-01'", "'2001-01-02'"},
		{"k", "TIME(3)", "'1:00:00'", "'2:00:00'"}, {"l", "DATETIME(6)", "'2001-01-01'", "'2001-01-02'"}, {"m", "TIMESTAMP(1) NULL", "'2001-01-01'", "'2001-01-02'"},
		{"n", "CHAR(10)", "'a'", "NULL"}, {"o", "CHAR(255) CHARACTER SET utf8mb4", "NULL", "'b'"}, {"p", "VARCHAR(2000)", "'a'", "'bb'"}, {"q", "VARCHAR(20)", "'a'", "'A'"},
		{"r", "BINARY(9)", "'a'", "'b'"}, {"s", "LONGTEXT", "'a'", "'b'"}, {"t", "TINYBLOB", "'a'", "'b'"}, {"u", "ENUM('x','y')", "'x'", "'y'"}, {"v", "SET('x','y')", "'x'", "'x,y'"},
		{"w", "POINT", "POINT(1,1)", "POINT(1,2)"}, {"x", "UUID", "'00000000-0000-0000-0000-000000000001'", "NULL"}, {"y", "INET6", "'::1'", "'::2'"},
		{"z", "VARCHAR(300) COMPRESSED", "'a'", "'b'"}, {"zz", "TEXT COMPRESSED", "'a'", "'b'"},
	}
	var declared, values []string
	for _, c := range columns {
		declared, values = append(declared, c.name+" "+c.declared), append(values, c.from)
	}
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.w (id INT PRIMARY KEY, "+strings.Join(declared, ", ")+")", "INSERT INTO d.w VALUES (1,"+strings.Join(values, ",")+")")
	from := now(t, s)
	for _, c := range columns {
		execSQL(t, m, "UPDATE d.w SET "+c.name+"="+c.to)
	}
	groups := readTo(t, s, from, wantSchema("d"))
	for i, c := range columns {
		b := groups[i].Events[0].Rows.(*rowBlock)
		got := make([]byte, (len(columns)+8)/8)
		want := slices.Clone(got)
		want[(i+1)>>3] |= 1 << ((i + 1) & 7)
		if b.tables.addChanged(got, b.kind, b.body); !slices.Equal(got, want) {
			t.Errorf("%s %s: got changed columns %b, want %b", c.name, c.declared, got, want)
		}
	}
}

// TestK23HiddenCascadesAreRefused: tables whose foreign keys lead back to
// themselves are refused by name, by Tables and by Pin.
func TestK23HiddenCascadesAreRefused(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	execSQL(t, m, "CREATE DATABASE d", "CREATE DATABASE o", "USE d",
		"CREATE TABLE plain (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES plain (id))",
		"CREATE TABLE own (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES own (id) ON DELETE CASCADE)",
		"CREATE TABLE owned (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES own (id) ON UPDATE CASCADE)",
		"CREATE TABLE a (id INT PRIMARY KEY, p INT, KEY (p))", "CREATE TABLE o.b (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES d.a (id) ON DELETE SET NULL ON UPDATE CASCADE)",
		"CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES o.b (id) ON UPDATE CASCADE)", "ALTER TABLE a ADD FOREIGN KEY (p) REFERENCES c (id) ON DELETE CASCADE",
		"CREATE USER r", "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO r")
	cfg, err := ParseDSN(m.DSN("r", ""))
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSource(cfg, SourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := testContext(t)
	infos, err := s.Tables(ctx, func(id change.TableID) bool { return id.Schema == "d" }) // not o: the circle leads through it all the same
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"own": "to itself", "a": "in a circle with d.c, o.b", "c": "in a circle with d.a, o.b", "plain": "", "owned": ""}
	if len(infos) != len(want) {
		t.Errorf("got %d tables, want %d", len(infos), len(want))
	}
	for _, i := range infos {
		_, _, err := s.Pin(ctx, i.Table)
		var pinned *change.Problem
		if err != nil && !errors.As(err, &pinned) {
			t.Errorf("pin %s: %v", i.Table, err)
		}
		for from, p := range map[string]*change.Problem{"Tables": i.Problem, "Pin": pinned} {
			text := want[i.Table.Name]
			switch {
			case text == "" && p != nil:
				t.Errorf("%s: %s: got %v, want no problem", from, i.Table, p)
			case text != "" && (p == nil || p.Code != "cascade-hidden" || !strings.Contains(p.Cause, text) || !strings.Contains(p.Remedy, "leave the table out")):
				t.Errorf("%s: %s: got %+v, want cascade-hidden with %q", from, i.Table, p, text)
			}
		}
	}
}

// TestTablesThatOnlyTheirDefinitionsRuleOut: constructs that a target cannot be
// given are refused by name.
func TestTablesThatOnlyTheirDefinitionsRuleOut(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d", "USE d",
		"CREATE TABLE good (id INT PRIMARY KEY, period INT, `PERIOD FOR` INT, v VARCHAR(20) DEFAULT 'nextval(x)' COMMENT 'PERIOD FOR p (s,e), nextval(x)', UNIQUE (v))",
		"CREATE TABLE per (id INT PRIMARY KEY, s DATE, e DATE, PERIOD FOR p (s,e))",
		"CREATE TABLE overlap (id INT NOT NULL, s DATE, e DATE, PERIOD FOR p (s,e), PRIMARY KEY (id, p WITHOUT OVERLAPS))",
		"CREATE SEQUENCE sq", "CREATE TABLE num (id INT PRIMARY KEY DEFAULT (NEXT VALUE FOR sq))", "CREATE VIEW w AS SELECT 1 id",
		"CREATE TABLE part (id INT PRIMARY KEY) ENGINE=MyISAM", "CREATE TABLE whole (id INT PRIMARY KEY) ENGINE=MERGE UNION=(part)",
		"CREATE TABLE hash (t TEXT NOT NULL, UNIQUE h (t))", "CREATE TABLE keyless (t INT, UNIQUE (t))", "CREATE TABLE vers (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
	ctx := testContext(t)
	infos, err := s.Tables(ctx, func(id change.TableID) bool { return id.Schema == "d" })
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]*change.Problem{}
	for _, i := range infos {
		listed[i.Table.Name] = i.Problem
	}
	for _, c := range []struct{ table, code, cause string }{
		{"good", "", ""}, {"part", "", ""}, {"per", "table-period", "period p"}, {"overlap", "table-period", "period p"}, {"num", "column-sequence", "column id"},
		{"whole", "table-engine", "MRG_MyISAM"}, {"hash", "table-without-key", "unique key over not-null columns, h, is kept as a hash"},
		{"keyless", "table-without-key", "no unique key"}, {"vers", "table-system-versioned", ""}, {"sq", "not-a-table", "a sequence"}, {"w", "not-a-table", "a view"},
	} {
		_, _, err := s.Pin(ctx, change.TableID{Schema: "d", Name: c.table})
		var pinned *change.Problem
		if err != nil && !errors.As(err, &pinned) {
			t.Errorf("pin %s: %v", c.table, err)
		}
		found := map[string]*change.Problem{"Pin": pinned}
		if c.code != "not-a-table" {
			found["Tables"] = listed[c.table]
		} else if _, ok := listed[c.table]; ok {
			t.Errorf("Tables lists %s, which is no table", c.table)
		}
		for from, p := range found {
			switch {
			case c.code == "" && p != nil:
				t.Errorf("%s: %s: got %v, want no problem", from, c.table, p)
			case c.code != "" && (p == nil || p.Code != c.code || !strings.Contains(p.Cause, c.cause)):
				t.Errorf("%s: %s: got %+v, want %s with %q", from, c.table, p, c.code, c.cause)
			}
		}
	}
}

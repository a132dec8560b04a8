package mysql

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// odd makes an SQL expression of random odd values for each type of the wide table.
var wideColumns = []struct {
	typ string
	sql func(r *rand.Rand) string
}{
	{"BIGINT UNSIGNED", pick("0", "18446744073709551615", "9223372036854775808")},
	{"DECIMAL(30,10)", pick("-0.0000000001", "99999999999999999999.9999999999", "0")},
	{"FLOAT", pick("0.1", "-3.4028234e38", "1.4e-45", "16777217")},
	{"DOUBLE", pick("0.1", "1.7976931348623157e308", "5e-324", "-1e0")},
	{"BIT(13)", pick("b'1111111111111'", "b'0'", "b'1000000000000'")},
	{"DATE", pick("'0000-00-00'", "'2024-00-01'", "'9999-12-31'")},
	{"DATETIME(6)", pick("'0000-00-00'", "'1000-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'")},
	{"TIMESTAMP(3) NULL", pick("'1970-01-02 00:00:00.123'", "'2038-01-19 03:14:07'", "0")},
	{"TIME(6)", pick("'-838:59:59.999999'", "'-00:00:00.000001'", "'12:00:00'")},
	{"YEAR", pick("0", "1901", "2155")},
	{"VARCHAR(20) CHARACTER SET latin1", pick("x'80FF27'", "'\\\\\\'\\t\\n'", "''")},
	{"VARCHAR(20) CHARACTER SET gbk", pick("x'955CD6D0'", "'a'")},
	{"VARCHAR(20) CHARACTER SET utf16", pick("_utf8mb4 x'F09F9880'", "'a'")},
	{"TEXT CHARACTER SET utf8mb4", pick("_utf8mb4 x'F09F98800927'", "REPEAT('long ', 200)", "'a\\0b'")},
	{"BINARY(6)", pick("x'610000'", "x'FF5C2709'", "''")},
	{"BLOB", pick("x'00095C0A0D271A'", "''", "REPEAT(x'5C27', 100)")},
	{"ENUM('a','it''s','ä') CHARACTER SET latin1", pick("1", "2", "3")},
	{"SET('x','y','z')", pick("''", "5", "7")},
	{"JSON", pick(`'{"b": 1,  "a":"\\u00e4"}'`, "'[]'")},
	{"UUID", pick("'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'")},
	{"INET6", pick("'2001:db8::'", "'::ffff:1.2.3.4'")},
	{"POINT", pick("ST_GeomFromText('POINT(1 2)', 4326)", "POINT(0,0)")},
	{"INT AS (id * 2) STORED", nil},
}

func pick(sql ...string) func(*rand.Rand) string {
	sql = append(sql, "NULL")
	return func(r *rand.Rand) string { return sql[r.IntN(len(sql))] }
}

// wideRow is a row of odd values.
func wideRow(r *rand.Rand, id int) string {
	v := []string{fmt.Sprint(id)}
	for _, c := range wideColumns {
		if c.sql == nil {
			v = append(v, "DEFAULT")
		} else {
			v = append(v, c.sql(r))
		}
	}
	return "(" + strings.Join(v, ",") + ")"
}

// Rows of every type come to the target by copy (in bulk and row by row) and by
// log; mariadb-dump finds them to be the source's, byte for byte.
func TestSourceAndSinkAgree(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	src := testSource(t, x.db, SourceOptions{})
	columns := []string{"id INT PRIMARY KEY"}
	for i, c := range wideColumns {
		columns = append(columns, fmt.Sprint("c", i, " ", c.typ))
	}
	x.exec(t, "CREATE DATABASE src CHARACTER SET utf8mb4", "CREATE TABLE src.wide ("+strings.Join(columns, ", ")+")",
		"CREATE TABLE src.plain LIKE src.wide", "ALTER TABLE src.plain DROP c19, DROP c20, DROP c21, DROP c22")
	from := now(t, src)
	r := rand.New(rand.NewPCG(1, 2))
	modes := []string{"SET NAMES utf8mb4", "SET sql_mode='ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO', time_zone='+00:00'"}
	statements := modes
	for i := range 120 {
		statements = append(statements, "INSERT INTO src.wide VALUES "+wideRow(r, i))
		if i%3 == 0 {
			statements = append(statements, fmt.Sprintf("REPLACE INTO src.wide VALUES %s", wideRow(r, r.IntN(i+1))), fmt.Sprintf("DELETE FROM src.wide WHERE id=%d", r.IntN(i+1)),
				fmt.Sprintf("UPDATE src.wide SET id=id+1000, c10='moved' WHERE id=%d", r.IntN(i+1)))
		}
	}
	statements = append(statements, "INSERT INTO src.plain SELECT id,c0,c1,c2,c3,c4,c5,c6,c7,c8,c9,c10,c11,c12,c13,c14,c15,c16,c17,c18 FROM src.wide")
	x.exec(t, statements...)
	groups := readTo(t, src, from, wantSchema("src"))
	for _, name := range []string{"wide", "plain"} {
		l := layouts(t, src, change.TableID{Schema: "src", Name: name})[change.TableID{Schema: "src", Name: name}]
		x.prepare(t, name, l)
		if got, want := bulkStatement(l, x.layout(t, name)) != "", name == "plain"; got != want {
			t.Errorf("%s: got loaded in bulk %v, want %v", name, got, want)
		}
		for _, limit := range []int{bulkRows / 3, 1000} {
			x.copyTable(t, src, l, name, limit)
			x.sameDump(t, fmt.Sprintf("%s copied %d rows at a time", name, limit), name)
		}
		x.exec(t, "DELETE FROM t."+name)
		at := uint64(0)
		for _, g := range groups {
			batch := x.batch(name, l, at, at+1)
			for _, e := range g.Events {
				if e.Table != l.Table || e.Rows == nil {
					continue
				}
				if err := e.Rows.Decode(l, new(change.Arena), func(c change.Change) error {
					batch.Changes = append(batch.Changes, c)
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			x.mustApply(t, batch)
			at++
		}
		x.sameDump(t, name+" from the log", name)
	}
}

// copyTable copies in chunks, as the first incarnation of its kind.
func (x *target) copyTable(t *testing.T, src *Source, l *change.Layout, name string, limit int) {
	t.Helper()
	ctx := testContext(t)
	x.exec(t, "DELETE FROM t."+name)
	upper, err := src.Upper(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	var lower []byte
	for i, done := 0, false; !done; i++ {
		ch, err := src.ReadChunk(ctx, l, lower, upper, limit)
		if err != nil {
			t.Fatal(err)
		}
		err = x.sink.LoadChunk(ctx, x.fence, change.ChunkLoad{
			Incarnation: fmt.Sprint("copy-", name, limit), Target: change.TableID{Schema: "t", Name: name}, Layout: l, Index: i, Bound: ch.Last, Done: ch.Done, Rows: ch.Rows})
		if err != nil {
			t.Fatal(err)
		}
		lower, done = ch.Last, ch.Done
	}
}

// sameDump compares t.name with src.name as an independent program prints them.
func (x *target) sameDump(t *testing.T, what, name string) {
	t.Helper()
	dump, err := x.db.Dump(testContext(t), "src", "t")
	if err != nil {
		t.Fatal(err)
	}
	got, want := strings.Split(dump["t."+name], "\n"), strings.Split(dump["src."+name], "\n")
	if len(want) < 60 {
		t.Fatalf("%s: the source has only %d rows", what, len(want))
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%s: got %d rows, want %d; line %d:\ngot  %.400s\nwant %.400s", what, len(got), len(want), i, at(got, i), at(want, i))
		}
	}
}

func at(s []string, i int) string {
	if i >= len(s) {
		return "(no row)"
	}
	return s[i]
}

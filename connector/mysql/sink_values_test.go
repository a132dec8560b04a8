package mysql

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// valueCase is a column type, a value of it, and what the server says it stores:
// an expression over the column c and its result.
type valueCase struct {
	typ    string
	value  change.Value
	expr   string // "" is HEX(c)
	stored string
}

func literal(s string) change.Value  { return change.Value{Kind: change.Literal, Data: []byte(s)} }
func decimal(s string) change.Value  { return change.Value{Kind: change.Decimal, Data: []byte(s)} }
func unsigned(n uint64) change.Value { return change.Value{Kind: change.Uint, Num: n} }

var valueCases = []valueCase{
	{"tinyint unsigned", unsigned(255), "c", "255"},
	{"bigint unsigned", unsigned(math.MaxUint64), "c", "18446744073709551615"},
	{"bigint", num(math.MinInt64), "c", "-9223372036854775808"},
	{"int", num(0), "c", "0"},
	{"bit(1)", raw("\x01"), "HEX(c)", "1"},
	{"bit(9)", raw("\x01\xff"), "HEX(c)", "1FF"},
	{"bit(64)", raw("\x80\x00\x00\x00\x00\x00\x00\x00"), "HEX(c)", "8000000000000000"},
	{"decimal(65,30)", decimal("-99999999999999999999999999999999999.999999999999999999999999999999"), "c", "-99999999999999999999999999999999999.999999999999999999999999999999"},
	{"decimal(65,30)", decimal("0.000000000000000000000000000001"), "c", "0.000000000000000000000000000001"},
	{"decimal(10,0)", decimal("-9999999999"), "c", "-9999999999"},
	{"date", moment("0000-00-00"), "c", "0000-00-00"},
	{"date", moment("2024-00-00"), "c", "2024-00-00"},
	{"date", moment("2024-02-31"), "c", "2024-02-31"},
	{"datetime", moment("0000-00-00 00:00:00"), "c", "0000-00-00 00:00:00"},
	{"datetime(6)", moment("9999-12-31 23:59:59.999999"), "c", "9999-12-31 23:59:59.999999"},
	{"datetime(6)", moment("1000-01-01 00:00:00.000001"), "c", "1000-01-01 00:00:00.000001"},
	{"timestamp(6) null", moment("1970-01-01 00:00:00.000001"), "c", "1970-01-01 00:00:00.000001"},
	{"timestamp null", moment("2038-01-19 03:14:07"), "UNIX_TIMESTAMP(c)", "2147483647"},
	{"timestamp null", moment("0000-00-00 00:00:00"), "c", "0000-00-00 00:00:00"},
	{"time(6)", moment("-838:59:59.999999"), "c", "-838:59:59.999999"},
	{"time(6)", moment("-00:00:00.000001"), "c", "-00:00:00.000001"},
	{"time(1)", moment("00:00:00.1"), "c", "00:00:00.1"},
	{"year", moment("0000"), "c", "0000"},
	{"year", moment("1901"), "c", "1901"},
	{"year", moment("2155"), "c", "2155"},
	{"float", single(0.1), "c = CAST(0.1 AS FLOAT)", "1"},
	{"float", single(math.SmallestNonzeroFloat32), "c > 0 AND c < 1.5e-45", "1"},
	{"float", single(math.MaxFloat32), "c = 3.4028234663852886e38", "1"},
	{"double", double(math.MaxFloat64), "c = 1.7976931348623157e308", "1"},
	{"double", double(5e-324), "c = 5e-324", "1"},
	{"double", double(0.30000000000000004), "c = 0.30000000000000004e0", "1"},
	{"binary(4)", raw("a\x00\x00\x00"), "", "61000000"},
	{"varbinary(10)", raw(""), "CONCAT(c IS NULL, LENGTH(c))", "00"},
	{"varbinary(10)", raw("\x00"), "", "00"},
	{"blob", raw("'\\\x00\n\r\x1a\"%_\xe4\xbd'\\"), "", "275C000A0D1A22255FE4BD275C"},
	{"blob", null(), "c IS NULL", "1"},
	{"varchar(20) character set latin1", text("\x80\x92\x9c'\\"), "", "80929C275C"},
	{"varchar(20) character set gbk", text("\xd6\xd0\x95\x5c'"), "", "D6D0955C27"},
	{"varchar(20) character set sjis", text("\x83\x5c\x95\x5c"), "", "835C955C"},
	{"varchar(20) character set utf16", text("\x4e\x2d\xd8\x3d\xde\x00\x00\x27\x00\x5c"), "", "4E2DD83DDE000027005C"},
	{"varchar(20) character set utf32", text("\x00\x01\xf6\x00"), "", "0001F600"},
	{"varchar(20) character set ucs2", text("\x4e\x2d"), "", "4E2D"},
	{"varchar(20) character set utf8mb3", text("ä\x00中"), "", "C3A400E4B8AD"},
	{"varchar(20) character set utf8mb4", text("😀' \\ \x00"), "", "F09F988027205C2000"},
	{"text character set koi8r", text("\xc1\xc2"), "", "C1C2"},
	{"char(5) character set latin1", text("a"), "", "61"},
	{"text compressed", text(strings.Repeat("x", 300)), "LENGTH(c)", "300"},
	{"enum('a','ä') character set latin1", text("\xe4"), "c+0", "2"},
	{"enum('a','b')", text(""), "CONCAT(c+0, c)", "0"},
	{"enum('a','')", text(""), "c+0", "2"},
	{"enum('2','1')", text("1"), "c+0", "2"},
	{"set('x','y','z')", text("x,z"), "c+0", "5"},
	{"set('x','y')", text(""), "CONCAT(c+0, c IS NULL)", "00"},
	{"json", text(`{"b": 1,  "a":"\u00e4\\"}`), "c", `{"b": 1,  "a":"\u00e4\\"}`},
	{"uuid", literal("123e4567-e89b-12d3-a456-426655440000"), "c", "123e4567-e89b-12d3-a456-426655440000"},
	{"inet4", literal("255.0.0.0"), "c", "255.0.0.0"},
	{"inet6", literal("2001:db8::"), "c", "2001:db8::"},
	{"point", raw("\xe6\x10\x00\x00\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\x00\x40"), "CONCAT(ST_AsText(c), ST_SRID(c))", "POINT(1 2)4326"},
	{"geometry", raw("\x00\x00\x00\x00\x01\x07\x00\x00\x00\x00\x00\x00\x00"), "ST_AsText(c)", "GEOMETRYCOLLECTION EMPTY"},
}

// Every value is stored as what it is, by the log path and by the copy path, and
// a row with such a key is found again.
func TestValuesAreStoredExactly(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{ExtraArgs: []string{"--default-time-zone=+08:00"}}, SinkOptions{})
	ctx := testContext(t)
	conn, err := x.sink.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	for i, tc := range valueCases {
		if err := conn.exec(ctx, "CREATE OR REPLACE TABLE t.v (id INT PRIMARY KEY, c "+tc.typ+") CHARACTER SET utf8mb4"); err != nil {
			t.Fatalf("%s: %v", tc.typ, err)
		}
		l := x.layout(t, "v")
		w, err := newTableWriter(l, l.Table, true)
		if err != nil {
			t.Fatal(err)
		}
		var sc script
		sc.reset(1 << 24)
		rw := newRowWriter(w, &sc, 0, false)
		if err := rw.writeChanges([]change.Change{insert(num(1), tc.value), update(row(num(1), tc.value), row(num(2), tc.value))}); err != nil {
			t.Fatalf("%s: %v", tc.typ, err)
		}
		if err := rw.writeRows([]change.Row{{num(1), tc.value}}); err != nil {
			t.Fatalf("%s: %v", tc.typ, err)
		}
		if _, err := conn.run(ctx, sc.packets[0].sql(), nil); err != nil {
			t.Errorf("%d %s: %v in %s", i, tc.typ, err, sc.packets[0].sql())
			continue
		}
		expr := tc.expr
		if expr == "" {
			expr = "HEX(c)"
		}
		got, err := conn.text(ctx, "SELECT id, "+expr+" FROM t.v ORDER BY id")
		if err != nil {
			t.Fatalf("%s: %v", tc.typ, err)
		}
		want := [][]string{{"1", tc.stored}, {"2", tc.stored}}
		if len(got) != 2 || got[0][1] != want[0][1] || got[1][1] != want[1][1] {
			t.Errorf("%d %s: got %q, want %q", i, tc.typ, got, want)
		}
	}
}

// What LOAD DATA stores is what INSERT stores, type by type; what it cannot take
// goes by INSERT by itself.
func TestBulkStoresTheSame(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{ExtraArgs: []string{"--default-time-zone=+08:00"}}, SinkOptions{})
	ctx := testContext(t)
	conn, err := x.sink.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	bulk := 0
	for i, tc := range valueCases {
		if err := conn.exec(ctx, "CREATE OR REPLACE TABLE t.v (id INT PRIMARY KEY, c "+tc.typ+", z INT) CHARACTER SET utf8mb4"); err != nil {
			t.Fatalf("%s: %v", tc.typ, err)
		}
		l := x.layout(t, "v")
		ch := change.ChunkLoad{Incarnation: "bulk", Target: l.Table, Layout: l, Index: i}
		for n := range int64(bulkRows) {
			ch.Rows = append(ch.Rows, change.Row{num(n), tc.value, null()})
		}
		ch.Rows = append(ch.Rows, change.Row{num(0), tc.value, num(7)}) // over an earlier one
		p, err := x.sink.bulkFor(ctx, conn, &ch)
		if err != nil {
			t.Fatal(err)
		}
		if p != "" {
			bulk++
		}
		if err := x.sink.LoadChunk(ctx, x.fence, ch); err != nil {
			t.Errorf("%d %s: %v", i, tc.typ, err)
			continue
		}
		expr := tc.expr
		if expr == "" {
			expr = "HEX(c)"
		}
		got, err := conn.text(ctx, "SELECT "+expr+", COUNT(*), MAX(z) FROM t.v GROUP BY 1")
		if want := [][]string{{tc.stored, fmt.Sprint(bulkRows), "7"}}; err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d %s (in bulk: %v): got %q (%v), want %q", i, tc.typ, p != "", got, err, want)
		}
	}
	if want := len(valueCases) - 5; bulk != want { // uuid, inet4, inet6, two geometries
		t.Errorf("got %d of %d values in bulk, want %d", bulk, len(valueCases), want)
	}
}

// LOAD DATA must not be what hides a bad row or a character set that differs.
func TestBulkRefusesWhatInsertRefuses(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	ctx := testContext(t)
	for i, tc := range []struct {
		source, target string
		bad            change.Value
		code           uint16
	}{
		{"VARCHAR(20)", "VARCHAR(2)", text("abc"), 1406},
		{"INT", "INT NOT NULL", null(), 1048},
		{"INT", "TINYINT", num(1000), 1264},
		{"VARCHAR(20)", "VARCHAR(20)", text("\xff"), 1366},
		{"DATE", "DATE", moment("2024-13-01"), 1292},
		{"ENUM('a','b')", "ENUM('a')", text("b"), 1265},
		{"INT", "INT CHECK (c < 5)", num(9), 4025},
		{"VARCHAR(20) CHARACTER SET latin1", "VARCHAR(20) CHARACTER SET ascii", text("\xe4"), 1366},
	} {
		x.exec(t, "CREATE OR REPLACE TABLE t.v (id INT PRIMARY KEY, c "+tc.source+")")
		l := x.layout(t, "v")
		x.exec(t, "CREATE OR REPLACE TABLE t.v (id INT PRIMARY KEY, c "+tc.target+")")
		ch := change.ChunkLoad{Incarnation: "bulk", Target: l.Table, Layout: l, Index: i}
		for n := range int64(2 * bulkRows) {
			v := num(1)
			switch tc.bad.Kind {
			case change.Text:
				v = text("a")
			case change.Time:
				v = moment("2024-01-01")
			}
			if n == 77 {
				v = tc.bad
			}
			ch.Rows = append(ch.Rows, change.Row{num(n), v})
		}
		err := x.sink.LoadChunk(ctx, x.fence, ch)
		if change.ClassOf(err) != change.PermanentRow || rowIndex(err) != 77 || serverCode(err) != tc.code {
			t.Errorf("%s into %s: got %v of class %s at row %d, want permanent-row %d at 77", tc.source, tc.target, err, change.ClassOf(err), rowIndex(err), tc.code)
		}
		if got := x.one(t, "SELECT COUNT(*) FROM t.v"); got != "0" {
			t.Errorf("%s into %s: got %s rows, want none", tc.source, tc.target, got)
		}
	}
	x.exec(t, "SET GLOBAL local_infile=0", "CREATE OR REPLACE TABLE t.v (id INT PRIMARY KEY, c INT)")
	l := x.layout(t, "v")
	ch := change.ChunkLoad{Incarnation: "off", Target: l.Table, Layout: l}
	for n := range int64(bulkRows) {
		ch.Rows = append(ch.Rows, change.Row{num(n), num(n)})
	}
	if err := x.sink.LoadChunk(ctx, x.fence, ch); err != nil {
		t.Error(err)
	}
	if got, want := x.one(t, "SELECT COUNT(*) FROM t.v"), fmt.Sprint(bulkRows); got != want || !x.sink.noBulk.Load() {
		t.Errorf("got %s rows with bulk off %v, want %s and true", got, x.sink.noBulk.Load(), want)
	}
}

// A key of each type finds its row: inserted, deleted, nothing is left.
func TestKeysFindTheirRows(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	ctx := testContext(t)
	conn, err := x.sink.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	for _, tc := range valueCases {
		if tc.value.Kind == change.Null || strings.HasPrefix(tc.typ, "point") || strings.HasPrefix(tc.typ, "geometry") ||
			strings.HasPrefix(tc.typ, "text") || tc.typ == "blob" || tc.typ == "json" {
			continue // no whole-column key
		}
		typ := strings.TrimSuffix(tc.typ, " null") + " not null"
		if strings.HasPrefix(typ, "timestamp") {
			typ += " default '2000-01-01'"
		}
		for _, key := range []string{"c", "k, c"} {
			if err := conn.exec(ctx, "CREATE OR REPLACE TABLE t.v (k INT NOT NULL, c "+typ+", PRIMARY KEY ("+key+")) CHARACTER SET utf8mb4"); err != nil {
				t.Fatalf("%s: %v", typ, err)
			}
			l := x.layout(t, "v")
			w, err := newTableWriter(l, l.Table, true)
			if err != nil {
				t.Fatal(err)
			}
			var sc script
			sc.reset(1 << 24)
			rw := newRowWriter(w, &sc, 0, false)
			err = rw.writeOrdered([]change.Change{insert(num(7), tc.value), remove(num(7), tc.value)})
			if err == nil {
				err = rw.flush()
			}
			if err != nil {
				t.Fatalf("%s: %v", typ, err)
			}
			if _, err := conn.run(ctx, sc.packets[0].sql(), nil); err != nil {
				t.Errorf("%s: %v in %s", typ, err, sc.packets[0].sql())
				continue
			}
			got, err := conn.text(ctx, "SELECT COUNT(*) FROM t.v")
			if err != nil || got[0][0] != "0" {
				t.Errorf("%s key (%s): got %q rows left (%v), want 0: %s", typ, key, got, err, sc.packets[0].sql())
			}
		}
	}
}

// Text goes through another character set without loss, or is refused.
func TestTextIsConvertedByTheServer(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	x.exec(t, "CREATE TABLE t.src (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET latin1)",
		"CREATE TABLE t.dst (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET utf8mb4)",
		"CREATE TABLE t.narrow (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET ascii)")
	l := x.layout(t, "src")
	x.prepare(t, "dst", l)
	x.prepare(t, "narrow", l)
	res := x.apply(t, x.batch("dst", l, 0, 1, insert(num(1), text("\x80\xe4"))), x.batch("narrow", l, 0, 1, insert(num(1), text("\xe4"))))
	if res[0].Err != nil || change.ClassOf(res[1].Err) != change.PermanentRow {
		t.Errorf("got %v and %v, want nil and a permanent-row error", res[0].Err, res[1].Err)
	}
	if got, want := x.one(t, "SELECT HEX(v) FROM t.dst"), "E282ACC3A4"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRefusedValues(t *testing.T) {
	column := &change.Column{Name: "c", Charset: "no such'set"}
	for _, v := range []change.Value{
		{Kind: change.Absent}, double(math.NaN()), double(math.Inf(-1)), decimal("1e5"), decimal(""), decimal("1;DROP"), text("x"), {Kind: 99},
	} {
		if got, err := appendLiteral(nil, column, v); err == nil {
			t.Errorf("kind %d: got %s, want an error", v.Kind, got)
		}
	}
}

func FuzzQuotedStringsEndWhereTheyEnd(f *testing.F) {
	f.Add([]byte("a'b\\c\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := appendQuoted(nil, b)
		var back []byte
		for i := 1; i < len(got)-1; i++ {
			c := got[i]
			if c == '\'' || c == 0 {
				t.Fatalf("got %q: byte %d ends the literal", got, i)
			}
			if c == '\\' {
				if i++; got[i] == '0' {
					back = append(back, 0)
					continue
				}
			}
			back = append(back, got[i])
		}
		if !bytes.Equal(back, b) {
			t.Fatalf("got %q from %q, want %q", back, got, b)
		}
	})
}

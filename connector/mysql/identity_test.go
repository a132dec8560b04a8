package mysql

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// identityColumn is a column type with values written as SQL.
type identityColumn struct {
	declared string
	values   []string
}

var identityColumns = []identityColumn{
	{"TINYINT", []string{"-128", "-1", "0", "127"}},
	{"TINYINT UNSIGNED", []string{"0", "128", "255"}},
	{"SMALLINT", []string{"-32768", "-1", "32767"}},
	{"SMALLINT UNSIGNED", []string{"0", "65535"}},
	{"MEDIUMINT", []string{"-8388608", "-1", "8388607"}},
	{"MEDIUMINT UNSIGNED", []string{"0", "8388608", "16777215"}},
	{"YEAR", []string{"0", "1901", "2155"}},
	{"INT", []string{"-2147483648", "-1", "2147483647"}},
	{"INT UNSIGNED ZEROFILL", []string{"0", "42", "4294967295"}},
	{"BIGINT", []string{"-9223372036854775808", "-1", "9223372036854775807"}},
	{"BIGINT UNSIGNED", []string{"0", "9223372036854775808", "18446744073709551615"}},
	{"FLOAT", []string{"0.1", "-0e0", "1e-45", "3.4028235e38", "16777217", "-1.17549435e-38"}},
	{"FLOAT(7,3)", []string{"0.1", "9999.999", "-1.005"}},
	{"DOUBLE", []string{"1.7976931348623157e308", "-0e0", "0.1", "5e-324", "2.2250738585072014e-308", "123456789.123456789"}},
	{"DOUBLE(20,5)", []string{"0.1", "-12345678.12345", "99999999999999.12345"}},
	{"DECIMAL(65,30)", []string{"0", "-0.000000000000000000000000000001", "99999999999999999999999999999999999.999999999999999999999999999999", "-99999999999999999999999999999999999.999999999999999999999999999999", "123456789.987654321"}},
	{"DECIMAL(10,0)", []string{"0", "-9999999999", "9999999999", "1000000000"}},
	{"DECIMAL(10,2) UNSIGNED ZEROFILL", []string{"0", "0.5", "12345678.90"}},
	{"DECIMAL(4,4)", []string{"0.0001", "-0.5", "0.9999"}},
	{"DECIMAL(18,9)", []string{"1.000000001", "-100000000.5", "999999999.999999999"}},
	{"BIT(1)", []string{"b'0'", "b'1'"}},
	{"BIT(9)", []string{"b'111111111'", "b'100000000'", "b'1'"}},
	{"BIT(64)", []string{"0xFFFFFFFFFFFFFFFF", "0x8000000000000000", "b'1'"}},
	{"DATE", []string{"'0000-00-00'", "'2024-00-00'", "'2024-05-00'", "'1000-01-01'", "'9999-12-31'", "'2024-02-29'"}},
	{"TIME", []string{"'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'", "'12:34:56'"}},
	{"TIME(1)", []string{"'-838:59:59.9'", "'838:59:59.9'", "'-00:00:00.1'", "'00:00:00.1'"}},
	{"TIME(3)", []string{"'-00:00:00.001'", "'00:00:00.999'", "'-01:00:00.5'", "'100:00:00'"}},
	{"TIME(4)", []string{"'-00:00:01.0001'", "'23:59:59.9999'"}},
	{"TIME(6)", []string{"'-00:00:00.000001'", "'838:59:59.999999'", "'-838:59:59.999999'", "'00:00:00.1'"}},
	{"DATETIME", []string{"'0000-00-00 00:00:00'", "'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'2024-00-00 01:02:03'"}},
	{"DATETIME(2)", []string{"'1969-12-31 23:59:59.99'", "'2024-01-01 00:00:00.01'"}},
	{"DATETIME(3)", []string{"'1969-12-31 23:59:59.999'", "'2024-01-01 00:00:00.001'"}},
	{"DATETIME(6)", []string{"'1000-01-01 00:00:00.000001'", "'1969-12-31 23:59:59.999999'", "'9999-12-31 23:59:59.999999'", "'0000-00-00 00:00:00'"}},
	{"TIMESTAMP NULL", []string{"'0000-00-00 00:00:00'", "FROM_UNIXTIME(1)", "FROM_UNIXTIME(2147483647)", "FROM_UNIXTIME(951782400)", "FROM_UNIXTIME(1709164800)"}},
	{"TIMESTAMP(2) NULL", []string{"FROM_UNIXTIME(1.01)", "FROM_UNIXTIME(2147483647.99)"}},
	{"TIMESTAMP(6) NULL", []string{"FROM_UNIXTIME(1.000001)", "FROM_UNIXTIME(2147483647.999999)", "FROM_UNIXTIME(1729990800.5)", "FROM_UNIXTIME(1729994400.5)", "'0000-00-00 00:00:00'"}},
	{"CHAR(10) CHARACTER SET utf8mb4", []string{"''", "'a'", "'é😀'", "'  a  '", "'0123456789'"}},
	{"CHAR(255) CHARACTER SET utf8mb4", []string{"''", "'a '", "REPEAT('😀',255)", "'x'"}},
	{"CHAR(60) CHARACTER SET utf32", []string{"'a'", "'a  '", "REPEAT('😀',60)"}},
	{"CHAR(5) CHARACTER SET utf16", []string{"'a'", "'ab   '", "'😀'"}},
	{"CHAR(5) CHARACTER SET ucs2", []string{"'a'", "'é'"}},
	{"CHAR(0)", []string{"''"}},
	{"VARCHAR(20) CHARACTER SET latin1", []string{"'€’œ'", "''", "'a '", "_latin1 X'8081FF'"}},
	{"VARCHAR(300) CHARACTER SET utf8mb3", []string{"'é'", "REPEAT('ü',300)", "'a\\0b'"}},
	{"VARCHAR(20) CHARACTER SET gbk", []string{"'中文'", "_gbk X'D65C'"}},
	{"VARCHAR(20) CHARACTER SET sjis", []string{"'日本'", "_sjis X'835C'"}},
	{"VARCHAR(20) CHARACTER SET utf16le", []string{"'a😀'"}},
	{"VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", []string{"'Z'", "'ß'"}},
	{"TINYTEXT CHARACTER SET cp1251", []string{"'Привет'", "''"}},
	{"TEXT CHARACTER SET big5", []string{"'中文'", "REPEAT('x',1000)"}},
	{"MEDIUMTEXT CHARACTER SET eucjpms", []string{"'日本'", "REPEAT('x',70000)"}},
	{"LONGTEXT CHARACTER SET utf8mb4", []string{"'é😀'", "''"}},
	{"BINARY(16)", []string{"X'00'", "X'0102030400'", "X'FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF'", "''", "'  '"}},
	{"BINARY(255)", []string{"X'01'", "REPEAT(X'FE',255)"}},
	{"VARBINARY(20)", []string{"''", "X'00'", "X'0000'", "'a '"}},
	{"VARBINARY(300)", []string{"''", "REPEAT(X'00',300)"}},
	{"TINYBLOB", []string{"''", "X'00'"}},
	{"BLOB", []string{"X'00FF'", "REPEAT(X'C3',5000)"}},
	{"MEDIUMBLOB", []string{"REPEAT(X'AB',70000)"}},
	{"LONGBLOB", []string{"X'DEADBEEF'"}},
	{"ENUM('a','b','it''s','c,d','back\\\\slash')", []string{"1", "2", "3", "4", "5", "''"}},
	{"ENUM('ä','ö','€') CHARACTER SET latin1", []string{"1", "2", "3"}},
	{"ENUM('я','б') CHARACTER SET koi8r", []string{"1", "2"}},
	{"ENUM('中','文') CHARACTER SET gbk", []string{"1", "2"}},
	{"ENUM('x','é') CHARACTER SET utf16", []string{"1", "2"}},
	{"SET('a','b','c','d') ", []string{"0", "1", "15", "10"}},
	{"SET('ä','ö') CHARACTER SET latin1", []string{"3", "2"}},
	{"SET('x','é','z') CHARACTER SET utf16", []string{"7", "5"}},
	{"SET('x','é','z') CHARACTER SET utf16le", []string{"7", "5"}},
	{"SET('x','é','z') CHARACTER SET utf32", []string{"7", "5"}},
	{"UUID", []string{"'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'01890a5d-ac96-774b-bcce-b302099a8057'", "'9c5b94b1-35ad-49bb-b118-8e8fc24abf80'", "'c9aa64b6-0000-1000-8000-000000000000'"}},
	{"INET4", []string{"'0.0.0.0'", "'255.255.255.255'", "'10.0.0.0'", "'1.2.3.4'"}},
	{"INET6", []string{"'::'", "'::1'", "'2001:db8::'", "'::ffff:1.2.3.4'", "'::1.2.3.4'", "'fe80::1:0:0:1'", "'1:0:0:2:0:0:0:3'", "'::ffff:0:0'", "'1:2:3:4:5:6:7:8'", "'0:1::'", "'1::8'", "'::0.0.1.0'", "'0:0:0:0:0:1:2:3'"}},
	{"JSON", []string{"'{\"b\": 1,  \"a\":[1.0,9007199254740993]}'", "'null'", "'\"é😀\"'"}},
	{"POINT", []string{"ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POINT(1 2)',4326)"}},
	{"POLYGON", []string{"ST_GeomFromText('POLYGON((0 0,0 1,1 1,0 0))')"}},
	{"GEOMETRY", []string{"ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))')", "ST_GeomFromText('GEOMETRYCOLLECTION EMPTY')"}},
	{"GEOMETRYCOLLECTION", []string{"ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1))',3857)"}},
	{"TEXT COMPRESSED CHARACTER SET utf8mb4", []string{"''", "'short'", "REPEAT('é',5000)"}},
	{"MEDIUMBLOB COMPRESSED", []string{"X'00'", "REPEAT(X'AB',100000)"}},
	{"VARCHAR(200) COMPRESSED CHARACTER SET latin1", []string{"''", "'ä'", "REPEAT('ab',100)"}},
	{"VARCHAR(2000) COMPRESSED", []string{"'x'", "REPEAT('ab',1000)"}},
	{"VARBINARY(2000) COMPRESSED", []string{"X'00'", "REPEAT('ab',1000)"}},
	{"INT INVISIBLE DEFAULT 5", []string{"DEFAULT", "7"}},
}

// identityTable gives the statements that make and fill a table with all columns:
// row i has each column's value i, NULL behind its last.
func identityTable(name, options string) (create string, inserts []string) {
	return identityTableOf(identityColumns, name, options)
}

func identityTableOf(columns []identityColumn, name, options string) (create string, inserts []string) {
	var cols []string
	names, rows := "id", 0
	for i, c := range columns {
		cols = append(cols, fmt.Sprintf("c%d %s", i, c.declared))
		names += fmt.Sprintf(",c%d", i)
		rows = max(rows, len(c.values)+1)
	}
	for r := range rows {
		v := fmt.Sprint(r)
		for _, c := range columns {
			if r < len(c.values) {
				v += "," + c.values[r]
			} else {
				v += ",NULL"
			}
		}
		inserts = append(inserts, "INSERT INTO "+name+" ("+names+") VALUES ("+v+")")
	}
	create = "CREATE TABLE " + name + " (id INT UNSIGNED PRIMARY KEY, " + strings.Join(cols, ", ") + ", g INT AS (id+1) STORED, h VARCHAR(9) AS (CONCAT('v',id)) VIRTUAL) " + options
	return create, inserts
}

// TestV00Identity is the central test: for every type and edge value the log
// decoder and the chunk reader give the same kind and bytes.
func TestV00Identity(t *testing.T) {
	for _, run := range []struct {
		metadata string
		args     []string
		setup    []string
	}{
		{"NO_LOG", nil, nil},
		{"FULL", []string{"--default-time-zone=+08:00"}, nil},
		{"NO_LOG", []string{"--log-bin-compress=1", "--log-bin-compress-min-len=10", "--default-time-zone=-05:00"}, []string{"SET GLOBAL column_compression_zlib_wrap=1", "SET SESSION column_compression_zlib_wrap=1"}},
		{"NO_LOG", []string{"--mysql56-temporal-format=0"}, nil},
		{"MINIMAL", []string{"--binlog-checksum=NONE"}, nil},
	} {
		t.Run(run.metadata+strings.Join(run.args, ""), func(t *testing.T) {
			m := testdb.MariaDBFor(t, testdb.MariaDBOptions{RowMetadata: run.metadata, ExtraArgs: run.args})
			s := testSource(t, m, SourceOptions{})
			create, inserts := identityTable("t", "CHARACTER SET utf8mb4 ROW_FORMAT=DYNAMIC")
			execSQL(t, m, "CREATE DATABASE d", "USE d", create)
			from := now(t, s)
			sql := append([]string{"USE d", "SET SESSION sql_mode=''", "SET NAMES utf8mb4"}, run.setup...)
			execSQL(t, m, append(sql, inserts...)...)
			compareIdentity(t, s, from, change.TableID{Schema: "d", Name: "t"}, len(inserts))
		})
	}
}

// compareIdentity compares the rows that the log gives from a position on with
// those that chunks give.
func compareIdentity(t *testing.T, s *Source, from change.Position, id change.TableID, rows int) {
	t.Helper()
	l, _, err := s.Pin(testContext(t), id)
	if err != nil {
		t.Fatal(err)
	}
	logged := map[string][]change.Value{}
	for _, g := range readTo(t, s, from, wantSchema(id.Schema)) {
		for _, e := range g.Events {
			if e.Rows == nil || e.Table != id {
				continue
			}
			err := e.Rows.Decode(l, new(change.Arena), func(c change.Change) error {
				logged[string(change.AppendKey(nil, l, c.After))] = c.After
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	copied := readChunks(t, s, l, max(1, rows/3))
	if len(copied) != rows || len(logged) != rows {
		t.Errorf("got %d rows by copy and %d by log, want %d", len(copied), len(logged), rows)
	}
	for _, row := range copied {
		other := logged[string(change.AppendKey(nil, l, row))]
		if other == nil {
			t.Errorf("row %s is not in the log", showRow(row[:1]))
			continue
		}
		for i := range row {
			if got, want := string(change.AppendValue(nil, other[i])), string(change.AppendValue(nil, row[i])); got != want {
				t.Errorf("row %s column %s %s: log gives %.80s, copy gives %.80s", showValue(row[0]), l.Columns[i].Name, l.Columns[i].Type,
					fmt.Sprint(other[i].Kind, " ", showValue(other[i])), fmt.Sprint(row[i].Kind, " ", showValue(row[i])))
			}
		}
	}
}

// readChunks reads a whole table in chunks.
func readChunks(t *testing.T, s *Source, l *change.Layout, limit int) []change.Row {
	t.Helper()
	ctx := testContext(t)
	upper, err := s.Upper(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	if upper == nil {
		return nil
	}
	var out []change.Row
	var lower []byte
	for range 10000 {
		c, err := s.ReadChunk(ctx, l, lower, upper, limit)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c.Rows...)
		if c.Done {
			return out
		}
		lower = c.Last
	}
	t.Fatal("the chunks of the table have no end")
	return nil
}

// TestV27UUIDAndINET6 compares many random values, since their text and their
// order in storage follow rules of their own.
func TestV27UUIDAndINET6(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.t (u UUID PRIMARY KEY, i INET6, b BINARY(16))")
	from := now(t, s)
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	var sql []string
	for range 40 {
		var values []string
		for range 100 {
			var b, c [16]byte
			for i := range b {
				b[i] = byte(r.Uint32())
				if r.IntN(3) > 0 {
					c[i] = byte(r.Uint32()) & byte(r.Uint32()) & 0x11 * byte(r.IntN(2))
				}
			}
			if r.IntN(4) == 0 { // words of zero, ones, and the IPv4 mark
				c[10], c[11] = 0xff, 0xff
			}
			if r.IntN(8) == 0 {
				b[6+2*r.IntN(2)] = 0
			}
			u := fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
			if seen[u] || b[6] >= 0x80 && b[8] != 0 && b[8] <= 0x80 { // the server takes no such UUID
				continue
			}
			seen[u] = true
			var words []string
			for i := 0; i < 16; i += 2 {
				words = append(words, fmt.Sprintf("%x", uint16(c[i])<<8|uint16(c[i+1])))
			}
			values = append(values, fmt.Sprintf("('%s','%s',X'%x')", u, strings.Join(words, ":"), c[:]))
		}
		sql = append(sql, "INSERT INTO d.t VALUES "+strings.Join(values, ","))
	}
	execSQL(t, m, sql...)
	compareIdentity(t, s, from, change.TableID{Schema: "d", Name: "t"}, len(seen))
}

package mysql

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// TestV18Charsets: what is written here in a character set is what the server
// writes, for every character that both can.
func TestV18Charsets(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	sets := []string{"utf8mb3", "utf8mb4", "ucs2", "utf16", "utf16le", "utf32"}
	for set := range encodings {
		if !ambiguous[set] {
			sets = append(sets, set)
		}
	}
	for _, set := range sets {
		written := "HEX(CONVERT(CONVERT(UNHEX(LPAD(HEX(seq),8,'0')) USING utf32) USING " + set + "))"
		rows, err := m.Query(testContext(t), "SELECT seq, "+written+" FROM mysql.seq_1_to_65535 WHERE seq NOT BETWEEN 55296 AND 57343 AND "+written+"<>'3F'")
		if err != nil {
			t.Fatal(err)
		}
		both := 0
		for _, r := range rows {
			var n int
			if _, err := fmt.Sscan(r[0], &n); err != nil {
				t.Fatal(err)
			}
			b, ok := encodeText(set, string(rune(n)))
			if !ok {
				continue
			}
			both++
			if got := fmt.Sprintf("%X", b); got != r[1] {
				t.Errorf("%s: U+%04X is %s here and %s at the server", set, n, got, r[1])
				break
			}
			if codeUnit(set) != 1 {
				continue
			}
			if text, ok := decodeText(set, b); !ok || text != string(rune(n)) {
				t.Errorf("%s: got %q back for U+%04X", set, text, n)
				break
			}
		}
		if both < 180 {
			t.Errorf("%s: only %d characters were compared", set, both)
		}
	}
}

func TestParseLabels(t *testing.T) {
	for _, c := range []struct {
		declared string
		want     []string
	}{
		{"enum('a','b')", []string{"a", "b"}},
		{`set('it''s','c,d','back\\slash','nl\nx')`, []string{"it's", "c,d", `back\slash`, "nl\nx"}},
		{"enum('')", []string{""}},
		{"enum('(a)',''')')", []string{"(a)", "')"}},
	} {
		got, err := parseLabels(c.declared)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q and error %v, want %q", c.declared, got, err, c.want)
		}
	}
	for _, bad := range []string{"enum(", "enum('a", "enum('a'x)", "enum()", "enum('a',)"} {
		if got, err := parseLabels(bad); err == nil {
			t.Errorf("%s: got %q, want an error", bad, got)
		}
	}
}

func TestWithoutCounter(t *testing.T) {
	for _, c := range [][2]string{
		{"CREATE TABLE `t` (\n  `a` int\n) ENGINE=InnoDB AUTO_INCREMENT=12 DEFAULT CHARSET=latin1", "CREATE TABLE `t` (\n  `a` int\n) ENGINE=InnoDB DEFAULT CHARSET=latin1"},
		{"CREATE TABLE `t` (\n  `a` int COMMENT '\n) AUTO_INCREMENT=1'\n) ENGINE=InnoDB COMMENT=' AUTO_INCREMENT=7'", "CREATE TABLE `t` (\n  `a` int COMMENT '\n) AUTO_INCREMENT=1'\n) ENGINE=InnoDB COMMENT=' AUTO_INCREMENT=7'"},
	} {
		if got := withoutCounter(c[0]); got != c[1] {
			t.Errorf("got %s, want %s", got, c[1])
		}
	}
}

// TestLayout reads a definition with all that a layout tells.
func TestLayout(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{ExtraArgs: []string{"--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES"}})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE `d'``x`", "USE `d'``x`", `CREATE TABLE "t\n""" (a INT NOT NULL, b VARCHAR(10) CHARACTER SET latin1, c ENUM('x\y','it''s') NOT NULL,
		d DECIMAL(8,3) UNSIGNED, e TEXT COMPRESSED, g INT AS (a+1) STORED, UNIQUE z (b), UNIQUE k (a,c), UNIQUE j (c,a), UNIQUE p (b(3)), KEY (d)) CHARACTER SET utf8mb4`)
	id := change.TableID{Schema: "d'`x", Name: `t\n"`}
	l := layouts(t, s, id)[id]
	column := func(i int) string {
		c := l.Columns[i]
		return fmt.Sprint(c.Name, " ", c.Type, " ", c.Base, " ", c.Charset, " ", c.Unsigned, c.Nullable, c.Generated, c.Compressed, " ", c.Labels, " ", c.LengthBytes, " ", c.Scale)
	}
	for i, want := range []string{
		"a int(11) int  false false false false [] 0 0",
		"b varchar(10) varchar latin1 false true false false [] 10 0",
		`c enum('x\\y','it''s') enum utf8mb4 false false false false [x\y it's] 0 0`,
		"d decimal(8,3) unsigned decimal  true true false false [] 0 3",
		"e text text utf8mb4 false true false true [] 65535 0",
		"g int(11) int  false true true false [] 0 0",
	} {
		if got := column(i); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if got, want := fmt.Sprint(l.Key, l.Unique), "[2 0] [{k [0 2] false} {p [1] true} {z [1] false}]"; got != want {
		t.Errorf("got key and unique indexes %s, want %s", got, want)
	}
	if !strings.HasPrefix(l.Definition, "CREATE TABLE `t\\n\"` (") {
		t.Errorf("got definition %s", l.Definition)
	}
	other := *l
	other.Table, other.Engine, other.Definition = change.TableID{}, "", ""
	if l.Fingerprint() != other.Fingerprint() {
		t.Error("the fingerprint depends on the name")
	}
}

// TestV04V06RandomIdentity compares log and copy for random numbers and times of
// every precision, in both formats of storing times.
func TestV04V06RandomIdentity(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 6))
	var columns []identityColumn
	add := func(declared string, value func() string) {
		c := identityColumn{declared: declared}
		for range 60 {
			c.values = append(c.values, value())
		}
		columns = append(columns, c)
	}
	for range 30 {
		digits := 1 + r.IntN(65)
		scale := r.IntN(min(digits, 30) + 1)
		add(fmt.Sprintf("DECIMAL(%d,%d)", digits, scale), func() string { return randomDecimal(r, digits, scale) })
	}
	for f := range 7 {
		fraction := func() string { return fmt.Sprintf("%06d", r.IntN(1000000)) }
		add(fmt.Sprintf("TIME(%d)", f), func() string {
			return fmt.Sprintf("'%s%d:%02d:%02d.%s'", []string{"", "-"}[r.IntN(2)], r.IntN(838), r.IntN(60), r.IntN(60), fraction())
		})
		add(fmt.Sprintf("DATETIME(%d)", f), func() string {
			return fmt.Sprintf("'%04d-%02d-%02d %02d:%02d:%02d.%s'", 1+r.IntN(9998), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), fraction())
		})
		add(fmt.Sprintf("TIMESTAMP(%d) NULL", f), func() string { return fmt.Sprintf("FROM_UNIXTIME(%d.%s)", 1+r.IntN(1<<31-2), fraction()) })
	}
	for range 6 {
		n := 1 + r.IntN(64)
		add(fmt.Sprintf("BIT(%d)", n), func() string { return fmt.Sprint(r.Uint64() >> (64 - n)) })
	}
	add("FLOAT", func() string { return fmt.Sprintf("%e", r.NormFloat64()*1e10) })
	add("DOUBLE", func() string { return fmt.Sprintf("%.17e", r.NormFloat64()*1e100) })
	for _, format := range []string{"1", "0"} {
		m := testdb.MariaDBFor(t, testdb.MariaDBOptions{ExtraArgs: []string{"--mysql56-temporal-format=" + format}})
		s := testSource(t, m, SourceOptions{})
		create, inserts := identityTableOf(columns, "t", "")
		execSQL(t, m, "CREATE DATABASE d", "USE d", create)
		from := now(t, s)
		execSQL(t, m, append([]string{"USE d", "SET SESSION sql_mode=''", "SET SESSION time_zone='+00:00'"}, inserts...)...)
		compareIdentity(t, s, from, change.TableID{Schema: "d", Name: "t"}, len(inserts))
	}
}

func randomDecimal(r *rand.Rand, digits, scale int) string {
	var b strings.Builder
	if r.IntN(2) == 0 {
		b.WriteByte('-')
	}
	b.WriteByte('0')
	skip := r.IntN(digits + 1) // leading zeros of any number
	for i := range digits {
		if i == digits-scale {
			b.WriteByte('.')
		}
		if i < skip {
			b.WriteByte('0')
		} else {
			b.WriteByte(byte('0' + r.IntN(10)))
		}
	}
	return b.String()
}

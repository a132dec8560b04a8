package mysql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// TestK06Keys reads tables with keys of every kind in chunks of every size: each
// row comes once, in the server's order, and by an index.
func TestK06Keys(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d CHARACTER SET utf8mb4")
	for i, c := range []struct {
		name, columns, insert string
		order                 string // when it differs from the key
	}{
		{"K-01 BIGINT UNSIGNED", "k BIGINT UNSIGNED PRIMARY KEY", "(0),(1),(9223372036854775807),(9223372036854775808),(18446744073709551614),(18446744073709551615)", ""},
		{"negative", "k TINYINT PRIMARY KEY", "(-128),(-1),(0),(1),(127)", ""},
		{"K-03 case-insensitive text", "k VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY", "('a'),('B'),('ä1'),('Z'),('ß'),('z2'),(''),('\\\\'),('''')", ""},
		{"text that pads", "k VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_german2_ci PRIMARY KEY", "('a'),('b'),('ä'),('Ü'),('ss'),('a b')", ""},
		{"text without padding", "k VARCHAR(20) COLLATE utf8mb4_unicode_520_nopad_ci PRIMARY KEY", "('a'),('a '),('A  '),('b')", ""},
		{"utf16 text", "k CHAR(20) CHARACTER SET utf16 PRIMARY KEY", "('a'),('é'),('😀'),('b')", ""},
		{"CHAR(36)", "k CHAR(36) CHARACTER SET ascii PRIMARY KEY", "('123e4567-e89b-12d3-a456-426655440000'),('023e4567-e89b-12d3-a456-426655440000')", ""},
		{"K-06 BINARY(16)", "k BINARY(16) PRIMARY KEY", "(X'00'),(X'0101'),(X'01'),(X'FF00FF'),(X'20')", ""},
		{"VARBINARY", "k VARBINARY(16) PRIMARY KEY", "(''),(X'00'),(X'0000'),(X'01'),(X'27'),(X'5C')", ""},
		{"K-06 UUID", "k UUID PRIMARY KEY", "('123e4567-e89b-12d3-a456-426655440000'),('223e4567-e89b-42d3-9456-026655440000'),('01890a5d-ac96-774b-bcce-b302099a8057'),('f1890a5d-ac96-774b-bcce-b302099a8057'),('00000000-0000-0000-0000-000000000000'),('ffffffff-ffff-ffff-ffff-ffffffffffff')", ""},
		{"INET6", "k INET6 PRIMARY KEY", "('::'),('::1'),('2001:db8::'),('::ffff:1.2.3.4'),('fe80::1')", ""},
		{"INET4", "k INET4 PRIMARY KEY", "('0.0.0.0'),('10.0.0.0'),('9.0.0.0'),('255.255.255.255')", ""},
		{"DECIMAL", "k DECIMAL(30,10) PRIMARY KEY", "(-1.5),(0),(0.0000000001),(12345678901234567890.0123456789),(-12345678901234567890.0123456789),(10),(9)", ""},
		{"DATETIME(6)", "k DATETIME(6) PRIMARY KEY", "('1000-01-01'),('2024-01-01 00:00:00.000001'),('2024-01-01 00:00:00.00001'),('9999-12-31 23:59:59.999999')", ""},
		{"zero dates", "k DATE PRIMARY KEY", "('0000-00-00'),('2024-00-00'),('2024-05-00'),('2024-05-01')", ""},
		{"TIMESTAMP", "k TIMESTAMP(3) PRIMARY KEY", "('1970-01-01 00:00:01'),('2024-03-31 01:30:00.5'),('2038-01-19 03:14:07.999')", ""},
		{"TIME", "k TIME(2) PRIMARY KEY", "('-838:59:59'),('-00:00:00.01'),('00:00:00'),('100:00:00'),('99:00:00')", ""},
		{"YEAR", "k YEAR PRIMARY KEY", "(0),(1901),(1970),(1969),(2000),(2070),(2155)", ""},
		{"BIT", "k BIT(64) PRIMARY KEY", "(0),(1),(0x8000000000000000),(0xFFFFFFFFFFFFFFFF),(256)", ""},
		{"K-07 ENUM", "k ENUM('z','a','m','10','2','it''s') PRIMARY KEY", "(1),(2),(3),(4),(5),(6)", ""},
		{"K-07 ENUM with the invalid value and an empty label", "k ENUM('z','','m') PRIMARY KEY", "(1),(2),(3)", ""},
		{"ENUM in latin1", "k ENUM('ü','a','ä') CHARACTER SET latin1 PRIMARY KEY", "(1),(2),(3),('invalid')", ""},
		{"SET", "k SET('b','a','c') PRIMARY KEY", "(0),(1),(2),(3),(4),(7)", ""},
		{"compound", "a INT, b VARCHAR(10), c ENUM('y','x'), PRIMARY KEY (b,c,a)", "(1,'q',1),(2,'q',1),(1,'q',2),(3,'Q2',2),(3,'a',1),(4,'a',1),(5,'a',2),(9,'',1)", ""},
		{"compound with ENUM first", "c ENUM('y','x','w'), a INT UNSIGNED, d DATETIME, PRIMARY KEY (c,a,d)", "(1,1,'2024-01-01'),(1,1,'2024-01-02'),(1,2,'2024-01-01'),(2,0,'2024-01-01'),(2,4294967295,'2024-01-01'),(3,1,'2024-01-01')", ""},
		{"unique key that is no primary key", "a INT NOT NULL, b INT NOT NULL, v INT, UNIQUE KEY `u k` (b,a), KEY (a)", "(1,1,1),(2,1,1),(1,2,1),(5,0,1)", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := fmt.Sprintf("t%d", i)
			execSQL(t, m, "USE d", "SET NAMES utf8mb4", "SET SESSION sql_mode=''", "CREATE TABLE "+table+" ("+c.columns+")", "INSERT IGNORE INTO "+table+" VALUES "+c.insert)
			l, _, err := s.Pin(testContext(t), change.TableID{Schema: "d", Name: table})
			if err != nil {
				t.Fatal(err)
			}
			var key []string
			for _, k := range l.Key {
				key = append(key, ident(l.Columns[k].Name))
			}
			rows, err := m.Query(testContext(t), "SELECT COUNT(*) FROM d."+table)
			if err != nil {
				t.Fatal(err)
			}
			whole := readChunks(t, s, l, 1000)
			if got, want := fmt.Sprint(len(whole)), rows[0][0]; got != want || want != fmt.Sprint(strings.Count(c.insert, "(")) {
				t.Fatalf("got %s rows in one chunk, want %s", got, want)
			}
			for limit := 1; limit < 5; limit++ {
				got := readChunks(t, s, l, limit)
				if fmt.Sprint(keysOf(l, got)) != fmt.Sprint(keysOf(l, whole)) {
					t.Errorf("chunks of %d: got %q, want %q", limit, keysOf(l, got), keysOf(l, whole))
				}
			}
			explainChunk(t, m, s, l)
		})
	}
}

func keysOf(l *change.Layout, rows []change.Row) []string {
	var out []string
	for _, r := range rows {
		out = append(out, string(change.AppendKey(nil, l, r)))
	}
	return out
}

// explainChunk looks that a chunk query reads by the key's index without sorting.
func explainChunk(t *testing.T, m *testdb.MariaDB, s *Source, l *change.Layout) {
	t.Helper()
	ctx := testContext(t)
	q, err := newChunkQuery(l)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.ReadChunk(ctx, l, nil, nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	upper, err := s.Upper(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	sql, err := q.rows(l.Definition, c.Last, upper, 10)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := m.Query(ctx, "EXPLAIN "+sql)
	if err != nil {
		t.Fatal(err)
	}
	if line := strings.Join(plan[0], " "); strings.Contains(line, "filesort") || strings.Contains(line, " ALL ") {
		t.Errorf("the chunk query %s is answered by %s", sql, line)
	}
}

// TestK06RefusedKeys: keys that cannot be compared exactly are refused by name.
func TestK06RefusedKeys(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d", "USE d",
		"CREATE TABLE a_float (k FLOAT PRIMARY KEY)", "CREATE TABLE b_none (k INT)", "CREATE TABLE c_prefix (k TEXT, PRIMARY KEY (k(10)))",
		"CREATE TABLE d_null (k INT NULL UNIQUE)", "CREATE TABLE e_versioned (k INT PRIMARY KEY) WITH SYSTEM VERSIONING", "CREATE TABLE f_year (k INT PRIMARY KEY, y YEAR(2))",
		"CREATE TABLE g_enum (k INT PRIMARY KEY, e ENUM('a','?') CHARACTER SET utf8mb4)", "CREATE TABLE h_fine (k INT PRIMARY KEY, e ENUM('a','?') CHARACTER SET latin1)",
		"CREATE TABLE i_engine (k INT PRIMARY KEY) ENGINE=Aria", "CREATE VIEW v AS SELECT 1", "CREATE SEQUENCE sq")
	infos, err := s.Tables(testContext(t), func(t change.TableID) bool { return t.Schema == "d" })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range infos {
		code := "-"
		if i.Problem != nil {
			code = i.Problem.Code
		}
		got = append(got, i.Table.Name+" "+code)
	}
	want := "a_float key-type, b_none table-without-key, c_prefix table-without-key, d_null table-without-key, e_versioned table-system-versioned, " +
		"f_year column-type, g_enum column-labels, h_fine -, i_engine -"
	if got := strings.Join(got, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, i := range infos {
		var p *change.Problem
		_, _, err := s.Pin(testContext(t), i.Table)
		if errors.As(err, &p) != (i.Problem != nil) {
			t.Errorf("%s: Pin gives %v, Tables gives %v", i.Table, err, i.Problem)
		}
	}
}

func TestK13EmptyAndMissingTables(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.t (k INT PRIMARY KEY)", "CREATE TABLE d.one (k INT PRIMARY KEY)", "INSERT INTO d.one VALUES (1)")
	ctx := testContext(t)
	pin := func(name string) *change.Layout {
		l, _, err := s.Pin(ctx, change.TableID{Schema: "d", Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := pin("t")
	if upper, err := s.Upper(ctx, l); upper != nil || err != nil {
		t.Errorf("got upper bound %s and error %v of an empty table, want none", upper, err)
	}
	if c, err := s.ReadChunk(ctx, l, nil, nil, 10); err != nil || !c.Done || len(c.Rows) != 0 || c.Last != nil || c.Mark == nil {
		t.Errorf("got chunk %+v and error %v of an empty table", c, err)
	}
	one := pin("one")
	upper, err := s.Upper(ctx, one)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := s.ReadChunk(ctx, one, nil, upper, 1); err != nil || !c.Done || len(c.Rows) != 1 || string(c.Last) != string(upper) {
		t.Errorf("got chunk %+v and error %v, want one row and the end", c, err)
	}
	execSQL(t, m, "DROP TABLE d.t")
	if _, err := s.ReadChunk(ctx, l, nil, nil, 10); !errors.Is(err, change.ErrNoTable) {
		t.Errorf("got error %v of a dropped table from ReadChunk, want ErrNoTable", err)
	}
	if _, err := s.Upper(ctx, l); !errors.Is(err, change.ErrNoTable) {
		t.Errorf("got error %v of a dropped table from Upper, want ErrNoTable", err)
	}
	if _, _, err := s.Pin(ctx, change.TableID{Schema: "nowhere", Name: "t"}); !errors.Is(err, change.ErrNoTable) {
		t.Errorf("got error %v of a missing schema from Pin, want ErrNoTable", err)
	}
	for _, bad := range []string{"{", `["1","2"]`, `["1 OR 1=1"]`, `[]`} {
		if _, err := s.ReadChunk(ctx, one, []byte(bad), nil, 10); err == nil {
			t.Errorf("got no error for the bound %s", bad)
		}
	}
	if _, err := s.ReadChunk(ctx, one, nil, nil, 0); err == nil {
		t.Error("got no error for a limit of 0")
	}
}

// TestD18LayoutChange: a chunk of a table whose definition changed brings the new
// layout and no rows.
func TestD18LayoutChange(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.t (k INT AUTO_INCREMENT PRIMARY KEY, v INT)", "INSERT INTO d.t(v) VALUES (1),(2)")
	ctx := testContext(t)
	l, before, err := s.Pin(ctx, change.TableID{Schema: "d", Name: "t"})
	if err != nil {
		t.Fatal(err)
	}
	execSQL(t, m, "INSERT INTO d.t(v) VALUES (3)", "ALTER TABLE d.t COMMENT 'rows and columns stay'")
	if c, err := s.ReadChunk(ctx, l, nil, nil, 10); err != nil || len(c.Rows) != 3 {
		t.Errorf("got chunk %+v and error %v after a change that leaves the layout alone, want 3 rows", c, err)
	}
	execSQL(t, m, "ALTER TABLE d.t ADD w INT FIRST")
	c, err := s.ReadChunk(ctx, l, nil, nil, 10)
	if !errors.Is(err, change.ErrLayout) || c == nil || len(c.Rows) != 0 || c.Layout.Ordinal("w") != 0 || !before.High().Before(c.Mark.High()) {
		t.Errorf("got chunk %+v and error %v, want ErrLayout with the new layout and a mark", c, err)
	}
	if !strings.Contains(c.Layout.Definition, "CREATE TABLE `t`") || strings.Contains(c.Layout.Definition, "AUTO_INCREMENT=") {
		t.Errorf("got definition %s, want the statement without the counter", c.Layout.Definition)
	}
}

// TestMarkIsExact: under concurrent writers, a chunk has exactly the rows of the
// groups that its mark includes.
func TestMarkIsExact(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.t (k BIGINT PRIMARY KEY)")
	from := now(t, s)
	id := change.TableID{Schema: "d", Name: "t"}
	l, _, err := s.Pin(testContext(t), id)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for ctx.Err() == nil {
				var sql []string
				for range 50 {
					sql = append(sql, fmt.Sprintf("INSERT INTO d.t VALUES (%d)", r.Int64()))
				}
				if err := m.Exec(ctx, sql...); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var chunks []*change.Chunk
	for range 60 {
		// The end of the log is a place to start from, however busy writers are.
		st, err := s.Open(ctx, now(t, s), wantSchema("d"))
		if err != nil {
			t.Error(err)
			break
		}
		st.Close()
		c, err := s.ReadChunk(testContext(t), l, nil, nil, 1<<20)
		if err != nil {
			t.Error(err)
			break
		}
		chunks = append(chunks, c)
	}
	cancel()
	writers.Wait()
	groups := readTo(t, s, from, wantSchema("d"))
	for i, c := range chunks {
		want := 0
		for _, g := range groups {
			if c.Mark.Includes(g.End) {
				want++
			}
			if !g.End.AtOrBefore(c.Mark.High()) && c.Mark.Includes(g.End) {
				t.Errorf("chunk %d includes a group at %v behind its high mark %v", i, g.End, c.Mark.High())
			}
		}
		if len(c.Rows) != want {
			t.Errorf("chunk %d has %d rows, its mark includes %d groups of one row", i, len(c.Rows), want)
		}
	}
	if len(groups) < 100 {
		t.Errorf("only %d groups were written meanwhile", len(groups))
	}
}

// TestChunkSessionsSurviveTheServer: sessions that are kept for the next chunk may
// have been closed meanwhile.
func TestChunkSessionsSurviveTheServer(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.t (k INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
	l := layouts(t, s, change.TableID{Schema: "d", Name: "t"})[change.TableID{Schema: "d", Name: "t"}]
	for range 3 {
		if c, err := s.ReadChunk(testContext(t), l, nil, nil, 10); err != nil || len(c.Rows) != 1 {
			t.Fatalf("got chunk %+v and error %v, want one row", c, err)
		}
		if got := len(s.mu.idle); got != 1 {
			t.Errorf("got %d kept sessions, want 1", got)
		}
		if err := m.Restart(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.ReadChunk(ctx, l, nil, nil, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v with an ended context, want its error", err)
	}
}

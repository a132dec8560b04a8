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

// randomTable is a table form for random programs. Rows have three values.
type randomTable struct {
	name, columns string
	// values makes a random value for each column as SQL and as a change.Value.
	values [3]func(r *rand.Rand) (string, change.Value)
	key    []int
}

func smallInt(n int) func(*rand.Rand) (string, change.Value) {
	return func(r *rand.Rand) (string, change.Value) {
		i := r.IntN(n)
		return fmt.Sprint(i), num(int64(i))
	}
}

func nullableInt(n int) func(*rand.Rand) (string, change.Value) {
	return func(r *rand.Rand) (string, change.Value) {
		if r.IntN(4) == 0 {
			return "NULL", null()
		}
		return smallInt(n)(r)
	}
}

func oneOf(words ...string) func(*rand.Rand) (string, change.Value) {
	return func(r *rand.Rand) (string, change.Value) {
		w := words[r.IntN(len(words))]
		return quoteString(w), text(w)
	}
}

var randomTables = []randomTable{
	{"ints", "a INT, b INT, c VARCHAR(20), PRIMARY KEY (a)",
		[3]func(*rand.Rand) (string, change.Value){smallInt(12), nullableInt(50), oneOf("x", "y", "")}, []int{0}},
	{"pairs", "a INT, b INT, c VARCHAR(20), PRIMARY KEY (b, a)",
		[3]func(*rand.Rand) (string, change.Value){smallInt(4), smallInt(4), oneOf("x", "y", "zzz")}, []int{1, 0}},
	{"folded", "a VARCHAR(5) COLLATE utf8mb4_general_ci, b INT, c VARCHAR(20), PRIMARY KEY (a)",
		[3]func(*rand.Rand) (string, change.Value){oneOf("a", "A", "b", "B", "ä", "ss", "ß", "a ", "c"), smallInt(50), oneOf("x", "y")}, []int{0}},
	{"unique1", "a INT, b INT, c VARCHAR(20), PRIMARY KEY (a), UNIQUE (b)",
		[3]func(*rand.Rand) (string, change.Value){smallInt(8), nullableInt(10), oneOf("x", "y")}, []int{0}},
	{"unique2", "a INT, b INT, c VARCHAR(20) COLLATE utf8mb4_general_ci, PRIMARY KEY (a), UNIQUE (b), UNIQUE (c(2))",
		[3]func(*rand.Rand) (string, change.Value){smallInt(8), smallInt(9), oneOf("abc", "ABD", "b", "c", "d", "e", "f", "gg", "GGx")}, []int{0}},
	{"uniquekey", "a INT NOT NULL, b INT, c VARCHAR(20), UNIQUE (a)",
		[3]func(*rand.Rand) (string, change.Value){smallInt(10), nullableInt(50), oneOf("x", "y")}, []int{0}},
}

// program runs random statements on a table and records their changes.
type program struct {
	table   *randomTable
	r       *rand.Rand
	rows    [][]change.Value
	texts   [][]string
	changes []change.Change
}

func (p *program) random() ([]string, []change.Value) {
	sql, vals := make([]string, 3), make([]change.Value, 3)
	for i, f := range p.table.values {
		sql[i], vals[i] = f(p.r)
	}
	return sql, vals
}

func (p *program) where(i int) string {
	var parts []string
	for _, k := range p.table.key {
		parts = append(parts, string("abc"[k])+"="+p.texts[i][k])
	}
	return strings.Join(parts, " AND ")
}

// step runs one statement; one that the server refuses changed nothing.
func (p *program) step(run func(sql string) error) {
	sql, vals := p.random()
	name := "src." + p.table.name
	i := -1
	if len(p.rows) > 0 {
		i = p.r.IntN(len(p.rows))
	}
	switch op := p.r.IntN(10); {
	case i < 0 || op < 4:
		if run("INSERT INTO "+name+" VALUES ("+strings.Join(sql, ",")+")") == nil {
			p.changes = append(p.changes, insert(vals...))
			p.rows, p.texts = append(p.rows, vals), append(p.texts, sql)
		}
	case op < 6:
		if run("DELETE FROM "+name+" WHERE "+p.where(i)) == nil {
			p.changes = append(p.changes, remove(p.rows[i]...))
			p.rows, p.texts = slices.Delete(p.rows, i, i+1), slices.Delete(p.texts, i, i+1)
		}
	default: // update some columns, now and then the key
		for k := range 3 {
			if p.r.IntN(2) == 0 {
				sql[k], vals[k] = p.texts[i][k], p.rows[i][k]
			}
		}
		if run(fmt.Sprintf("UPDATE %s SET a=%s, b=%s, c=%s WHERE %s", name, sql[0], sql[1], sql[2], p.where(i))) == nil {
			p.changes = append(p.changes, update(p.rows[i], vals))
			p.rows[i], p.texts[i] = vals, sql
		}
	}
}

// Whatever the source did, cut into batches of any size, gives the same table.
// The source's server is the reference: it runs each statement alone.
func TestRandomProgramsGiveTheSameTable(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{NoBinlog: true}, SinkOptions{})
	x.exec(t, "CREATE DATABASE src CHARACTER SET utf8mb4")
	ctx := testContext(t)
	conn, err := x.sink.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	for i := range randomTables {
		rt := &randomTables[i]
		t.Run(rt.name, func(t *testing.T) {
			for seed := range uint64(6) {
				if err := conn.exec(ctx, "CREATE OR REPLACE TABLE src."+rt.name+" ("+rt.columns+")",
					"CREATE OR REPLACE TABLE t."+rt.name+" LIKE src."+rt.name); err != nil {
					t.Fatal(err)
				}
				l := x.layout(t, rt.name)
				x.prepare(t, rt.name, l)
				p := &program{table: rt, r: rand.New(rand.NewPCG(seed, 1))}
				at, applied := uint64(0), 0
				for len(p.changes) < 600 {
					for range 1 + p.r.IntN(60) {
						p.step(func(sql string) error { return conn.exec(ctx, sql) })
					}
					x.mustApply(t, x.batch(rt.name, l, at, at+1, p.changes[applied:]...))
					at, applied = at+1, len(p.changes)
					want, err1 := conn.text(ctx, "SELECT a, HEX(a), b, HEX(c) FROM src."+rt.name+" ORDER BY HEX(a), b, HEX(c)")
					got, err2 := conn.text(ctx, "SELECT a, HEX(a), b, HEX(c) FROM t."+rt.name+" ORDER BY HEX(a), b, HEX(c)")
					if err1 != nil || err2 != nil || fmt.Sprint(got) != fmt.Sprint(want) {
						t.Fatalf("seed %d after %d changes: got %v (%v), want %v (%v)", seed, applied, got, err2, want, err1)
					}
				}
				// Everything again over what is there, in one batch, as after a copy
				// that ran ahead: the end is the same.
				want, err := conn.text(ctx, "SELECT * FROM src."+rt.name+" ORDER BY HEX(a), b, HEX(c)")
				if err != nil {
					t.Fatal(err)
				}
				x.mustApply(t, x.batch(rt.name, l, at, at+1, p.changes...))
				got, err := conn.text(ctx, "SELECT * FROM t."+rt.name+" ORDER BY HEX(a), b, HEX(c)")
				if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("seed %d applied again over the end: got %v (%v), want %v", seed, got, err, want)
				}
			}
		})
	}
}

// Which tables are coalesced is what makes the above fast and right.
func TestCoalescingNeedsBytewiseKeysAndNoOtherUnique(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{NoBinlog: true}, SinkOptions{})
	want := map[string]bool{"ints": true, "pairs": true, "uniquekey": true}
	for i := range randomTables {
		rt := &randomTables[i]
		x.exec(t, "CREATE TABLE t."+rt.name+" ("+rt.columns+")")
		w, err := newTableWriter(x.layout(t, rt.name), change.TableID{Schema: "t", Name: rt.name}, true)
		if err != nil {
			t.Fatal(err)
		}
		if w.coalesces != want[rt.name] {
			t.Errorf("%s: got coalesces %v, want %v", rt.name, w.coalesces, want[rt.name])
		}
	}
}

// script is the statements that changes become, without the row values.
func scriptOf(t *testing.T, l *change.Layout, changes ...change.Change) []string {
	t.Helper()
	w, err := newTableWriter(l, l.Table, true)
	if err != nil {
		t.Fatal(err)
	}
	var sc script
	sc.reset(1 << 24)
	rw := newRowWriter(w, &sc, 0, false)
	if err := rw.writeChanges(changes); err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(sc.packets[0].sql()), ";")
}

func TestChangesBecomeFewStatements(t *testing.T) {
	l := &change.Layout{Table: change.TableID{Schema: "s", Name: "t"}, Key: []int{0},
		Columns: []change.Column{{Name: "a", Base: "int"}, {Name: "b", Base: "int"}}}
	r := func(a, b int64) []change.Value { return row(num(a), num(b)) }
	program := []change.Change{
		insert(r(1, 1)...), update(r(1, 1), r(1, 2)), remove(r(2, 0)...), insert(r(3, 3)...),
		update(r(3, 3), r(4, 4)), insert(r(2, 7)...), update(r(9, 1), r(9, 2)),
	}
	got := scriptOf(t, l, program...)
	want := []string{
		"DELETE FROM `s`.`t` WHERE `a` IN (3)",
		"INSERT INTO `s`.`t` (`a`,`b`) VALUES (1,2),(2,7),(4,4),(9,2) ON DUPLICATE KEY UPDATE `b`=VALUES(`b`)",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
	l.Unique = []change.Index{{Name: "b", Columns: []int{1}}}
	got = scriptOf(t, l, program...)
	want = []string{
		"REPLACE INTO `s`.`t` (`a`,`b`) VALUES (1,1),(1,2)", "DELETE FROM `s`.`t` WHERE `a` IN (2)",
		"REPLACE INTO `s`.`t` (`a`,`b`) VALUES (3,3)", "DELETE FROM `s`.`t` WHERE `a` IN (3)",
		"REPLACE INTO `s`.`t` (`a`,`b`) VALUES (4,4),(2,7),(9,2)",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Partial images: columns that a row lacks come from the batch, or stay as they are.
func TestPartialImagesAreMerged(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{NoBinlog: true}, SinkOptions{})
	x.exec(t, "CREATE TABLE t.p (a INT PRIMARY KEY, b INT, c VARCHAR(9), at TIMESTAMP(6) DEFAULT '2000-01-01' ON UPDATE CURRENT_TIMESTAMP(6))",
		"INSERT INTO t.p VALUES (1,1,'one','2001-01-01'), (2,2,'two','2001-01-01')")
	l := x.layout(t, "p")
	x.prepare(t, "p", l)
	absent := change.Value{}
	when := moment("2002-02-02 00:00:00.000000")
	x.mustApply(t, x.batch("p", l, 0, 1,
		update(row(num(1), absent, absent, absent), row(num(1), num(10), absent, absent)),
		insert(num(3), num(3), text("three"), when),
		update(row(num(3), absent, absent, absent), row(absent, absent, text("drei"), absent)),
		update(row(num(2), absent, absent, absent), row(num(5), absent, absent, absent)),
	))
	got := x.one(t, "SELECT * FROM t.p ORDER BY a")
	want := "1,10,one,2001-01-01 00:00:00.000000;3,3,drei,2002-02-02 00:00:00.000000;5,2,two,2001-01-01 00:00:00.000000"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	res := x.apply(t, x.batch("p", l, 1, 2, insert(num(8), absent, absent, absent)))
	if change.ClassOf(res[0].Err) != change.PermanentRow || res[0].RowIndex != 0 {
		t.Errorf("got %v at %d for an insert with holes, want permanent-row at 0", res[0].Err, res[0].RowIndex)
	}
}

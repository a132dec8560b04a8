package demo

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
)

// schemas are the databases of the demo; tables are spread over them.
var schemas = []string{"demo_shop", "demo_billing", "demo_crm", "demo_app"}

const (
	// scratchTable matches the pipeline and is excluded from it.
	scratchTable = "scratch"
	// probeTable holds a row per 100 ms to measure the lag with.
	probeTable = "lag_probe"
)

// column is one column of a demo table.
type column struct {
	name, decl string
	// value is an SQL literal: for key columns a function of n alone.
	value func(r *rand.Rand, n int64) string
}

// table is one demo table. A row is known by its number n, from which its key
// follows; it may or may not exist.
type table struct {
	schema, name string
	key          []column
	cols         []column
	keyed        string // the key's declaration
	unique       string // name of the column of a second unique key, or ""
	next         atomic.Int64
}

// String is the quoted name.
func (t *table) String() string { return "`" + t.schema + "`.`" + t.name + "`" }

func (t *table) id() string { return t.schema + "." + t.name }

func (t *table) createSQL() string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE %s (", t)
	for _, c := range t.key {
		fmt.Fprintf(&b, "%s %s NOT NULL, ", c.name, c.decl)
	}
	for _, c := range t.cols {
		fmt.Fprintf(&b, "%s %s, ", c.name, c.decl)
	}
	if t.unique != "" {
		fmt.Fprintf(&b, "UNIQUE KEY second (%s), ", t.unique)
	}
	fmt.Fprintf(&b, "%s (%s)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4", t.keyed, joinNames(t.key))
	return b.String()
}

func joinNames(cols []column) string {
	names := make([]string, len(cols))
	for i, c := range cols {
		names[i] = c.name
	}
	return strings.Join(names, ", ")
}

// insertSQL inserts the rows.
func (t *table) insertSQL(r *rand.Rand, rows ...int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "INSERT INTO %s (%s) VALUES ", t, joinNames(append(append([]column(nil), t.key...), t.cols...)))
	for i, n := range rows {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('(')
		for k, c := range append(append([]column(nil), t.key...), t.cols...) {
			if k > 0 {
				b.WriteString(", ")
			}
			b.WriteString(c.value(r, n))
		}
		b.WriteByte(')')
	}
	return b.String()
}

// where selects row n.
func (t *table) where(n int64) string {
	parts := make([]string, len(t.key))
	for i, c := range t.key {
		parts[i] = c.name + " = " + c.value(nil, n)
	}
	return " WHERE " + strings.Join(parts, " AND ")
}

// updateSQL changes one to three columns of row n.
func (t *table) updateSQL(r *rand.Rand, n int64) string {
	var sets []string
	for _, i := range r.Perm(len(t.cols))[:1+r.IntN(min(3, len(t.cols)))] {
		c := t.cols[i]
		v := n
		if c.name == t.unique {
			v = t.fresh() // a value that no row has
		}
		sets = append(sets, c.name+" = "+c.value(r, v))
	}
	return "UPDATE " + t.String() + " SET " + strings.Join(sets, ", ") + t.where(n)
}

// moveSQL gives row n the key of row to.
func (t *table) moveSQL(n, to int64) string {
	sets := make([]string, len(t.key))
	for i, c := range t.key {
		sets[i] = c.name + " = " + c.value(nil, to)
	}
	return "UPDATE " + t.String() + " SET " + strings.Join(sets, ", ") + t.where(n)
}

func (t *table) deleteSQL(n int64) string { return "DELETE FROM " + t.String() + t.where(n) }

// fresh returns a number that no row had.
func (t *table) fresh() int64 { return t.next.Add(1) }

// some returns the number of a row that may exist.
func (t *table) some(r *rand.Rand) int64 { return 1 + r.Int64N(max(1, t.next.Load())) }

// newTable builds the i-th table: keys and columns vary in cycles of lengths that
// do not divide each other.
func newTable(i int, name string) *table {
	t := &table{schema: schemas[i%len(schemas)], name: name, keyed: "PRIMARY KEY"}
	t.key = keyKinds[i%len(keyKinds)]
	if i%13 == 5 {
		t.keyed = "UNIQUE KEY only"
	}
	for k := range 2 + i%4 {
		for _, c := range columnSets[(i+k*3)%len(columnSets)] {
			c.name = fmt.Sprintf("%s%d", c.name, k)
			t.cols = append(t.cols, c)
		}
	}
	if i%3 == 1 {
		t.unique = "code"
		t.cols = append(t.cols, column{"code", "VARCHAR(24) CHARACTER SET latin1 NULL", func(_ *rand.Rand, n int64) string {
			if n%17 == 0 {
				return "NULL"
			}
			return fmt.Sprintf("'C-%08d'", n)
		}})
	}
	return t
}

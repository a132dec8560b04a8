package mysql

import (
	"fmt"
	"slices"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

// misfit compares a table that exists at the target with the layout of the rows
// that are to go there; nil when they fit. The target may have more columns and
// other character sets.
func misfit(from, have *change.Layout) *change.Problem {
	p := &change.Problem{Subject: "target table " + have.Table.String()}
	if !strings.EqualFold(have.Engine, "innodb") {
		p.Code = "target-engine"
		p.Cause = "its engine " + have.Engine + " has no transactions, so rows and checkpoint cannot commit together"
		p.Remedy = "ALTER TABLE " + quoteTable(have.Table) + " ENGINE=InnoDB"
		return p
	}
	for i := range from.Columns {
		c := &from.Columns[i]
		if c.Hidden {
			continue
		}
		if columnMisfit(p, c, have) {
			return p
		}
	}
	if !hasKey(from, have) {
		p.Code = "target-without-key"
		p.Cause = "it has no primary or unique not-null key over " + strings.Join(columnNames(from, from.Key), ", ")
		p.Remedy = "ALTER TABLE " + quoteTable(have.Table) + " ADD PRIMARY KEY (" +
			strings.Join(quoteNames(columnNames(from, from.Key)), ", ") + ")"
		return p
	}
	if extra := extraUnique(from, have); extra != "" {
		p.Code = "target-unique"
		p.Cause = "its unique index " + extra + " does not exist at the source: rows that are fine there would push each other out here"
		p.Remedy = "ALTER TABLE " + quoteTable(have.Table) + " DROP INDEX " + quoteName(extra)
		return p
	}
	return nil
}

// columnMisfit fills p when the target has no column for c.
func columnMisfit(p *change.Problem, c *change.Column, have *change.Layout) bool {
	at := ordinalFold(have, c.Name)
	if at < 0 {
		p.Code = "target-column-missing"
		p.Cause = fmt.Sprintf("the column %s (%s) is missing", c.Name, c.Type)
		p.Remedy = "ALTER TABLE " + quoteTable(have.Table) + " ADD COLUMN " + quoteName(c.Name) + " " + c.Type
		return true
	}
	h := &have.Columns[at]
	p.Code = "target-column-type"
	p.Remedy = "make the definitions alike with ALTER TABLE " + quoteTable(have.Table) + " MODIFY " + quoteName(c.Name) + " …"
	switch {
	case c.Generated != h.Generated:
		p.Cause = fmt.Sprintf("the column %s is generated on one side only", c.Name)
	case typeText(c) != typeText(h):
		p.Cause = fmt.Sprintf("the column %s is %s, at the source %s", c.Name, h.Type, c.Type)
	case c.Nullable && !h.Nullable && !c.Generated:
		p.Cause = fmt.Sprintf("the column %s refuses NULL, which the source allows", c.Name)
	default:
		return false
	}
	return true
}

// typeText is the declared type without what only tells how it is displayed.
func typeText(c *change.Column) string {
	switch c.Base {
	case "tinyint", "smallint", "mediumint", "int", "bigint", "year":
		arguments, attributes := typeArguments(c.Type)
		if strings.Contains(attributes, "zerofill") {
			return c.Type
		}
		if arguments != "" || attributes != "" {
			return strings.TrimSpace(c.Base + " " + strings.TrimSpace(attributes))
		}
		return c.Base
	case "json": // MySQL's own type; MariaDB's word for LONGTEXT
		return "longtext"
	case "geomcollection":
		return "geometrycollection"
	}
	return c.Type
}

// hasKey reports whether the target tells rows apart by the layout's key columns:
// by exactly these, and at least as finely.
func hasKey(from, have *change.Layout) bool {
	want := columnNames(from, from.Key)
	candidates := [][]int{have.Key}
	for _, u := range have.Unique {
		if !u.Prefix && !slices.ContainsFunc(u.Columns, func(i int) bool { return have.Columns[i].Nullable }) {
			candidates = append(candidates, u.Columns)
		}
	}
	for _, key := range candidates {
		if sameNames(want, columnNames(have, key)) && keyAsFine(from, have) {
			return true
		}
	}
	return false
}

// keyAsFine reports that no two keys that differ at the source are one at the
// target.
func keyAsFine(from, have *change.Layout) bool {
	for _, i := range from.Key {
		c := &from.Columns[i]
		h := &have.Columns[ordinalFold(have, c.Name)]
		if c.Collation != "" && c.Collation != h.Collation && !strings.HasSuffix(h.Collation, "_bin") {
			return false
		}
	}
	return true
}

// extraUnique names a unique index of the target that the source does not have.
func extraUnique(from, have *change.Layout) string {
	known := [][]string{columnNames(from, from.Key)}
	for _, u := range from.Unique {
		known = append(known, columnNames(from, u.Columns))
	}
	has := func(names []string) bool {
		return slices.ContainsFunc(known, func(k []string) bool { return sameNames(k, names) })
	}
	if !has(columnNames(have, have.Key)) {
		return "PRIMARY"
	}
	for _, u := range have.Unique {
		if !has(columnNames(have, u.Columns)) {
			return u.Name
		}
	}
	return ""
}

func columnNames(l *change.Layout, ordinals []int) []string {
	out := make([]string, len(ordinals))
	for n, i := range ordinals {
		out[n] = l.Columns[i].Name
	}
	return out
}

func quoteNames(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = quoteName(n)
	}
	return out
}

// sameNames compares sets of column names, which the server does not tell apart
// by case.
func sameNames(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	fold := func(names []string) []string {
		out := make([]string, len(names))
		for i, n := range names {
			out[i] = strings.ToLower(n)
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(fold(a), fold(b))
}

func ordinalFold(l *change.Layout, name string) int {
	return slices.IndexFunc(l.Columns, func(c change.Column) bool { return strings.EqualFold(c.Name, name) })
}

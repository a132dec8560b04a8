package mysql

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

// chunkQuery writes the statements that read a table by key. Only the server
// compares keys: a bound holds the key's values as the server printed them.
type chunkQuery struct {
	layout  *change.Layout
	table   string
	columns string // of the rows, then bounds
	bounds  string // the key's columns as they are kept in a bound
	key     []keyColumn
}

// keyColumn is one column of the key.
type keyColumn struct {
	column *change.Column
	name   string // quoted
	form   keyForm
}

// keyForm says how a key value is written so that the server compares it as the
// index does.
type keyForm uint8

const (
	formNumber keyForm = iota // digits as they are
	formText                  // a quoted string: dates, UUID, INET
	formBytes                 // hexadecimal, in the column's character set
	formLabel                 // ENUM: by number, written as labels so that the index serves
	formSet                   // SET: by number
)

func newChunkQuery(l *change.Layout) (*chunkQuery, error) {
	if len(l.Key) == 0 {
		return nil, fmt.Errorf("read %s by key: %w", l.Table, change.ErrNoKey)
	}
	q := &chunkQuery{layout: l, table: ident(l.Table.Schema) + "." + ident(l.Table.Name)}
	parts := make([]string, 0, len(l.Columns)+len(l.Key))
	for i := range l.Columns {
		parts = append(parts, readExpression(&l.Columns[i]))
	}
	for _, k := range l.Key {
		c := &l.Columns[k]
		key := keyColumn{column: c, name: ident(c.Name)}
		read := key.name
		switch c.Base {
		case "float", "double", "real":
			return nil, fmt.Errorf("read %s by key: key column %s is of type %s: %w", l.Table, c.Name, c.Type, change.ErrNoKey)
		case "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year":
		case "bit":
			read = key.name + "+0"
		case "enum":
			key.form, read = formLabel, key.name+"+0"
		case "set":
			key.form, read = formSet, key.name+"+0"
		case "date", "time", "datetime", "timestamp", "uuid", "inet4", "inet6":
			key.form = formText
		default:
			key.form = formBytes
		}
		parts = append(parts, read)
		q.key = append(q.key, key)
	}
	q.columns = strings.Join(parts, ",")
	q.bounds = strings.Join(parts[len(l.Columns):], ",")
	return q, nil
}

// readExpression reads a column without loss: the server shortens the decimal
// text of floating point numbers.
func readExpression(c *change.Column) string {
	switch c.Base {
	case "float", "double", "real":
		return "CAST(" + ident(c.Name) + " AS DOUBLE)"
	}
	return ident(c.Name)
}

// index names the key's index for the optimizer, which otherwise may prefer to
// sort; def is the table's definition.
func (q *chunkQuery) index(def string) string {
	names := make([]string, len(q.key))
	for i, k := range q.key {
		names[i] = k.name
	}
	list := " (" + strings.Join(names, ",") + ")"
	for line := range strings.SplitSeq(def, "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "PRIMARY KEY"+list) {
			return " FORCE INDEX (PRIMARY)"
		}
		if name, ok := strings.CutPrefix(line, "UNIQUE KEY "); ok {
			if name, _, ok := strings.Cut(name, list); ok {
				return " FORCE INDEX (" + name + ")"
			}
		}
	}
	return ""
}

func (q *chunkQuery) order(direction string) string {
	parts := make([]string, len(q.key))
	for i, k := range q.key {
		parts[i] = k.name + direction
	}
	return " ORDER BY " + strings.Join(parts, ",")
}

// upper reads the greatest key.
func (q *chunkQuery) upper(def string) string {
	return "SELECT " + q.bounds + " FROM " + q.table + q.index(def) + q.order(" DESC") + " LIMIT 1"
}

// rows reads a chunk.
func (q *chunkQuery) rows(def string, lower, upper []byte, limit int) (string, error) {
	var where []string
	for _, b := range []struct {
		bound []byte
		upper bool
	}{{lower, false}, {upper, true}} {
		if b.bound == nil {
			continue
		}
		values, err := q.parse(b.bound)
		if err != nil {
			return "", err
		}
		where = append(where, q.beyond(values, b.upper))
	}
	sql := "SELECT " + q.columns + " FROM " + q.table + q.index(def)
	if len(where) > 0 {
		sql += " WHERE " + strings.Join(where, " AND ")
	}
	return sql + q.order("") + " LIMIT " + strconv.Itoa(limit), nil
}

// beyond is key > values, or key ≤ values for the upper bound, spelled out as the
// optimizer can use it: a row comparison would read the index from its start.
func (q *chunkQuery) beyond(values []string, upper bool) string {
	var or []string
	equal := ""
	for i, k := range q.key {
		op := ">"
		if upper {
			op = "<"
		}
		or = append(or, "("+equal+k.compare(op, values[i])+")")
		equal += k.compare("=", values[i]) + " AND "
	}
	if upper {
		or = append(or, "("+strings.TrimSuffix(equal, " AND ")+")")
	}
	return "(" + strings.Join(or, " OR ") + ")"
}

// compare writes one comparison.
func (k *keyColumn) compare(op, value string) string {
	switch k.form {
	case formNumber:
		return k.name + op + value
	case formText:
		return k.name + op + textLiteral(value)
	case formBytes:
		charset := "binary"
		if k.column.Charset != "" {
			charset = k.column.Charset
		}
		return k.name + op + "_" + charset + " X'" + value + "'"
	case formLabel:
		if in, ok := k.labels(op, value); ok {
			return in
		}
	}
	return k.name + "+0" + op + value
}

// labels writes an ENUM comparison as a list of labels: the index is ordered by
// number, and lists are what it can be searched with. Numbers without a label of
// their own, and labels that a text comparison does not find, stay numbers.
func (k *keyColumn) labels(op, value string) (string, bool) {
	const longest = 256
	n, err := strconv.Atoi(value)
	encoded, err2 := encodeLabels(k.column)
	if err != nil || err2 != nil || len(encoded) > longest || n == 0 || op == "<" {
		return "", false // below some number there is also 0, which is no label
	}
	var list []string
	for i, l := range encoded {
		if len(l) == 0 {
			return "", false
		}
		if op == "=" && i+1 == n || op == ">" && i+1 > n {
			list = append(list, "_"+k.column.Charset+" X'"+hex.EncodeToString(l)+"'")
		}
	}
	if len(list) == 0 {
		return "FALSE", true
	}
	return k.name + " IN (" + strings.Join(list, ",") + ")", true
}

// bound makes a bound of a row's key values, as bound columns were read.
func (q *chunkQuery) bound(row [][]byte) ([]byte, error) {
	values := make([]string, len(q.key))
	for i, k := range q.key {
		if row[i] == nil {
			return nil, fmt.Errorf("key column %s is NULL", k.column.Name)
		}
		values[i] = string(row[i])
		if k.form == formBytes {
			values[i] = hex.EncodeToString(row[i])
		}
	}
	return json.Marshal(values)
}

// parse reads a bound and makes sure that what goes into SQL unquoted is a
// number.
func (q *chunkQuery) parse(bound []byte) ([]string, error) {
	var values []string
	if err := json.Unmarshal(bound, &values); err != nil {
		return nil, fmt.Errorf("read bound %q: %w", bound, err)
	}
	if len(values) != len(q.key) {
		return nil, fmt.Errorf("read bound %q: the key has %d columns", bound, len(q.key))
	}
	for i, v := range values {
		ok := true
		switch q.key[i].form {
		case formNumber, formLabel, formSet:
			ok = strings.Trim(v, "0123456789.-") == "" && v != ""
		case formBytes:
			_, err := hex.DecodeString(v)
			ok = err == nil
		}
		if !ok {
			return nil, fmt.Errorf("read bound %q: %q is no value of column %s", bound, v, q.key[i].column.Name)
		}
	}
	return values, nil
}

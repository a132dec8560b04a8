package mysql

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/runnel-dev/runnel/change"
)

// plainSession makes the server print names, literals and times in one way,
// whatever its defaults are. Metadata locks are waited for a short time only.
const plainSession = "SET SESSION time_zone='+00:00', sql_mode='', sql_quote_show_create=1, lock_wait_timeout=10"

// readLayout reads the definition of one table as it is now, with the statement
// that creates it. The session must not have ANSI_QUOTES or NO_BACKSLASH_ESCAPES
// in its sql_mode (plainSession is right). change.ErrNoTable when there is none;
// a table without a usable key has an empty Key and is no error.
func readLayout(ctx context.Context, c *client.Conn, t change.TableID) (*change.Layout, error) {
	return newSession(c).layout(ctx, t)
}

// layout is readLayout on a session.
func (s *session) layout(ctx context.Context, t change.TableID) (*change.Layout, error) {
	d, err := s.drafts(ctx, oneTable(t), func(found change.TableID) bool { return found == t })
	if err != nil {
		return nil, fmt.Errorf("read layout of %s: %w", t, err)
	}
	l := d[t].finish()
	if l == nil {
		return nil, fmt.Errorf("read layout of %s: %w", t, change.ErrNoTable)
	}
	if l.Definition, err = s.definition(ctx, t); err != nil {
		return nil, err
	}
	return l, nil
}

// oneTable selects one table in information_schema.
func oneTable(t change.TableID) string {
	return "TABLE_SCHEMA=" + textLiteral(t.Schema) + " AND TABLE_NAME=" + textLiteral(t.Name)
}

// definition reads the statement that creates a table, without the counter that
// changes with every insert.
func (s *session) definition(ctx context.Context, t change.TableID) (string, error) {
	rows, err := s.text(ctx, "SHOW CREATE TABLE "+ident(t.Schema)+"."+ident(t.Name))
	switch {
	case serverCode(err) == 1146 || serverCode(err) == 1049:
		return "", fmt.Errorf("read definition of %s: %w", t, change.ErrNoTable)
	case err != nil:
		return "", fmt.Errorf("read definition of %s: %w", t, err)
	case len(rows) != 1 || len(rows[0]) < 2:
		return "", fmt.Errorf("read definition of %s: %w", t, errMalformed)
	}
	return withoutCounter(rows[0][1]), nil
}

// withoutCounter removes the table option AUTO_INCREMENT=n, which stands on the
// last line that begins with a parenthesis.
func withoutCounter(create string) string {
	at := strings.LastIndex(create, "\n) ")
	if at < 0 {
		return create
	}
	head, options := create[:at], create[at:]
	i := strings.Index(options, " AUTO_INCREMENT=")
	if quote := strings.IndexByte(options, '\''); i < 0 || quote >= 0 && quote < i {
		return create
	}
	end := i + len(" AUTO_INCREMENT=")
	for end < len(options) && options[end] >= '0' && options[end] <= '9' {
		end++
	}
	return head + options[:i] + options[end:]
}

// tableDraft collects what information_schema says about one table.
type tableDraft struct {
	layout    change.Layout
	tableType string // "BASE TABLE", "SYSTEM VERSIONED", …
	rows      int64
	sizeBytes int64
	columns   []draftColumn
	indexes   map[string]*draftIndex
}

type draftColumn struct {
	ordinal int
	column  change.Column
}

type draftIndex struct {
	name     string
	primary  bool
	nullable bool
	prefix   bool
	hash     bool // MariaDB's hash of a long unique key
	parts    []indexPart
}

type indexPart struct {
	seq    int
	column string
}

const (
	tablesQuery = "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, IFNULL(ENGINE,''), IFNULL(TABLE_ROWS,0), " +
		"IFNULL(DATA_LENGTH,0)+IFNULL(INDEX_LENGTH,0) FROM information_schema.TABLES WHERE "
	columnsQuery = "SELECT TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION, COLUMN_NAME, COLUMN_TYPE, DATA_TYPE, " +
		"CHARACTER_SET_NAME, COLLATION_NAME, IS_NULLABLE, EXTRA, CHARACTER_OCTET_LENGTH, NUMERIC_SCALE, " +
		"DATETIME_PRECISION FROM information_schema.COLUMNS WHERE "
	indexesQuery = "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX, IFNULL(COLUMN_NAME,''), SUB_PART, " +
		"IFNULL(NULLABLE,''), INDEX_TYPE FROM information_schema.STATISTICS WHERE NON_UNIQUE=0 AND "
)

// drafts reads the definitions of all tables that where and match select, in
// three queries.
func (s *session) drafts(ctx context.Context, where string, match func(change.TableID) bool) (map[change.TableID]*tableDraft, error) {
	out := map[change.TableID]*tableDraft{}
	err := s.each(ctx, tablesQuery+where, func(r [][]byte) error {
		t := change.TableID{Schema: string(r[0]), Name: string(r[1])}
		if kind := string(r[2]); match(t) && (kind == "BASE TABLE" || kind == "SYSTEM VERSIONED") {
			out[t] = &tableDraft{layout: change.Layout{Table: t, Engine: string(r[3])}, tableType: kind,
				rows: number(r[4]), sizeBytes: number(r[5]), indexes: map[string]*draftIndex{}}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read information_schema.TABLES: %w", err)
	}
	var t change.TableID // strings are made once per table, not per row
	var d *tableDraft
	at := func(r [][]byte) *tableDraft {
		if string(r[0]) != t.Schema || string(r[1]) != t.Name {
			t = change.TableID{Schema: string(r[0]), Name: string(r[1])}
			d = out[t]
		}
		return d
	}
	err = s.each(ctx, columnsQuery+where, func(r [][]byte) error {
		if d := at(r); d != nil {
			return d.addColumn(r)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read information_schema.COLUMNS: %w", err)
	}
	err = s.each(ctx, indexesQuery+where, func(r [][]byte) error {
		if d := at(r); d != nil {
			d.addIndex(r)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read information_schema.STATISTICS: %w", err)
	}
	return out, nil
}

// addColumn reads one row of columnsQuery.
func (d *tableDraft) addColumn(r [][]byte) error {
	c := change.Column{
		Name: string(r[3]), Base: strings.ToLower(string(r[5])),
		Charset: string(r[6]), Collation: string(r[7]), Nullable: string(r[8]) == "YES",
	}
	extra := strings.ToUpper(string(r[9]))
	c.Generated = strings.Contains(extra, "GENERATED") && !strings.Contains(extra, "DEFAULT_GENERATED")
	c.Type, c.Compressed = plainType(string(r[4]))
	_, attributes := typeArguments(c.Type)
	c.Unsigned = strings.Contains(attributes, "unsigned")
	switch c.Base {
	case "enum", "set":
		labels, err := parseLabels(c.Type)
		if err != nil {
			return fmt.Errorf("column %s of %s: %w", c.Name, d.layout.Table, err)
		}
		c.Labels = labels
	case "decimal":
		c.Scale = int(number(r[11]))
	case "time", "datetime", "timestamp":
		c.Scale = int(number(r[12]))
	case "char", "varchar", "binary", "varbinary", "tinytext", "text", "mediumtext", "longtext",
		"tinyblob", "blob", "mediumblob", "longblob":
		c.LengthBytes = int(number(r[10]))
	}
	d.columns = append(d.columns, draftColumn{int(number(r[2])), c})
	return nil
}

// addIndex reads one row of indexesQuery.
func (d *tableDraft) addIndex(r [][]byte) {
	name := string(r[2])
	x := d.indexes[name]
	if x == nil {
		x = &draftIndex{name: name, primary: name == "PRIMARY"}
		d.indexes[name] = x
	}
	x.parts = append(x.parts, indexPart{int(number(r[3])), string(r[4])})
	x.nullable = x.nullable || string(r[6]) == "YES"
	x.prefix = x.prefix || r[5] != nil
	x.hash = x.hash || string(r[7]) == "HASH"
}

// finish puts the parts in order and chooses the key: the primary key, else the
// unique not-null key over whole columns with the fewest columns, then by name.
// nil when there was nothing to collect.
func (d *tableDraft) finish() *change.Layout {
	if d == nil || len(d.columns) == 0 {
		return nil
	}
	l := &d.layout
	slices.SortFunc(d.columns, func(a, b draftColumn) int { return cmp.Compare(a.ordinal, b.ordinal) })
	l.Columns = make([]change.Column, len(d.columns))
	ordinals := make(map[string]int, len(d.columns))
	for i, c := range d.columns {
		l.Columns[i] = c.column
		ordinals[strings.ToLower(c.column.Name)] = i
	}
	all := make([]*draftIndex, 0, len(d.indexes))
	for _, x := range d.indexes {
		slices.SortFunc(x.parts, func(a, b indexPart) int { return cmp.Compare(a.seq, b.seq) })
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b *draftIndex) int {
		if a.primary != b.primary {
			if a.primary {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(len(a.parts), len(b.parts)), strings.Compare(a.name, b.name))
	})
	for _, x := range all {
		columns, whole := x.columns(ordinals)
		if l.Key == nil && whole && !x.prefix && !x.nullable && (x.primary || !x.hash) {
			l.Key = columns
			continue
		}
		l.Unique = append(l.Unique, change.Index{Name: x.name, Columns: columns, Prefix: x.prefix})
	}
	slices.SortFunc(l.Unique, func(a, b change.Index) int { return strings.Compare(a.Name, b.Name) })
	return l
}

// columns gives the ordinals of the index's columns; whole is false when a part
// is an expression or a column that is not listed.
func (x *draftIndex) columns(ordinals map[string]int) (out []int, whole bool) {
	whole = true
	for _, p := range x.parts {
		i, ok := ordinals[strings.ToLower(p.column)]
		if !ok {
			whole = false
			continue
		}
		out = append(out, i)
	}
	return out, whole
}

// plainType strips the comments that MariaDB puts into a type.
func plainType(t string) (plain string, compressed bool) {
	labels := strings.HasPrefix(t, "enum(") || strings.HasPrefix(t, "set(")
	if i := strings.Index(t, " /*"); i >= 0 && !labels && !strings.HasPrefix(t, "uuid") { // an old UUID stays marked
		return t[:i], strings.Contains(t[i:], "COMPRESSED")
	}
	return t, false
}

// typeArguments splits "decimal(10,2) unsigned" into arguments and attributes.
func typeArguments(t string) (arguments, attributes string) {
	open, end := strings.IndexByte(t, '('), strings.LastIndexByte(t, ')')
	if open < 0 || end < open {
		_, attributes, _ = strings.Cut(t, " ")
		return "", attributes
	}
	return t[open+1 : end], t[end+1:]
}

// parseLabels reads the members out of enum('a','it”s').
func parseLabels(t string) ([]string, error) {
	rest, _ := typeArguments(t)
	var out []string
	var label strings.Builder
	for {
		if rest == "" || rest[0] != '\'' {
			return nil, fmt.Errorf("read labels of %s: a quote is missing", t)
		}
		i := 1
		for label.Reset(); ; i++ {
			if i >= len(rest) {
				return nil, fmt.Errorf("read labels of %s: a quote is missing", t)
			}
			if c := rest[i]; c == '\\' && i+1 < len(rest) {
				i++
				label.WriteByte(unescaped(rest[i]))
			} else if c == '\'' && i+1 < len(rest) && rest[i+1] == '\'' {
				i++
				label.WriteByte('\'')
			} else if c == '\'' {
				break
			} else {
				label.WriteByte(c)
			}
		}
		out = append(out, label.String())
		if rest = rest[i+1:]; rest == "" {
			return out, nil
		}
		if rest[0] != ',' {
			return nil, fmt.Errorf("read labels of %s: a comma is missing", t)
		}
		rest = rest[1:]
	}
}

// unescaped is the byte that a backslash and c stand for.
func unescaped(c byte) byte {
	switch c {
	case '0':
		return 0
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'Z':
		return 26
	}
	return c
}

// number reads an integer of the catalog; NULL and damage are 0.
func number(b []byte) int64 {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// ident quotes a name.
func ident(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }

// textLiteral quotes a string for a session without NO_BACKSLASH_ESCAPES.
func textLiteral(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`, "\x00", `\0`).Replace(s) + "'"
}

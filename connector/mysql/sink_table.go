package mysql

import (
	"fmt"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

// tableWriter holds what is the same for all rows of one layout and target.
type tableWriter struct {
	layout   *change.Layout
	name     string // quoted
	writable []int  // ordinals of the columns that a sink writes

	insertHead, insertTail                  string
	lenientHead                             string // insertHead outside strict mode
	deleteHead, deleteTail, deleteSeparator string

	// coalesces is true when of several changes of a key only the last counts and
	// keys may be reordered: there is no other unique index, and the server calls
	// two keys equal exactly when their bytes are.
	coalesces bool
}

func newTableWriter(l *change.Layout, target change.TableID, mariadb bool) (*tableWriter, error) {
	t := &tableWriter{layout: l, name: quoteTable(target)}
	if l == nil {
		return nil, change.WithClass(change.PermanentTask, fmt.Errorf("write to %s: the layout of the rows is missing", target))
	}
	if len(l.Key) == 0 {
		return nil, change.WithClass(change.PermanentTask, fmt.Errorf("write to %s: %w", target, change.ErrNoKey))
	}
	names := make([]string, 0, len(l.Columns))
	for i := range l.Columns {
		if c := &l.Columns[i]; !c.Generated && !c.Hidden {
			t.writable = append(t.writable, i)
			names = append(names, quoteName(c.Name))
		}
	}
	if len(t.writable) == 0 {
		return nil, change.WithClass(change.PermanentTask, fmt.Errorf("write to %s: no column can be written", target))
	}
	bytewise := true
	for _, i := range l.Key {
		bytewise = bytewise && comparesAsBytes(&l.Columns[i])
	}
	t.coalesces = bytewise && len(l.Unique) == 0
	t.buildInsert(names, bytewise)
	if verb, rest, _ := strings.Cut(t.insertHead, " "); mariadb {
		t.lenientHead = "SET STATEMENT sql_mode='" + lenientMode + "' FOR " + t.insertHead
	} else {
		t.lenientHead = verb + " /*+ SET_VAR(sql_mode='" + lenientMode + "') */ " + rest
	}
	t.buildDelete()
	return t, nil
}

// buildInsert chooses how a row overwrites another. With a second unique index a
// row may have to push out others than the one with its key, in row order: that
// is REPLACE. Without one, an upsert keeps columns that only the target has.
func (t *tableWriter) buildInsert(names []string, bytewise bool) {
	list := t.name + " (" + strings.Join(names, ",") + ") VALUES "
	if len(t.layout.Unique) > 0 {
		t.insertHead = "REPLACE INTO " + list
		return
	}
	t.insertHead = "INSERT INTO " + list
	inKey := make(map[int]bool, len(t.layout.Key))
	for _, i := range t.layout.Key {
		inKey[i] = true
	}
	var set []string
	for n, i := range t.writable {
		// A key that equals another by collation is still to be stored as it is.
		if !inKey[i] || !bytewise {
			set = append(set, names[n]+"=VALUES("+names[n]+")")
		}
	}
	if len(set) == 0 { // the key is the whole row: nothing to change
		set = append(set, names[0]+"=VALUES("+names[0]+")")
	}
	t.insertTail = " ON DUPLICATE KEY UPDATE " + strings.Join(set, ",")
}

func (t *tableWriter) buildDelete() {
	t.deleteHead = "DELETE FROM " + t.name + " WHERE "
	if len(t.layout.Key) == 1 {
		t.deleteHead += quoteName(t.layout.Columns[t.layout.Key[0]].Name) + " IN ("
		t.deleteSeparator, t.deleteTail = ",", ")"
		return
	}
	t.deleteSeparator = " OR "
}

// comparesAsBytes reports whether two values of the column are equal for the
// server exactly when their bytes in a change.Value are. Text is not: collations
// fold case, and nearly all ignore trailing spaces.
func comparesAsBytes(c *change.Column) bool {
	switch c.Base {
	case "tinyint", "smallint", "mediumint", "int", "integer", "bigint", "bit", "decimal", "numeric",
		"binary", "varbinary", "date", "time", "datetime", "timestamp", "year", "uuid", "inet4", "inet6":
		return true
	case "char", "varchar":
		return strings.HasSuffix(c.Collation, "_nopad_bin") || c.Collation == "utf8mb4_0900_bin"
	}
	return false
}

// partial reports a row image that lacks columns.
func (t *tableWriter) partial(row []change.Value) bool {
	for _, i := range t.writable {
		if row[i].Kind == change.Absent {
			return true
		}
	}
	return false
}

// lenient reports a row that the server stores only without strict mode.
func (t *tableWriter) lenient(row []change.Value) bool {
	for _, i := range t.writable {
		if outsideEnum(&t.layout.Columns[i], row[i]) {
			return true
		}
	}
	return false
}

func (t *tableWriter) check(row []change.Value) error {
	if len(row) != len(t.layout.Columns) {
		return fmt.Errorf("the row has %d values, its layout %d columns: %w", len(row), len(t.layout.Columns), change.ErrLayout)
	}
	return nil
}

func (t *tableWriter) appendRow(dst []byte, row []change.Value) ([]byte, error) {
	dst = append(dst, '(')
	for n, i := range t.writable {
		if n > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendLiteral(dst, &t.layout.Columns[i], row[i]); err != nil {
			return dst, fmt.Errorf("column %s: %w", t.layout.Columns[i].Name, err)
		}
	}
	return append(dst, ')'), nil
}

// appendDeleteKey appends one key to the list that deleteHead began.
func (t *tableWriter) appendDeleteKey(dst []byte, row []change.Value) ([]byte, error) {
	if len(t.layout.Key) == 1 {
		i := t.layout.Key[0]
		dst, err := appendKeyLiteral(dst, &t.layout.Columns[i], row[i])
		return dst, err
	}
	dst = append(dst, '(')
	dst, err := t.appendKeyCondition(dst, row)
	return append(dst, ')'), err
}

// appendKeyCondition appends the condition that finds the row by its key.
func (t *tableWriter) appendKeyCondition(dst []byte, row []change.Value) ([]byte, error) {
	for n, i := range t.layout.Key {
		if n > 0 {
			dst = append(dst, " AND "...)
		}
		dst = append(append(dst, quoteName(t.layout.Columns[i].Name)...), '=')
		var err error
		if dst, err = appendKeyLiteral(dst, &t.layout.Columns[i], row[i]); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// appendKeyLiteral appends a value to compare with. NULL would find nothing, and
// a delete that finds nothing goes unnoticed.
func appendKeyLiteral(dst []byte, c *change.Column, v change.Value) ([]byte, error) {
	if v.Kind == change.Null || v.Kind == change.Absent {
		return dst, fmt.Errorf("key column %s has no value: %w", c.Name, change.ErrNoKey)
	}
	dst, err := appendLiteral(dst, c, v)
	if err != nil {
		return dst, fmt.Errorf("key column %s: %w", c.Name, err)
	}
	return dst, nil
}

// appendPatch appends an UPDATE of the columns that after has. The others are
// set to themselves, so that ON UPDATE CURRENT_TIMESTAMP leaves them alone.
func (t *tableWriter) appendPatch(dst []byte, before, after []change.Value) ([]byte, error) {
	if before == nil {
		before = after
	}
	dst = append(append(append(dst, "UPDATE "...), t.name...), " SET "...)
	for n, i := range t.writable {
		c := &t.layout.Columns[i]
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, quoteName(c.Name)...), '=')
		if after[i].Kind == change.Absent {
			dst = append(dst, quoteName(c.Name)...)
			continue
		}
		var err error
		if dst, err = appendLiteral(dst, c, after[i]); err != nil {
			return dst, fmt.Errorf("column %s: %w", c.Name, err)
		}
	}
	return t.appendKeyCondition(append(dst, " WHERE "...), before)
}

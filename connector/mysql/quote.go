package mysql

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

// Literals are written for a session with SET NAMES utf8mb4 and a sql_mode
// without NO_BACKSLASH_ESCAPES. In that session no byte sequence swallows the
// quote or the backslash behind it, whatever character set the text is in.

var (
	errAbsent    = errors.New("the value is absent from the row image")
	errBadValue  = errors.New("the value does not have the form of its kind")
	errNoCharset = errors.New("the character set has no usable name")
)

// quoteName quotes an identifier.
func quoteName(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }

// quoteTable quotes schema and name.
func quoteTable(t change.TableID) string { return quoteName(t.Schema) + "." + quoteName(t.Name) }

// quoteString quotes UTF-8 text.
func quoteString(s string) string {
	return string(appendQuoted(make([]byte, 0, len(s)+2), []byte(s)))
}

// appendQuoted appends b as a string literal without an introducer.
func appendQuoted(dst, b []byte) []byte {
	dst = append(dst, '\'')
	from := 0
	for i, c := range b {
		if c != '\'' && c != '\\' && c != 0 {
			continue
		}
		if c == 0 {
			c = '0'
		}
		dst = append(dst, b[from:i]...)
		dst = append(dst, '\\', c)
		from = i + 1
	}
	dst = append(dst, b[from:]...)
	return append(dst, '\'')
}

// appendLiteral appends v, a value of column c, as an SQL literal that the
// server stores as exactly this value.
func appendLiteral(dst []byte, c *change.Column, v change.Value) ([]byte, error) {
	switch v.Kind {
	case change.Null:
		return append(dst, "NULL"...), nil
	case change.Int:
		return strconv.AppendInt(dst, int64(v.Num), 10), nil
	case change.Uint:
		return strconv.AppendUint(dst, v.Num, 10), nil
	case change.Float32:
		return appendFloat(dst, float64(math.Float32frombits(uint32(v.Num))))
	case change.Float64:
		return appendFloat(dst, math.Float64frombits(v.Num))
	case change.Decimal:
		return appendDecimal(dst, v.Data)
	case change.Time, change.Literal:
		return appendQuoted(dst, v.Data), nil
	case change.Text:
		return appendText(dst, c.Charset, v.Data)
	case change.Bytes:
		return appendBytes(dst, c.Base, v.Data), nil
	case change.Absent:
		return dst, errAbsent
	}
	return dst, fmt.Errorf("kind %d: %w", v.Kind, errBadValue)
}

// appendFloat writes the shortest text that is f as a double. A FLOAT column
// holds singles, each of which is a double too: stored and compared it is exact,
// which the shortest text of the single is not in a WHERE clause.
func appendFloat(dst []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return dst, fmt.Errorf("%v: %w", f, errBadValue)
	}
	return strconv.AppendFloat(dst, f, 'e', -1, 64), nil
}

// appendDecimal writes the digits as they are: a decimal literal is exact.
func appendDecimal(dst, text []byte) ([]byte, error) {
	if len(text) == 0 {
		return dst, fmt.Errorf("empty decimal: %w", errBadValue)
	}
	for i, c := range text {
		if (c < '0' || c > '9') && c != '.' && (c != '-' || i > 0) {
			return dst, fmt.Errorf("decimal %q: %w", text, errBadValue)
		}
	}
	return append(dst, text...), nil
}

// appendText writes text with its own character set as introducer: into a column
// of that set it is stored byte for byte, into another the server converts it.
func appendText(dst []byte, charset string, text []byte) ([]byte, error) {
	switch charset {
	case "", "utf8mb4", "utf8mb3", "utf8": // the session's; utf8 is a subset under every server's reading
	default:
		if !plainWord(charset) {
			return dst, fmt.Errorf("%q: %w", charset, errNoCharset)
		}
		dst = append(append(dst, '_'), charset...)
	}
	return appendQuoted(dst, text), nil
}

// appendBytes writes BIT, which is most significant byte first, as a number: it
// compares as one.
func appendBytes(dst []byte, base string, b []byte) []byte {
	if base == "bit" && len(b) <= 8 {
		var n uint64
		for _, c := range b {
			n = n<<8 | uint64(c)
		}
		return strconv.AppendUint(dst, n, 10)
	}
	return appendQuoted(append(dst, "_binary"...), b)
}

// plainWord reports whether s may stand in a statement unquoted.
func plainWord(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return s != ""
}

// outsideEnum reports the value that a server without strict mode stores for a
// label that the ENUM does not have. Strict mode refuses to store it again.
func outsideEnum(c *change.Column, v change.Value) bool {
	return c.Base == "enum" && v.Kind == change.Text && len(v.Data) == 0 && !slices.Contains(c.Labels, "")
}

package mysql

import (
	"fmt"
	"math"
	"strconv"

	"github.com/runnel-dev/runnel/change"
)

// values turns one row of text into what the log decoder gives for the same row.
func (q *chunkQuery) values(out []change.Value, row [][]byte, a *change.Arena) error {
	for i := range out {
		if row[i] == nil {
			out[i].Kind = change.Null
			continue
		}
		if err := textValue(&out[i], &q.layout.Columns[i], row[i], a); err != nil {
			return fmt.Errorf("column %s: %w", q.layout.Columns[i].Name, err)
		}
	}
	return nil
}

// textValue reads one value that the server printed.
func textValue(v *change.Value, c *change.Column, b []byte, a *change.Arena) error {
	switch c.Base {
	case "tinyint", "smallint", "mediumint", "int", "bigint":
		return integerValue(v, c.Unsigned, b)
	case "float", "double", "real":
		f, err := strconv.ParseFloat(string(b), 64)
		if err != nil {
			return fmt.Errorf("read number %q: %w", b, err)
		}
		v.Kind, v.Num = change.Float64, math.Float64bits(f)
		if c.Base == "float" {
			v.Kind, v.Num = change.Float32, uint64(math.Float32bits(float32(f)))
		}
		return nil
	case "decimal":
		v.Kind, b = change.Decimal, withoutZeros(b)
	case "date", "time", "datetime", "timestamp", "year":
		v.Kind = change.Time
	case "uuid", "inet4", "inet6":
		v.Kind = change.Literal
	default:
		v.Kind = change.Bytes
		if c.Charset != "" {
			v.Kind = change.Text
		}
	}
	v.Data = a.Keep(append(a.Buffer(len(b)), b...))
	return nil
}

func integerValue(v *change.Value, unsigned bool, b []byte) error {
	digits, negative := b, false
	if len(b) > 0 && b[0] == '-' {
		digits, negative = b[1:], true
	}
	var n uint64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return fmt.Errorf("read integer %q: %w", b, errMalformed)
		}
		n = 10*n + uint64(c-'0')
	}
	if len(digits) == 0 || unsigned && negative {
		return fmt.Errorf("read integer %q: %w", b, errMalformed)
	}
	v.Kind, v.Num = change.Int, n
	if negative {
		v.Num = -n
	}
	if unsigned {
		v.Kind = change.Uint
	}
	return nil
}

// withoutZeros removes what ZEROFILL puts in front of a decimal.
func withoutZeros(b []byte) []byte {
	for len(b) > 1 && b[0] == '0' && b[1] != '.' {
		b = b[1:]
	}
	return b
}

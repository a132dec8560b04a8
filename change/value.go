package change

import (
	"encoding/hex"
	"math"
	"strconv"
	"unicode/utf8"
)

// Kind says how a Value is held.
type Kind uint8

// The kinds of values. Log path and copy path give the same Kind and the same
// content for the same stored value: that identity is what targets rely on.
const (
	Absent  Kind = iota // the row image does not carry the column; unchanged, not NULL
	Null                // SQL NULL
	Int                 // Num holds an int64
	Uint                // Num holds a uint64
	Float32             // Num holds math.Float32bits
	Float64             // Num holds math.Float64bits
	Decimal             // Data holds the exact decimal text, full scale: "-0.50"
	Time                // Data holds ASCII text of date, time, datetime, timestamp (UTC), year
	Text                // Data holds text in the column's character set; ENUM and SET labels too
	Bytes               // Data holds raw bytes: BINARY padded to its length, BIT big-endian, geometry
	Literal             // Data holds ASCII text of types that have one form: UUID, INET4, INET6
)

// Value is one column of one row. Data belongs to the block or arena that made
// the value and is valid as long as that lives; copy it to keep it longer.
type Value struct {
	Data []byte
	Num  uint64
	Kind Kind
}

// String shows the value to people: text as it is, bytes in hex.
func (v Value) String() string {
	switch v.Kind {
	case Absent:
		return "(absent)"
	case Null:
		return "NULL"
	case Int:
		return strconv.FormatInt(int64(v.Num), 10)
	case Uint:
		return strconv.FormatUint(v.Num, 10)
	case Float32:
		return strconv.FormatFloat(float64(math.Float32frombits(uint32(v.Num))), 'g', -1, 32)
	case Float64:
		return strconv.FormatFloat(math.Float64frombits(v.Num), 'g', -1, 64)
	case Bytes:
		return "0x" + hex.EncodeToString(v.Data)
	}
	if !utf8.Valid(v.Data) {
		return strconv.QuoteToASCII(string(v.Data))
	}
	return string(v.Data)
}

// Op is what happened to a row.
type Op uint8

// The operations.
const (
	Insert Op = iota + 1 // Before is nil
	Update               // both images; the key may differ
	Delete               // After is nil
)

// Change is one row's change. Before and After have one Value per column of the
// layout it was decoded with.
type Change struct {
	Op     Op
	Before []Value
	After  []Value
}

// Row is one full row, a Value per column of its layout.
type Row []Value

// AppendKey appends a byte string that is equal for two rows exactly when their
// key columns hold equal values of equal kind. It does not sort like the server
// and does not fold case: two keys that a collation calls equal may differ.
func AppendKey(dst []byte, l *Layout, row []Value) []byte {
	for _, i := range l.Key {
		dst = AppendValue(dst, row[i])
	}
	return dst
}

// AppendValue appends a self-delimiting encoding of v.
func AppendValue(dst []byte, v Value) []byte {
	dst = append(dst, byte(v.Kind))
	switch v.Kind {
	case Absent, Null:
		return dst
	case Int, Uint, Float32, Float64:
		for s := 56; s >= 0; s -= 8 {
			dst = append(dst, byte(v.Num>>s))
		}
		return dst
	}
	n := len(v.Data)
	dst = append(dst, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	return append(dst, v.Data...)
}

// Arena is reusable memory for decoded rows: values and formatted text. Slices
// handed out stay valid until Reset. The zero Arena is ready. Not safe for
// concurrent use.
type Arena struct {
	bytes  []byte
	values []Value
	used   int64
}

// NewArena returns an arena with room for n values; it grows as any other.
func NewArena(n int) Arena { return Arena{values: make([]Value, 0, n)} }

// Values returns a slice of n zero Values.
func (a *Arena) Values(n int) []Value {
	if len(a.values)+n > cap(a.values) {
		a.values = make([]Value, 0, max(2*cap(a.values), 4096, n))
	}
	at := len(a.values)
	a.values = a.values[:at+n]
	s := a.values[at : at+n : at+n]
	clear(s)
	a.used += int64(n) * valueBytes
	return s
}

// Buffer returns an empty slice with room for n bytes; Keep hands it back filled.
// Between the two no other Buffer call may happen.
func (a *Arena) Buffer(n int) []byte {
	if len(a.bytes)+n > cap(a.bytes) {
		a.bytes = make([]byte, 0, max(2*cap(a.bytes), 64<<10, n))
	}
	return a.bytes[len(a.bytes):len(a.bytes):cap(a.bytes)]
}

// Keep reserves b, which Buffer returned and the caller appended to.
func (a *Arena) Keep(b []byte) []byte {
	a.used += int64(len(b))
	if len(a.bytes)+len(b) <= cap(a.bytes) {
		a.bytes = a.bytes[:len(a.bytes)+len(b)]
	} // else b outgrew its room and append moved it to memory of its own
	return b[:len(b):len(b)]
}

// UsedBytes is the memory handed out since Reset.
func (a *Arena) UsedBytes() int64 { return a.used }

// Reset forgets everything handed out and keeps the newest memory for reuse,
// unless it grew past keepBytes.
func (a *Arena) Reset(keepBytes int) {
	if cap(a.bytes) > keepBytes {
		a.bytes = nil
	}
	if cap(a.values)*valueBytes > keepBytes {
		a.values = nil
	}
	a.bytes, a.values, a.used = a.bytes[:0], a.values[:0], 0
}

const valueBytes = 40

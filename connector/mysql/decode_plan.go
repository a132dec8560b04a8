package mysql

import (
	"fmt"

	"github.com/runnel-dev/runnel/change"
)

// plan is how the rows of one table map become values of one layout.
type plan struct {
	layout  *change.Layout
	steps   []step // one per column of the log; may be more than columns
	columns int    // of the layout
}

// verb says what a column's bytes mean.
type verb uint8

const (
	verbSkip verb = iota
	verbInt
	verbUint
	verbFloat32
	verbFloat64
	verbDecimal
	verbYear
	verbDate
	verbTime2
	verbDatetime2
	verbTimestamp2
	verbTimeOld
	verbDatetimeOld
	verbTimestampOld
	verbTimeHires
	verbDatetimeHires
	verbTimestampHires
	verbText
	verbBytes
	verbPadded // BINARY: the log drops trailing zero bytes
	verbBit
	verbEnum
	verbSet
	verbUUID
	verbINET4
	verbINET6
	verbCompressedText
	verbCompressedBytes
)

// step decodes one column.
type step struct {
	verb   verb
	prefix uint8  // bytes of the length in front of the value, 0 for a fixed width
	width  uint32 // of the value when fixed
	digits uint8  // decimal: all digits; temporal: digits of the fraction
	scale  uint8  // decimal
	padTo  int    // BINARY(n)
	labels [][]byte
	unit   int // of SET: width of its character set's units, negative for little endian
}

// newPlan checks that a layout fits a table map and says how to decode.
// change.ErrLayout when it does not.
func newPlan(m *tableMap, l *change.Layout) (*plan, error) {
	n := len(l.Columns)
	if len(m.types) < n {
		return nil, fmt.Errorf("decode rows of %s: the log has %d columns, the layout %d: %w", m.table, len(m.types), n, change.ErrLayout)
	}
	if err := m.checkExtra(l); err != nil {
		return nil, err
	}
	p := &plan{layout: l, columns: n, steps: make([]step, len(m.types))}
	for i := range m.types {
		if i >= n {
			p.steps[i] = step{verb: verbSkip, width: 8}
			continue
		}
		c := &l.Columns[i]
		if m.names != nil && m.names[i] != c.Name {
			return nil, fmt.Errorf("decode rows of %s: column %d is %q in the log and %q in the layout: %w",
				m.table, i+1, m.names[i], c.Name, change.ErrLayout)
		}
		s, ok := stepFor(m.types[i], m.meta[i], c)
		if !ok {
			return nil, fmt.Errorf("decode rows of %s: column %s is of log type %d (%#x), which does not fit %s: %w",
				m.table, c.Name, m.types[i], m.meta[i], c.Type, change.ErrLayout)
		}
		if s.verb == verbEnum || s.verb == verbSet {
			var err error
			if s.labels, err = encodeLabels(c); err != nil {
				return nil, fmt.Errorf("decode rows of %s: %w", m.table, err)
			}
			s.unit = codeUnit(c.Charset)
		}
		p.steps[i] = s
	}
	return p, m.checkSigns(l)
}

// checkExtra accepts the hash columns that MariaDB appends for long unique keys:
// they travel in the log and are not listed in the catalog.
func (m *tableMap) checkExtra(l *change.Layout) error {
	extra := m.types[len(l.Columns):]
	ok := len(extra) <= len(l.Unique)
	for i, t := range extra {
		ok = ok && t == typeLongLong
		if m.names != nil {
			name := m.names[len(l.Columns)+i]
			ok = ok && len(name) > 12 && name[:12] == "DB_ROW_HASH_"
		}
	}
	if !ok {
		return fmt.Errorf("decode rows of %s: the log has %d columns, the layout %d: %w", m.table, len(m.types), len(l.Columns), change.ErrLayout)
	}
	return nil
}

// checkSigns compares signedness with the row metadata, where there is some.
func (m *tableMap) checkSigns(l *change.Layout) error {
	if m.signed == nil {
		return nil
	}
	bit := 0
	for i := range l.Columns {
		switch m.types[i] {
		case typeTiny, typeShort, typeInt24, typeLong, typeLongLong, typeDecimal, typeFloat, typeDouble:
		case typeYear:
			if m.mariaDB { // counts it, and calls it unsigned
				bit++
			}
			continue
		default:
			continue
		}
		if bit>>3 >= len(m.signed) {
			return fmt.Errorf("read row metadata of %s: signedness: %w", m.table, errDamaged)
		}
		unsigned := m.signed[bit>>3]&(0x80>>(bit&7)) != 0
		bit++
		if c := &l.Columns[i]; unsigned != c.Unsigned {
			return fmt.Errorf("decode rows of %s: column %s is unsigned in one of log and layout: %w", m.table, c.Name, change.ErrLayout)
		}
	}
	return nil
}

var intWidths = map[string]struct {
	wire  byte
	width uint32
}{
	"tinyint": {typeTiny, 1}, "smallint": {typeShort, 2}, "mediumint": {typeInt24, 3},
	"int": {typeLong, 4}, "bigint": {typeLongLong, 8},
}

// stepFor chooses the step for a column, false when the log's type is not what
// the column's declaration makes.
func stepFor(wire byte, meta uint16, c *change.Column) (step, bool) {
	if w, ok := intWidths[c.Base]; ok {
		s := step{verb: verbInt, width: w.width}
		if c.Unsigned {
			s.verb = verbUint
		}
		return s, wire == w.wire
	}
	switch c.Base {
	case "float":
		return step{verb: verbFloat32, width: 4}, wire == typeFloat
	case "double", "real":
		return step{verb: verbFloat64, width: 8}, wire == typeDouble
	case "decimal":
		digits, scale := uint8(meta>>8), uint8(meta)
		ok := wire == typeDecimal && int(scale) == c.Scale && scale <= digits && digits <= 65 && declaredDigits(c) == int(digits)
		return step{verb: verbDecimal, width: uint32(decimalBytes(int(digits), int(scale))), digits: digits, scale: scale}, ok
	case "bit":
		bits := uint32(meta&0xff) + 8*uint32(meta>>8)
		return step{verb: verbBit, width: (bits + 7) / 8}, wire == typeBit && bits >= 1 && bits <= 64 && declaredDigits(c) == int(bits)
	case "year":
		return step{verb: verbYear, width: 1}, wire == typeYear
	case "date":
		return step{verb: verbDate, width: 3}, wire == typeDate || wire == typeNewDate
	case "time", "datetime", "timestamp":
		return temporalStep(wire, meta, c)
	case "enum", "set":
		return labelStep(wire, meta, c)
	}
	return stringStep(wire, meta, c)
}

// declaredDigits reads the first argument of decimal(n,m) or bit(n).
func declaredDigits(c *change.Column) int {
	arguments, _ := typeArguments(c.Type)
	n := 0
	for i := 0; i < len(arguments) && arguments[i] >= '0' && arguments[i] <= '9'; i++ {
		n = 10*n + int(arguments[i]-'0')
	}
	return n
}

// temporalStep covers the format since MySQL 5.6, the one before, and MariaDB's
// own one with fractions, which has the old types and no metadata.
func temporalStep(wire byte, meta uint16, c *change.Column) (step, bool) {
	f := uint8(c.Scale)
	if c.Scale < 0 || c.Scale > 6 {
		return step{}, false
	}
	s := step{digits: f}
	fraction := uint32(f+1) / 2
	switch wire {
	case typeTime2:
		s.verb, s.width = verbTime2, 3+fraction
	case typeDatetime2:
		s.verb, s.width = verbDatetime2, 5+fraction
	case typeTimestamp2:
		s.verb, s.width = verbTimestamp2, 4+fraction
	case typeTime:
		if s.verb, s.width = verbTimeOld, 3; f > 0 {
			s.verb, s.width = verbTimeHires, uint32([...]byte{3, 4, 4, 5, 5, 5, 6}[f])
		}
	case typeDatetime:
		if s.verb, s.width = verbDatetimeOld, 8; f > 0 {
			s.verb, s.width = verbDatetimeHires, uint32([...]byte{5, 6, 6, 7, 7, 7, 8}[f])
		}
	case typeTimestamp:
		if s.verb, s.width = verbTimestampOld, 4; f > 0 {
			s.verb, s.width = verbTimestampHires, uint32([...]byte{4, 5, 5, 6, 6, 7, 7}[f])
		}
	}
	modern := wire == typeTime2 || wire == typeDatetime2 || wire == typeTimestamp2
	if modern && meta != uint16(f) {
		return step{}, false
	}
	switch c.Base {
	case "time":
		return s, wire == typeTime2 || wire == typeTime
	case "datetime":
		return s, wire == typeDatetime2 || wire == typeDatetime
	}
	return s, wire == typeTimestamp2 || wire == typeTimestamp
}

// labelStep: ENUM and SET travel as CHAR whose metadata names the real type and
// the width of the number.
func labelStep(wire byte, meta uint16, c *change.Column) (step, bool) {
	real, width := byte(meta>>8), uint32(meta&0xff)
	if wire == typeEnum || wire == typeSet {
		real = wire
	} else if wire != typeString {
		return step{}, false
	}
	n := uint32(len(c.Labels))
	if c.Base == "enum" {
		want := uint32(1)
		if n > 255 {
			want = 2
		}
		return step{verb: verbEnum, width: width}, real == typeEnum && width == want
	}
	want := (n + 7) / 8
	if want > 4 {
		want = 8
	}
	return step{verb: verbSet, width: width}, real == typeSet && width == want
}

// stringLength undoes the packing of CHAR's metadata: two bits of the length are
// folded into the type.
func stringLength(meta uint16) int {
	if meta>>8&0x30 != 0x30 {
		return int(meta&0xff) | int((meta>>8&0x30)^0x30)<<4
	}
	return int(meta & 0xff)
}

// stringStep covers text, bytes and the types that travel like them.
func stringStep(wire byte, meta uint16, c *change.Column) (step, bool) {
	prefixFor := func(n int) uint8 {
		if n > 255 {
			return 2
		}
		return 1
	}
	length := stringLength(meta)
	switch c.Base {
	case "char":
		return step{verb: verbText, prefix: prefixFor(length)}, wire == typeString && length == c.LengthBytes
	case "binary":
		return step{verb: verbPadded, prefix: prefixFor(length), padTo: c.LengthBytes}, wire == typeString && length == c.LengthBytes
	case "uuid":
		return step{verb: verbUUID, prefix: 1}, wire == typeString && length == 16
	case "inet6":
		return step{verb: verbINET6, prefix: 1}, wire == typeString && length == 16
	case "inet4":
		return step{verb: verbINET4, prefix: 1}, wire == typeString && length == 4
	case "varchar", "varbinary":
		s := step{verb: verbText, prefix: prefixFor(int(meta))}
		if c.Base == "varbinary" {
			s.verb = verbBytes
		}
		if c.Compressed {
			// The declared length has room for the byte that says how it is packed.
			s.verb += verbCompressedText - verbText
			return s, wire == typeVarcharCompressed && int(meta) == c.LengthBytes+1
		}
		return s, wire == typeVarchar && int(meta) == c.LengthBytes
	}
	return blobStep(wire, meta, c)
}

var blobPrefixes = map[string]uint8{
	"tinytext": 1, "text": 2, "mediumtext": 3, "longtext": 4,
	"tinyblob": 1, "blob": 2, "mediumblob": 3, "longblob": 4,
}

var geometryBases = map[string]bool{
	"geometry": true, "point": true, "linestring": true, "polygon": true, "multipoint": true,
	"multilinestring": true, "multipolygon": true, "geometrycollection": true, "geomcollection": true,
}

func blobStep(wire byte, meta uint16, c *change.Column) (step, bool) {
	if geometryBases[c.Base] {
		return step{verb: verbBytes, prefix: 4}, wire == typeGeometry && meta == 4
	}
	prefix, ok := blobPrefixes[c.Base]
	if !ok {
		return step{}, false
	}
	s := step{verb: verbText, prefix: prefix}
	if c.Charset == "" {
		s.verb = verbBytes
	}
	if c.Compressed {
		s.verb += verbCompressedText - verbText
		return s, wire == typeBlobCompressed && meta == uint16(prefix)
	}
	return s, wire == typeBlob && meta == uint16(prefix)
}

// supportedType reports whether the decoder knows a column's type; the catalog
// refuses tables with others by name.
func supportedType(c *change.Column) bool {
	_, integer := intWidths[c.Base]
	_, blob := blobPrefixes[c.Base]
	switch c.Base {
	case "float", "double", "real", "decimal", "bit", "date", "time", "datetime", "timestamp",
		"enum", "set", "char", "binary", "inet4", "inet6", "varchar", "varbinary":
		return true
	case "uuid": // columns from before MariaDB 10.11.5 are marked and stored otherwise
		return c.Type == "uuid"
	case "year":
		return c.Type != "year(2)"
	}
	return integer || blob || geometryBases[c.Base]
}

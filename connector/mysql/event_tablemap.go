package mysql

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/runnel-dev/runnel/change"
)

// Column types as they stand in a TABLE_MAP event.
const (
	typeTiny              = 1
	typeShort             = 2
	typeLong              = 3
	typeFloat             = 4
	typeDouble            = 5
	typeTimestamp         = 7
	typeLongLong          = 8
	typeInt24             = 9
	typeDate              = 10
	typeTime              = 11
	typeDatetime          = 12
	typeYear              = 13
	typeNewDate           = 14
	typeVarchar           = 15
	typeBit               = 16
	typeTimestamp2        = 17
	typeDatetime2         = 18
	typeTime2             = 19
	typeBlobCompressed    = 140
	typeVarcharCompressed = 141
	typeJSON              = 245
	typeDecimal           = 246
	typeEnum              = 247
	typeSet               = 248
	typeBlob              = 252
	typeString            = 254
	typeGeometry          = 255
)

// tableMap is how one table's rows are laid out in the log. Immutable except for
// the fields that the assembler owns and the cached plan.
type tableMap struct {
	table change.TableID
	types []byte
	meta  []uint16
	names []string // with row metadata FULL; else nil
	// signed holds, with row metadata, a bit for each numeric column in order: 1
	// is unsigned. nil without.
	signed  []byte
	mariaDB bool

	raw []byte // the event's body behind the id: equal bytes are an equal map
	// The assembler's: valid for filter generation gen.
	wanted, own bool
	gen         uint64
	judged      bool
	sizes       []step // of the columns, once asked for
	sizeless    bool   // and there are none

	plan atomic.Pointer[plan]
}

// tableID reads the number that ties row events to their map.
func tableID(b []byte) uint64 {
	return uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint16(b[4:]))<<32
}

// parseTableMap reads the body of a TABLE_MAP event. It copies what it keeps.
func parseTableMap(b []byte, mariaDB bool) (*tableMap, error) {
	if len(b) < 8 {
		return nil, fmt.Errorf("read table map: %w", errDamaged)
	}
	m := &tableMap{mariaDB: mariaDB, raw: append([]byte(nil), b[8:]...)}
	r := byteReader{b: m.raw}
	m.table.Schema = string(r.take(int(r.byte())))
	r.byte()
	m.table.Name = string(r.take(int(r.byte())))
	r.byte()
	n := r.lengthEncoded()
	m.types = r.take(n)
	meta := byteReader{b: r.take(r.lengthEncoded())}
	r.take((n + 7) / 8) // which columns may be NULL
	if r.bad {
		return nil, fmt.Errorf("read table map of %s: %w", m.table, errDamaged)
	}
	m.meta = make([]uint16, n)
	for i, t := range m.types {
		switch t {
		case typeString, typeDecimal, typeEnum, typeSet:
			m.meta[i] = uint16(meta.byte())<<8 | uint16(meta.byte())
		case typeVarchar, typeBit, typeVarcharCompressed:
			m.meta[i] = uint16(meta.byte()) | uint16(meta.byte())<<8
		case typeBlob, typeGeometry, typeJSON, typeFloat, typeDouble, typeTimestamp2, typeDatetime2, typeTime2,
			typeBlobCompressed:
			m.meta[i] = uint16(meta.byte())
		}
	}
	if meta.bad || len(meta.b) != 0 {
		return nil, fmt.Errorf("read table map of %s: column metadata: %w", m.table, errDamaged)
	}
	return m, m.readOptional(r.b)
}

// readOptional reads the row metadata that binlog_row_metadata adds.
func (m *tableMap) readOptional(b []byte) error {
	const (
		fieldSignedness = 1
		fieldNames      = 4
	)
	r := byteReader{b: b}
	for len(r.b) > 0 {
		kind := r.byte()
		field := byteReader{b: r.take(r.lengthEncoded())}
		if r.bad {
			return fmt.Errorf("read row metadata of %s: %w", m.table, errDamaged)
		}
		switch kind {
		case fieldSignedness:
			m.signed = field.b
		case fieldNames:
			m.names = make([]string, 0, len(m.types))
			for len(field.b) > 0 {
				m.names = append(m.names, string(field.take(field.lengthEncoded())))
			}
			if field.bad || len(m.names) != len(m.types) {
				return fmt.Errorf("read row metadata of %s: column names: %w", m.table, errDamaged)
			}
		}
	}
	return nil
}

// byteReader takes pieces off b; once a piece is missing it is bad and gives
// nothing more.
type byteReader struct {
	b   []byte
	bad bool
}

func (r *byteReader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *byteReader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

// lengthEncoded reads a number that counts bytes or columns of the event.
func (r *byteReader) lengthEncoded() int {
	v, n := lengthEncoded(r.b)
	if n == 0 || v > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

package mysql

import "github.com/runnel-dev/runnel/change"

// trace says that statements which changed rows of one table had another one open
// for writing: a foreign key may have changed rows there, which the storage engine
// does by itself and the server does not log. Tables that a trigger may write leave
// the same trace.
type trace struct {
	child, parent change.TableID
	rows          bool // the child has row events in the statement
	twice         bool // the child was opened twice, so once beside those
	width         int  // columns of the parent in the log
	deleted       bool
	updated       []byte // bit for each column whose value an update changed
	since         uint32 // earliest statement, in seconds since 1970
}

// hit is a table that the present statement updated or deleted rows of.
type hit struct {
	m       *tableMap
	deleted bool
	updated []byte
}

// openedTable is a wanted table with a map in the present statement.
type openedTable struct {
	m     *tableMap
	rows  bool
	twice bool
}

// opens notes the map of a wanted table.
func (d *draft) opens(m *tableMap) {
	for i := range d.opened {
		if d.opened[i].m.table == m.table {
			d.opened[i].m, d.opened[i].twice = m, true
			return
		}
	}
	d.opened = append(d.opened, openedTable{m: m})
}

const (
	endOfStatement     = 1
	noForeignKeyChecks = 2
)

// wrote notes a row event.
func (d *draft) wrote(m *tableMap, e *event) {
	flags := e.body[6]
	others := false
	for i := range d.opened {
		if o := &d.opened[i]; o.m == m {
			o.rows = true
			others = others || o.twice
		} else {
			others = true
		}
	}
	if op := operation(e.kind); others && op != change.Insert && flags&noForeignKeyChecks == 0 {
		d.hit(m, op, e)
	}
	if flags&endOfStatement == 0 {
		return
	}
	for _, h := range d.hits {
		for i := range d.opened {
			if o := &d.opened[i]; o.m != h.m || o.twice {
				d.trace(o, &h, e.timestamp)
			}
		}
	}
	d.opened, d.hits = d.opened[:0], d.hits[:0]
}

// hit adds what an update or delete changed to what the statement did before.
func (d *draft) hit(m *tableMap, op change.Op, e *event) {
	at := -1
	for i := range d.hits {
		if d.hits[i].m == m {
			at = i
		}
	}
	if at < 0 {
		at = len(d.hits)
		d.hits = append(d.hits, hit{m: m, updated: make([]byte, (len(m.types)+7)/8)})
	}
	if h := &d.hits[at]; op == change.Delete {
		h.deleted = true
	} else {
		m.addChanged(h.updated, e.kind, e.body[8:])
	}
}

// trace merges: a group has at most a few traces for each pair of tables.
func (d *draft) trace(o *openedTable, h *hit, at uint32) {
	for i := range d.traces {
		t := &d.traces[i]
		if t.child == o.m.table && t.parent == h.m.table && t.rows == o.rows && t.twice == o.twice && t.width == len(h.m.types) {
			t.deleted = t.deleted || h.deleted
			for n, b := range h.updated {
				t.updated[n] |= b
			}
			t.since = min(t.since, at)
			return
		}
	}
	d.traces = append(d.traces, trace{child: o.m.table, parent: h.m.table, rows: o.rows, twice: o.twice,
		width: len(h.m.types), deleted: h.deleted, updated: h.updated, since: at})
}

// addChanged sets the bits of columns whose values differ between the images of an
// update; all of them where that cannot be told.
func (m *tableMap) addChanged(bits []byte, kind byte, body []byte) {
	if !m.compareImages(bits, kind, body) {
		for i := range bits {
			bits[i] = 0xff
		}
	}
}

func (m *tableMap) compareImages(bits []byte, kind byte, body []byte) bool {
	steps := m.wire()
	h, err := parseRowsHead(kind, body)
	if steps == nil || err != nil || h.width != len(steps) || h.after == nil || !allSet(h.before, h.width) || !allSet(h.after, h.width) {
		return false
	}
	rows := h.rest
	if kind >= evWriteCompressedV1 && len(rows) > 0 {
		if rows, err = unpackRows(new(change.Arena), rows); err != nil {
			return false
		}
	}
	before := make([][]byte, len(steps)) // nil is NULL
	for len(rows) > 0 {
		var ok bool
		if rows, ok = splitImage(steps, rows, func(i int, v []byte) { before[i] = v }); !ok {
			return false
		}
		rows, ok = splitImage(steps, rows, func(i int, v []byte) {
			if b := before[i]; (b == nil) != (v == nil) || string(b) != string(v) {
				bits[i>>3] |= 1 << (i & 7)
			}
		})
		if !ok {
			return false
		}
	}
	return true
}

// splitImage hands out the bytes of each column of a full image, nil for NULL, and
// returns what follows.
func splitImage(steps []step, rows []byte, each func(i int, v []byte)) (rest []byte, ok bool) {
	n := (len(steps) + 7) / 8
	if len(rows) < n {
		return nil, false
	}
	nulls, rest := rows[:n], rows[n:]
	for i := range steps {
		if nulls[i>>3]&(1<<(i&7)) != 0 {
			each(i, nil)
			continue
		}
		size, err := steps[i].size(rest)
		if err != nil || size > len(rest) {
			return nil, false
		}
		each(i, rest[:size:size])
		rest = rest[size:]
	}
	return rest, true
}

// wire gives the sizes of the map's columns, nil when there is one whose size only
// its declaration tells.
func (m *tableMap) wire() []step {
	if m.sizes != nil || m.sizeless {
		return m.sizes
	}
	sizes := make([]step, len(m.types))
	for i, t := range m.types {
		s, ok := wireStep(t, m.meta[i])
		if !ok {
			m.sizeless = true
			return nil
		}
		sizes[i] = s
	}
	m.sizes = sizes
	return sizes
}

// wireStep is how many bytes a column takes in a row.
func wireStep(t byte, meta uint16) (step, bool) {
	fixed := func(n int) (step, bool) { return step{width: uint32(n)}, true }
	long := func(n int) (step, bool) {
		if n > 255 {
			return step{prefix: 2}, true
		}
		return step{prefix: 1}, true
	}
	fraction := int(meta+1) / 2
	switch t {
	case typeTiny, typeYear:
		return fixed(1)
	case typeShort:
		return fixed(2)
	case typeInt24, typeDate, typeNewDate:
		return fixed(3)
	case typeLong, typeFloat:
		return fixed(4)
	case typeLongLong, typeDouble:
		return fixed(8)
	case typeTime2:
		return fixed(3 + fraction)
	case typeDatetime2:
		return fixed(5 + fraction)
	case typeTimestamp2:
		return fixed(4 + fraction)
	case typeDecimal:
		digits, scale := int(meta>>8), int(meta&0xff)
		if scale > digits || digits > 65 {
			return step{}, false
		}
		return fixed(decimalBytes(digits, scale))
	case typeBit:
		return fixed((int(meta&0xff) + 8*int(meta>>8) + 7) / 8)
	case typeVarchar, typeVarcharCompressed:
		return long(int(meta))
	case typeBlob, typeGeometry, typeJSON, typeBlobCompressed:
		return step{prefix: uint8(meta)}, meta >= 1 && meta <= 4
	case typeEnum, typeSet:
		return fixed(int(meta & 0xff))
	case typeString:
		if real := byte(meta >> 8); real == typeEnum || real == typeSet {
			return fixed(int(meta & 0xff))
		}
		return long(stringLength(meta))
	}
	return step{}, false
}

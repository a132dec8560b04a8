package mysql

import (
	"encoding/binary"
	"fmt"

	"github.com/runnel-dev/runnel/change"
)

// rowBlock is one row event of one table. Its bytes are in memory or, for large
// groups, in a file.
type rowBlock struct {
	tables  *tableMap
	kind    byte
	body    []byte // event body behind table id and flags; nil when spilled
	spill   *spillFile
	spillAt int64
	length  int // of the body
}

const rowBlockBytes = 96 // what a block keeps alive beside its body

// SizeBytes implements change.RowBlock.
func (b *rowBlock) SizeBytes() int { return rowBlockBytes + len(b.body) }

// rowsHead is the fixed part of a row event.
type rowsHead struct {
	width         int
	before, after []byte // columns-present bitmaps; after is nil unless an update
	rest          []byte // the rows
}

func operation(kind byte) change.Op {
	switch kind {
	case evWriteRowsV1, evWriteRowsV2, evWriteCompressedV1, evWriteCompressedV2:
		return change.Insert
	case evUpdateRowsV1, evUpdateRowsV2, evUpdateCompressedV1, evUpdateCompressedV2:
		return change.Update
	}
	return change.Delete
}

func isRows(kind byte) bool {
	return kind >= evWriteRowsV1 && kind <= evDeleteRowsV1 || kind >= evWriteRowsV2 && kind <= evDeleteRowsV2 ||
		kind >= evWriteCompressedV1 && kind <= evDeleteCompressedV2
}

// hasExtra reports row events of version 2, which have a variable header.
func hasExtra(kind byte) bool {
	return kind >= evWriteRowsV2 && kind <= evDeleteRowsV2 || kind >= evWriteCompressedV2
}

// parseRowsHead reads the part of a row event between flags and rows.
func parseRowsHead(kind byte, b []byte) (rowsHead, error) {
	r := byteReader{b: b}
	if hasExtra(kind) {
		n := int(r.byte()) | int(r.byte())<<8 // counts itself
		r.take(n - 2)
	}
	v, n := lengthEncoded(r.b)
	if n == 0 || v > 1<<16 {
		return rowsHead{}, fmt.Errorf("read row event: column count: %w", errDamaged)
	}
	r.take(n)
	h := rowsHead{width: int(v)}
	h.before = r.take((h.width + 7) / 8)
	if operation(kind) == change.Update {
		h.after = r.take((h.width + 7) / 8)
	}
	if r.bad {
		return rowsHead{}, fmt.Errorf("read row event: column bitmap: %w", errDamaged)
	}
	h.rest = r.b
	return h, nil
}

// allSet reports whether the first n bits are set.
func allSet(bitmap []byte, n int) bool {
	for i := 0; i < n>>3; i++ {
		if bitmap[i] != 0xff {
			return false
		}
	}
	rest := byte(1)<<(n&7) - 1
	return n&7 == 0 || bitmap[n>>3]&rest == rest
}

func countBits(bitmap []byte, n int) int {
	c := 0
	for i := range n {
		c += int(bitmap[i>>3]>>(i&7)) & 1
	}
	return c
}

// Decode implements change.RowBlock.
func (b *rowBlock) Decode(l *change.Layout, a *change.Arena, emit func(change.Change) error) error {
	p := b.tables.plan.Load()
	if p == nil || p.layout != l {
		var err error
		if p, err = newPlan(b.tables, l); err != nil {
			return err
		}
		b.tables.plan.Store(p)
	}
	err := b.decode(p, a, emit)
	if _, ours := err.(*decodeError); ours {
		return change.WithClass(change.PermanentTask, fmt.Errorf("decode rows of %s: %w", b.tables.table, err))
	}
	return err
}

// decodeError marks errors of the bytes, as opposed to errors of emit.
type decodeError struct{ err error }

func (e *decodeError) Error() string { return e.err.Error() }
func (e *decodeError) Unwrap() error { return e.err }

func (b *rowBlock) decode(p *plan, a *change.Arena, emit func(change.Change) error) error {
	body, err := b.bytes(a)
	if err != nil {
		return &decodeError{err}
	}
	h, err := parseRowsHead(b.kind, body)
	if err != nil {
		return &decodeError{err}
	}
	if h.width != len(p.steps) {
		return &decodeError{fmt.Errorf("row event has %d columns, its table map %d: %w", h.width, len(p.steps), errDamaged)}
	}
	rows := h.rest
	if b.kind >= evWriteCompressedV1 && len(rows) > 0 {
		if rows, err = unpackRows(a, rows); err != nil {
			return &decodeError{err}
		}
	}
	c := change.Change{Op: operation(b.kind)}
	first, second := p.image(h.before, h.width), image{}
	if c.Op == change.Update {
		second = p.image(h.after, h.width)
	}
	for at := 0; at < len(rows); {
		start := at
		c.Before, c.After = nil, nil
		row := a.Values(p.columns)
		if at, err = p.row(&first, rows, at, row, a); err != nil {
			return &decodeError{err}
		}
		switch c.Op {
		case change.Insert:
			c.After = row
		case change.Delete:
			c.Before = row
		default:
			c.Before, c.After = row, a.Values(p.columns)
			if at, err = p.row(&second, rows, at, c.After, a); err != nil {
				return &decodeError{err}
			}
		}
		if at == start { // a table of no columns cannot be; never loop on it
			return &decodeError{fmt.Errorf("empty row: %w", errDamaged)}
		}
		if err := emit(c); err != nil {
			return err
		}
	}
	return nil
}

// bytes gives the body, read back into the arena when it was spilled.
func (b *rowBlock) bytes(a *change.Arena) ([]byte, error) {
	if b.spill == nil {
		return b.body, nil
	}
	buf := a.Buffer(b.length)[:b.length]
	if _, err := b.spill.file.ReadAt(buf, b.spillAt); err != nil {
		return nil, fmt.Errorf("read spilled rows: %w", err)
	}
	return a.Keep(buf), nil
}

// unpackRows inflates the rows of a compressed event into the arena.
func unpackRows(a *change.Arena, b []byte) ([]byte, error) {
	n, rest, err := uncompressedSize(b)
	if err != nil {
		return nil, err
	}
	buf, err := inflate(a.Buffer(min(n, 16*len(rest)+1024)), rest, n)
	if err != nil {
		return nil, err
	}
	return a.Keep(buf), nil
}

// image is one of an event's row images: which columns it carries.
type image struct {
	full    bool
	present []byte
	nulls   int // bytes of the null bitmap
}

func (p *plan) image(present []byte, width int) image {
	return image{full: allSet(present, width), present: present, nulls: (countBits(present, width) + 7) / 8}
}

// row decodes one image that starts at rows[at] and returns where it ends.
func (p *plan) row(im *image, rows []byte, at int, out []change.Value, a *change.Arena) (int, error) {
	if len(rows)-at < im.nulls {
		return 0, p.short(0)
	}
	nulls := rows[at : at+im.nulls]
	b := rows[at+im.nulls:]
	for i, bit := 0, 0; i < len(p.steps); i++ {
		s := &p.steps[i]
		if !im.full && im.present[i>>3]&(1<<(i&7)) == 0 {
			continue // Absent is the zero Value
		}
		null := nulls[bit>>3]&(1<<(bit&7)) != 0
		bit++
		if null {
			if i < len(out) {
				out[i].Kind = change.Null
			}
			continue
		}
		if n := int(s.width); s.prefix == 0 && n <= len(b) && i < len(out) { // most columns
			switch s.verb {
			case verbInt:
				out[i].Kind, out[i].Num = change.Int, uint64(signedLE(b[:n]))
			case verbUint:
				out[i].Kind, out[i].Num = change.Uint, unsignedLE(b[:n])
			default:
				if err := s.value(&out[i], b[:n:n], a); err != nil {
					return 0, p.fault(i, err)
				}
			}
			b = b[n:]
			continue
		}
		n, err := s.size(b)
		if err != nil || n > len(b) {
			return 0, p.short(i)
		}
		if i < len(out) {
			if err := s.value(&out[i], b[:n:n], a); err != nil {
				return 0, p.fault(i, err)
			}
		}
		b = b[n:]
	}
	return len(rows) - len(b), nil
}

func (p *plan) short(i int) error {
	return p.fault(i, fmt.Errorf("the row ends early: %w", errDamaged))
}

func (p *plan) fault(i int, err error) error {
	name := fmt.Sprint(i + 1)
	if i < len(p.layout.Columns) {
		name = p.layout.Columns[i].Name
	}
	return fmt.Errorf("column %s: %w", name, err)
}

// size returns how many bytes of b the value takes, its length prefix included.
func (s *step) size(b []byte) (int, error) {
	switch s.prefix {
	case 0:
		return int(s.width), nil
	case 1:
		if len(b) < 1 {
			return 0, errDamaged
		}
		return 1 + int(b[0]), nil
	case 2:
		if len(b) < 2 {
			return 0, errDamaged
		}
		return 2 + int(binary.LittleEndian.Uint16(b)), nil
	case 3:
		if len(b) < 3 {
			return 0, errDamaged
		}
		return 3 + int(b[0]) + int(b[1])<<8 + int(b[2])<<16, nil
	}
	if len(b) < 4 {
		return 0, errDamaged
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n > int64(len(b)) {
		return 0, errDamaged
	}
	return 4 + int(n), nil
}

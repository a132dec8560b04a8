package mysql

import (
	"errors"
	"fmt"

	"github.com/runnel-dev/runnel/change"
)

const (
	statementRows  = 1000    // rows of one INSERT: more gain nothing
	statementBytes = 1 << 20 // and roughly its size
	deleteKeys     = 500     // keys of one DELETE: stays below the optimizer's limits for ranges
	packetBytes    = 8 << 20 // wanted size of a packet with several statements
)

var errRowTooBig = errors.New("the row is larger than the target's max_allowed_packet")

// piece says what one statement of a script is for.
type piece struct {
	batch      int  // index of the batch it belongs to, -1 for none
	row        int  // a change or row that it is the only one of, -1 for several
	checkpoint bool // it moves the batch's checkpoint
}

// script is the statements of a transaction, joined into packets that the server
// accepts. Reuse keeps its memory.
type script struct {
	maxBytes int // the server's limit for one statement
	packets  []packet

	statement, item []byte // a row writer's buffers, between two writers
	bulk            []byte // data of LOAD DATA
}

type packet struct {
	raw    []byte // room for the packet's header and command, then the statements
	pieces []piece
}

// packetHead is the room in front of the statements.
const packetHead = 5

// sql is the packet's statements.
func (p *packet) sql() []byte { return p.raw[packetHead:] }

func (sc *script) reset(maxPacket int) {
	sc.maxBytes = maxPacket - 1024 // headers, and the server counts strictly
	for i := range sc.packets {
		p := &sc.packets[i]
		p.raw, p.pieces = p.raw[:0], p.pieces[:0]
		if cap(p.raw) > 4*packetBytes {
			p.raw = nil
		}
	}
	sc.packets = sc.packets[:0]
}

// open returns the packet that takes a statement of n bytes.
func (sc *script) open(n int) *packet {
	if last := len(sc.packets) - 1; last >= 0 {
		p := &sc.packets[last]
		if len(p.raw)+n < min(packetBytes, sc.maxBytes) {
			return p
		}
	}
	if len(sc.packets) < cap(sc.packets) {
		sc.packets = sc.packets[:len(sc.packets)+1] // with the memory it had
	} else {
		sc.packets = append(sc.packets, packet{})
	}
	return &sc.packets[len(sc.packets)-1]
}

// add appends a whole statement.
func (sc *script) add(sql []byte, pc piece) error {
	if len(sql) >= sc.maxBytes {
		return fmt.Errorf("%d bytes: %w", len(sql), errRowTooBig)
	}
	p := sc.open(len(sql) + 1)
	if len(p.raw) == 0 {
		p.raw = append(p.raw, make([]byte, packetHead)...)
	} else {
		p.raw = append(p.raw, ';')
	}
	p.raw = append(p.raw, sql...)
	p.pieces = append(p.pieces, pc)
	return nil
}

// rowWriter turns row operations, in their order, into statements of a script.
// Neighbours of one kind become one statement; the server works through a
// statement's rows in order, so nothing is reordered.
type rowWriter struct {
	t     *tableWriter
	sc    *script
	batch int
	alone bool // every change in statements of its own

	kind  opKind
	rows  int
	row   int // the change that the open statement is about
	sql   []byte
	spare []byte
}

func newRowWriter(t *tableWriter, sc *script, batch int, alone bool) *rowWriter {
	w := &rowWriter{t: t, sc: sc, batch: batch, alone: alone, row: -1, sql: sc.statement, spare: sc.item}
	sc.statement, sc.item = nil, nil
	return w
}

// done leaves the buffers for the next writer. A writer that failed may keep them.
func (w *rowWriter) done() {
	if cap(w.sql)+cap(w.spare) <= 4*statementBytes {
		w.sc.statement, w.sc.item = w.sql[:0], w.spare[:0]
	}
}

type opKind uint8

const (
	opNone opKind = iota
	opUpsert
	opDelete
	opPatch // an UPDATE of some columns
)

// put writes a full or partial row: an insert that replaces what has its key, or
// an UPDATE of the columns that are there.
func (w *rowWriter) put(index int, before, after []change.Value) error {
	if w.t.partial(after) {
		return w.patch(index, before, after)
	}
	var err error
	if w.spare, err = w.t.appendRow(w.spare[:0], after); err != nil {
		return w.refuse(index, err)
	}
	if w.t.lenient(after) {
		return w.single(index, opUpsert, w.t.lenientHead)
	}
	return w.extend(index, opUpsert, w.t.insertHead, ",", statementRows)
}

// remove deletes the row with before's key.
func (w *rowWriter) remove(index int, before []change.Value) error {
	var err error
	if w.spare, err = w.t.appendDeleteKey(w.spare[:0], before); err != nil {
		return w.refuse(index, err)
	}
	return w.extend(index, opDelete, w.t.deleteHead, w.t.deleteSeparator, deleteKeys)
}

// extend adds the item in spare to the open statement, or begins another when
// that is of another kind or would become too long.
func (w *rowWriter) extend(index int, kind opKind, head, separator string, maxItems int) error {
	size := len(w.sql) + len(separator) + len(w.spare) + len(w.t.insertTail)
	if w.alone || w.kind != kind || w.rows >= maxItems || size >= min(statementBytes, w.sc.maxBytes) {
		if err := w.flush(); err != nil {
			return err
		}
		w.start(kind, index)
		w.sql = append(w.sql, head...)
	} else {
		w.sql = append(w.sql, separator...)
	}
	w.sql = append(w.sql, w.spare...)
	w.rows++
	if w.row != index {
		w.row = -1
	}
	return nil
}

// single makes a statement of the item in spare alone.
func (w *rowWriter) single(index int, kind opKind, head string) error {
	if err := w.flush(); err != nil {
		return err
	}
	w.start(kind, index)
	w.sql = append(append(w.sql, head...), w.spare...)
	w.rows = 1
	return w.flush()
}

func (w *rowWriter) patch(index int, before, after []change.Value) error {
	var err error
	if w.spare, err = w.t.appendPatch(w.spare[:0], before, after); err != nil {
		return w.refuse(index, err)
	}
	return w.single(index, opPatch, "")
}

// refuse drops the open statement: the batch fails with this row.
func (w *rowWriter) refuse(index int, err error) error {
	w.kind, w.rows = opNone, 0
	if errors.Is(err, change.ErrNoKey) {
		return change.WithClass(change.PermanentTask, err)
	}
	return rowError(index, err)
}

func (w *rowWriter) start(k opKind, index int) {
	w.kind, w.rows, w.row, w.sql = k, 0, index, w.sql[:0]
}

// flush ends the open statement.
func (w *rowWriter) flush() error {
	switch w.kind {
	case opNone:
		return nil
	case opUpsert:
		w.sql = append(w.sql, w.t.insertTail...)
	case opDelete:
		w.sql = append(w.sql, w.t.deleteTail...)
	}
	w.kind = opNone
	err := w.sc.add(w.sql, piece{batch: w.batch, row: w.row})
	if err != nil && w.rows == 1 {
		return rowError(w.row, fmt.Errorf("%w: raise max_allowed_packet there", err))
	}
	return err
}

package mysql

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// logWriter makes log events as a server would.
type logWriter struct {
	pos      uint32
	checksum bool
	noPos    bool // events do not say where they end, as in MariaDB from 11.4
}

func (w *logWriter) event(kind byte, flags uint16, body ...byte) []byte {
	n := eventHeaderBytes + len(body)
	if w.checksum {
		n += checksumBytes
	}
	w.pos += uint32(n)
	b := binary.LittleEndian.AppendUint32(nil, 1700000000)
	b = append(b, kind)
	b = binary.LittleEndian.AppendUint32(b, 7)
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	pos := w.pos
	if w.noPos {
		pos = 0
	}
	b = binary.LittleEndian.AppendUint32(b, pos)
	b = binary.LittleEndian.AppendUint16(b, flags)
	b = append(b, body...)
	if w.checksum {
		b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	}
	return b
}

func (w *logWriter) gtid(seq uint64) []byte {
	body := binary.LittleEndian.AppendUint64(nil, seq)
	body = append(body, 0, 0, 0, 0, 0)
	return w.event(evMariaGTID, 0, append(body, make([]byte, 6)...)...)
}

func (w *logWriter) tableMap(id byte) []byte {
	return w.event(evTableMap, 0, id, 0, 0, 0, 0, 0, 1, 0, 1, 'd', 0, 1, 't', 0, 1, typeLong, 0, 0)
}

func (w *logWriter) rows(id byte, values ...byte) []byte {
	body := []byte{id, 0, 0, 0, 0, 0, 1, 0, 1, 0xff}
	for _, v := range values {
		body = append(body, 0, v, 0, 0, 0)
	}
	return w.event(evWriteRowsV1, 0, body...)
}

func (w *logWriter) xid() []byte { return w.event(evXID, 0, 1, 0, 0, 0, 0, 0, 0, 0) }

func testAssembler(o SourceOptions) *assembler {
	info := serverInfo{subject: "source x", mariaDB: true, history: "mariadb:7:binlog", logBase: "binlog"}
	a := newAssembler(info, wantSchema("d"), o.withDefaults(), dumpStart{file: "binlog.000003", fileNo: 3, offset: 4})
	a.checksum = false
	return a
}

// feed gives events to an assembler and collects the groups.
func feed(t *testing.T, a *assembler, events ...[]byte) []*change.Group {
	t.Helper()
	var out []*change.Group
	for _, e := range events {
		d, err := a.event(e)
		if err != nil {
			t.Fatal(err)
		}
		if d.group != nil {
			out = append(out, d.group)
		}
	}
	return out
}

// TestL25FourGigabytes: behind 4 GiB of a file the order goes on and the token
// names a place that a dump can start from.
func TestL25FourGigabytes(t *testing.T) {
	a := testAssembler(SourceOptions{})
	w := &logWriter{pos: 4}
	first := feed(t, a, w.gtid(1), w.xid())
	begin := w.gtid(2)
	if _, err := a.event(begin); err != nil {
		t.Fatal(err)
	}
	// Rows of nearly 4 GiB, in pieces as large as events get.
	huge := make([]byte, 1<<30)
	for range 4 {
		e := &logWriter{pos: w.pos}
		head := e.event(evAnnotateRows, 0)
		binary.LittleEndian.PutUint32(head[9:], uint32(len(huge)))
		binary.LittleEndian.PutUint32(head[13:], w.pos+uint32(len(huge)))
		w.pos += uint32(len(huge))
		copy(huge, head)
		if _, err := a.event(huge); err != nil {
			t.Fatal(err)
		}
	}
	second := feed(t, a, w.xid())
	third := feed(t, a, w.gtid(3), w.xid())
	for _, g := range []*change.Group{second[0], third[0]} {
		if got := binary.BigEndian.Uint64(g.End.Order[8:]); got <= 1<<32 {
			t.Errorf("got offset %d, want one behind 4 GiB", got)
		}
		at, err := parseToken(g.End.Token)
		if err != nil || at.offset != binary.BigEndian.Uint64(first[0].End.Order[8:]) || at.gtid != "0-7-1" {
			t.Errorf("got token %s and error %v, want the place behind the first group", g.End.Token, err)
		}
	}
	if !first[0].End.Before(second[0].End) || !second[0].End.Before(third[0].End) {
		t.Error("the positions are not in order")
	}
	rotate := binary.LittleEndian.AppendUint64(nil, 4)
	feed(t, a, w.event(evRotate, 0, append(rotate, "binlog.000004"...)...))
	w.pos = 4
	fourth := feed(t, a, w.gtid(4), w.xid())
	if got, want := fourth[0].Start.Token, "binlog.000004:4:0-7-3"; got != want || !third[0].End.Before(fourth[0].End) {
		t.Errorf("got start %s, want %s", got, want)
	}
}

// TestL32WithoutPositions: events that do not say where they end.
func TestL32WithoutPositions(t *testing.T) {
	with, without := &logWriter{pos: 4}, &logWriter{pos: 4, noPos: true}
	a, b := testAssembler(SourceOptions{}), testAssembler(SourceOptions{})
	for range 3 {
		x := feed(t, a, with.gtid(1), with.tableMap(1), with.rows(1, 1), with.xid())
		y := feed(t, b, without.gtid(1), without.tableMap(1), without.rows(1, 1), without.xid())
		if x[0].End != y[0].End || x[0].Start != y[0].Start {
			t.Errorf("got %v to %v, want %v to %v", y[0].Start, y[0].End, x[0].Start, x[0].End)
		}
	}
}

// TestL34Incident: every table of the source has lost rows.
func TestL34Incident(t *testing.T) {
	a := testAssembler(SourceOptions{})
	w := &logWriter{pos: 4}
	groups := feed(t, a, w.event(evIncident, 0, 1, 0, 0), w.gtid(1), w.event(evIncident, 0, 1, 0, 0), w.xid())
	if len(groups) != 2 {
		t.Fatalf("got %d groups, want 2", len(groups))
	}
	for _, g := range groups {
		if len(g.Events) != 1 || g.Events[0].Statement.Kind != change.LostRows || g.Events[0].Statement.Tables != nil {
			t.Errorf("got events %+v, want lost rows of every table", g.Events)
		}
	}
}

// TestCrashedGroup: what a crash cut off is dropped where the next file begins.
func TestCrashedGroup(t *testing.T) {
	a := testAssembler(SourceOptions{})
	w := &logWriter{pos: 4}
	if got := feed(t, a, w.gtid(1), w.tableMap(1), w.rows(1, 1)); len(got) != 0 {
		t.Fatalf("got groups %v of an open one", got)
	}
	fake := w.event(evRotate, flagArtificial, append(binary.LittleEndian.AppendUint64(nil, 4), "binlog.000004"...)...)
	next := &logWriter{pos: 4}
	fde := make([]byte, 57+171+1+4)
	binary.LittleEndian.PutUint16(fde, 4)
	fde[56] = eventHeaderBytes
	fde[57+evTableMap-1] = 8
	groups := feed(t, a, fake, next.event(evFormatDescription, 0, fde...), next.gtid(2), next.tableMap(1), next.rows(1, 2), next.xid())
	if len(groups) != 1 || len(groups[0].Events) != 1 || !strings.HasPrefix(groups[0].Start.Token, "binlog.000004:") {
		t.Errorf("got %+v, want the group of the new file only", groups)
	}
}

// TestL35DamageIsNamed: nothing that cannot be read is passed over.
func TestL35DamageIsNamed(t *testing.T) {
	w := &logWriter{pos: 4}
	for _, c := range []struct {
		name   string
		events [][]byte
		want   string
	}{
		{"an unknown type", [][]byte{w.event(200, 0)}, "type 200"},
		{"encryption", [][]byte{w.event(evStartEncryption, 0)}, "encrypt_binlog"},
		{"L-33 compressed transaction", [][]byte{w.event(evTransactionPayload, 0)}, "binlog_transaction_compression"},
		{"V-37 partial JSON", [][]byte{w.event(evPartialUpdateRows, 0)}, "binlog_row_value_options"},
		{"rows without a map", [][]byte{w.gtid(1), w.rows(9, 1)}, "table number 9"},
		{"rows outside of a group", [][]byte{w.tableMap(1), w.rows(1, 1)}, "outside of a group"},
		{"a group in a group", [][]byte{w.gtid(1), w.gtid(2)}, "begins before"},
		{"a commit of nothing", [][]byte{w.xid()}, "without a group"},
		{"a cut event", [][]byte{w.gtid(1)[:30]}, "damaged"},
		{"an unknown savepoint", [][]byte{w.gtid(1), w.event(evQuery, 0, append(make([]byte, 14), "ROLLBACK TO `x`"...)...)}, "savepoint"},
	} {
		a := testAssembler(SourceOptions{})
		var err error
		for _, e := range c.events {
			if len(e) >= eventHeaderBytes {
				binary.LittleEndian.PutUint32(e[13:], 0)
			}
			if _, err = a.event(e); err != nil {
				break
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || change.ClassOf(err) != change.SourceWide {
			t.Errorf("%s: got error %v of class %s, want one with %q of class source-wide", c.name, err, change.ClassOf(err), c.want)
		}
	}
	a := testAssembler(SourceOptions{})
	i := &logWriter{pos: 4}
	feed(t, a, i.event(200, flagIgnorable), i.gtid(1), i.xid())

	a = testAssembler(SourceOptions{})
	a.checksum = true
	c := &logWriter{pos: 4, checksum: true}
	feed(t, a, c.gtid(1))
	bad := c.tableMap(1)
	bad[25] ^= 1
	if _, err := a.event(bad); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("got %v for a turned bit, want an error about the checksum", err)
	}
}

// TestDecodeRefusesWhatDoesNotFit: rows and layout must agree.
func TestDecodeRefusesWhatDoesNotFit(t *testing.T) {
	a := testAssembler(SourceOptions{})
	w := &logWriter{pos: 4}
	g := feed(t, a, w.gtid(1), w.tableMap(1), w.rows(1, 1, 2), w.xid())[0]
	column := change.Column{Name: "id", Type: "int(11)", Base: "int"}
	decode := func(columns ...change.Column) error {
		return g.Events[0].Rows.Decode(&change.Layout{Columns: columns}, new(change.Arena), func(change.Change) error { return nil })
	}
	if err := decode(column); err != nil {
		t.Errorf("got %v for the right layout", err)
	}
	big, two := column, []change.Column{column, column}
	big.Base = "bigint"
	for _, columns := range [][]change.Column{{big}, two, {}} {
		if err := decode(columns...); !errors.Is(err, change.ErrLayout) {
			t.Errorf("got %v for columns %v, want ErrLayout", err, columns)
		}
	}
	stop := errors.New("stop")
	n := 0
	err := g.Events[0].Rows.Decode(&change.Layout{Columns: []change.Column{column}}, new(change.Arena), func(change.Change) error { n++; return stop })
	if err != stop || n != 1 {
		t.Errorf("got %v after %d rows, want emit's own error after one", err, n)
	}
	g = feed(t, a, w.gtid(2), w.tableMap(1), w.event(evWriteRowsV1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0xff, 0, 1, 2), w.xid())[0]
	if err := decode(column); !errors.Is(err, errDamaged) || change.ClassOf(err) != change.PermanentTask {
		t.Errorf("got %v of class %s for a short row, want errDamaged of class permanent-task", err, change.ClassOf(err))
	}
}

// TestDecodeAllocates nothing once its arena has grown.
func TestDecodeAllocates(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d", "USE d",
		"CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, a DECIMAL(20,4), b DATETIME(6), c TIMESTAMP NULL, e ENUM('x','y'), s SET('x','y'), v VARCHAR(50), f DOUBLE, u UUID, i INET6, n INT, bi BINARY(8), t TIME(3))")
	from := now(t, s)
	execSQL(t, m, "USE d", "INSERT INTO t SELECT seq, seq/7, NOW(6), NOW(), 'y', 'x,y', CONCAT('row ',seq), seq/3, UUID(), '::1', NULL, 'ab', '-01:02:03.456' FROM seq_1_to_2000")
	g := readTo(t, s, from, wantSchema("d"))[0]
	l := layouts(t, s, g.Events[0].Table)[g.Events[0].Table]
	a := new(change.Arena)
	rows := 0
	emit := func(change.Change) error { rows++; return nil }
	allocs := testing.AllocsPerRun(20, func() {
		rows = 0
		for _, e := range g.Events {
			if err := e.Rows.Decode(l, a, emit); err != nil {
				t.Fatal(err)
			}
		}
		a.Reset(64 << 20)
	})
	if rows != 2000 {
		t.Errorf("got %d rows, want 2000", rows)
	}
	if allocs > 0 {
		t.Errorf("got %v allocations for 2000 rows, want none", allocs)
	}
}

// FuzzEvents feeds damaged logs. Nothing may panic, and what is delivered must be
// decodable or refused.
func FuzzEvents(f *testing.F) {
	w := &logWriter{pos: 4}
	f.Add(concat(w.gtid(1), w.tableMap(1), w.rows(1, 1, 2), w.xid()))
	q := append(make([]byte, 14), "ALTER TABLE d.t ADD x INT"...)
	f.Add(concat(w.gtid(1), w.event(evQuery, 0, q...)))
	f.Add(concat(w.gtid(1), w.tableMap(1), w.event(evUpdateRowsV2, 0, 1, 0, 0, 0, 0, 0, 1, 0, 2, 0, 1, 0xff, 0xff, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0), w.xid()))
	f.Add(concat(w.gtid(1), w.event(evXAPrepare, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 'a'), w.gtid(2), w.event(evQuery, 0, append(make([]byte, 14), "XA COMMIT X'61',X'',1"...)...)))
	var types, meta []byte
	for _, k := range []byte{typeTiny, typeShort, typeLong, typeFloat, typeDouble, typeLongLong, typeInt24, typeDate, typeYear, typeTime, typeDatetime, typeTimestamp} {
		types = append(types, k)
		if k == typeFloat || k == typeDouble {
			meta = append(meta, 8)
		}
	}
	for _, x := range []struct {
		kind byte
		meta []byte
	}{
		{typeVarchar, []byte{20, 0}}, {typeBit, []byte{1, 1}}, {typeTimestamp2, []byte{6}}, {typeDatetime2, []byte{3}}, {typeTime2, []byte{6}},
		{typeDecimal, []byte{20, 4}}, {typeBlob, []byte{2}}, {typeString, []byte{254, 16}}, {typeString, []byte{247, 1}}, {typeString, []byte{248, 1}},
		{typeVarcharCompressed, []byte{200, 0}}, {typeBlobCompressed, []byte{4}}, {typeGeometry, []byte{4}},
	} {
		types, meta = append(types, x.kind), append(meta, x.meta...)
	}
	tm := append([]byte{1, 0, 0, 0, 0, 0, 1, 0, 1, 'd', 0, 1, 't', 0, byte(len(types))}, types...)
	tm = append(append(append(tm, byte(len(meta))), meta...), make([]byte, (len(types)+7)/8)...)
	rows := append([]byte{1, 0, 0, 0, 0, 0, 1, 0, byte(len(types)), 0xff, 0xff, 0xff, 0xff}, make([]byte, 200)...)
	f.Add(concat(w.gtid(1), w.event(evTableMap, 0, tm...), w.event(evWriteRowsV1, 0, rows...), w.xid()))
	f.Add(concat(w.gtid(1), w.event(evTableMap, 0, tm...), w.event(evWriteCompressedV1, 0, append(rows[:13:13], 0x81, 5, 'x', 0x9c)...), w.xid()))
	f.Fuzz(func(t *testing.T, log []byte) {
		a := testAssembler(SourceOptions{SpillBytes: 1 << 30})
		for len(log) >= eventHeaderBytes {
			n := min(int(binary.LittleEndian.Uint16(log[9:])), len(log))
			if n < eventHeaderBytes {
				return
			}
			e := append([]byte(nil), log[:n]...)
			binary.LittleEndian.PutUint32(e[9:], uint32(n))
			binary.LittleEndian.PutUint32(e[13:], 0)
			log = log[n:]
			d, err := a.event(e)
			if err != nil {
				return
			}
			if d.group == nil {
				continue
			}
			for _, ev := range d.group.Events {
				if ev.Rows != nil {
					decodeAnyhow(t, ev.Rows.(*rowBlock))
				}
			}
		}
	})
}

func concat(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// decodeAnyhow decodes a block with a layout made up from its table map.
func decodeAnyhow(t *testing.T, b *rowBlock) {
	t.Helper()
	l := &change.Layout{Table: b.tables.table}
	for i, k := range b.tables.types {
		l.Columns = append(l.Columns, columnFor(k, b.tables.meta[i]))
	}
	n := len(l.Columns)
	if b.tables.names != nil {
		for i := range l.Columns {
			l.Columns[i].Name = b.tables.names[i]
		}
	}
	err := b.Decode(l, new(change.Arena), func(c change.Change) error {
		if c.Before != nil && len(c.Before) != n || c.After != nil && len(c.After) != n {
			t.Errorf("got images of %d and %d values, want %d", len(c.Before), len(c.After), n)
		}
		return nil
	})
	if err != nil && !errors.Is(err, change.ErrLayout) && !errors.Is(err, errDamaged) {
		t.Errorf("got error %v, want ErrLayout or errDamaged", err)
	}
}

// columnFor makes up a column that a wire type fits.
func columnFor(kind byte, meta uint16) change.Column {
	c := change.Column{Base: map[byte]string{
		typeTiny: "tinyint", typeShort: "smallint", typeLong: "int", typeFloat: "float", typeDouble: "double", typeLongLong: "bigint",
		typeInt24: "mediumint", typeDate: "date", typeYear: "year", typeTime: "time", typeTime2: "time", typeDatetime: "datetime",
		typeDatetime2: "datetime", typeTimestamp: "timestamp", typeTimestamp2: "timestamp", typeGeometry: "point",
	}[kind]}
	switch kind {
	case typeTime2, typeDatetime2, typeTimestamp2:
		c.Scale = int(meta)
	case typeTime, typeDatetime, typeTimestamp:
		c.Scale = int(meta+3) % 7
	case typeVarchar, typeVarcharCompressed:
		c.Base, c.LengthBytes = "varchar", int(meta)
		if kind == typeVarcharCompressed {
			c.Compressed, c.LengthBytes = true, int(meta)-1
		}
	case typeBit:
		c.Base, c.Type = "bit", fmt.Sprintf("bit(%d)", int(meta&0xff)+8*int(meta>>8))
	case typeDecimal:
		c.Base, c.Type, c.Scale = "decimal", fmt.Sprintf("decimal(%d,%d)", meta>>8, meta&0xff), int(meta&0xff)
	case typeBlob, typeBlobCompressed:
		c.Base = []string{"tinyblob", "blob", "mediumblob", "longblob"}[meta&3]
		for base, prefix := range blobPrefixes {
			if prefix == uint8(meta) && strings.HasSuffix(base, "blob") {
				c.Base = base
			}
		}
		c.Compressed = kind == typeBlobCompressed
	case typeString:
		switch meta >> 8 {
		case typeEnum:
			c.Base, c.Charset, c.Labels = "enum", "latin1", []string{"a", "ä"}
		case typeSet:
			c.Base, c.Charset, c.Labels = "set", "utf16", []string{"a", "ä"}
		default:
			c.Base, c.LengthBytes = "binary", stringLength(meta)
			if c.LengthBytes == 16 {
				c.Base = []string{"binary", "uuid", "inet6"}[meta%3]
			}
		}
	}
	return c
}

package mysql

import (
	"fmt"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// BenchmarkDecode measures assembling and decoding of a log that is in memory;
// one operation is one row.
func BenchmarkDecode(b *testing.B) {
	m := testdb.MariaDBFor(b, testdb.MariaDBOptions{})
	cfg, err := ParseDSN(m.DSN("root", ""))
	if err != nil {
		b.Fatal(err)
	}
	s, err := NewSource(cfg, SourceOptions{})
	if err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	if err := m.Exec(ctx, "CREATE DATABASE d", `CREATE TABLE d.t (id BIGINT PRIMARY KEY, a INT UNSIGNED NOT NULL, b TINYINT, c DECIMAL(12,2), d DECIMAL(8,4),
		e VARCHAR(80) CHARACTER SET latin1, f TEXT CHARACTER SET latin1, g CHAR(30), h DATETIME(6), i TIMESTAMP(3) NULL, j DOUBLE, k BIGINT UNSIGNED)`); err != nil {
		b.Fatal(err)
	}
	const row = "SELECT seq, seq, seq%5, seq/7, NULL, CONCAT('order number ',seq), REPEAT('note ',seq%20), 'Sankt', '2024-03-01 12:00:00.123456', '2024-03-01 12:00:00.5', seq/3, NULL FROM "
	for _, shape := range []string{"single", "packed"} {
		from, err := s.Now(ctx)
		if err != nil {
			b.Fatal(err)
		}
		sql := []string{"USE d", "DELETE FROM t", "FLUSH BINARY LOGS"}
		if shape == "packed" {
			sql = append(sql, "INSERT INTO t "+row+"seq_1_to_5000")
		}
		for i := 0; shape == "single" && i < 5000; i++ {
			if i%10 == 0 {
				sql = append(sql, "BEGIN")
			}
			sql = append(sql, "INSERT INTO t "+row+fmt.Sprintf("(SELECT %d seq) s", i))
			if i%10 == 9 {
				sql = append(sql, "COMMIT")
			}
		}
		if err := m.Exec(ctx, sql...); err != nil {
			b.Fatal(err)
		}
		events, asm, l := rawLog(b, s, from)
		b.Run(shape, func(b *testing.B) { benchmarkDecode(b, events, asm, l) })
	}
}

// rawLog reads the log from a position to now.
func rawLog(b *testing.B, s *Source, from change.Position) (events [][]byte, asm func() *assembler, l *change.Layout) {
	b.Helper()
	ctx := b.Context()
	to, err := s.Now(ctx)
	if err != nil {
		b.Fatal(err)
	}
	if l, _, err = s.Pin(ctx, change.TableID{Schema: "d", Name: "t"}); err != nil {
		b.Fatal(err)
	}
	d, a, err := s.dump(ctx, from, wantSchema("d"))
	if err != nil {
		b.Fatal(err)
	}
	defer d.close()
	for last := from; last.Before(to); {
		raw, err := d.next()
		if err != nil {
			b.Fatal(err)
		}
		events = append(events, append([]byte(nil), raw...))
		g, err := a.event(raw)
		if err != nil {
			b.Fatal(err)
		}
		if g.group != nil {
			last = g.group.End
		}
	}
	at, err := parseToken(from.Token)
	if err != nil {
		b.Fatal(err)
	}
	return events, func() *assembler { return newAssembler(a.server, a.filter, a.options, at) }, l
}

func benchmarkDecode(b *testing.B, events [][]byte, asm func() *assembler, l *change.Layout) {
	b.ReportAllocs()
	arena := new(change.Arena)
	n := 0
	emit := func(change.Change) error { n++; return nil }
	for n < b.N {
		a := asm()
		for _, raw := range events {
			d, err := a.event(raw)
			if err != nil {
				b.Fatal(err)
			}
			if d.group == nil {
				continue
			}
			for _, e := range d.group.Events {
				if e.Rows == nil {
					continue
				}
				if err := e.Rows.Decode(l, arena, emit); err != nil {
					b.Fatal(err)
				}
				arena.Reset(1 << 20)
			}
		}
	}
}

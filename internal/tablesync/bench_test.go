package tablesync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// BenchmarkBacklog measures how fast a backlog of packed row events reaches the
// target, over one table and over many.
func BenchmarkBacklog(b *testing.B) {
	for _, tables := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("tables=%d", tables), func(b *testing.B) {
			const rows = 200_000
			for b.Loop() {
				b.StopTimer()
				r := backlogRig(b, tables)
				for _, verb := range []string{"stop", "write"} {
					if verb == "stop" {
						r.stop()
						continue
					}
					var sql []string
					sql = append(sql, "USE shop")
					for n := range tables {
						per := rows / tables
						for at := 0; at < per; at += 1000 {
							end := min(at+1000, per)
							sql = append(sql, fmt.Sprintf("INSERT INTO shop.t%d SELECT seq, CONCAT('customer ', seq), seq*3, seq/7, NOW(6), REPEAT('x', 60) FROM seq_%d_to_%d", n, at+1, end))
						}
					}
					r.exec(sql...)
				}
				b.StartTimer()
				began := time.Now()
				r.start()
				eventually(b, "the backlog is applied", func() (bool, string) {
					c := r.engine.Counters()
					return c.ChangesApplied >= rows, fmt.Sprint(c)
				})
				b.ReportMetric(rows/time.Since(began).Seconds(), "rows/s")
				b.StopTimer()
				r.stop()
				b.StartTimer()
			}
		})
	}
}

func backlogRig(b *testing.B, tables int) *rig {
	r := newRig(b, testdb.MariaDBOptions{ExtraArgs: []string{"--innodb-buffer-pool-size=1G", "--table-open-cache=4000"}})
	sql := []string{"CREATE DATABASE shop"}
	for n := range tables {
		sql = append(sql, fmt.Sprintf("CREATE TABLE shop.t%d(id BIGINT PRIMARY KEY, name VARCHAR(60), n INT UNSIGNED, price DECIMAL(12,2), at DATETIME(6), pad VARCHAR(100))", n))
	}
	r.exec(sql...)
	r.start()
	r.apply(shopPipeline)
	r.inState(tables, tablesync.Streaming)
	return r
}

// BenchmarkManyTables measures how long new tables take from the pipeline to
// streaming: creation at the target, copy of a few rows, hand-over.
func BenchmarkManyTables(b *testing.B) {
	const tables, rows = 1000, 50
	for b.Loop() {
		b.StopTimer()
		r := newRig(b, testdb.MariaDBOptions{ExtraArgs: []string{"--innodb-buffer-pool-size=1G", "--table-open-cache=4000"}})
		sql := []string{"CREATE DATABASE shop", "USE shop"}
		for n := range tables {
			sql = append(sql, fmt.Sprintf("CREATE TABLE shop.t%d(id BIGINT PRIMARY KEY, name VARCHAR(60))", n),
				fmt.Sprintf("INSERT INTO shop.t%d SELECT seq, CONCAT('customer ', seq) FROM seq_1_to_%d", n, rows))
		}
		r.exec(sql...)
		r.start()
		b.StartTimer()
		began := time.Now()
		r.apply(shopPipeline)
		r.inState(tables, tablesync.Streaming)
		b.ReportMetric(tables/time.Since(began).Seconds(), "tables/s")
		b.StopTimer()
		r.stop()
		b.StartTimer()
	}
}

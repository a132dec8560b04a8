package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"syscall"
	"time"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/connector/mysql"
)

type only string

func (o only) Wants(t change.TableID) bool  { return t.Schema == "bench" && t.Name == string(o) }
func (o only) WantsNew(change.TableID) bool { return false }
func (o only) Generation() uint64           { return 1 }

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// readRunnel decodes every row of a table into a reused arena.
func readRunnel(ctx context.Context, src *mysql.Source, b *backlog, table string) (rows, sum uint64, close func(), err error) {
	close = func() {}
	st, err := src.Open(ctx, b.from, only(table))
	if err != nil {
		return 0, 0, close, err
	}
	close = func() { _ = st.Close() } // what it read has been counted
	a := new(change.Arena)
	emit := func(c change.Change) error {
		rows++
		sum += c.After[0].Num
		return nil
	}
	for last := b.from; last.Before(b.to); {
		g, err := st.Next(ctx)
		if err != nil {
			return rows, sum, close, err
		}
		for _, e := range g.Events {
			if e.Rows == nil {
				continue
			}
			if err := e.Rows.Decode(b.layout, a, emit); err != nil {
				return rows, sum, close, err
			}
			a.Reset(16 << 20)
		}
		last = g.End
	}
	return rows, sum, close, nil
}

// handler gets go-mysql's events without a queue in between, its fastest way.
type handler func(*replication.BinlogEvent) error

func (h handler) HandleEvent(e *replication.BinlogEvent) error { return h(e) }

// readGoMySQL reads the same stretch with go-mysql, which decodes every row.
func readGoMySQL(ctx context.Context, port uint16, b *backlog) (rows, sum uint64, close func(), err error) {
	close = func() {}
	fromFile, fromPos, err := place(b.from)
	if err != nil {
		return 0, 0, close, err
	}
	toFile, toPos, err := place(b.to)
	if err != nil {
		return 0, 0, close, err
	}
	done := make(chan struct{}, 1)
	finished := false
	file := fromFile
	s := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: 987654, Flavor: "mariadb", Host: "127.0.0.1", Port: port, User: "root", VerifyChecksum: true,
		DisableRetrySync: true, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		SynchronousEventHandler: handler(func(e *replication.BinlogEvent) error {
			switch v := e.Event.(type) {
			case *replication.RotateEvent:
				if e.Header.LogPos != 0 { // else made for the connection, with a checksum that counts as part of the name
					file = string(v.NextLogName)
				}
			case *replication.RowsEvent:
				if string(v.Table.Table) == b.name {
					n, s := sumIDs(e.Header.EventType, v.Rows)
					rows, sum = rows+n, sum+s
				}
			}
			if !finished && file == toFile && e.Header.LogPos >= toPos {
				finished = true
				done <- struct{}{}
			}
			return nil
		}),
	})
	close = s.Close
	streamer, err := s.StartSync(gomysql.Position{Name: fromFile, Pos: fromPos})
	if err != nil {
		return 0, 0, close, err
	}
	broken := make(chan error, 1)
	go func() { // no event comes this way, only the end
		_, err := streamer.GetEvent(ctx)
		broken <- err
	}()
	select {
	case <-done:
		return rows, sum, close, nil
	case err := <-broken:
		return 0, 0, close, err
	case <-ctx.Done():
		return 0, 0, close, ctx.Err()
	}
}

// sumIDs counts rows and adds the ids of their newer images.
func sumIDs(kind replication.EventType, images [][]any) (rows, sum uint64) {
	step, at := 1, 0
	if kind == replication.UPDATE_ROWS_EVENTv1 || kind == replication.UPDATE_ROWS_EVENTv2 {
		step, at = 2, 1
	}
	for ; at < len(images); at += step {
		rows++
		if id, ok := images[at][0].(int64); ok {
			sum += uint64(id)
		}
	}
	return rows, sum
}

// place reads file and offset out of a position's token.
func place(p change.Position) (file string, offset uint32, err error) {
	parts := strings.SplitN(p.Token, ":", 3)
	if len(parts) != 3 {
		return "", 0, fmt.Errorf("read position %s", p)
	}
	n, err := strconv.ParseUint(parts[1], 10, 32)
	return parts[0], uint32(n), err
}

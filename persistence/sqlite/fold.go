package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/runnel-dev/runnel/internal/fault"
	"github.com/runnel-dev/runnel/persistence"
)

const (
	// foldSlice is how many entity rows go into one transaction: few enough that a
	// command waits for them only some milliseconds.
	foldSlice = 192
	// foldChunk and foldChunkBytes bound what one chunk holds in memory. Large
	// chunks put more neighbours into each page that is written.
	foldChunk      = 1 << 16
	foldChunkBytes = 16 << 20
)

// folder brings entity rows up to the journal. It reads the journal behind the
// mark in chunks, sorts each chunk by entity id, so that neighbours share the
// pages they dirty, and hands slices of rows to the writer. The chunk's last slice
// also moves the mark to the chunk's end.
//
// Invariant: entity rows and the journal behind the mark give every entity's
// place. A crash between two slices leaves rows that are ahead of the mark; their
// seq tells, here and at the start.
type folder struct {
	s      *Store
	mark   uint64                 // stored mark; the folder's goroutine only
	behind []persistence.EntityID // whose rows are to be tried again once
	asks   chan chan error        // a pass is wanted; the answer is its outcome
	end    chan struct{}          // closed: one last pass, then return
	done   chan struct{}
}

func newFolder(s *Store, mark uint64, behind []persistence.EntityID) *folder {
	return &folder{s: s, mark: mark, behind: behind, asks: make(chan chan error), end: make(chan struct{}), done: make(chan struct{})}
}

func (f *folder) run(ctx context.Context) {
	defer close(f.done)
	t := time.NewTicker(f.s.opt.FoldEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.end:
			f.report(f.pass(ctx))
			return
		case answer := <-f.asks:
			answer <- f.pass(ctx)
		case <-t.C:
			f.report(f.pass(ctx))
		}
	}
}

// report logs what no caller is told. Rows stay behind; the next pass tries again.
func (f *folder) report(err error) {
	if err != nil && f.s.failure() == nil {
		f.s.opt.Log.Error("entity rows not folded", "dir", f.s.dir, "error", err)
	}
}

// last runs a last pass, so that the next start has no journal to read, and waits.
func (f *folder) last() {
	close(f.end)
	<-f.done
}

// Fold is persistence.Rows'.
func (s *Store) Fold(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case s.fold.asks <- answer:
	case <-s.fold.done:
		return fmt.Errorf("fold entity rows: %w", persistence.ErrClosed)
	case <-ctx.Done():
		return fmt.Errorf("fold entity rows: %w", context.Cause(ctx))
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("fold entity rows: %w", context.Cause(ctx))
	}
}

// pass folds the journal up to its end at the call.
func (f *folder) pass(ctx context.Context) error {
	if err := f.again(ctx); err != nil {
		return fmt.Errorf("fold rows that were behind: %w", err)
	}
	for end := f.s.table.journalEnd(); f.mark < end; {
		c, err := f.read(ctx, end)
		if err == nil {
			err = f.write(ctx, c)
		}
		if err != nil {
			return fmt.Errorf("fold the journal behind row %d: %w", f.mark, err)
		}
		f.mark = c.end
	}
	return nil
}

// chunk is a piece of the journal by entity.
type chunk struct {
	end  uint64 // its last row
	news map[persistence.EntityID]*news
}

// news is what a chunk says of one entity.
type news struct {
	place
	events []persistence.StoredEvent // for types with a Folder
}

// read returns the chunk behind the mark, not past end.
func (f *folder) read(ctx context.Context, end uint64) (chunk, error) {
	c := chunk{end: f.mark, news: map[persistence.EntityID]*news{}}
	rows, err := f.s.rdb.QueryContext(ctx, `SELECT "row", entity, seq, prev, at, type, version, data FROM journal
WHERE "row" > ? AND "row" <= ? ORDER BY "row" LIMIT ?`, int64(f.mark), int64(end), foldChunk)
	if err != nil {
		return c, f.s.classify(err)
	}
	defer rows.Close()
	for size := 0; size < foldChunkBytes && rows.Next(); {
		var id, typ string
		var data sql.RawBytes
		var at int64
		var ev persistence.StoredEvent
		if err := rows.Scan(&ev.Row, &id, &ev.Seq, &ev.Prev, &at, &typ, &ev.Version, &data); err != nil {
			return c, f.s.classify(err)
		}
		if ev.Entity, err = persistence.ParseEntityID(id); err != nil {
			return c, fmt.Errorf("%w: journal row %d: %w", persistence.ErrCorrupt, ev.Row, err)
		}
		c.end = ev.Row
		n := c.news[ev.Entity]
		if n == nil {
			n = &news{}
			c.news[ev.Entity] = n
		}
		n.place = place{ev.Seq, ev.Row}
		if f.s.opt.Folders[ev.Entity.Type()] != nil {
			ev.At, ev.Type, ev.Data = time.UnixMicro(at).UTC(), typ, slices.Clone(data)
			n.events = append(n.events, ev)
		}
		size += len(data) + perOp
	}
	if err := rows.Err(); err != nil {
		return c, f.s.classify(err)
	}
	if c.end == f.mark {
		return c, fmt.Errorf("%w: the journal ends before row %d", persistence.ErrCorrupt, end)
	}
	return c, nil
}

// write brings the chunk's entities up to its end, in id order.
func (f *folder) write(ctx context.Context, c chunk) error {
	ids := make([]persistence.EntityID, 0, len(c.news))
	for id := range c.news {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b persistence.EntityID) int { return strings.Compare(a.String(), b.String()) })
	for len(ids) > 0 {
		n := min(foldSlice, len(ids))
		point, last := foldSliced, n == len(ids)
		if last {
			point = foldMark
		}
		if err := fault.Point(point); err != nil {
			return err
		}
		var rows []statement
		for _, id := range ids[:n] {
			st, err := f.row(ctx, id, c.news[id])
			if err != nil {
				return err
			}
			rows = append(rows, st...)
		}
		if last {
			rows = append(rows, statement{putMark, []any{strconv.FormatUint(c.end, 10)}})
		}
		if err := f.put(ctx, rows); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

const (
	putRow  = `INSERT OR REPLACE INTO entity(id, seq, last, data_seq, data, fault) VALUES(?,?,?,?,?,?)`
	putMark = `UPDATE meta SET value = ? WHERE name = '` + metaFoldMark + `'`
)

// put has the writer run statements as one transaction, behind commands.
func (f *folder) put(ctx context.Context, rows []statement) error {
	_, err := f.s.do(ctx, true, len(rows)*perOp, func(b *batch) (uint64, error) {
		b.others = append(b.others, rows...)
		return 0, nil
	})
	return err
}

// row is the statement that brings an entity's row up to n, or none if it is
// further already. Without a Folder nothing needs to be read.
func (f *folder) row(ctx context.Context, id persistence.EntityID, n *news) ([]statement, error) {
	r := persistence.Row{Entity: id, Seq: n.seq, Last: n.last}
	if fold := f.s.opt.Folders[id.Type()]; fold != nil {
		stored, err := f.stored(ctx, id)
		if err != nil {
			return nil, err
		}
		if stored.Seq >= n.seq {
			return nil, nil
		}
		r.Data, r.DataSeq = stored.Data, stored.DataSeq
		if r.DataSeq+1 < n.events[0].Seq {
			err = f.s.readChain(ctx, id, r.DataSeq, n.place, adder(fold, &r))
		} else {
			add := adder(fold, &r)
			for i := 0; i < len(n.events) && err == nil; i++ {
				err = add(n.events[i])
			}
		}
		if err != nil {
			return nil, fmt.Errorf("fold row of %s: %w", id, err)
		}
	}
	return []statement{rowStatement(r)}, nil
}

func rowStatement(r persistence.Row) statement {
	var fault any
	if r.Fault != "" {
		fault = r.Fault
	}
	return statement{putRow, []any{r.Entity.String(), int64(r.Seq), int64(r.Last), int64(r.DataSeq), r.Data, fault}}
}

// adder folds events into r until one fails; what r has already is passed over.
func adder(fold persistence.Folder, r *persistence.Row) func(persistence.StoredEvent) error {
	return func(ev persistence.StoredEvent) error {
		if r.Fault != "" || ev.Seq <= r.DataSeq {
			return nil
		}
		data, err := fold(r.Data, ev)
		if err != nil {
			r.Fault = fmt.Sprintf("fold seq %d, %s version %d: %v", ev.Seq, ev.Type, ev.Version, err)
			return nil
		}
		r.Data, r.DataSeq = data, ev.Seq
		return nil
	}
}

// stored is the entity's row; the zero Row with its id if there is none.
func (f *folder) stored(ctx context.Context, id persistence.EntityID) (persistence.Row, error) {
	r := persistence.Row{Entity: id}
	err := f.s.rdb.QueryRowContext(ctx, `SELECT seq, last, data_seq, data FROM entity WHERE id = ?`, id.String()).Scan(&r.Seq, &r.Last, &r.DataSeq, &r.Data)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return r, fmt.Errorf("read row of %s: %w", id, f.s.classify(err))
	}
	return r, nil
}

// again tries the rows that were behind at open: the Folder may be a newer one
// that can read what the last could not, or the type may have had none.
func (f *folder) again(ctx context.Context) error {
	for len(f.behind) > 0 {
		n := min(foldSlice, len(f.behind))
		var rows []statement
		for _, id := range f.behind[:n] {
			r, err := f.stored(ctx, id)
			if err != nil {
				return err
			}
			if err := f.s.readChain(ctx, id, r.DataSeq, place{r.Seq, r.Last}, adder(f.s.opt.Folders[id.Type()], &r)); err != nil {
				return fmt.Errorf("fold row of %s: %w", id, err)
			}
			rows = append(rows, rowStatement(r))
		}
		if err := f.put(ctx, rows); err != nil {
			return err
		}
		f.behind = f.behind[n:]
	}
	f.behind = nil
	return nil
}

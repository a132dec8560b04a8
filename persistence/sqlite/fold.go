package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/runnel-dev/runnel/persistence"
)

// foldSlice is how many entity rows go into one transaction: few enough that a
// command waits for them only some milliseconds.
const foldSlice = 192

// folder brings entity rows up to the journal, in id order, so that neighbours
// share the pages they dirty. It reads and computes; the writer writes.
//
// A pass is many transactions. Its mark is the last row that was committed before
// the pass took the list of entities behind; it moves with the pass's last rows.
// A crash in between leaves rows that are ahead of the mark, which the next start
// recognises by their seq.
type folder struct {
	s    *Store
	asks chan chan error // a pass is wanted; the answer is its outcome
	end  chan struct{}   // closed: one last pass, then return
	done chan struct{}
}

func newFolder(s *Store) *folder {
	return &folder{s: s, asks: make(chan chan error), end: make(chan struct{}), done: make(chan struct{})}
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

// pass folds everything that is behind now.
func (f *folder) pass(ctx context.Context) error {
	t := f.s.table
	names, mark := t.takeDirty()
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	ids := make([]persistence.EntityID, 0, len(names))
	for _, n := range names {
		id, err := persistence.ParseEntityID(n)
		if err != nil {
			return fmt.Errorf("fold entity rows: %w", err) // the table holds parsed ids only
		}
		ids = append(ids, id)
	}
	for len(ids) > 0 {
		n := min(foldSlice, len(ids))
		if err := f.slice(ctx, ids[:n], mark, n == len(ids)); err != nil {
			t.markDirty(ids)
			return fmt.Errorf("fold %d entity rows from %s: %w", n, ids[0], err)
		}
		ids = ids[n:]
	}
	return nil
}

const (
	putRow  = `INSERT OR REPLACE INTO entity(id, seq, last, data_seq, data, fault) VALUES(?,?,?,?,?,?)`
	putMark = `UPDATE meta SET value = ? WHERE name = '` + metaFoldMark + `'`
)

// slice folds some entities in one transaction, the last one with the mark.
func (f *folder) slice(ctx context.Context, ids []persistence.EntityID, mark uint64, last bool) error {
	rows := make([]statement, 0, len(ids)+1)
	for _, id := range ids {
		r, err := f.row(ctx, id)
		if err != nil {
			return err
		}
		var fault any
		if r.Fault != "" {
			fault = r.Fault
		}
		rows = append(rows, statement{putRow, []any{id.String(), int64(r.Seq), int64(r.Last), int64(r.DataSeq), r.Data, fault}})
	}
	if last {
		rows = append(rows, statement{putMark, []any{strconv.FormatUint(mark, 10)}})
	}
	_, err := f.s.do(ctx, true, len(rows)*perOp, func(b *batch) (uint64, error) {
		b.others = append(b.others, rows...)
		return 0, nil
	})
	return err
}

// row computes an entity's row. Without a Folder nothing needs to be read.
func (f *folder) row(ctx context.Context, id persistence.EntityID) (persistence.Row, error) {
	p := f.s.table.get(id)
	r := persistence.Row{Entity: id, Seq: p.seq, Last: p.last}
	fold := f.s.opt.Folders[id.Type()]
	if fold == nil {
		return r, nil
	}
	err := f.s.rdb.QueryRowContext(ctx, `SELECT data_seq, data FROM entity WHERE id = ?`, id.String()).Scan(&r.DataSeq, &r.Data)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return r, fmt.Errorf("read row of %s: %w", id, f.s.classify(err))
	}
	return r, f.s.readChain(ctx, id, r.DataSeq, p, func(ev persistence.StoredEvent) error {
		if r.Fault != "" {
			return nil
		}
		data, err := fold(r.Data, ev)
		if err != nil {
			r.Fault = fmt.Sprintf("fold seq %d, %s version %d: %v", ev.Seq, ev.Type, ev.Version, err)
			return nil
		}
		r.Data, r.DataSeq = data, ev.Seq
		return nil
	})
}

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/runnel-dev/runnel/internal/fault"
	"github.com/runnel-dev/runnel/persistence"
)

// Where a crash leaves something half done.
var (
	commitBefore = fault.Register("store.commit.before") // rows are written, not committed
	commitAfter  = fault.Register("store.commit.after")  // durable, nobody knows yet
	foldSliced   = fault.Register("store.fold.slice")    // before a slice that is not the last: rows may be ahead of the mark
	foldMark     = fault.Register("store.fold.mark")     // before the last slice, which moves the mark
)

// writer is the only goroutine that changes the database.
//
// Invariants:
//   - the table, the epochs and nextRow in memory equal the last commit, since
//     they are changed after it and by nobody else;
//   - an operation is acknowledged only after its commit;
//   - after a fatal error nothing is written any more.
type writer struct {
	s       *Store
	conn    *sql.Conn
	stmts   map[string]*sql.Stmt
	epochs  map[uint32]uint64 // stored epoch by shard; absent is 0
	nextRow uint64            // of the journal
}

// run takes and commits until the queue is closed and empty. ctx ends only with
// the store: a statement that is under way is never interrupted.
func (w *writer) run(ctx context.Context) {
	last := 0
	for {
		if last > 1 {
			// Callers that were just answered get the chance to ask again, so that
			// the next commit carries more than the first of them.
			runtime.Gosched()
		}
		ops, closed := w.s.queue.take()
		if closed {
			return
		}
		if last = len(ops); last == 0 {
			<-w.s.queue.wake
			continue
		}
		w.process(ctx, ops)
	}
}

// process runs one transaction and answers each operation.
func (w *writer) process(ctx context.Context, ops []*op) {
	b := newBatch(w)
	ok := ops[:0]
	var results []uint64
	failed := w.s.failure()
	for _, o := range ops {
		if !o.state.CompareAndSwap(opQueued, opTaken) {
			continue
		}
		if failed != nil {
			o.done(0, failed)
			continue
		}
		r, err := o.run(b)
		if err != nil {
			o.done(0, err)
			continue
		}
		ok, results = append(ok, o), append(results, r)
	}
	if len(ok) == 0 {
		return
	}
	err := w.commit(ctx, b)
	if err == nil {
		b.publish()
	}
	for i, o := range ok {
		o.done(results[i], err)
	}
}

// logOutgrown is how many times LogBytes the log may become before the writer moves
// it itself.
const logOutgrown = 4

// commit writes the batch in one transaction. After an error nothing of it is
// stored, or the store has failed.
func (w *writer) commit(ctx context.Context, b *batch) error {
	if b.checkpoint || w.s.logSize() > logOutgrown*w.s.opt.LogBytes {
		// Nobody else writes, so this leaves nothing, unless a reader is in the way;
		// then the next one tries again. A checkpointer at work is waited for: that
		// bounds the log where it is written faster than it is moved.
		w.s.moving.Lock()
		_, err := w.conn.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)")
		w.s.moving.Unlock()
		if err != nil {
			return fmt.Errorf("checkpoint: %w", w.s.classify(err))
		}
	}
	err := w.exec(ctx, "BEGIN IMMEDIATE")
	if err == nil {
		if err = b.write(ctx); err == nil {
			if err = fault.Point(commitBefore); err == nil {
				err = w.exec(ctx, "COMMIT")
			}
		}
	}
	if err == nil {
		return w.committed()
	}
	err = fmt.Errorf("commit %d events: %w", b.count, w.s.classify(err))
	if rerr := w.rollback(ctx); rerr != nil {
		err = fmt.Errorf("%w: %w; then roll back: %w", persistence.ErrUnknownOutcome, err, rerr)
	}
	if fatal(err) {
		w.s.fail(err)
	}
	return err
}

// committed is the moment between a commit and its acknowledgement.
func (w *writer) committed() error {
	err := fault.Point(commitAfter)
	if err != nil {
		err = fmt.Errorf("%w: %w", persistence.ErrUnknownOutcome, err)
		w.s.fail(err)
	}
	return err
}

// rollback ends the transaction, if SQLite did not end it itself, as it does for
// some errors.
func (w *writer) rollback(ctx context.Context) error {
	err := w.exec(ctx, "ROLLBACK")
	var se *sqlite.Error
	if errors.As(err, &se) && se.Code() == lib.SQLITE_ERROR && strings.Contains(se.Error(), "no transaction is active") {
		return nil
	}
	return err
}

func (w *writer) exec(ctx context.Context, query string, args ...any) error {
	st := w.stmts[query]
	if st == nil {
		var err error
		if st, err = w.conn.PrepareContext(ctx, query); err != nil {
			return err
		}
		w.stmts[query] = st
	}
	_, err := st.ExecContext(ctx, args...)
	return err
}

func (w *writer) close() error {
	var errs []error
	for _, st := range w.stmts {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, w.conn.Close())...)
}

// batch is one transaction in the making: what it will write, and what the
// memory will know after it.
type batch struct {
	w       *writer
	at      int64 // unix µs
	epochs  map[uint32]uint64
	places  map[persistence.EntityID]place
	nextRow uint64
	count   int // events

	events     []any // journal columns, event by event
	others     []statement
	checkpoint bool // move the rest of the log before this transaction
}

type statement struct {
	query string
	args  []any
}

func newBatch(w *writer) *batch {
	return &batch{
		w: w, at: time.Now().UnixMicro(), nextRow: w.nextRow,
		epochs: map[uint32]uint64{}, places: map[persistence.EntityID]place{},
	}
}

func (b *batch) add(query string, args ...any) { b.others = append(b.others, statement{query, args}) }

func (b *batch) epoch(shard uint32) uint64 {
	if e, ok := b.epochs[shard]; ok {
		return e
	}
	return b.w.epochs[shard]
}

// fence refuses every epoch but the stored one. Epoch 0 is nobody's.
func (b *batch) fence(shard uint32, epoch uint64) error {
	if stored := b.epoch(shard); epoch == 0 || epoch != stored {
		return &persistence.DeposedError{Shard: shard, Epoch: epoch, Stored: stored}
	}
	return nil
}

func (b *batch) place(id persistence.EntityID) place {
	if p, ok := b.places[id]; ok {
		return p
	}
	return b.w.s.table.get(id)
}

func (b *batch) acquire(shard uint32) (uint64, error) {
	e := b.epoch(shard) + 1
	b.epochs[shard] = e
	b.add(`INSERT OR REPLACE INTO shard(shard, epoch, acquired) VALUES(?,?,?)`, int64(shard), int64(e), b.at)
	return e, nil
}

func (b *batch) append(req *persistence.AppendRequest) (uint64, error) {
	if err := b.fence(req.Shard, req.Epoch); err != nil {
		return 0, fmt.Errorf("append to %s: %w", req.Entity, err)
	}
	p := b.place(req.Entity)
	if p.seq != req.Expected {
		return 0, &persistence.ConflictError{Entity: req.Entity, Expected: req.Expected, Stored: p.seq}
	}
	for i := range req.Events {
		ev := &req.Events[i]
		row := b.nextRow
		b.nextRow++
		p.seq++
		b.events = append(b.events, int64(row), req.Entity.String(), int64(p.seq), int64(p.last), b.at, ev.Type, int64(ev.Version), ev.Data)
		p.last = row
	}
	b.count += len(req.Events)
	b.places[req.Entity] = p
	return p.seq, nil
}

// The journal's multi-row inserts, largest first.
var insertSizes = [...]int{64, 16, 4, 1}
var insertQueries = func() (q [len(insertSizes)]string) {
	for i, n := range insertSizes {
		q[i] = `INSERT INTO journal("row", entity, seq, prev, at, type, version, data) VALUES` +
			strings.TrimSuffix(strings.Repeat("(?,?,?,?,?,?,?,?),", n), ",")
	}
	return q
}()

const journalColumns = 8

func (b *batch) write(ctx context.Context) error {
	rest := b.events
	for i, n := range insertSizes {
		for len(rest) >= n*journalColumns {
			if err := b.w.exec(ctx, insertQueries[i], rest[:n*journalColumns]...); err != nil {
				return err
			}
			rest = rest[n*journalColumns:]
		}
	}
	for _, st := range b.others {
		if err := b.w.exec(ctx, st.query, st.args...); err != nil {
			return err
		}
	}
	return nil
}

// publish makes memory say what the commit made true.
func (b *batch) publish() {
	for shard, e := range b.epochs {
		b.w.epochs[shard] = e
	}
	b.w.nextRow = b.nextRow
	t := b.w.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, p := range b.places {
		t.setLocked(id, p)
	}
	t.lastRow = b.nextRow - 1
}

package mysql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/fault"
)

var (
	rowsBefore   = fault.Register("sink.rows.before")
	commitBefore = fault.Register("sink.commit.before")
	commitAfter  = fault.Register("sink.commit.after")
)

// Apply implements change.Sink. All batches go in one transaction, sent in as few
// packets as the server takes. When the server refuses part of it, the
// transaction is done anew batch by batch behind savepoints: refused batches are
// left out, the others commit. A deadlock or a lost connection repeats the whole
// a few times.
func (s *Sink) Apply(ctx context.Context, f change.Fence, batches []change.Batch) []change.BatchResult {
	g := &group{s: s, f: f, batches: batches, results: make([]change.BatchResult, len(batches))}
	for i := range batches {
		g.results[i] = change.BatchResult{Err: errNoOutcome, RowIndex: -1}
		g.left = append(g.left, i)
	}
	if len(batches) == 0 {
		return g.results
	}
	c, err := s.acquire(ctx, s.apply)
	if err != nil {
		g.fail(err)
		return g.results
	}
	g.c = c
	defer func() { s.release(g.c, s.apply) }()
	sc := scripts.Get().(*script)
	defer scripts.Put(sc)
	g.sc = sc
	g.run(ctx)
	return g.results
}

// errNoOutcome stands in every result until the transaction is committed: what is
// forgotten counts as not applied.
var errNoOutcome = change.WithClass(change.Transient, errors.New("the batch was not applied"))

var scripts = sync.Pool{New: func() any { return new(script) }}

// group is one Apply under way. Each batch has either no outcome yet, in left, or
// one in results.
type group struct {
	s       *Sink
	c       *sinkConn
	f       change.Fence
	batches []change.Batch
	results []change.BatchResult
	left    []int // batches without an outcome
	sc      *script
}

// run tries until every batch has an outcome. Path: together; when a statement is
// refused, apart; when the transaction was lost, again.
func (g *group) run(ctx context.Context) {
	apart := false
	for attempt := 1; ; attempt++ {
		var err error
		if apart {
			err = g.applyApart(ctx)
		} else {
			err = g.applyTogether(ctx)
		}
		switch {
		case err == nil:
			return
		case errors.Is(err, errApart):
			apart, attempt = true, 0
			continue
		case !repeatable(err) && serverCode(err) != codeLockTimeout || attempt == attempts:
			g.fail(err) // a lock timeout that gets here is the fence's
			return
		}
		if perr := pause(ctx, attempt, rand.Float64()); perr != nil {
			g.fail(fmt.Errorf("%w (%w)", perr, err))
			return
		}
		if err := g.reconnect(ctx); err != nil {
			g.fail(err)
			return
		}
	}
}

// errApart: a statement was refused and the transaction rolled back; which batch
// is to blame shows when they are applied apart.
var errApart = errors.New("apply batches apart")

// fail gives every batch that has no outcome this one.
func (g *group) fail(err error) {
	for _, i := range g.left {
		g.refuse(i, err)
	}
	g.left = nil
}

func (g *group) refuse(i int, err error) {
	r := change.BatchResult{Err: g.s.classed(fmt.Errorf("apply to %s: %w", g.batches[i].Target, err)), RowIndex: -1}
	if change.ClassOf(r.Err) == change.PermanentRow {
		r.RowIndex = rowIndex(err)
	}
	g.results[i] = r
}

// reconnect replaces a lost connection.
func (g *group) reconnect(ctx context.Context) error {
	if !g.c.lost {
		return nil
	}
	c, err := g.s.open(ctx)
	if err != nil {
		return err
	}
	g.c.close()
	g.c = c
	return nil
}

// applyTogether does one transaction of all batches left. It returns errApart
// when a batch is refused, and gives outcomes otherwise.
func (g *group) applyTogether(ctx context.Context) error {
	g.sc.reset(g.c.info.maxPacket)
	begin := piece{batch: -1, row: -1}
	if err := g.sc.add([]byte("BEGIN"), begin); err != nil {
		return err
	}
	if err := g.sc.add([]byte(g.s.fenceRead(g.f, shared)), begin); err != nil {
		return err
	}
	if err := fault.Point(rowsBefore); err != nil {
		return err
	}
	for _, i := range g.left {
		if err := g.writeRows(i, false); err != nil {
			if len(g.left) == 1 {
				return err
			}
			return errApart // nothing was sent
		}
	}
	if err := g.moveCheckpoints(); err != nil {
		return err
	}
	moved, err := g.send(ctx, 1)
	if err == nil && moved != len(g.left) {
		err = change.ErrCheckpointMoved
	}
	if err != nil {
		g.c.rollback(ctx)
		return g.judge(err)
	}
	return g.finish(ctx)
}

// judge decides what an error of a transaction of all batches means.
func (g *group) judge(err error) error {
	switch {
	case errors.Is(err, change.ErrCheckpointMoved):
		if len(g.left) == 1 {
			return err
		}
	case ended(err) || repeatable(err) || serverCode(err) == 0:
		return err
	case change.ClassOf(classed(err)) == change.TargetWide:
		return err
	}
	return errApart
}

// finish commits and gives the batches left their outcome.
func (g *group) finish(ctx context.Context) error {
	if err := fault.Point(commitBefore); err != nil {
		g.c.rollback(ctx)
		return err
	}
	if err := g.c.commit(ctx); err != nil {
		return err
	}
	if err := fault.Point(commitAfter); err != nil {
		return fmt.Errorf("%w: %w", change.ErrUnknownOutcome, err)
	}
	for _, i := range g.left {
		g.results[i].Err = nil
	}
	g.left = nil
	return nil
}

// writeRows appends the statements for the rows of batch i to the script.
func (g *group) writeRows(i int, alone bool) error {
	b := &g.batches[i]
	if len(b.Changes) == 0 {
		return nil
	}
	t, err := newTableWriter(b.Layout, b.Target, g.c.info.mariadb)
	if err != nil {
		return err
	}
	w := newRowWriter(t, g.sc, i, alone)
	if err := w.writeChanges(b.Changes); err != nil {
		return err
	}
	w.done()
	return nil
}

// send sends the script's packets. fence is the number of the statement in the
// first packet that reads the fence, -1 for none. It returns how many checkpoints
// moved; an error is about the statement behind those that succeeded.
func (g *group) send(ctx context.Context, fence int) (moved int, err error) {
	for n := range g.sc.packets {
		p := &g.sc.packets[n]
		done, err := g.c.runPacket(ctx, p.raw, func(i int, a answer) error {
			if n == 0 && i == fence {
				return compareFence(g.f, a.rows)
			}
			if p.pieces[i].checkpoint {
				moved += int(a.affected)
			}
			return nil
		})
		if err == nil {
			continue
		}
		if done < len(p.pieces) && serverCode(err) != 0 {
			err = blame(p.pieces[done], err)
		}
		return moved, err
	}
	return moved, nil
}

// blame adds to the server's refusal of a statement what the statement is about.
func blame(pc piece, err error) error {
	switch {
	case pc.batch == chunkRow:
		return &chunkRowError{err}
	case pc.row >= 0:
		return &RowError{pc.row, err}
	}
	return err
}

// maxLockWaits is how many batches of one transaction may wait for a lock in vain:
// each takes a second, for which the others' rows stay locked.
const maxLockWaits = 3

var errLocksElsewhere = change.WithClass(change.Transient,
	errors.New("not tried: other tables of the transaction were locked for too long"))

// applyApart does one transaction in which each batch stands behind a savepoint:
// a refused one is taken back alone and gets its outcome, the others commit.
func (g *group) applyApart(ctx context.Context) error {
	if err := g.s.begin(ctx, g.c, g.f); err != nil {
		return err
	}
	var good []int
	refused := map[int]error{}
	waits := 0
	for _, i := range g.left {
		if waits == maxLockWaits {
			refused[i] = errLocksElsewhere
			continue
		}
		err := g.applyOne(ctx, i, false)
		if err != nil && change.ClassOf(classed(err)) == change.PermanentRow && rowIndex(err) < 0 {
			// Row by row shows which one it is. If all pass, the refusal lay in how
			// they were joined, and the batch is applied.
			err = g.applyOne(ctx, i, true)
		}
		switch {
		case err == nil:
			good = append(good, i)
		case g.c.lost || repeatable(err) || change.ClassOf(classed(err)) == change.TargetWide:
			g.c.rollback(ctx)
			return err
		default:
			refused[i] = err
			if serverCode(err) == codeLockTimeout {
				waits++
			}
		}
	}
	if len(good) == 0 {
		g.c.rollback(ctx)
	}
	g.left = good
	for i, err := range refused {
		g.refuse(i, err)
	}
	if len(good) == 0 {
		return nil
	}
	return g.finish(ctx)
}

// applyOne applies one batch within the open transaction, or nothing of it.
func (g *group) applyOne(ctx context.Context, i int, alone bool) error {
	g.sc.reset(g.c.info.maxPacket)
	if err := g.sc.add([]byte("SAVEPOINT batch"), piece{batch: i, row: -1}); err != nil {
		return err
	}
	if err := g.writeRows(i, alone); err != nil {
		return err
	}
	if err := g.moveCheckpoint(i); err != nil {
		return err
	}
	moved, err := g.send(ctx, -1)
	if err == nil && moved != 1 {
		err = change.ErrCheckpointMoved
	}
	if err == nil || g.c.lost || repeatable(err) {
		return err
	}
	if _, rerr := g.c.run(ctx, []byte("ROLLBACK TO SAVEPOINT batch"), nil); rerr != nil {
		g.c.lost = true // and with it the whole transaction
		return fmt.Errorf("%w (take back: %w)", err, rerr)
	}
	return err
}

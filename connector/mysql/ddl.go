package mysql

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/fault"
)

var (
	ddlIntentBefore = fault.Register("sink.ddl.intent.before")
	ddlIntentAfter  = fault.Register("sink.ddl.intent.after")
	ddlRunBefore    = fault.Register("sink.ddl.run.before")
	ddlRunAfter     = fault.Register("sink.ddl.run.after")
	ddlDoneBefore   = fault.Register("sink.ddl.done.before")
	ddlDone         = fault.Register("sink.ddl.done")
)

// ApplyDDL implements change.TableSink. The path: plan the statement on an empty
// twin of the target table; store the intent; run the statement while another
// connection holds the fence; move the position, store the layout and clear the
// intent in one transaction. Whatever was left behind by a crash is gone through
// from where it stands when the same statement is applied again.
//
// A nil layout says that the source's table is gone (dropped, renamed away,
// replaced): the target keeps its rows and the layout row is removed, so that
// LoadLayout answers ErrNoTable. A statement that cannot be brought to the target
// is a *change.Problem that shows it, and nothing is changed.
func (s *Sink) ApplyDDL(ctx context.Context, f change.Fence, d change.DDL) (*change.Layout, error) {
	l, err := s.applyDDL(ctx, f, d)
	if err != nil {
		return nil, fmt.Errorf("apply statement to %s: %w", d.Target, s.classed(err))
	}
	return l, nil
}

func (s *Sink) applyDDL(ctx context.Context, f change.Fence, d change.DDL) (*change.Layout, error) {
	cp, err := s.checkpointFor(ctx, f, d)
	if err != nil {
		return nil, err
	}
	if cp.Position == d.Group && cp.Intent == nil { // done before, the answer was lost
		return s.layoutAfter(ctx, f, d)
	}
	intent := cp.Intent
	if intent == nil {
		if intent, err = s.planDDL(ctx, f, d); err != nil {
			return nil, err
		}
		if intent.SQL == "" { // nothing runs at the target
			return intent.Layout, s.finishDDL(ctx, f, d, intent)
		}
		if err := s.storeIntent(ctx, f, d, intent); err != nil {
			return nil, err
		}
	}
	if intent.Group != d.Group {
		return nil, &change.Problem{
			Code: "ddl-other-intent", Subject: "target table " + d.Target.String(),
			Cause:  fmt.Sprintf("the statement of %s is still open there: %s", intent.Group, intent.SQL),
			Remedy: "apply that statement first: restart the task from its checkpoint",
		}
	}
	return intent.Layout, s.settle(ctx, f, d, intent)
}

// checkpointFor reads the checkpoint that the statement moves, with a lock, and
// checks that it is one that may.
func (s *Sink) checkpointFor(ctx context.Context, f change.Fence, d change.DDL) (change.Checkpoint, error) {
	cps, err := s.Resolve(ctx, f, []change.CheckpointKey{d.Key})
	switch {
	case err != nil:
		return change.Checkpoint{}, err
	case len(cps) == 0, cps[0].Position != d.Expected && cps[0].Position != d.Group:
		return change.Checkpoint{}, change.ErrCheckpointMoved
	}
	return cps[0], nil
}

// layoutAfter is the layout that a statement which is done left; nil when the
// table was gone.
func (s *Sink) layoutAfter(ctx context.Context, f change.Fence, d change.DDL) (*change.Layout, error) {
	l, err := s.LoadLayout(ctx, f, d.Key.Incarnation)
	if errors.Is(err, change.ErrNoTable) {
		return nil, nil
	}
	return l, err
}

// storeIntent announces the statement. Running it again stores the same.
func (s *Sink) storeIntent(ctx context.Context, f change.Fence, d change.DDL, intent *change.Intent) error {
	if err := fault.Point(ddlIntentBefore); err != nil {
		return err
	}
	text, err := json.Marshal(intent)
	if err != nil {
		return fmt.Errorf("encode intent: %w", err)
	}
	err = s.transact(ctx, f, func(c *sinkConn) error {
		a, err := c.queryAll(ctx, "UPDATE "+s.tables.checkpoint+" SET intent="+quoteString(string(text))+",moves=moves+1"+
			s.whereCheckpoint(f, d.Key, d.Expected))
		if err == nil && a.affected != 1 {
			err = change.ErrCheckpointMoved
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("store intent: %w", err)
	}
	return fault.Point(ddlIntentAfter)
}

// settle brings an announced statement to its end: the catalog tells whether it
// ran. It is done with the fence held from before the look at the catalog until
// the position has moved.
func (s *Sink) settle(ctx context.Context, f change.Fence, d change.DDL, intent *change.Intent) error {
	if err := fault.Point(ddlRunBefore); err != nil {
		return err
	}
	return s.holdingFence(ctx, f, d.Target, func(holder, c *sinkConn) error {
		state, err := c.look(ctx, intent)
		if err != nil {
			return err
		}
		if state == ddlNotRun {
			if err := s.runIntent(ctx, c, d, intent); err != nil {
				return err
			}
		}
		if err := fault.Point(ddlRunAfter); err != nil {
			return err
		}
		return s.commitDDL(ctx, holder, f, d, intent)
	})
}

// commitDDL moves the position in the transaction that holds the fence.
func (s *Sink) commitDDL(ctx context.Context, holder *sinkConn, f change.Fence, d change.DDL, intent *change.Intent) error {
	sql, err := s.doneStatements(f, d, intent)
	if err != nil {
		return err
	}
	var moved uint64
	if _, err := holder.run(ctx, []byte(sql), func(i int, a answer) error {
		if i == 0 {
			moved = a.affected
		}
		return nil
	}); err != nil {
		return err
	}
	if moved != 1 {
		return change.ErrCheckpointMoved
	}
	if err := fault.Point(ddlDoneBefore); err != nil {
		return err
	}
	if err := holder.commit(ctx); err != nil {
		return err
	}
	if err := fault.Point(ddlDone); err != nil {
		return fmt.Errorf("%w: %w", change.ErrUnknownOutcome, err)
	}
	return nil
}

// finishDDL moves the position over a statement that runs nothing at the target.
func (s *Sink) finishDDL(ctx context.Context, f change.Fence, d change.DDL, intent *change.Intent) error {
	return s.holdingFence(ctx, f, d.Target, func(holder, _ *sinkConn) error {
		return s.commitDDL(ctx, holder, f, d, intent)
	})
}

// doneStatements move the position, clear the intent and store the layout.
func (s *Sink) doneStatements(f change.Fence, d change.DDL, intent *change.Intent) (string, error) {
	sql := "UPDATE " + s.tables.checkpoint + " SET position=" + quoteString(d.Group.String()) +
		",intent=NULL,moves=moves+1" + s.whereCheckpoint(f, d.Key, d.Expected) + ";"
	if intent.Layout == nil {
		return sql + "DELETE FROM " + s.tables.layout + " WHERE incarnation=" + quoteString(d.Key.Incarnation), nil
	}
	text, err := json.Marshal(intent.Layout)
	if err != nil {
		return "", fmt.Errorf("encode layout: %w", err)
	}
	return sql + s.storeLayout(d.Key.Incarnation, text), nil
}

// ddlState is what the catalog says about an announced statement.
type ddlState uint8

const (
	ddlNotRun ddlState = iota // the table is as before
	ddlRan                    // the table is as after
)

// look compares the target table with the intent. A statement that changes no
// definition can be run again: TRUNCATE, a rebuild.
func (c *sinkConn) look(ctx context.Context, intent *change.Intent) (ddlState, error) {
	now, err := c.fingerprint(ctx, intent.Target)
	switch {
	case err != nil:
		return 0, err
	case now == intent.Before:
		return ddlNotRun, nil
	case now == intent.After:
		return ddlRan, nil
	}
	have := "no table"
	if l, err := c.table(ctx, intent.Target); err == nil {
		have = l.Definition
	}
	want := "as it was before, or as the statement leaves it"
	if intent.Layout != nil {
		want = "as it was before, or like " + intent.Layout.Definition
	}
	return 0, &change.Problem{
		Code: "ddl-undecided", Subject: "target table " + intent.Target.String(),
		Cause: fmt.Sprintf("it was changed by somebody else while this statement was open: %s\nfound: %s\nexpected: %s",
			intent.SQL, have, want),
		Remedy: "bring the table to one of these forms and retry, or resync the task",
	}
}

// runIntent runs the announced statement on the target table. When it fails, the
// catalog has the last word: an earlier owner's run may have ended meanwhile.
func (s *Sink) runIntent(ctx context.Context, c *sinkConn, d change.DDL, intent *change.Intent) error {
	err := c.statementSession(ctx, d.Statement, intent.Target.Schema)
	if err == nil {
		if err = c.runLong(ctx, intent.SQL); err != nil {
			err = ddlProblem(d.Target, intent.SQL, err)
		}
	}
	if err == nil || c.lost {
		return err
	}
	if rerr := c.rowSession(ctx); rerr != nil {
		return errors.Join(err, rerr)
	}
	if state, lerr := c.look(ctx, intent); lerr == nil && state == ddlRan && intent.Before != intent.After {
		return nil
	}
	return err
}

// ddlProblem is a statement that the server refuses. Errors that pass, such as a
// lock timeout, keep their class.
func ddlProblem(t change.TableID, sql string, err error) error {
	if !refusal(err) {
		return err
	}
	return &change.Problem{
		Code: "ddl-refused", Subject: "target table " + t.String(),
		Cause:  fmt.Sprintf("the target refuses the statement (%v): %s", shortError(err), sql),
		Remedy: "run a statement at the target that has the same effect and skip this one, or resync the task",
	}
}

// refusal reports that the server will not have this statement, now or later.
func refusal(err error) bool {
	class := change.ClassOf(classed(err))
	return serverCode(err) != 0 && class != change.TargetWide && (class != change.Transient || !passing(serverCode(err)))
}

// passing reports errors of the moment, which the same statement may not meet
// again.
func passing(code uint16) bool {
	switch code {
	case codeLockTimeout, codeDeadlock, 1020, 1053, 1317, 1412, 1615, 1927, 1969, 3024, 4031:
		return true
	}
	return false
}

// fenceBeat is how often the connection that holds the fence shows the server that
// it lives; the server's limit is idle_transaction_timeout.
const fenceBeat = 1500 * time.Millisecond

// underFence runs fn on a connection of its own while another holds the fence.
func (s *Sink) underFence(ctx context.Context, f change.Fence, t change.TableID, fn func(c *sinkConn) error) error {
	return s.holdingFence(ctx, f, t, func(_, c *sinkConn) error { return fn(c) })
}

// holdingFence opens two connections: holder's transaction has the shared lock on
// the fence, c is for statements on the table that commit by themselves. While fn
// uses c the holder is kept from idling out; fn may use holder itself only when c
// is at rest, as its last act. A lost holder ends fn: its fence may be gone.
//
// The server goes on with a statement whose client is gone. So c also has a lock
// on the table's name, which the server keeps until the statement has ended: the
// next owner's statement on the table cannot come before it.
func (s *Sink) holdingFence(ctx context.Context, f change.Fence, t change.TableID, fn func(holder, c *sinkConn) error) error {
	release, err := take(ctx, s.ddl)
	if err != nil {
		return err
	}
	defer release()
	holder, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer holder.close()
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.lockName(ctx, s.opts.Schema, t); err != nil {
		return err
	}
	c.r.src.limit = 0 // a statement on a large table may take hours
	if err := s.begin(ctx, holder, f); err != nil {
		return err
	}
	h := &fenceHolder{c: holder}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.during = func(run func(context.Context) error) error { return h.beatDuring(inner, cancel, run) }
	return fn(holder, c)
}

// lockName takes the lock for statements on a table. It waits until ctx ends for
// a session that has it.
func (c *sinkConn) lockName(ctx context.Context, schema string, t change.TableID) error {
	sum := sha256.Sum256([]byte(schema + "\x00" + lower(t).Schema + "\x00" + lower(t).Name))
	name := quoteString("runnel-" + hex.EncodeToString(sum[:16]))
	for {
		row, err := c.queryOne(ctx, "SELECT GET_LOCK("+name+", 1)")
		if err != nil {
			return fmt.Errorf("lock statements on %s: %w", t, err)
		}
		if row[0] == "1" {
			return nil
		}
	}
}

// fenceHolder keeps the transaction with the fence alive.
type fenceHolder struct{ c *sinkConn }

// beatDuring runs fn and meanwhile lets the holder's connection beat. It returns
// when both are at rest.
func (h *fenceHolder) beatDuring(ctx context.Context, cancel context.CancelCauseFunc, fn func(context.Context) error) error {
	done, rest := make(chan struct{}), make(chan error, 1)
	go func() { rest <- h.beat(ctx, cancel, done) }()
	err := fn(ctx)
	close(done)
	if herr := <-rest; herr != nil {
		return errors.Join(err, fmt.Errorf("hold the fence: %w", herr))
	}
	return err
}

func (h *fenceHolder) beat(ctx context.Context, cancel context.CancelCauseFunc, done <-chan struct{}) error {
	tick := time.NewTicker(fenceBeat)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return nil // fn says so itself
		case <-tick.C:
			if _, err := h.c.run(ctx, []byte("DO 0"), nil); err != nil {
				cancel(fmt.Errorf("the connection that holds the fence broke: %w", err))
				return err
			}
		}
	}
}

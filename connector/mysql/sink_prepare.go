package mysql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/fault"
)

var (
	prepareOwned   = fault.Register("sink.prepare.owned")
	prepareCreated = fault.Register("sink.prepare.created")
)

// Prepare implements change.TableSink. A table that does not fit, or that another
// task owns, is a *change.Problem and nothing is changed.
func (s *Sink) Prepare(ctx context.Context, f change.Fence, t change.TaskTarget) error {
	if err := s.prepare(ctx, f, t); err != nil {
		return fmt.Errorf("prepare %s at %s: %w", t.Target, s.cfg.subject(), s.classed(err))
	}
	return nil
}

func (s *Sink) prepare(ctx context.Context, f change.Fence, t change.TaskTarget) error {
	if _, err := newTableWriter(t.Layout, t.Target, true); err != nil {
		return err
	}
	stored, err := json.Marshal(t.Layout)
	if err != nil {
		return fmt.Errorf("encode layout: %w", err)
	}
	there, err := s.fits(ctx, t)
	var misfit *change.Problem
	renew := t.Existing == change.EmptyTable && errors.As(err, &misfit)
	if err != nil && !renew {
		return err
	}
	if err := s.own(ctx, f, t); err != nil {
		return err
	}
	if err := fault.Point(prepareOwned); err != nil {
		return err
	}
	if renew { // the table of an earlier life, which the source's has left behind
		if err := s.drop(ctx, f, t); err != nil {
			return err
		}
		there = false
	}
	if !there {
		if err := s.createTable(ctx, f, t); err != nil {
			return err
		}
		if there, err = s.fits(ctx, t); err != nil {
			return err
		}
		if !there {
			return &change.Problem{
				Code: "target-not-a-table", Subject: "target table " + t.Target.String(),
				Cause:  "something else than a table has this name (a view or a sequence)",
				Remedy: "rename or drop it, or give the pipeline another route",
			}
		}
	}
	if t.Existing == change.EmptyTable {
		if err := s.empty(ctx, f, t); err != nil {
			return err
		}
	}
	if err := fault.Point(prepareCreated); err != nil {
		return err
	}
	return s.transact(ctx, f, func(c *sinkConn) error {
		_, err := c.run(ctx, []byte("INSERT INTO "+s.tables.checkpoint+" (incarnation, part, owner, position) VALUES ("+
			quoteString(t.Incarnation)+",0,"+quoteString(f.Owner)+","+quoteString(t.At.String())+
			") ON DUPLICATE KEY UPDATE owner=VALUES(owner), position=VALUES(position), intent=NULL, moves=moves+1; "+
			s.storeLayout(t.Incarnation, stored)), nil)
		return err
	})
}

func (s *Sink) storeLayout(incarnation string, layout []byte) string {
	return "REPLACE INTO " + s.tables.layout + " (incarnation, layout) VALUES (" +
		quoteString(incarnation) + "," + quoteString(string(layout)) + ")"
}

// fits reports whether the target table exists; a Problem when it does and rows
// of the layout cannot go there.
func (s *Sink) fits(ctx context.Context, t change.TaskTarget) (there bool, err error) {
	err = s.with(ctx, func(c *sinkConn) error {
		have, err := c.table(ctx, t.Target)
		if errors.Is(err, change.ErrNoTable) {
			return nil
		}
		if err != nil {
			return err
		}
		there = true
		if p := misfit(t.Layout, have); p != nil {
			return p
		}
		if err := c.noTriggerBefore(ctx, t.Target); err != nil || t.Existing != change.FreshTable {
			return err
		}
		return s.noRows(ctx, c, t)
	})
	return there, err
}

// noRows refuses a table that holds rows which this incarnation did not bring.
func (s *Sink) noRows(ctx context.Context, c *sinkConn, t change.TaskTarget) error {
	a, err := c.queryAll(ctx, "SELECT 1 FROM "+quoteTable(t.Target)+" WHERE NOT EXISTS (SELECT 1 FROM "+s.tables.checkpoint+
		" WHERE incarnation="+quoteString(t.Incarnation)+") LIMIT 1")
	if err != nil || len(a.rows) == 0 {
		return err
	}
	return &change.Problem{
		Code: "target-not-empty", Subject: "target table " + t.Target.String(),
		Cause: "it holds rows already, and Runnel did not write them",
		Remedy: "empty it (TRUNCATE TABLE " + quoteTable(t.Target) + ") and retry the task, or say in the pipeline what to do: " +
			"existing: empty (its rows go) or existing: keep (rows that the source does not have stay)",
	}
}

// noTriggerBefore refuses triggers that can change rows on their way into the
// table. Triggers that run afterwards are the owner's business, see Notes.
func (c *sinkConn) noTriggerBefore(ctx context.Context, t change.TableID) error {
	a, err := c.queryAll(ctx, "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE ACTION_TIMING='BEFORE' AND "+
		"EVENT_MANIPULATION<>'DELETE' AND EVENT_OBJECT_SCHEMA="+quoteString(t.Schema)+" AND EVENT_OBJECT_TABLE="+quoteString(t.Name)+" LIMIT 1")
	if err != nil || len(a.rows) == 0 {
		return err
	}
	name := change.TableID{Schema: t.Schema, Name: string(a.rows[0][0])}
	return &change.Problem{
		Code: "target-trigger-before", Subject: "target table " + t.String(),
		Cause:  fmt.Sprintf("its trigger %s runs before rows are written and can change them; what the source's own triggers did comes with the rows", name.Name),
		Remedy: "DROP TRIGGER " + quoteTable(name) + ", or make it run AFTER, then retry the task",
	}
}

// drop removes the table of an earlier life, unless this incarnation has begun.
func (s *Sink) drop(ctx context.Context, f change.Fence, t change.TaskTarget) error {
	return s.underFence(ctx, f, t.Target, func(c *sinkConn) error {
		a, err := c.queryAll(ctx, "SELECT 1 FROM "+s.tables.checkpoint+" WHERE incarnation="+quoteString(t.Incarnation))
		if err != nil || len(a.rows) > 0 {
			return err
		}
		return c.runLong(ctx, "DROP TABLE IF EXISTS "+quoteTable(t.Target))
	})
}

// empty removes the rows of an earlier life. A table to which this incarnation has
// a checkpoint holds rows of its own and is left as it is.
func (s *Sink) empty(ctx context.Context, f change.Fence, t change.TaskTarget) error {
	return s.underFence(ctx, f, t.Target, func(c *sinkConn) error {
		a, err := c.queryAll(ctx, "SELECT 1 FROM "+s.tables.checkpoint+" WHERE incarnation="+quoteString(t.Incarnation))
		if err != nil || len(a.rows) > 0 {
			return err
		}
		err = c.runLong(ctx, "TRUNCATE TABLE "+quoteTable(t.Target))
		if serverCode(err) == codeVersioned {
			err = c.runLong(ctx, "DELETE FROM "+quoteTable(t.Target))
		}
		return err
	})
}

// ownerKey is the table's name as this server tells tables apart.
func (c *sinkConn) ownerKey(t change.TableID) string {
	if c.info.foldNames {
		t = lower(t)
	}
	return "target_schema=" + quoteString(t.Schema) + ", target_name=" + quoteString(t.Name)
}

// own takes the owner row of the target table, or finds that it is ours.
func (s *Sink) own(ctx context.Context, f change.Fence, t change.TaskTarget) error {
	return s.transact(ctx, f, func(c *sinkConn) error {
		key := c.ownerKey(t.Target)
		a, err := c.queryAll(ctx, "SELECT store_id, incarnation, task FROM "+s.tables.owner+
			" WHERE "+strings.Replace(key, ", ", " AND ", 1)+" FOR UPDATE")
		if err != nil {
			return err
		}
		if len(a.rows) > 0 {
			store, inc, task := string(a.rows[0][0]), string(a.rows[0][1]), string(a.rows[0][2])
			// The same task may take it from a life of its own that never began.
			if store != f.StoreID || inc != t.Incarnation && task != t.Task {
				return &problemError{&change.Problem{
					Code: "target-owned", Subject: "target table " + t.Target.String(),
					Cause: fmt.Sprintf("task %s of store %s (incarnation %s) writes it; this is store %s, incarnation %s",
						task, store, inc, f.StoreID, t.Incarnation),
					Remedy: "remove that task, or choose another target table; when the store of that Runnel is lost, DELETE FROM " +
						s.tables.owner + " WHERE incarnation=" + quoteString(inc) + " and retry",
				}, change.ErrOwnedElsewhere}
			}
		}
		_, err = c.run(ctx, []byte("REPLACE INTO "+s.tables.owner+" SET "+key+", store_id="+quoteString(f.StoreID)+
			", owner="+quoteString(f.Owner)+", incarnation="+quoteString(t.Incarnation)+", task="+quoteString(t.Task)), nil)
		return err
	})
}

// createTable creates schema and table. Foreign keys are kept where their parent
// is there and the server takes them: they are of no use to us, only to people.
func (s *Sink) createTable(ctx context.Context, f change.Fence, t change.TaskTarget) error {
	d, err := parseDefinition(t.Layout.Definition)
	if err != nil {
		return change.WithClass(change.PermanentTask, fmt.Errorf("create table from %q: %w", t.Layout.Definition, err))
	}
	d = d.portable()
	return s.underFence(ctx, f, t.Target, func(c *sinkConn) error {
		if err := c.createSchema(ctx, t.Target.Schema); err != nil {
			return err
		}
		var parents error
		kept, err := d.withoutForeignKeys(t.Target.Schema, func(parent change.TableID) bool {
			there, err := c.exists(ctx, parent)
			parents = errors.Join(parents, err)
			return there
		})
		if err = errors.Join(err, parents); err != nil {
			return err
		}
		err = c.createLike(ctx, t.Target, kept)
		if err != nil && serverCode(err) != 0 && len(kept.elements) > 0 {
			bare, berr := d.withoutForeignKeys("", func(change.TableID) bool { return false })
			if berr == nil && len(bare.elements) < len(kept.elements) {
				err = c.createLike(ctx, t.Target, bare)
			}
		}
		if serverCode(err) == codeTableExists {
			return nil // an earlier try made it, or whoever did is found out next
		}
		return err
	})
}

func (c *sinkConn) createSchema(ctx context.Context, schema string) error {
	a, err := c.queryAll(ctx, "SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME="+quoteString(schema))
	if err != nil || len(a.rows) > 0 {
		return err
	}
	_, err = c.run(ctx, []byte("CREATE DATABASE IF NOT EXISTS "+quoteName(schema)), nil)
	return err
}

func (c *sinkConn) exists(ctx context.Context, t change.TableID) (bool, error) {
	a, err := c.queryAll(ctx, "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA="+quoteString(t.Schema)+
		" AND TABLE_NAME="+quoteString(t.Name))
	return len(a.rows) > 0, err
}

// createLike runs a definition of another server: what it may have, not what this
// server's modes allow today, is taken.
func (c *sinkConn) createLike(ctx context.Context, t change.TableID, d definition) error {
	set := "SET sql_mode='" + lenientMode + "'"
	if c.info.mariadb { // options of the engine that was replaced are left out
		set = "SET sql_mode='" + lenientMode + ",IGNORE_BAD_TABLE_OPTIONS', innodb_strict_mode=0"
	}
	sql := d.create(quoteTable(t))
	if _, err := c.run(ctx, []byte(set+"; USE "+quoteName(t.Schema)), nil); err != nil {
		return err
	}
	err := c.runLong(ctx, sql)
	if err == nil || serverCode(err) == codeTableExists || !refusal(err) {
		return err
	}
	return &problemError{&change.Problem{
		Code: "create-refused", Subject: "target table " + t.String(),
		Cause:  fmt.Sprintf("the target refuses to create it (%v): %s", shortError(err), sql),
		Remedy: "create the table at the target by hand, with the same columns and key, and retry",
	}, err}
}

// transact runs fn within a transaction under the fence. fn may run several times
// and must have the same effect then: a lost COMMIT is settled by running it
// again.
func (s *Sink) transact(ctx context.Context, f change.Fence, fn func(c *sinkConn) error) error {
	for attempt := 1; ; attempt++ {
		err := s.with(ctx, func(c *sinkConn) error {
			if err := s.begin(ctx, c, f); err != nil {
				return err
			}
			if err := fn(c); err != nil {
				c.rollback(ctx)
				return err
			}
			return c.commit(ctx)
		})
		again := repeatable(err) || serverCode(err) == codeLockTimeout || errors.Is(err, change.ErrUnknownOutcome)
		if err == nil || !again || attempt == attempts || ctx.Err() != nil {
			return err
		}
		if perr := pause(ctx, attempt, rand.Float64()); perr != nil {
			return fmt.Errorf("%w (%w)", perr, err)
		}
	}
}

// LoadLayout implements change.TableSink. change.ErrStateGone when layout or
// checkpoint are not stored; it is change.ErrNoTable too, since the table may have
// been dropped at the source.
func (s *Sink) LoadLayout(ctx context.Context, f change.Fence, incarnation string) (*change.Layout, error) {
	l := new(change.Layout)
	err := s.with(ctx, func(c *sinkConn) error {
		if err := s.begin(ctx, c, f); err != nil {
			return err
		}
		defer c.rollback(ctx)
		a, err := c.queryAll(ctx, "SELECT layout FROM "+s.tables.layout+" WHERE incarnation="+quoteString(incarnation)+
			" AND EXISTS (SELECT 1 FROM "+s.tables.checkpoint+" WHERE incarnation="+quoteString(incarnation)+")")
		if err != nil {
			return err
		}
		if len(a.rows) == 0 {
			return change.WithClass(change.PermanentTask, fmt.Errorf("%w: no layout with a checkpoint: %w", change.ErrStateGone, change.ErrNoTable))
		}
		return json.Unmarshal(a.rows[0][0], l)
	})
	if err != nil {
		return nil, fmt.Errorf("load layout of %s from %s: %w", incarnation, s.cfg.subject(), s.classed(err))
	}
	return l, nil
}

// Forget implements change.TableSink. The target table keeps its rows.
func (s *Sink) Forget(ctx context.Context, f change.Fence, incarnation string) error {
	where := " WHERE incarnation=" + quoteString(incarnation) + ";"
	err := s.transact(ctx, f, func(c *sinkConn) error {
		var sql strings.Builder
		for _, t := range []string{s.tables.checkpoint, s.tables.chunk, s.tables.layout} {
			sql.WriteString("DELETE FROM " + t + where)
		}
		sql.WriteString("DELETE FROM " + s.tables.owner + " WHERE incarnation=" + quoteString(incarnation) +
			" AND store_id=" + quoteString(f.StoreID))
		_, err := c.run(ctx, []byte(sql.String()), nil)
		return err
	})
	if err != nil {
		return fmt.Errorf("forget %s at %s: %w", incarnation, s.cfg.subject(), s.classed(err))
	}
	return nil
}

package mysql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/fault"
)

// sinkTables holds the quoted names of our own tables.
type sinkTables struct{ schema, fence, checkpoint, chunk, layout, owner string }

func newSinkTables(schema string) sinkTables {
	t := func(name string) string { return quoteTable(change.TableID{Schema: schema, Name: name}) }
	return sinkTables{
		schema: quoteName(schema), fence: t("fence"), checkpoint: t("checkpoint"),
		chunk: t("chunk"), layout: t("layout"), owner: t("owner"),
	}
}

// createStatements make the schema (the first) and its tables where they are
// absent. The fence comes last: whoever finds it finds the others too, also while
// somebody else creates them. What they hold is described in
// docs/design/contracts.md §2.
func (t sinkTables) createStatements() []string {
	const options = " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC"
	table := func(name, columns string) string {
		return "CREATE TABLE IF NOT EXISTS " + name + " (" + columns + ")" + options
	}
	return []string{
		"CREATE DATABASE IF NOT EXISTS " + t.schema + " DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
		table(t.checkpoint, "incarnation VARCHAR(190) NOT NULL, part SMALLINT UNSIGNED NOT NULL,"+
			" owner VARCHAR(190) NOT NULL, position MEDIUMTEXT NOT NULL, intent LONGTEXT NULL,"+
			" moves BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'times the position was written',"+
			" PRIMARY KEY (incarnation, part), KEY owner (owner)"),
		table(t.chunk, "incarnation VARCHAR(190) NOT NULL, chunk INT UNSIGNED NOT NULL, bound LONGBLOB NULL,"+
			" done BOOLEAN NOT NULL, row_count BIGINT UNSIGNED NOT NULL, PRIMARY KEY (incarnation, chunk)"),
		table(t.layout, "incarnation VARCHAR(190) NOT NULL PRIMARY KEY, layout LONGTEXT NOT NULL"),
		table(t.owner, "target_schema VARCHAR(190) NOT NULL, target_name VARCHAR(190) NOT NULL,"+
			" store_id VARCHAR(190) NOT NULL, owner VARCHAR(190) NOT NULL, incarnation VARCHAR(190) NOT NULL,"+
			" task VARCHAR(255) NOT NULL, PRIMARY KEY (target_schema, target_name), KEY incarnation (incarnation),"+
			" KEY owner (owner)"),
		table(t.fence, "owner VARCHAR(190) NOT NULL PRIMARY KEY, store_id VARCHAR(190) NOT NULL,"+
			" epoch BIGINT UNSIGNED NOT NULL"),
	}
}

// create makes our tables, and their schema where it is not there: a user that
// may not create databases needs one made in advance.
func (s *Sink) create(ctx context.Context, c *sinkConn) error {
	statements := s.tables.createStatements()
	for i := 1; i < len(statements); i++ {
		_, err := c.run(ctx, []byte(statements[i]), nil)
		if serverCode(err) == codeNoDatabase && i == 1 {
			if _, err = c.run(ctx, []byte(statements[0]), nil); err == nil {
				_, err = c.run(ctx, []byte(statements[i]), nil)
			}
		}
		if err != nil {
			return fmt.Errorf("create the tables of schema %s: %w", s.tables.schema, err)
		}
	}
	return nil
}

var (
	claimBefore = fault.Register("sink.claim.before")
	claimAfter  = fault.Register("sink.claim.after")
)

// Claim implements change.Sink. It creates our schema when it is not there. It
// waits, until ctx ends, for transactions of older epochs to end.
func (s *Sink) Claim(ctx context.Context, f change.Fence) error {
	if err := fault.Point(claimBefore); err != nil {
		return err
	}
	insert := "INSERT IGNORE INTO " + s.tables.fence + " (owner, store_id, epoch) VALUES (" +
		quoteString(f.Owner) + "," + quoteString(f.StoreID) + ",0)"
	update := "UPDATE " + s.tables.fence + " SET epoch=" + strconv.FormatUint(f.Epoch, 10) +
		" WHERE owner=" + quoteString(f.Owner) + " AND store_id=" + quoteString(f.StoreID) +
		" AND epoch<" + strconv.FormatUint(f.Epoch, 10)
	err := s.patiently(ctx, func(c *sinkConn) error {
		raised := false
		_, err := c.run(ctx, []byte(insert+";"+update), func(i int, a answer) error {
			raised = i == 1 && a.affected == 1
			return nil
		})
		if code := serverCode(err); code == codeNoTable || code == codeNoDatabase {
			if err := s.create(ctx, c); err != nil {
				return err
			}
			return errAgain
		}
		if err != nil || raised {
			return err
		}
		return s.checkFence(ctx, c, f, "")
	})
	if err != nil {
		return fmt.Errorf("claim %s for %s: %w", s.cfg.subject(), f.Owner, s.classed(err))
	}
	return fault.Point(claimAfter)
}

// Adopt takes what another store owns at the target: the fence and the owner
// rows of its tables. It waits like Claim. The other store's writers get
// ErrOwnedElsewhere from then on.
func (s *Sink) Adopt(ctx context.Context, f change.Fence) error {
	owner, store := quoteString(f.Owner), quoteString(f.StoreID)
	sql := "BEGIN; INSERT INTO " + s.tables.fence + " (owner, store_id, epoch) VALUES (" + owner + "," + store + "," +
		strconv.FormatUint(f.Epoch, 10) + ") ON DUPLICATE KEY UPDATE store_id=VALUES(store_id), epoch=VALUES(epoch);" +
		"UPDATE " + s.tables.owner + " SET store_id=" + store + " WHERE owner=" + owner
	err := s.patiently(ctx, func(c *sinkConn) error {
		if err := s.create(ctx, c); err != nil {
			return err
		}
		if _, err := c.run(ctx, []byte(sql), nil); err != nil {
			c.rollback(ctx)
			return err
		}
		_, err := c.run(ctx, []byte("COMMIT"), nil)
		return err
	})
	if err != nil {
		return fmt.Errorf("adopt %s at %s: %w", f.Owner, s.cfg.subject(), s.classed(err))
	}
	return nil
}

var errAgain = errors.New("the statement is to be run again")

// patiently runs fn, whose effect is the same when it is run again, on a new
// connection until it ends other than by a lock that somebody else holds or by a
// connection that broke. Locks are waited for until ctx ends.
func (s *Sink) patiently(ctx context.Context, fn func(c *sinkConn) error) error {
	broken := 0
	for {
		err := s.once(ctx, fn)
		switch code := serverCode(err); {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		case code == codeLockTimeout || errors.Is(err, errAgain):
			continue // each round waits a second in the server
		case !repeatable(err):
			return err
		}
		if broken++; broken == attempts {
			return err
		}
		if err := pause(ctx, broken, rand.Float64()); err != nil {
			return err
		}
	}
}

// once runs fn on a connection of its own.
func (s *Sink) once(ctx context.Context, fn func(c *sinkConn) error) error {
	release, err := take(ctx, s.fresh)
	if err != nil {
		return err
	}
	defer release()
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	return fn(c)
}

// fenceRead is the statement that locks and reads the fence: how is "" for a
// plain read or the lock clause.
func (s *Sink) fenceRead(f change.Fence, how string) string {
	return "SELECT store_id, epoch FROM " + s.tables.fence + " WHERE owner=" + quoteString(f.Owner) + how
}

// shared is the lock clause that MySQL and MariaDB both know.
const shared = " LOCK IN SHARE MODE"

// checkFence reads the fence and compares.
func (s *Sink) checkFence(ctx context.Context, c *sinkConn, f change.Fence, how string) error {
	a, err := c.queryAll(ctx, s.fenceRead(f, how))
	if err != nil {
		return err
	}
	return compareFence(f, a.rows)
}

// compareFence judges what fenceRead returned.
func compareFence(f change.Fence, rows [][][]byte) error {
	if len(rows) == 0 {
		return change.WithClass(change.PermanentTask, fmt.Errorf("the target holds no fence of %s: %w", f.Owner, change.ErrStateGone))
	}
	store, epoch := string(rows[0][0]), string(rows[0][1])
	switch {
	case store != f.StoreID:
		return &problemError{&change.Problem{
			Code: "owned-elsewhere", Subject: "fence of " + f.Owner,
			Cause: fmt.Sprintf("the target belongs to the store %s, this is %s", store, f.StoreID),
			Remedy: "remove the tasks of the other Runnel; when its data directory is lost for good, run DROP SCHEMA <the schema that Runnel keeps here, " +
				"runnel by default> and retry: every table is copied anew",
		}, change.ErrOwnedElsewhere}
	case epoch != strconv.FormatUint(f.Epoch, 10):
		return fmt.Errorf("the fence of %s is at epoch %s, ours is %d: %w", f.Owner, epoch, f.Epoch, change.ErrDeposed)
	}
	return nil
}

// begin opens a transaction and takes the shared lock on the fence. On an error
// no transaction is open.
func (s *Sink) begin(ctx context.Context, c *sinkConn, f change.Fence) error {
	a, err := c.queryAll(ctx, "BEGIN; "+s.fenceRead(f, shared))
	if err == nil {
		err = compareFence(f, a.rows)
	}
	if err != nil {
		c.rollback(ctx)
	}
	return err
}

// commit ends the transaction. Whatever goes wrong, the outcome is unknown then.
func (c *sinkConn) commit(ctx context.Context) error {
	if _, err := c.run(ctx, []byte("COMMIT"), nil); err != nil {
		c.lost = true
		return fmt.Errorf("%w: %w", change.ErrUnknownOutcome, err)
	}
	return nil
}

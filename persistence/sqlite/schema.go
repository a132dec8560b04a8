package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/runnel-dev/runnel/persistence"
)

// migrations[i] brings a store of format i to format i+1; docs/format/store.md
// describes the result. A migration that was released is never changed.
var migrations = []string{
	`CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE shard(shard INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, acquired INTEGER NOT NULL) STRICT;
CREATE TABLE journal("row" INTEGER PRIMARY KEY, entity TEXT NOT NULL, seq INTEGER NOT NULL, prev INTEGER NOT NULL,
 at INTEGER NOT NULL, type TEXT NOT NULL, version INTEGER NOT NULL, data BLOB NOT NULL) STRICT;
CREATE TABLE entity(id TEXT PRIMARY KEY, seq INTEGER NOT NULL, last INTEGER NOT NULL,
 data_seq INTEGER NOT NULL, data BLOB, fault TEXT) STRICT, WITHOUT ROWID;
CREATE TABLE snapshot(entity TEXT PRIMARY KEY, seq INTEGER NOT NULL, at INTEGER NOT NULL,
 version INTEGER NOT NULL, data BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE record(kind TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,
 updated INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY(kind, scope, name)) STRICT, WITHOUT ROWID;`,
}

// applicationID marks the file as a store of Runnel ("Rnl1").
const applicationID = 0x526e6c31

// Names in the table meta.
const (
	metaFormat   = "format"
	metaStoreID  = "store-id"
	metaShards   = "shards"
	metaFoldMark = "fold-mark"
)

// migrate makes a new store, or brings an older format up to date, in one
// transaction; it reads the store's id and number of shards.
func (s *Store) migrate(ctx context.Context) error {
	format, err := s.format(ctx)
	if err != nil {
		return err
	}
	if format > len(migrations) {
		return fmt.Errorf("%w: the store has format %d, this Runnel reads up to %d; run the later version that wrote it", persistence.ErrFormat, format, len(migrations))
	}
	if format < len(migrations) {
		if err := s.raise(ctx, format); err != nil {
			return fmt.Errorf("bring the store from format %d to %d: %w", format, len(migrations), err)
		}
	}
	if s.id, err = s.meta(ctx, metaStoreID); err != nil {
		return err
	}
	n, err := s.metaNumber(ctx, metaShards)
	if err != nil {
		return err
	}
	if n == 0 || n > 1<<16 {
		return fmt.Errorf("%w: meta %s is %d", persistence.ErrCorrupt, metaShards, n)
	}
	s.shards = uint32(n)
	if s.opt.Shards != 0 && s.opt.Shards != s.shards {
		return fmt.Errorf("the store was made with %d shards, the configuration says %d: set it to %d", s.shards, s.opt.Shards, s.shards)
	}
	return nil
}

// format returns 0 for an empty database.
func (s *Store) format(ctx context.Context) (int, error) {
	c := s.writer.conn
	var app, tables int
	if err := c.QueryRowContext(ctx, "PRAGMA application_id").Scan(&app); err != nil {
		return 0, err
	}
	if err := c.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master").Scan(&tables); err != nil {
		return 0, err
	}
	if app == 0 && tables == 0 {
		return 0, nil
	}
	if app != applicationID {
		return 0, fmt.Errorf("%w: %s is another program's database (application id %#x)", persistence.ErrFormat, FileName, app)
	}
	n, err := s.metaNumber(ctx, metaFormat)
	return int(n), err
}

func (s *Store) raise(ctx context.Context, format int) error {
	c := s.writer.conn
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	for _, m := range migrations[format:] {
		if _, err := tx.ExecContext(ctx, m); err != nil {
			return err
		}
	}
	set := func(name, value string) {
		if err == nil {
			_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO meta(name, value) VALUES(?,?)", name, value)
		}
	}
	set(metaFormat, strconv.Itoa(len(migrations)))
	if format == 0 {
		shards := s.opt.Shards
		if shards == 0 {
			shards = persistence.DefaultShards
		}
		set(metaStoreID, rand.Text())
		set(metaShards, strconv.Itoa(int(shards)))
		set(metaFoldMark, "0")
		if err == nil {
			_, err = tx.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d", applicationID))
		}
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

func (s *Store) meta(ctx context.Context, name string) (v string, err error) {
	err = s.writer.conn.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = ?", name).Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("%w: meta %s is missing", persistence.ErrCorrupt, name)
	}
	return v, err
}

func (s *Store) metaNumber(ctx context.Context, name string) (uint64, error) {
	v, err := s.meta(ctx, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(v, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%w: meta %s is %q, want a number", persistence.ErrCorrupt, name, v)
	}
	return n, nil
}

// load fills the memory: shard epochs, every entity's place by one ordered scan
// of the entity table, and the journal behind the fold mark.
func (s *Store) load(ctx context.Context) error {
	c := s.writer.conn
	mark, err := s.metaNumber(ctx, metaFoldMark)
	if err != nil {
		return err
	}
	var last uint64
	if err := c.QueryRowContext(ctx, `SELECT coalesce(max("row"), 0) FROM journal`).Scan(&last); err != nil {
		return err
	}
	if mark > last {
		return fmt.Errorf("%w: the fold mark is %d, the journal ends at row %d", persistence.ErrCorrupt, mark, last)
	}
	s.writer.nextRow, s.table.lastRow, s.mark = last+1, last, mark
	if err := s.loadShards(ctx); err != nil {
		return fmt.Errorf("read shards: %w", err)
	}
	if err := s.loadEntities(ctx); err != nil {
		return fmt.Errorf("read the entity table: %w", err)
	}
	if err := s.loadTail(ctx, mark); err != nil {
		return fmt.Errorf("read the journal behind row %d: %w", mark, err)
	}
	return nil
}

func (s *Store) loadShards(ctx context.Context) error {
	rows, err := s.writer.conn.QueryContext(ctx, "SELECT shard, epoch FROM shard")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var shard uint32
		var epoch uint64
		if err := rows.Scan(&shard, &epoch); err != nil {
			return err
		}
		s.writer.epochs[shard] = epoch
	}
	return rows.Err()
}

func (s *Store) loadEntities(ctx context.Context) error {
	rows, err := s.writer.conn.QueryContext(ctx, "SELECT id, seq, last, data_seq FROM entity ORDER BY id")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		var p place
		var dataSeq uint64
		if err := rows.Scan(&text, &p.seq, &p.last, &dataSeq); err != nil {
			return err
		}
		id, err := persistence.ParseEntityID(text)
		if err != nil {
			return fmt.Errorf("%w: %w", persistence.ErrCorrupt, err)
		}
		// Rows that a Folder has not reached the end of are folded again: it may
		// be a newer one that can, or a type that had none.
		if dataSeq < p.seq && s.opt.Folders[id.Type()] != nil {
			s.behind = append(s.behind, id)
		}
		s.table.set(id, p)
	}
	return rows.Err()
}

func (s *Store) loadTail(ctx context.Context, mark uint64) error {
	rows, err := s.writer.conn.QueryContext(ctx, `SELECT "row", entity, seq, prev FROM journal WHERE "row" > ? ORDER BY "row"`, int64(mark))
	if err != nil {
		return err
	}
	defer rows.Close()
	want := mark + 1
	for rows.Next() {
		var row, seq, prev uint64
		var text string
		if err := rows.Scan(&row, &text, &seq, &prev); err != nil {
			return err
		}
		if row != want {
			return fmt.Errorf("%w: journal row %d follows row %d", persistence.ErrCorrupt, row, want-1)
		}
		want++
		id, err := persistence.ParseEntityID(text)
		if err != nil {
			return fmt.Errorf("%w: journal row %d: %w", persistence.ErrCorrupt, row, err)
		}
		p := s.table.get(id)
		if seq <= p.seq && row <= p.last {
			continue // the fold got this far before it could move its mark
		}
		if seq != p.seq+1 || prev != p.last {
			return fmt.Errorf("%w: journal row %d is seq %d after row %d of %s, whose last is seq %d in row %d", persistence.ErrCorrupt, row, seq, prev, id, p.seq, p.last)
		}
		s.table.set(id, place{seq, row})
	}
	return rows.Err()
}

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/runnel-dev/runnel/persistence"
)

// LastSeq is persistence.Journal's.
func (s *Store) LastSeq(id persistence.EntityID) uint64 { return s.table.get(id).seq }

// ReadEntity is persistence.Journal's.
func (s *Store) ReadEntity(ctx context.Context, id persistence.EntityID, after uint64, fn func(persistence.StoredEvent) error) error {
	if err := s.readChain(ctx, id, after, s.table.get(id), fn); err != nil {
		return fmt.Errorf("read events of %s after seq %d: %w", id, after, err)
	}
	return nil
}

// chainQuery walks from an entity's last event to the one after the given seq by
// the row numbers that each event carries, then reads them forwards.
const chainQuery = `WITH RECURSIVE chain("row", prev, seq) AS (
 SELECT "row", prev, seq FROM journal WHERE "row" = ?1
 UNION ALL
 SELECT j."row", j.prev, j.seq FROM chain c JOIN journal j ON j."row" = c.prev WHERE c.seq > ?2 + 1)
SELECT j."row", j.entity, j.seq, j.prev, j.at, j.type, j.version, j.data
FROM chain c CROSS JOIN journal j ON j."row" = c."row" ORDER BY c.seq`

// readChain checks each event: the chain of one entity, without a gap.
func (s *Store) readChain(ctx context.Context, id persistence.EntityID, after uint64, p place, fn func(persistence.StoredEvent) error) error {
	if p.seq <= after {
		return nil
	}
	rows, err := s.rdb.QueryContext(ctx, chainQuery, int64(p.last), int64(after))
	if err != nil {
		return s.classify(err)
	}
	defer rows.Close()
	want := after
	for rows.Next() {
		var entity string
		var at int64
		ev := persistence.StoredEvent{Entity: id}
		if err := rows.Scan(&ev.Row, &entity, &ev.Seq, &ev.Prev, &at, &ev.Type, &ev.Version, &ev.Data); err != nil {
			return s.classify(err)
		}
		want++
		if entity != id.String() || ev.Seq != want {
			return fmt.Errorf("%w: journal row %d is seq %d of %s, want seq %d of %s", persistence.ErrCorrupt, ev.Row, ev.Seq, entity, want, id)
		}
		ev.At = time.UnixMicro(at).UTC()
		if err := fn(ev); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return s.classify(err)
	}
	if want != p.seq {
		return fmt.Errorf("%w: the chain of %s ends at seq %d, want %d", persistence.ErrCorrupt, id, want, p.seq)
	}
	return nil
}

// LoadSnapshot is persistence.Snapshots'.
func (s *Store) LoadSnapshot(ctx context.Context, id persistence.EntityID) (persistence.Snapshot, bool, error) {
	sn := persistence.Snapshot{Entity: id}
	var at int64
	err := s.rdb.QueryRowContext(ctx, `SELECT seq, at, version, data FROM snapshot WHERE entity = ?`, id.String()).
		Scan(&sn.Seq, &at, &sn.Version, &sn.Data)
	if errors.Is(err, sql.ErrNoRows) {
		return persistence.Snapshot{}, false, nil
	}
	if err != nil {
		return persistence.Snapshot{}, false, fmt.Errorf("load snapshot of %s: %w", id, s.classify(err))
	}
	sn.At = time.UnixMicro(at).UTC()
	return sn, true, nil
}

// ScanRows is persistence.Rows'.
func (s *Store) ScanRows(ctx context.Context, typ string, fn func(persistence.Row) error) error {
	if err := s.Fold(ctx); err != nil {
		return err
	}
	// '0' is the byte after '/': the range holds exactly the ids of the type.
	from, to := "", "\U0010ffff"
	if typ != "" {
		from, to = typ+"/", typ+"0"
	}
	rows, err := s.rdb.QueryContext(ctx, `SELECT id, seq, last, data_seq, data, coalesce(fault, '') FROM entity WHERE id >= ? AND id < ? ORDER BY id`, from, to)
	if err != nil {
		return fmt.Errorf("scan entity rows: %w", s.classify(err))
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		var r persistence.Row
		if err := rows.Scan(&text, &r.Seq, &r.Last, &r.DataSeq, &r.Data, &r.Fault); err != nil {
			return fmt.Errorf("scan entity rows: %w", s.classify(err))
		}
		if r.Entity, err = persistence.ParseEntityID(text); err != nil {
			return fmt.Errorf("scan entity rows: %w: %w", persistence.ErrCorrupt, err)
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("scan entity rows: %w", s.classify(err))
	}
	return nil
}

// Get is persistence.Records'.
func (s *Store) Get(ctx context.Context, k persistence.RecordKey) (persistence.Record, error) {
	r := persistence.Record{RecordKey: k}
	var updated int64
	err := s.rdb.QueryRowContext(ctx, `SELECT version, updated, data FROM record WHERE kind = ? AND scope = ? AND name = ?`, k.Kind, k.Scope, k.Name).
		Scan(&r.Version, &updated, &r.Data)
	if errors.Is(err, sql.ErrNoRows) {
		err = persistence.ErrNotFound
	}
	if err != nil {
		return persistence.Record{}, fmt.Errorf("get %s %s/%s: %w", k.Kind, k.Scope, k.Name, s.classify(err))
	}
	r.Updated = time.UnixMicro(updated).UTC()
	return r, nil
}

// Scan is persistence.Records'.
func (s *Store) Scan(ctx context.Context, kind, scope string, fn func(persistence.Record) error) error {
	query, args := `SELECT scope, name, version, updated, data FROM record WHERE kind = ? ORDER BY scope, name`, []any{kind}
	if scope != "" {
		query, args = `SELECT scope, name, version, updated, data FROM record WHERE kind = ? AND scope = ? ORDER BY name`, []any{kind, scope}
	}
	rows, err := s.rdb.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("scan records of kind %s: %w", kind, s.classify(err))
	}
	defer rows.Close()
	for rows.Next() {
		r := persistence.Record{RecordKey: persistence.RecordKey{Kind: kind}}
		var updated int64
		if err := rows.Scan(&r.Scope, &r.Name, &r.Version, &updated, &r.Data); err != nil {
			return fmt.Errorf("scan records of kind %s: %w", kind, s.classify(err))
		}
		r.Updated = time.UnixMicro(updated).UTC()
		if err := fn(r); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("scan records of kind %s: %w", kind, s.classify(err))
	}
	return nil
}

package mysql

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

// userTables leaves the server's own schemas out.
const userTables = "TABLE_SCHEMA NOT IN ('mysql','information_schema','performance_schema','sys')"

// Tables implements change.Catalog. Layouts are those of some moment of the call.
func (s *Source) Tables(ctx context.Context, match func(change.TableID) bool) ([]change.TableInfo, error) {
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	info, err := c.identify(ctx, s.cfg.subject())
	if err != nil {
		return nil, err
	}
	drafts, err := c.drafts(ctx, userTables, match)
	if err != nil {
		return nil, fmt.Errorf("list tables of %s: %w", s.cfg.subject(), err)
	}
	out := make([]change.TableInfo, 0, len(drafts))
	for id, d := range drafts {
		l := d.finish()
		if l == nil { // dropped between the queries
			continue
		}
		out = append(out, change.TableInfo{Table: id, Layout: l, RowsEstimate: d.rows, SizeBytesEstimate: d.sizeBytes,
			Problem: tableProblem(l, d, info.version)})
	}
	if err := c.judgeDefinitions(ctx, out, info.foldNames); err != nil {
		return nil, fmt.Errorf("list tables of %s: %w", s.cfg.subject(), err)
	}
	slices.SortFunc(out, func(a, b change.TableInfo) int {
		if n := strings.Compare(a.Table.Schema, b.Table.Schema); n != 0 {
			return n
		}
		return strings.Compare(a.Table.Name, b.Table.Name)
	})
	return out, nil
}

// mark is the place in the log of a consistent snapshot: on MariaDB the server
// tells it exactly.
type mark struct{ at change.Position }

// Includes implements change.Mark.
func (m mark) Includes(end change.Position) bool { return end.AtOrBefore(m.at) }

// High implements change.Mark.
func (m mark) High() change.Position { return m.at }

// snapshot begins a transaction with a consistent snapshot and reads its mark.
func (s *session) snapshot(ctx context.Context, info *serverInfo) (change.Mark, error) {
	if err := s.exec(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
		"START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"); err != nil {
		return nil, fmt.Errorf("begin snapshot: %w", err)
	}
	rows, err := s.text(ctx, "SHOW STATUS LIKE 'binlog_snapshot_%'")
	if err != nil {
		return nil, fmt.Errorf("read mark of snapshot: %w", err)
	}
	var file string
	var offset int64
	for _, r := range rows {
		switch strings.ToLower(r[0]) {
		case "binlog_snapshot_file":
			file = r[1]
		case "binlog_snapshot_position":
			offset = number([]byte(r[1]))
		}
	}
	n, ok := fileNumber(file)
	if !ok || offset <= 0 {
		return nil, fmt.Errorf("read mark of snapshot: the server gives %q: %w", rows, errMalformed)
	}
	p := change.Position{History: info.history, Token: fmt.Sprintf("%s:%d:", file, offset)}
	binary.BigEndian.PutUint64(p.Order[:], n)
	binary.BigEndian.PutUint64(p.Order[8:], uint64(offset))
	return mark{p}, nil
}

// notMariaDB is why a MySQL server cannot be copied from: it has no exact mark of
// a snapshot.
func notMariaDB(info *serverInfo) error {
	if info.mariaDB {
		return nil
	}
	return change.WithClass(change.SourceWide, &change.Problem{Code: "server-not-mariadb", Subject: info.subject,
		Cause:  "the server is MySQL " + info.version + ", whose snapshots do not tell their place in the log",
		Remedy: "use a MariaDB source; copying from MySQL is not part of this version"})
}

// touch takes the metadata lock of a table, so that its definition stays.
func (s *session) touch(ctx context.Context, t change.TableID) error {
	err := s.exec(ctx, "SELECT 1 FROM "+ident(t.Schema)+"."+ident(t.Name)+" LIMIT 1")
	switch serverCode(err) {
	case 0:
		return err
	case 1146, 1049:
		return fmt.Errorf("%s: %w", t, change.ErrNoTable)
	case 1142, 1044:
		return &change.Problem{Code: "privilege", Subject: "table " + t.String(), Cause: "the account may not read it (" + shortError(err).Error() + ")",
			Remedy: "run GRANT SELECT ON " + ident(t.Schema) + ".* TO the account"}
	}
	return fmt.Errorf("touch %s: %w", t, err)
}

// Pin implements change.Catalog. One connection holds the table's metadata lock,
// under which no DDL of it can be logged, while another takes the snapshot: the
// layout is exact at the mark.
func (s *Source) Pin(ctx context.Context, t change.TableID) (*change.Layout, change.Mark, error) {
	holder, err := s.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer holder.close()
	info, err := holder.identify(ctx, s.cfg.subject())
	if err == nil {
		err = notMariaDB(&info)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := holder.exec(ctx, "START TRANSACTION READ ONLY"); err != nil {
		return nil, nil, fmt.Errorf("pin %s: %w", t, err)
	}
	if err := holder.touch(ctx, t); err != nil {
		return nil, nil, fmt.Errorf("pin %s: %w", t, err)
	}
	marker, err := s.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer marker.close()
	m, err := marker.snapshot(ctx, &info)
	if err != nil {
		return nil, nil, fmt.Errorf("pin %s: %w", t, err)
	}
	d, err := holder.drafts(ctx, oneTable(t), func(found change.TableID) bool { return found == t })
	if err != nil {
		return nil, nil, fmt.Errorf("pin %s: %w", t, err)
	}
	l := d[t].finish()
	if l == nil {
		return nil, nil, fmt.Errorf("pin %s: %w", t, holder.notATable(ctx, t))
	}
	if l.Definition, err = holder.definition(ctx, t); err != nil {
		return nil, nil, fmt.Errorf("pin: %w", err)
	}
	p := tableProblem(l, d[t], info.version)
	if p == nil {
		p, err = definitionProblem(ctx, t, l.Definition, holder.kin(info.foldNames))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("pin %s: %w", t, err)
	}
	if p != nil {
		return nil, nil, p
	}
	return l, m, nil
}

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
			Problem: tableProblem(l, d.tableType, info.version)})
	}
	slices.SortFunc(out, func(a, b change.TableInfo) int {
		if n := strings.Compare(a.Table.Schema, b.Table.Schema); n != 0 {
			return n
		}
		return strings.Compare(a.Table.Name, b.Table.Name)
	})
	return out, nil
}

// tableProblem says why a table cannot be captured, nil when it can. A table of
// an engine without transactions can: its changes are in the log, each by itself.
func tableProblem(l *change.Layout, tableType, version string) *change.Problem {
	p := &change.Problem{Subject: "table " + l.Table.String()}
	if tableType == "SYSTEM VERSIONED" {
		p.Code = "table-system-versioned"
		p.Cause = "it is system-versioned: its log mixes current rows and history"
		p.Remedy = "leave it out, or run ALTER TABLE " + ident(l.Table.Schema) + "." + ident(l.Table.Name) + " DROP SYSTEM VERSIONING"
		return p
	}
	for i := range l.Columns {
		c := &l.Columns[i]
		if !supportedType(c) {
			p.Code = "column-type"
			p.Cause = fmt.Sprintf("column %s has type %s, which this version does not read", c.Name, c.Type)
			p.Remedy = "leave the table out, or change the column's type"
			return p
		}
		if c.Base == "uuid" && oldUUIDs(version) {
			p.Code = "column-type"
			p.Cause = fmt.Sprintf("column %s has type uuid, which MariaDB %s stores in a form of its own", c.Name, version)
			p.Remedy = "leave the table out, or update the server within its series"
			return p
		}
		if p.Cause = labelFault(c); p.Cause != "" {
			p.Code = "column-labels"
			p.Remedy = "leave the table out, or use other labels"
			return p
		}
	}
	if len(l.Key) == 0 {
		p.Code = "table-without-key"
		p.Cause = "it has no primary key and no unique key over whole not-null columns"
		p.Remedy = "add one: ALTER TABLE " + ident(l.Table.Schema) + "." + ident(l.Table.Name) + " ADD PRIMARY KEY (…)"
		return p
	}
	for _, k := range l.Key {
		if c := &l.Columns[k]; c.Base == "float" || c.Base == "double" || c.Base == "real" {
			p.Code = "key-type"
			p.Cause = fmt.Sprintf("key column %s has type %s, whose values cannot be compared exactly", c.Name, c.Type)
			p.Remedy = "use a key of another type"
			return p
		}
	}
	return nil
}

// oldUUIDs reports versions of MariaDB from before its UUIDs got their final form
// (MDEV-29959).
func oldUUIDs(version string) bool {
	first := map[[2]int]int{{10, 10}: 6, {10, 11}: 5, {11, 0}: 3, {11, 1}: 2}
	var major, minor, patch int
	if n, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil || n != 3 {
		return false
	}
	from, series := first[[2]int{major, minor}]
	return series && patch < from || major == 10 && minor < 10
}

// labelFault says why labels of an ENUM or SET cannot be trusted, "" when they
// can. The catalog of MariaDB prints a question mark for every character beyond
// U+FFFF, so that such labels cannot be told from those that really have one.
func labelFault(c *change.Column) string {
	if _, err := encodeLabels(c); err != nil {
		return err.Error()
	}
	switch c.Charset {
	case "utf8mb4", "utf16", "utf16le", "utf32", "gb18030":
		for _, l := range c.Labels {
			if strings.Contains(l, "?") {
				return fmt.Sprintf("column %s has the label %q in %s: the server's catalog prints a question mark for characters "+
					"such as emoji, and the log has only the label's number", c.Name, l, c.Charset)
			}
		}
	}
	return ""
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
		return nil, nil, fmt.Errorf("pin %s: %w", t, change.ErrNoTable)
	}
	if l.Definition, err = holder.definition(ctx, t); err != nil {
		return nil, nil, fmt.Errorf("pin: %w", err)
	}
	if p := tableProblem(l, d[t].tableType, info.version); p != nil {
		return nil, nil, p
	}
	return l, m, nil
}

package mysql

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

// foreignEngines do not hold the rows of their tables: what changes them is not
// in this server's log, or there are none.
var foreignEngines = map[string]string{
	"mrg_myisam": "shows the rows of other tables", "merge": "shows the rows of other tables",
	"federated": "shows rows of another server", "spider": "shows rows of another server",
	"connect": "shows data from outside of the server", "sphinx": "shows data from outside of the server",
	"s3": "is read-only", "sequence": "computes its rows", "oqgraph": "computes its rows",
	"blackhole": "keeps no rows", "columnstore": "does not log its rows", "performance_schema": "computes its rows",
}

// tableProblem says why a table cannot be captured, nil when it can. A table of
// an engine without transactions can: its changes are in the log, each by itself.
func tableProblem(l *change.Layout, d *tableDraft, version string) *change.Problem {
	p := &change.Problem{Subject: "table " + l.Table.String()}
	if why, ok := foreignEngines[strings.ToLower(l.Engine)]; ok {
		p.Code = "table-engine"
		p.Cause = "its engine is " + l.Engine + ", which " + why
		p.Remedy = "leave the table out"
		return p
	}
	if d.tableType == "SYSTEM VERSIONED" {
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
		return withoutKey(p, l.Table, d)
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

// withoutKey says why none of the unique keys can serve as the key.
func withoutKey(p *change.Problem, t change.TableID, d *tableDraft) *change.Problem {
	p.Code = "table-without-key"
	p.Cause = "it has no primary key and no unique key over whole not-null columns"
	p.Remedy = "add one: ALTER TABLE " + ident(t.Schema) + "." + ident(t.Name) + " ADD PRIMARY KEY (…)"
	for _, x := range d.indexes {
		if x.hash && !x.prefix && !x.nullable {
			p.Cause = fmt.Sprintf("its only unique key over not-null columns, %s, is kept as a hash, since its columns are too long for an index: "+
				"rows can be neither found nor put in order by it", x.name)
			p.Remedy = "add a primary key of a short type, such as ALTER TABLE " + ident(t.Schema) + "." + ident(t.Name) +
				" ADD runnel_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, or make its columns a VARCHAR of at most 3072 bytes in all"
			break
		}
	}
	return p
}

// judgeDefinitions gives the tables that have no Problem yet the ones that only
// their definitions show.
func (s *session) judgeDefinitions(ctx context.Context, infos []change.TableInfo, fold bool) error {
	var ids []change.TableID
	for i := range infos {
		if infos[i].Problem == nil {
			ids = append(ids, infos[i].Table)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	defs, err := s.definitions(ctx, ids)
	if err != nil {
		return err
	}
	k := s.kin(fold)
	for id, def := range defs {
		if m, err := parseKin(def, id, fold); err == nil {
			k.seen[k.key(id)] = m
		}
	}
	for i := range infos {
		def, ok := defs[infos[i].Table]
		if infos[i].Problem != nil || !ok { // not there any more
			continue
		}
		if infos[i].Problem, err = definitionProblem(ctx, infos[i].Table, def, k); err != nil {
			return err
		}
	}
	return nil
}

// kin reads relations with the session's rights.
func (s *session) kin(fold bool) *kin {
	return &kin{fold: fold, seen: map[change.TableID]kinsman{}, read: func(ctx context.Context, t change.TableID) (kinsman, error) {
		return s.kinsman(ctx, t, fold)
	}}
}

// definitionProblem finds what makes a table unfit and shows in its definition
// only.
func definitionProblem(ctx context.Context, t change.TableID, def string, k *kin) (*change.Problem, error) {
	p := &change.Problem{Subject: "table " + t.String(), Remedy: "leave the table out"}
	d, err := parseDefinition(def)
	if err != nil {
		p.Code, p.Cause = "table-definition", fmt.Sprintf("its definition cannot be read (%v)", err)
		return p, nil
	}
	for _, e := range d.elements {
		toks := tokens(e, dialect{})
		if toks[0].is("PERIOD") && toks[1].is("FOR") {
			p.Code = "table-period"
			p.Cause = "it has the application-time period " + toks[2].text + ", whose rows and keys (WITHOUT OVERLAPS) cannot be written as they come"
			p.Remedy = "leave the table out, or run ALTER TABLE " + ident(t.Schema) + "." + ident(t.Name) + " DROP PERIOD FOR " + ident(toks[2].text)
			return p, nil
		}
		if usesSequence(toks) {
			p.Code = "column-sequence"
			p.Cause = "column " + toks[0].text + " takes its default from a sequence, which is not brought to the target"
			p.Remedy = "leave the table out, or give the column another default, such as AUTO_INCREMENT"
			return p, nil
		}
	}
	return k.hiddenCascade(ctx, t)
}

// usesSequence looks for the functions of sequences.
func usesSequence(toks []token) bool {
	for i := range toks[:len(toks)-1] {
		t := &toks[i]
		if (t.is("NEXTVAL") || t.is("LASTVAL") || t.is("SETVAL")) && toks[i+1].punct('(') {
			return true
		}
	}
	return false
}

// notATable is the error for a name that is no table that can be captured.
func (s *session) notATable(ctx context.Context, t change.TableID) error {
	rows, err := s.text(ctx, "SELECT TABLE_TYPE FROM information_schema.TABLES WHERE "+oneTable(t))
	if err != nil {
		return errors.Join(change.ErrNoTable, err)
	}
	if len(rows) != 1 || rows[0][0] == "BASE TABLE" {
		return change.ErrNoTable
	}
	return &change.Problem{Code: "not-a-table", Subject: "table " + t.String(),
		Cause:  "it is no table but a " + strings.ToLower(rows[0][0]),
		Remedy: "leave it out: only tables are copied"}
}

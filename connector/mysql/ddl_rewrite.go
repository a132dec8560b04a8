package mysql

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

var (
	errSeveralStatements = errors.New("it holds several statements")
	errNotAnAlter        = errors.New("it is not ALTER TABLE, CREATE INDEX or DROP INDEX of a known form")
)

// edit replaces a span of a text.
type edit struct {
	start, end int
	text       string
}

// rewrite is the statement (ALTER TABLE, CREATE INDEX, DROP INDEX) with the table
// it changes replaced by another. A foreign key to itself follows. Where the
// server can say so, a foreign key that is not there to drop, or there already, is
// no error: the target may have been made without it, and what a definition is
// compared by leaves foreign keys out, so that such a statement may run twice.
func rewrite(d change.DDL, to change.TableID, mariadb bool) (string, error) {
	sql := d.Statement.SQL
	kind, names := statementNames(sql, d.Statement.DefaultSchema, d.Statement.SQLMode)
	if kind != change.AlterTable || len(names) == 0 || names[0].role != roleTarget {
		return "", ddlUnreadable(d, errNotAnAlter)
	}
	if !sameTable(names[0].id, d.Source) {
		return "", ddlUnreadable(d, fmt.Errorf("it changes %s, not %s", names[0].id, d.Source))
	}
	var edits []edit
	for i, n := range names {
		if i == 0 || n.role == roleMentioned && sameTable(n.id, d.Source) {
			edits = append(edits, edit{n.start, n.end, quoteTable(to)})
		}
	}
	toks := tokens(sql, dialectOf(d.Statement.DefaultSchema, d.Statement.SQLMode))
	for i := range toks {
		if toks[i].punct(';') && toks[i+1].kind != tokenEnd {
			return "", ddlUnreadable(d, errSeveralStatements)
		}
	}
	if mariadb {
		edits = append(edits, constraintsIfExist(toks)...)
	}
	return applyEdits(sql, edits), nil
}

// constraintsIfExist makes dropping a constraint that is not there, and adding a
// foreign key that is there, no error.
func constraintsIfExist(toks []token) []edit {
	var out []edit
	p := parser{toks: toks}
	for p.peek().kind != tokenEnd {
		text := ""
		switch {
		case p.eatAll("DROP", "FOREIGN", "KEY"), p.eatAll("DROP", "CONSTRAINT"):
			text = " IF EXISTS"
		case p.eatAll("FOREIGN", "KEY"):
			text = " IF NOT EXISTS"
		default:
			p.skip()
			continue
		}
		if behind := toks[p.at-1].end; !p.peek().is("IF") {
			out = append(out, edit{behind, behind, text})
		}
	}
	return out
}

// applyEdits makes edits that do not overlap.
func applyEdits(s string, edits []edit) string {
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(a.start, b.start) })
	var b strings.Builder
	from := 0
	for _, e := range edits {
		b.WriteString(s[from:e.start])
		b.WriteString(e.text)
		from = e.end
	}
	b.WriteString(s[from:])
	return b.String()
}

func ddlUnreadable(d change.DDL, err error) error {
	return &change.Problem{
		Code: "ddl-not-understood", Subject: "target table " + d.Target.String(),
		Cause:  fmt.Sprintf("the statement cannot be brought to the target (%v): %s", err, d.Statement.SQL),
		Remedy: "run a statement at the target that has the same effect and skip this one, or resync the task",
	}
}

// sameTable compares names as a server does that may fold them.
func sameTable(a, b change.TableID) bool {
	return strings.EqualFold(a.Schema, b.Schema) && strings.EqualFold(a.Name, b.Name)
}

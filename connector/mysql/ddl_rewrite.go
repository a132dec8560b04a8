package mysql

import (
	"errors"
	"fmt"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

var (
	errSeveralStatements = errors.New("it holds several statements")
	errNotAnAlter        = errors.New("it is not ALTER TABLE, CREATE INDEX or DROP INDEX of a known form")
)

// lexisOf reads the part of an sql_mode that concerns quotes.
func lexisOf(mode string) lexis {
	var x lexis
	for _, m := range strings.Split(strings.ToUpper(mode), ",") {
		switch strings.TrimSpace(m) {
		case "ANSI_QUOTES", "ANSI", "DB2", "MAXDB", "MSSQL", "ORACLE", "POSTGRESQL":
			x.ansiQuotes = true
		case "NO_BACKSLASH_ESCAPES":
			x.noBackslash = true
		}
	}
	return x
}

// rewrite is the statement (ALTER TABLE, CREATE INDEX, DROP INDEX) with the table
// it changes replaced by another. A foreign key to itself follows. Where the
// server can say so, dropping a foreign key that is not there is no error: the
// target may have been made without it.
func rewrite(d change.DDL, to change.TableID, mariadb bool) (string, error) {
	sql := d.Statement.SQL
	toks, err := lexisOf(d.Statement.SQLMode).tokens(sql)
	if err != nil {
		return "", unreadable(d, err)
	}
	for i := range toks {
		if toks[i].kind == ';' && i < len(toks)-1 {
			return "", unreadable(d, errSeveralStatements)
		}
	}
	at := subject(sql, toks)
	if at < 0 {
		return "", unreadable(d, errNotAnAlter)
	}
	name, _, next := tableName(sql, toks, at, d.Statement.DefaultSchema)
	if next == 0 || !sameTable(name, d.Source) {
		return "", unreadable(d, fmt.Errorf("it changes %s, not %s", name, d.Source))
	}
	var b strings.Builder
	from := 0
	put := func(start, end int, text string) {
		b.WriteString(sql[from:start])
		b.WriteString(text)
		from = end
	}
	put(toks[at].start, toks[next-1].end, quoteTable(to))
	for i := next; i < len(toks); i++ {
		switch word := toks[i].word(sql); {
		case word == "REFERENCES":
			name, _, after := tableName(sql, toks, i+1, d.Statement.DefaultSchema)
			if after > 0 && sameTable(name, d.Source) {
				put(toks[i+1].start, toks[after-1].end, quoteTable(to))
				i = after - 1
			}
		case word == "DROP" && mariadb:
			last := i + 1 // of DROP FOREIGN KEY, DROP CONSTRAINT
			if wordAt(sql, toks, i+1) == "FOREIGN" && wordAt(sql, toks, i+2) == "KEY" {
				last = i + 2
			} else if wordAt(sql, toks, i+1) != "CONSTRAINT" {
				continue
			}
			if wordAt(sql, toks, last+1) != "IF" {
				put(toks[last].end, toks[last].end, " IF EXISTS")
			}
			i = last
		}
	}
	b.WriteString(sql[from:])
	return b.String(), nil
}

func unreadable(d change.DDL, err error) error {
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

func wordAt(sql string, toks []token, i int) string {
	if i >= len(toks) {
		return ""
	}
	return toks[i].word(sql)
}

// subject is the index of the first token of the name of the table that the
// statement changes, -1 when it is of no known form.
func subject(sql string, toks []token) int {
	switch wordAt(sql, toks, 0) {
	case "ALTER":
		i := 1
		for w := wordAt(sql, toks, i); w == "ONLINE" || w == "OFFLINE" || w == "IGNORE"; w = wordAt(sql, toks, i) {
			i++
		}
		if wordAt(sql, toks, i) != "TABLE" {
			return -1
		}
		if i++; wordAt(sql, toks, i) == "IF" {
			i += 2 // IF EXISTS
		}
		return i
	case "CREATE", "DROP":
		return subjectOfIndex(sql, toks)
	}
	return -1
}

// subjectOfIndex finds ON table in CREATE INDEX and DROP INDEX.
func subjectOfIndex(sql string, toks []token) int {
	index := false
	for i := 1; i < len(toks); i++ {
		switch toks[i].kind {
		case '(':
			return -1 // the columns come after the name
		case 'w':
			switch w := toks[i].word(sql); {
			case w == "INDEX" && !index:
				index = true
			case w == "ON" && index:
				return i + 1
			case w == "TABLE" && !index:
				return -1
			}
		}
	}
	return -1
}

// tableName reads name or schema.name at i. next is the index behind it, 0 when
// there is no name.
func tableName(sql string, toks []token, i int, schema string) (t change.TableID, qualified bool, next int) {
	isName := func(i int) bool { return i < len(toks) && (toks[i].kind == 'w' || toks[i].kind == '`') }
	if !isName(i) {
		return t, false, 0
	}
	t = change.TableID{Schema: schema, Name: toks[i].name(sql)}
	if i+2 < len(toks) && toks[i+1].kind == '.' && isName(i+2) {
		return change.TableID{Schema: t.Name, Name: toks[i+2].name(sql)}, true, i + 3
	}
	return t, false, i + 1
}

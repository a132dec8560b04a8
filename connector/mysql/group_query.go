package mysql

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

// query takes a logged statement: one that controls the group, or an event of it.
func (a *assembler) query(e *event, q *query, before uint64) (delivery, error) {
	if len(q.text) < 1024 { // longer than any of them can be
		if handled, d, err := a.control(e, q, before); handled || err != nil {
			return d, err
		}
	}
	if a.cur == nil {
		a.cur = a.newDraft(before)
	}
	a.statement(e, q)
	if a.cur.begun {
		return delivery{}, nil
	}
	return a.commit(e)
}

// control handles statements that begin, end or cut groups.
func (a *assembler) control(e *event, q *query, before uint64) (bool, delivery, error) {
	text := strings.TrimRight(string(q.text), "; \t\r\n")
	word, rest, _ := strings.Cut(text, " ")
	switch strings.ToUpper(word) {
	case "BEGIN":
		return true, delivery{}, a.begin(before)
	case "START":
		if strings.EqualFold(rest, "TRANSACTION") {
			return true, delivery{}, a.begin(before)
		}
	case "COMMIT":
		d, err := a.commit(e)
		return true, d, err
	case "ROLLBACK":
		d, err := a.rollback(e, rest)
		return true, d, err
	case "SAVEPOINT":
		if a.cur != nil {
			a.cur.save(savepointName(rest))
		}
		return true, delivery{}, nil
	case "RELEASE":
		return true, delivery{}, nil
	case "XA":
		return a.xa(e, rest, before)
	}
	return false, delivery{}, nil
}

func (a *assembler) begin(before uint64) error {
	if a.cur == nil {
		a.cur = a.newDraft(before)
	}
	a.cur.begun = true
	return nil
}

// rollback drops the group, or cuts it back to a savepoint.
func (a *assembler) rollback(e *event, rest string) (delivery, error) {
	if a.cur == nil {
		return delivery{}, fmt.Errorf("a rollback without a group: %w", errDamaged)
	}
	if to, name, ok := strings.Cut(rest, " "); ok && strings.EqualFold(to, "TO") {
		if word, after, ok := strings.Cut(name, " "); ok && strings.EqualFold(word, "SAVEPOINT") {
			name = after
		}
		if !a.cur.rollbackTo(savepointName(name)) {
			return delivery{}, fmt.Errorf("a rollback to savepoint %s, which the group does not have: %w", name, errDamaged)
		}
		return delivery{}, nil
	}
	a.cur.events, a.cur.size = nil, 0
	return a.commit(e)
}

// savepointName unquotes; names of savepoints do not depend on case.
func savepointName(s string) string {
	toks := tokens(s, dialect{})
	return strings.ToLower(toks[0].text)
}

// xa handles XA START, END, COMMIT and ROLLBACK.
func (a *assembler) xa(e *event, rest string, before uint64) (bool, delivery, error) {
	verb, id, _ := strings.Cut(rest, " ")
	switch strings.ToUpper(verb) {
	case "START", "BEGIN":
		return true, delivery{}, a.begin(before)
	case "END":
		return true, delivery{}, nil
	case "COMMIT", "ROLLBACK":
		xid, onePhase, err := parseXID(id)
		if err != nil {
			return true, delivery{}, err
		}
		if onePhase {
			d, err := a.commit(e)
			return true, d, err
		}
		d, err := a.settle(e, xid, strings.EqualFold(verb, "COMMIT"))
		return true, d, err
	}
	return false, delivery{}, nil
}

// parseXID reads X'61',X'62',1 as the server writes it.
func parseXID(s string) (xid string, onePhase bool, err error) {
	if head, _, ok := strings.Cut(s, " "); ok {
		onePhase = strings.Contains(strings.ToUpper(s), "ONE PHASE")
		s = head
	}
	parts := strings.Split(s, ",")
	if len(parts) != 3 {
		return "", false, fmt.Errorf("read xid %s: %w", s, errDamaged)
	}
	global, err1 := hexLiteral(parts[0])
	branch, err2 := hexLiteral(parts[1])
	format, err3 := strconv.ParseInt(parts[2], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return "", false, fmt.Errorf("read xid %s: %w", s, errDamaged)
	}
	return xidName(global, branch, int64(int32(format))), onePhase, nil
}

func hexLiteral(s string) ([]byte, error) {
	if len(s) < 3 || s[0]|0x20 != 'x' || s[1] != '\'' || s[len(s)-1] != '\'' {
		return nil, errDamaged
	}
	return hex.DecodeString(s[2 : len(s)-1])
}

// statement adds what a logged statement does to captured tables.
func (a *assembler) statement(e *event, q *query) {
	if a.cur.startAlter || a.cur.undoAlter { // counted at its commit, or never
		return
	}
	text := a.utf8(q)
	d := dialect{
		ansiQuotes: q.sqlMode&modeAnsiQuotes != 0, plainBackslash: q.sqlMode&modeNoBackslashEscapes != 0,
		foldNames: a.server.foldNames, mysqlSpecifics: !a.server.mariaDB, defaultSchema: q.schema,
	}
	if d.foldNames {
		d.defaultSchema = strings.ToLower(d.defaultSchema)
	}
	st := readStatement(text, d)
	ddl := st.kind != change.RowsByStatement && st.kind != change.NotUnderstood
	if st.kind == "" || ddl && q.errorCode != 0 && st.kind != change.DropTable {
		return
	}
	out := &change.Statement{Kind: st.kind, DefaultSchema: q.schema, SQL: text, SQLMode: q.modeText(),
		Timestamp: fmt.Sprintf("%d.%06d", e.timestamp, q.micros), TimeZone: q.timeZone}
	if ddl {
		out.Volatile = volatile(tokens(text, d))
	}
	if out.TimeZone == "SYSTEM" {
		if out.TimeZone = "+00:00"; a.server.systemZone != "UTC" && a.server.systemZone != "GMT" {
			out.TimeZone, out.Volatile = "", true // its rules are the source machine's own
		}
	}
	if st.kind != change.RowsByStatement {
		for _, n := range st.names {
			a.cur.redefined = append(a.cur.redefined, n.id)
		}
		if st.kind == change.DropSchema {
			a.cur.redefined = append(a.cur.redefined, change.TableID{Schema: st.schema})
		}
	}
	out.Tables = a.concerned(&st)
	for i, n := range st.names {
		if n.role == roleRenamed {
			out.Renames = append(out.Renames, change.Rename{From: st.renamedFrom(i), To: n.id})
		}
	}
	switch {
	case st.kind == change.DropSchema:
		out.Tables = []change.TableID{{Schema: st.schema}}
	case len(out.Tables) == 0:
		return
	}
	a.cur.add(change.Event{Statement: out}, len(text))
	if st.rows {
		lost := *out
		lost.Kind = change.RowsByStatement
		a.cur.add(change.Event{Statement: &lost}, 0)
	}
}

// renamedFrom is the table that the new name at i belongs to.
func (s *statement) renamedFrom(i int) change.TableID {
	for i--; i > 0 && s.names[i].role != roleTarget; i-- {
	}
	return s.names[max(i, 0)].id
}

// concerned lists the captured tables of a statement, once each. Names that did
// not exist before also count when a pattern matches them; those are then read
// on.
func (a *assembler) concerned(s *statement) []change.TableID {
	var out []change.TableID
	seen := map[change.TableID]bool{}
	for _, n := range s.names {
		if n.role == roleMentioned || seen[n.id] {
			continue
		}
		seen[n.id] = true
		appears := n.role == roleRenamed || s.kind == change.CreateTable
		switch {
		case a.wants(n.id):
		case appears && a.filter.WantsNew(n.id):
		case appears:
			a.cur.missed = append(a.cur.missed, n.id)
			continue
		default:
			a.cur.skip(n.id)
			continue
		}
		if appears {
			a.freshen(n.id)
		}
		out = append(out, n.id)
	}
	return out
}

// freshen makes the rows right behind a CREATE or RENAME wanted before the
// filter, which its reader updates later, says so.
func (a *assembler) freshen(t change.TableID) {
	if len(a.fresh) > 1<<14 {
		for old := range a.fresh {
			if a.filter.Wants(old) || !a.filter.WantsNew(old) {
				delete(a.fresh, old)
			}
		}
	}
	a.fresh[t] = true
	for _, m := range a.tables {
		if m.table == t {
			m.judged = false
		}
	}
}

// utf8 gives a statement's text as UTF-8. Text in a character set that is not
// known here stays as it is: names outside of ASCII then do not match.
func (a *assembler) utf8(q *query) string {
	charset := a.server.charsets[q.charset]
	switch charset {
	case "", "binary", "utf8", "utf8mb3", "utf8mb4":
		return string(q.text)
	}
	s, _ := decodeText(charset, q.text)
	return s
}

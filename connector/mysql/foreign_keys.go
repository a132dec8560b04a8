package mysql

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

// reference is a foreign key whose actions change rows of the table that has it.
type reference struct {
	parent             change.TableID
	columns            []string // of the parent
	onDelete, onUpdate bool     // which actions change rows
}

// kinsman is one table as its definition shows it.
type kinsman struct {
	columns    []string // in order, as they stand in the log
	references []reference
	hidden     bool  // the table is not there, or the account may not see it
	since      int64 // when the definition was made, in seconds since 1970; 0: not asked for
}

// kin are the tables that foreign keys tie together, read when they are asked
// for. One goroutine uses it.
type kin struct {
	fold bool // names compare in lower case
	read func(ctx context.Context, t change.TableID) (kinsman, error)
	seen map[change.TableID]kinsman
}

func (k *kin) key(t change.TableID) change.TableID {
	if k.fold {
		return lower(t)
	}
	return t
}

func (k *kin) of(ctx context.Context, t change.TableID) (kinsman, error) {
	key := k.key(t)
	if m, ok := k.seen[key]; ok {
		return m, nil
	}
	m, err := k.read(ctx, t)
	if err != nil {
		return m, fmt.Errorf("read foreign keys of %s: %w", t, err)
	}
	k.seen[key] = m
	return m, nil
}

// above gives a table and all whose changes reach its rows through foreign keys
// with actions. looped is true when its own do.
func (k *kin) above(ctx context.Context, t change.TableID) (family map[change.TableID]kinsman, looped bool, err error) {
	family = map[change.TableID]kinsman{}
	for next := []change.TableID{k.key(t)}; len(next) > 0; next = next[1:] {
		if _, ok := family[next[0]]; ok {
			continue
		}
		m, err := k.of(ctx, next[0])
		if err != nil {
			return nil, false, err
		}
		family[next[0]] = m
		for _, r := range m.references {
			parent := k.key(r.parent)
			looped = looped || parent == k.key(t)
			next = append(next, parent)
		}
	}
	return family, looped, nil
}

// hiddenCascade is the Problem of a table whose own changes come back to it
// through foreign keys: what they do to its rows is not in the log, and nothing
// tells it from what is.
func (k *kin) hiddenCascade(ctx context.Context, t change.TableID) (*change.Problem, error) {
	family, looped, err := k.above(ctx, t)
	if err != nil || !looped {
		return nil, err
	}
	through := "to itself"
	if !slices.ContainsFunc(family[k.key(t)].references, func(r reference) bool { return k.key(r.parent) == k.key(t) }) {
		var names []string
		for other := range maps.Keys(family) {
			if back, _, err := k.above(ctx, other); err != nil {
				return nil, err
			} else if _, ok := back[k.key(t)]; ok && other != k.key(t) {
				names = append(names, other.String())
			}
		}
		slices.Sort(names)
		through = "in a circle with " + strings.Join(names, ", ")
	}
	return &change.Problem{Code: "cascade-hidden", Subject: "table " + t.String(),
		Cause: "it has a foreign key " + through + " with ON DELETE or ON UPDATE CASCADE or SET NULL: the rows that the server " +
			"changes by it are not in the log",
		Remedy: "drop the action of the foreign key (ALTER TABLE " + ident(t.Schema) + "." + ident(t.Name) +
			" DROP FOREIGN KEY …, and add it without ON DELETE and ON UPDATE), or leave the table out"}, nil
}

// parseKin reads columns and foreign keys out of a definition.
func parseKin(def string, t change.TableID, fold bool) (kinsman, error) {
	var m kinsman
	d, err := parseDefinition(def)
	if err != nil {
		return m, err
	}
	for _, e := range d.elements {
		toks := tokens(e, dialect{})
		if toks[0].kind == tokenQuoted {
			m.columns = append(m.columns, toks[0].text)
			continue
		}
		if r, ok := parseReference(toks, t.Schema, fold); ok && (r.onDelete || r.onUpdate) {
			m.references = append(m.references, r)
		}
	}
	return m, nil
}

// parseReference reads … REFERENCES name (columns) ON DELETE action ON UPDATE action.
func parseReference(toks []token, schema string, fold bool) (reference, bool) {
	p := parser{toks: toks, d: dialect{defaultSchema: schema, foldNames: fold}}
	for ; p.peek().kind != tokenEnd; p.skip() {
		if !p.eat("REFERENCES") {
			continue
		}
		if !p.name(roleMentioned) {
			return reference{}, false
		}
		r := reference{parent: p.out.names[0].id}
		for more := p.eat("("); more && p.peek().name(); more = p.eat(",") {
			r.columns = append(r.columns, p.peek().text)
			p.skip()
		}
		for ; p.peek().kind != tokenEnd; p.skip() {
			switch {
			case p.eatAll("ON", "DELETE"):
				r.onDelete = p.peek().is("CASCADE") || p.peek().is("SET")
			case p.eatAll("ON", "UPDATE"):
				r.onUpdate = p.peek().is("CASCADE") || p.peek().is("SET")
			}
		}
		return r, true
	}
	return reference{}, false
}

// kinsman reads one table now. Its definition is read before the time at which it
// was made: a change between the two makes it look younger than it is.
func (s *session) kinsman(ctx context.Context, t change.TableID, fold bool) (kinsman, error) {
	def, err := s.definition(ctx, t)
	switch {
	case errors.Is(err, change.ErrNoTable), serverCode(err) == 1142, serverCode(err) == 1044:
		return kinsman{hidden: true}, nil
	case err != nil:
		return kinsman{}, err
	}
	m, err := parseKin(def, t, fold)
	if err != nil { // not a table, or one that this version cannot read
		return kinsman{hidden: true}, nil
	}
	rows, err := s.text(ctx, "SELECT IFNULL(UNIX_TIMESTAMP(CREATE_TIME),0) FROM information_schema.TABLES WHERE "+oneTable(t))
	if err != nil {
		return kinsman{}, err
	}
	if len(rows) != 1 {
		return kinsman{hidden: true}, nil
	}
	m.since = number([]byte(rows[0][0]))
	return m, nil
}

// definitions reads the statements that create tables, many in one packet. Tables
// that are gone or that the account may not see are left out.
func (s *session) definitions(ctx context.Context, tables []change.TableID) (map[change.TableID]string, error) {
	const together = 50
	out := make(map[change.TableID]string, len(tables))
	c := &sinkConn{session: s}
	if err := c.severalStatements(ctx); err != nil {
		return nil, err
	}
	for rest := tables; len(rest) > 0; {
		part := rest[:min(together, len(rest))]
		var sql strings.Builder
		for i, t := range part {
			if i > 0 {
				sql.WriteByte(';')
			}
			sql.WriteString("SHOW CREATE TABLE " + ident(t.Schema) + "." + ident(t.Name))
		}
		done, err := c.run(ctx, []byte(sql.String()), func(i int, a answer) error {
			if len(a.rows) == 1 && len(a.rows[0]) >= 2 {
				out[part[i]] = withoutCounter(string(a.rows[0][1]))
			}
			return nil
		})
		if err == nil {
			rest = rest[len(part):]
			continue
		}
		if done >= len(part) || c.lost || serverCode(err) == 0 {
			return nil, fmt.Errorf("read definitions: %w", err)
		}
		switch serverCode(err) {
		case codeNoTable, codeNoDatabase, 1142, 1044:
		default:
			return nil, fmt.Errorf("read definition of %s: %w", part[done], err)
		}
		rest = rest[done+1:]
	}
	return out, nil
}

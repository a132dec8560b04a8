package mysql

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

// cascades judges traces of foreign keys. The catalog shows definitions as they
// are now, which may be later than the log; it is believed for statements that
// began after the definition was made. For others the statements of the stream
// count, and where they do not tell, rows are taken for lost.
type cascades struct {
	kin     *kin
	session *session // nil until something is to be read

	// brought tells, of tables that the stream has seen defined, whether they have
	// a foreign key that cascades.
	brought map[change.TableID]bool
}

// addCascades tells of wanted tables whose rows a foreign key may have changed.
func (r *reader) addCascades(ctx context.Context, d *delivery) error {
	g, c := d.group, r.cascades
	c.learn(d)
	if g.Own || len(d.traces) == 0 {
		return nil
	}
	defer c.rest()
	told := map[change.TableID]bool{}
	for i := range d.traces {
		t := &d.traces[i]
		if told[t.child] {
			continue
		}
		why, err := c.judge(ctx, t)
		if err != nil {
			return err
		}
		if why == "" {
			continue
		}
		told[t.child] = true
		g.Events = append(g.Events, change.Event{Statement: &change.Statement{Kind: change.LostRows, Tables: []change.TableID{t.child},
			SQL: "/* " + why + ", which the server does not log */"}})
		g.SizeBytes += eventBytes
	}
	return nil
}

// learn takes up what statements say about tables and forgets what they outdate.
func (c *cascades) learn(d *delivery) {
	for _, t := range d.redefined {
		if t.Name == "" {
			clear(c.kin.seen)
			clear(c.brought)
			break
		}
		delete(c.kin.seen, c.kin.key(t))
	}
	for _, e := range d.group.Events {
		s := e.Statement
		if s == nil {
			continue
		}
		for _, t := range s.Tables {
			switch {
			case s.Kind != change.CreateTable && s.Kind != change.AlterTable:
				delete(c.brought, t)
			case definesCascade(s.SQL):
				c.brought[t] = true
			case s.Kind == change.CreateTable && !onlyIfAbsent(s.SQL):
				c.brought[t] = false
			case len(s.Renames) > 0:
				delete(c.brought, t)
			}
		}
	}
}

// judge says why rows of the child may have changed, "" when none have.
func (c *cascades) judge(ctx context.Context, t *trace) (string, error) {
	// Its own rows are in the log: the rest must have been opened besides.
	besides := !t.rows || t.twice
	if cascades, told := c.brought[t.child]; told && !cascades {
		return "", nil
	}
	family, _, err := c.kin.above(ctx, t.child)
	if err != nil {
		return "", err
	}
	child := family[c.kin.key(t.child)]
	if child.hidden { // dropped since, which the log is about to say
		return "", nil
	}
	believed, gaps := true, false
	for _, m := range family {
		gaps = gaps || m.hidden
		believed = believed && (m.hidden || m.since > 0 && m.since < int64(t.since))
	}
	fires := c.fires(family, t)
	switch {
	case fires && believed:
		return fmt.Sprintf("a foreign key with ON DELETE or ON UPDATE may have changed rows of %s after those of %s", t.child, t.parent), nil
	case believed && !(gaps && besides):
		return "", nil
	case !believed && (besides || fires):
		return fmt.Sprintf("a foreign key that %s had when rows of %s changed may have changed its rows too", t.child, t.parent), nil
	case gaps && besides:
		return fmt.Sprintf("a foreign key may have changed rows of %s after those of %s: the account may not see all tables between them", t.child, t.parent), nil
	}
	return "", nil
}

// fires reports whether the change of the parent reaches the child. Beyond the
// first foreign key every action is taken to go on.
func (c *cascades) fires(family map[change.TableID]kinsman, t *trace) bool {
	parent := c.kin.key(t.parent)
	columns := family[parent].columns
	for _, m := range family {
		for _, r := range m.references {
			if c.kin.key(r.parent) == parent && (t.deleted && r.onDelete || r.onUpdate && t.touches(&r, columns)) {
				return true
			}
		}
	}
	return false
}

// touches reports whether an update changed a column that the foreign key refers
// to; true when the columns cannot be told.
func (t *trace) touches(r *reference, columns []string) bool {
	any := false
	for _, b := range t.updated {
		any = any || b != 0
	}
	if !any || len(columns) == 0 || len(columns) > t.width {
		return any
	}
	for _, name := range r.columns {
		at := slices.IndexFunc(columns, func(c string) bool { return strings.EqualFold(c, name) })
		if at < 0 || t.updated[at>>3]&(1<<(at&7)) != 0 {
			return true
		}
	}
	return false
}

// newCascades reads from the catalog of s when it has to.
func newCascades(s *Source, fold bool) *cascades {
	c := &cascades{brought: map[change.TableID]bool{}}
	c.kin = &kin{fold: fold, seen: map[change.TableID]kinsman{}, read: func(ctx context.Context, t change.TableID) (kinsman, error) {
		if c.session == nil {
			var err error
			if c.session, err = s.connect(ctx); err != nil {
				return kinsman{}, err
			}
		}
		return c.session.kinsman(ctx, t, fold)
	}}
	return c
}

// rest ends the session: the next look may be hours away.
func (c *cascades) rest() {
	if c.session != nil {
		c.session.close()
		c.session = nil
	}
}

// definesCascade looks for ON DELETE or ON UPDATE with an action that changes rows.
func definesCascade(definition string) bool {
	toks := tokens(definition, dialect{})
	for i := 0; i+3 < len(toks); i++ {
		if !toks[i].is("ON") || !toks[i+1].is("DELETE") && !toks[i+1].is("UPDATE") {
			continue
		}
		if action := &toks[i+2]; action.is("CASCADE") || action.is("SET") {
			return true
		}
	}
	return false
}

// onlyIfAbsent looks for IF NOT EXISTS: the table may be another one.
func onlyIfAbsent(definition string) bool {
	toks := tokens(definition, dialect{})
	for i := 0; i+2 < len(toks) && !toks[i].punct('('); i++ {
		if toks[i].is("IF") && toks[i+1].is("NOT") && toks[i+2].is("EXISTS") {
			return true
		}
	}
	return false
}

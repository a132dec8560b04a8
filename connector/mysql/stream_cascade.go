package mysql

import (
	"context"
	"errors"
	"fmt"

	"github.com/runnel-dev/runnel/change"
)

// addCascades tells of wanted tables whose rows a foreign key may have changed:
// ON DELETE and ON UPDATE actions run inside the storage engine and are not in the
// log. Their table map without rows is the trace of a statement that could
// cascade. Tables that triggers may write leave the same trace, so whether the
// table has such a foreign key is taken from statements and from the catalog; one
// that was there when the rows changed and is gone from both is missed.
func (r *reader) addCascades(ctx context.Context, d *delivery) error {
	g := d.group
	for _, e := range g.Events {
		if e.Statement == nil {
			continue
		}
		// It may have brought a foreign key, which it then names, or taken one.
		brings := (e.Statement.Kind == change.CreateTable || e.Statement.Kind == change.AlterTable) && definesCascade(e.Statement.SQL)
		for _, t := range e.Statement.Tables {
			if delete(r.cascade, t); brings {
				r.cascade[t] = true
			}
		}
	}
	if g.Own {
		return nil
	}
	for _, t := range d.silent {
		cascades, known := r.cascade[t]
		if !known {
			var err error
			if cascades, err = r.source.hasCascade(ctx, t); err != nil {
				return err
			}
			r.cascade[t] = cascades
		}
		if cascades {
			g.Events = append(g.Events, change.Event{Statement: &change.Statement{Kind: change.LostRows, Tables: []change.TableID{t},
				SQL: "/* a foreign key with ON DELETE or ON UPDATE may have changed rows, which the server does not log */"}})
			g.SizeBytes += eventBytes
		}
	}
	return nil
}

// hasCascade reads whether rows of a table change with those of another.
func (s *Source) hasCascade(ctx context.Context, t change.TableID) (bool, error) {
	c, err := s.connect(ctx)
	if err != nil {
		return false, fmt.Errorf("read foreign keys of %s: %w", t, err)
	}
	defer c.close()
	def, err := c.definition(ctx, t)
	switch {
	case errors.Is(err, change.ErrNoTable): // the log is about to say so
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read foreign keys of %s: %w", t, err)
	}
	return definesCascade(def), nil
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

package mysql

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

// Notes tells what people should know about tables although they can be captured:
// rows that a foreign key changes are not in the log. Tables that are gone are
// left out. Safe for concurrent use; each call takes a connection of its own.
func (s *Source) Notes(ctx context.Context, tables []change.TableID) ([]*change.Problem, error) {
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	info, err := c.identify(ctx, s.cfg.subject())
	if err != nil {
		return nil, err
	}
	defs, err := c.definitions(ctx, tables)
	if err != nil {
		return nil, fmt.Errorf("look for foreign keys at %s: %w", s.cfg.subject(), err)
	}
	var out []*change.Problem
	for _, t := range tables {
		m, err := parseKin(defs[t], t, info.foldNames)
		if err != nil || len(m.references) == 0 { // Tables refuses definitions that nobody can read
			continue
		}
		var parents []string
		for _, r := range m.references {
			if name := r.parent.String(); !slices.Contains(parents, name) {
				parents = append(parents, name)
			}
		}
		out = append(out, &change.Problem{
			Code: "cascade", Subject: "table " + t.String(),
			Cause: "it has a foreign key to " + strings.Join(parents, ", ") + " with ON DELETE or ON UPDATE CASCADE or SET NULL: " +
				"the rows that the server changes by it are not in the log",
			Remedy: "the task stops as needs-resync after such a change; then run: runnel task resync " + t.String() +
				", or let the application change these rows itself, with a foreign key without the action",
		})
	}
	return out, nil
}

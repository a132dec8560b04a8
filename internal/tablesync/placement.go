package tablesync

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/runnel-dev/runnel/change"
)

// maxNameRunes is how long a schema or table name may be on MySQL and MariaDB.
const maxNameRunes = 64

var systemSchemas = map[string]bool{"mysql": true, "information_schema": true, "performance_schema": true, "sys": true}

// placement judges where a pipeline would put a table: not into a system schema or
// Runnel's own, not under a name that cannot exist, and never onto the source
// itself. same tells that source and target are one server; pipelines are all that
// read the source.
func placement(p *PipelineSpec, ownSchema string, t change.TableID, same bool, pipelines []PipelineSpec) *change.Problem {
	into := p.TargetOf(t)
	if ownSchema == "" {
		ownSchema = "runnel"
	}
	bad := func(code, cause, remedy string) *change.Problem {
		return &change.Problem{Code: code, Subject: fmt.Sprintf("pipeline %s, table %s", p.Name, t), Cause: cause, Remedy: remedy}
	}
	switch {
	case systemSchemas[into.Schema]:
		return bad("target-reserved", fmt.Sprintf("its target %s lies in a system schema", into), "give the pipeline another route")
	case into.Schema == ownSchema:
		return bad("target-reserved", fmt.Sprintf("its target %s lies in the schema where Runnel keeps its progress", into), "give the pipeline another route, or the target another schema")
	case utf8.RuneCountInString(into.Schema) > maxNameRunes || utf8.RuneCountInString(into.Name) > maxNameRunes:
		return bad("target-name-too-long", fmt.Sprintf("its target name %s is longer than %d characters", into, maxNameRunes), "give the pipeline a shorter route")
	case !same:
		return nil
	case into == t:
		return bad("target-is-source", "source and target are the same server, and the table would be written onto itself", `give the pipeline a route to another schema, such as schema: "copy_{schema}"`)
	}
	for i := range pipelines {
		if pipelines[i].Matches(into) {
			return bad("target-is-captured", fmt.Sprintf("source and target are the same server, and its target %s is read again by pipeline %s", into, pipelines[i].Name),
				"exclude the target's schema from the pipelines, or give the pipeline another route")
		}
	}
	return nil
}

// identifier is a connector that can tell its server from others.
type identifier interface {
	Identity(ctx context.Context) (string, error)
}

// errNoIdentity: the connector cannot tell servers apart.
var errNoIdentity = errors.New("the connector has no identity")

// sameServer reports whether a source and a target are one server; servers of
// connectors that cannot tell are different ones.
func sameServer(ctx context.Context, source, sink any) (bool, error) {
	var ids [2]string
	for i, c := range []any{source, sink} {
		id, ok := c.(identifier)
		if !ok {
			return false, nil
		}
		var err error
		if ids[i], err = id.Identity(ctx); errors.Is(err, errNoIdentity) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("tell source and target apart: %w", err)
		}
	}
	return ids[0] == ids[1], nil
}

// sameAs is sameServer for what runs, asked once per pair.
func (s *sourceRun) sameAs(ctx context.Context, t *targetRun) (bool, error) {
	s.mu.Lock()
	same, known := s.mu.same[t]
	s.mu.Unlock()
	if known {
		return same, nil
	}
	same, err := sameServer(ctx, s.conn, t.sink)
	if err == nil {
		s.mu.Lock()
		s.mu.same[t] = same
		s.mu.Unlock()
	}
	return same, err
}

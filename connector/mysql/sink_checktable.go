package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

// CheckTable tells what would keep Prepare from taking a table in: privileges on
// its schema, a view of its name, a definition that does not fit, rows that nobody
// accounts for. Only Target, Layout and Existing of t are looked at, and nothing
// is changed. Of a table that a task writes already only the privileges are
// judged: the task tells the rest itself. Safe for concurrent use.
func (s *Sink) CheckTable(ctx context.Context, t change.TaskTarget) ([]*change.Problem, error) {
	var found []*change.Problem
	err := s.with(ctx, func(c *sinkConn) error {
		p, err := s.checkSchemaGrants(ctx, c, t.Target)
		if err != nil || p != nil { // without privileges there is nothing to see
			found = asList(p)
			return err
		}
		found, err = s.checkExisting(ctx, c, t)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("check %s at %s: %w", t.Target, s.cfg.subject(), s.classed(err))
	}
	return found, nil
}

func asList(p *change.Problem) []*change.Problem {
	if p == nil {
		return nil
	}
	return []*change.Problem{p}
}

// checkSchemaGrants reads what the account may do in the target's schema, or to
// the table by itself. Roles that are not spelled out are left to the first use.
func (s *Sink) checkSchemaGrants(ctx context.Context, c *sinkConn, t change.TableID) (*change.Problem, error) {
	if c.info.lowerNames {
		t = lower(t)
	}
	a, err := c.queryAll(ctx, "SHOW GRANTS")
	if err != nil {
		return nil, err
	}
	lines := make([]string, len(a.rows))
	for i, row := range a.rows {
		lines[i] = string(row[0])
	}
	g := readGrants(lines)
	missing := slices.DeleteFunc(g.missing(t.Schema), func(p string) bool { return grantedOnTable(lines, t, p) })
	if len(missing) == 0 || g.roles {
		return nil, nil
	}
	row, err := c.queryOne(ctx, "SELECT CURRENT_USER()")
	if err != nil {
		return nil, err
	}
	user, host, _ := strings.Cut(row[0], "@")
	account := quoteString(user) + "@" + quoteString(host)
	return &change.Problem{
		Code: "target-privileges", Subject: "schema " + t.Schema + " at " + s.cfg.subject(),
		Cause:  fmt.Sprintf("%s lacks %s on it", account, strings.Join(missing, ", ")),
		Remedy: "GRANT " + strings.Join(needed, ", ") + " ON " + quoteName(t.Schema) + ".* TO " + account,
	}, nil
}

// grantedOnTable looks for a privilege on the table alone.
func grantedOnTable(lines []string, t change.TableID, privilege string) bool {
	for _, line := range lines {
		rest, ok := strings.CutPrefix(line, "GRANT ")
		privileges, object, on := strings.Cut(rest, " ON ")
		if !ok || !on {
			continue
		}
		toks := tokens(object, dialect{})
		if len(toks) < 4 || toks[0].text != t.Schema || !toks[1].punct('.') || toks[2].text != t.Name {
			continue
		}
		for _, p := range strings.Split(privileges, ",") {
			if p = strings.ToUpper(strings.TrimSpace(p)); p == privilege || p == "ALL PRIVILEGES" || p == "ALL" {
				return true
			}
		}
	}
	return false
}

// checkExisting judges what has the target's name already.
func (s *Sink) checkExisting(ctx context.Context, c *sinkConn, t change.TaskTarget) ([]*change.Problem, error) {
	stored := t.Target
	if c.info.lowerNames {
		stored = lower(stored)
	}
	a, err := c.queryAll(ctx, "SELECT TABLE_TYPE FROM information_schema.TABLES WHERE "+oneTable(stored))
	if err != nil || len(a.rows) == 0 {
		return nil, err
	}
	if kind := string(a.rows[0][0]); kind != "BASE TABLE" && kind != "SYSTEM VERSIONED" {
		return asList(&change.Problem{
			Code: "target-not-a-table", Subject: "target table " + t.Target.String(),
			Cause:  "a " + strings.ToLower(kind) + " has this name at the target",
			Remedy: "rename or drop it, or give the pipeline another route",
		}), nil
	}
	// A table that is to be emptied is made anew when it does not fit.
	if owned, err := s.isOwned(ctx, c, t.Target); err != nil || owned || t.Existing == change.EmptyTable {
		return nil, err
	}
	have, err := c.table(ctx, t.Target)
	if errors.Is(err, change.ErrNoTable) {
		return nil, nil // dropped between the queries
	}
	if err != nil {
		return nil, err
	}
	found := asList(misfit(t.Layout, have))
	if err := problemOr(&found, c.noTriggerBefore(ctx, t.Target)); err != nil || t.Existing != change.FreshTable {
		return found, err
	}
	return found, problemOr(&found, c.noStrangeRows(ctx, t.Target))
}

// problemOr adds the Problem in err to found; another error it gives back.
func problemOr(found *[]*change.Problem, err error) error {
	var p *change.Problem
	if !errors.As(err, &p) {
		return err
	}
	*found = append(*found, p)
	return nil
}

// isOwned reports whether a task of any Runnel writes the table.
func (s *Sink) isOwned(ctx context.Context, c *sinkConn, t change.TableID) (bool, error) {
	a, err := c.queryAll(ctx, "SELECT 1 FROM "+s.tables.owner+" WHERE "+strings.Replace(c.ownerKey(t), ", ", " AND ", 1))
	if code := serverCode(err); code == codeNoTable || code == codeNoDatabase {
		return false, nil // Runnel was never here
	}
	return len(a.rows) > 0, err
}

func (c *sinkConn) noStrangeRows(ctx context.Context, t change.TableID) error {
	a, err := c.queryAll(ctx, "SELECT 1 FROM "+quoteTable(t)+" LIMIT 1")
	if err != nil || len(a.rows) == 0 {
		return err
	}
	return &change.Problem{
		Code: "target-not-empty", Subject: "target table " + t.String(),
		Cause: "it holds rows, and no task of Runnel writes it",
		Remedy: "empty it (TRUNCATE TABLE " + quoteTable(t) + "), give the pipeline another route, or say in the pipeline what to do: " +
			"existing: empty (its rows go) or existing: keep (rows that the source does not have stay)",
	}
}

package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

// minPacketBytes is the smallest max_allowed_packet that we work with. Rows may
// still be larger.
const minPacketBytes = 1 << 20

// needed are the privileges of a target's account: on our schema and on the
// schemas of target tables.
var needed = []string{"SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "INDEX", "DROP"}

// Check implements change.Sink. It changes nothing at the target. What can be
// said only for a table that is known is left to Prepare.
func (s *Sink) Check(ctx context.Context) ([]*change.Problem, error) {
	c, err := s.open(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return []*change.Problem{s.unreachable(err)}, nil
	}
	defer c.close()
	var problems []*change.Problem
	for _, check := range []func(context.Context, *sinkConn) (*change.Problem, error){
		s.checkVersion, s.checkWritable, s.checkPacket, s.checkInnoDB, s.checkGrants,
	} {
		p, err := check(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", s.cfg.subject(), classed(err))
		}
		if p != nil {
			p.Subject = s.cfg.subject()
			problems = append(problems, p)
		}
	}
	return problems, nil
}

// unreachable is the Problem in a connect error, or one made of it.
func (s *Sink) unreachable(err error) *change.Problem {
	var p *change.Problem
	if errors.As(err, &p) {
		return p
	}
	return &change.Problem{
		Code: "unreachable", Subject: s.cfg.subject(), Cause: fmt.Sprintf("no session can be set up (%v)", err),
		Remedy: "check that " + s.cfg.Addr + " is a MySQL or MariaDB server and that the account may use it",
	}
}

func (s *Sink) checkVersion(_ context.Context, c *sinkConn) (*change.Problem, error) {
	oldest, product := [2]int{5, 7}, "MySQL"
	if c.info.mariadb {
		oldest, product = [2]int{10, 3}, "MariaDB"
	}
	version := strings.TrimPrefix(c.info.version, "5.5.5-") // what MariaDB tells old clients
	got, ok := majorMinor(version)
	if !ok || slices.Compare(got[:], oldest[:]) >= 0 {
		return nil, nil
	}
	return &change.Problem{
		Code:   "target-version",
		Cause:  fmt.Sprintf("it runs %s %s", product, version),
		Remedy: fmt.Sprintf("use %s %d.%d or later", product, oldest[0], oldest[1]),
	}, nil
}

func majorMinor(version string) (v [2]int, ok bool) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return v, false
	}
	for i := range v {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

// checkWritable looks for read_only. An account with the privilege to write
// nevertheless still must not: a replica is somebody else's copy.
func (s *Sink) checkWritable(ctx context.Context, c *sinkConn) (*change.Problem, error) {
	a, err := c.queryAll(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only','super_read_only','innodb_read_only')")
	if err != nil {
		return nil, err
	}
	for _, row := range a.rows {
		if v := strings.ToUpper(string(row[1])); v != "OFF" && v != "0" {
			return &change.Problem{
				Code:   "target-read-only",
				Cause:  fmt.Sprintf("its %s is %s: it is a replica or closed for writes", row[0], v),
				Remedy: "point the target at the primary server, or run SET GLOBAL " + string(row[0]) + "=OFF",
			}, nil
		}
	}
	return nil, nil
}

func (s *Sink) checkPacket(_ context.Context, c *sinkConn) (*change.Problem, error) {
	if c.info.maxPacket >= minPacketBytes {
		return nil, nil
	}
	return &change.Problem{
		Code:   "target-packet-size",
		Cause:  fmt.Sprintf("its max_allowed_packet is %d bytes", c.info.maxPacket),
		Remedy: "SET GLOBAL max_allowed_packet=16777216, and in the server's configuration file",
	}, nil
}

func (s *Sink) checkInnoDB(ctx context.Context, c *sinkConn) (*change.Problem, error) {
	a, err := c.queryAll(ctx, "SELECT SUPPORT FROM information_schema.ENGINES WHERE ENGINE='InnoDB'")
	if err != nil {
		return nil, err
	}
	if len(a.rows) > 0 && slices.Contains([]string{"YES", "DEFAULT"}, string(a.rows[0][0])) {
		return nil, nil
	}
	return &change.Problem{
		Code: "target-engine", Cause: "it has no InnoDB, so rows and checkpoint cannot commit together",
		Remedy: "start it with InnoDB",
	}, nil
}

// checkGrants reads what SHOW GRANTS says. Privileges by a role that it does not
// spell out cannot be judged here and are left to the first use.
func (s *Sink) checkGrants(ctx context.Context, c *sinkConn) (*change.Problem, error) {
	a, err := c.queryAll(ctx, "SHOW GRANTS")
	if err != nil {
		return nil, err
	}
	lines := make([]string, len(a.rows))
	for i, row := range a.rows {
		lines[i] = string(row[0])
	}
	g := readGrants(lines)
	missing := g.missing(s.opts.Schema)
	if len(missing) == 0 || g.roles {
		return nil, nil
	}
	account := "the account"
	if row, err := c.queryOne(ctx, "SELECT CURRENT_USER()"); err == nil {
		user, host, _ := strings.Cut(row[0], "@")
		account = quoteString(user) + "@" + quoteString(host)
	}
	return &change.Problem{
		Code:  "target-privileges",
		Cause: fmt.Sprintf("%s lacks %s on schema %s", account, strings.Join(missing, ", "), s.opts.Schema),
		Remedy: "GRANT " + strings.Join(needed, ", ") + " ON " + s.tables.schema + ".* TO " + account +
			", and the same on the schemas of the target tables",
	}, nil
}

// grants is what SHOW GRANTS says about databases.
type grants struct {
	on    map[string][]string // "*" or a pattern of database names → privileges
	roles bool                // roles whose content is not shown
}

func readGrants(lines []string) grants {
	g := grants{on: map[string][]string{}}
	for _, line := range lines {
		rest, ok := strings.CutPrefix(line, "GRANT ")
		privileges, object, on := strings.Cut(rest, " ON ")
		if !ok || !on {
			g.roles = g.roles || ok // GRANT role TO user
			continue
		}
		if strings.HasPrefix(object, "PROCEDURE ") || strings.HasPrefix(object, "FUNCTION ") {
			continue
		}
		toks := tokens(object, dialect{})
		if len(toks) < 4 || !toks[1].punct('.') || !toks[2].punct('*') {
			continue // a single table
		}
		database := toks[0].text // "*" for all
		for _, p := range strings.Split(privileges, ",") {
			g.on[database] = append(g.on[database], strings.ToUpper(strings.TrimSpace(p)))
		}
	}
	return g
}

// missing lists the needed privileges that nothing grants for the database.
func (g grants) missing(database string) []string {
	var out []string
	for _, want := range needed {
		has := false
		for pattern, have := range g.on {
			if pattern == "*" || likeMatch(pattern, database) {
				has = has || slices.Contains(have, want) || slices.Contains(have, "ALL PRIVILEGES") || slices.Contains(have, "ALL")
			}
		}
		if !has {
			out = append(out, want)
		}
	}
	return out
}

// likeMatch matches a database name as GRANT does: % and _ are wildcards, a
// backslash takes their meaning away.
func likeMatch(pattern, s string) bool {
	if pattern == "" {
		return s == ""
	}
	switch pattern[0] {
	case '%':
		for i := 0; i <= len(s); i++ {
			if likeMatch(pattern[1:], s[i:]) {
				return true
			}
		}
		return false
	case '\\':
		if len(pattern) > 1 {
			pattern = pattern[1:]
		}
	case '_':
		return s != "" && likeMatch(pattern[1:], s[1:])
	}
	return s != "" && s[0] == pattern[0] && likeMatch(pattern[1:], s[1:])
}

// Notes tells what people should know about a target table although it can be
// written: triggers there run for our rows too.
func (s *Sink) Notes(ctx context.Context, t change.TableID) ([]*change.Problem, error) {
	var out []*change.Problem
	err := s.with(ctx, func(c *sinkConn) error {
		a, err := c.queryAll(ctx, "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA="+
			quoteString(t.Schema)+" AND EVENT_OBJECT_TABLE="+quoteString(t.Name)+" ORDER BY 1")
		if err != nil {
			return err
		}
		for _, row := range a.rows {
			name := change.TableID{Schema: t.Schema, Name: string(row[0])}
			out = append(out, &change.Problem{
				Code: "target-trigger", Subject: "target table " + t.String(),
				Cause: fmt.Sprintf("the trigger %s fires for rows that are brought here; what the source's own triggers "+
					"did comes as rows too", name.Name),
				Remedy: "DROP TRIGGER " + quoteTable(name) + ", if it does what the source does already",
			})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for triggers of %s: %w", t, s.classed(err))
	}
	return out, nil
}

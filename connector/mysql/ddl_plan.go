package mysql

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

// planDDL finds what the statement does to the target and to the layout of the
// source, without touching either. An intent without SQL runs nothing at the
// target; one without a layout says that the source's table is gone.
func (s *Sink) planDDL(ctx context.Context, f change.Fence, d change.DDL) (*change.Intent, error) {
	if d.Statement == nil || d.Layout == nil {
		return nil, change.WithClass(change.PermanentTask, errors.New("plan statement: statement or layout is missing"))
	}
	intent := &change.Intent{Group: d.Group, Target: d.Target, Layout: d.Layout}
	moved, err := movedBy(d)
	if err != nil {
		return nil, err
	}
	switch {
	case moved, d.Statement.Kind == change.DropTable, d.Statement.Kind == change.DropSchema:
		intent.Layout = nil
		return intent, nil
	case d.Statement.Kind == change.RenameTable:
		return intent, nil // renamed away and back
	case d.Statement.Kind == change.CreateTable:
		planCreate(d, intent)
		return intent, nil
	case d.Statement.Kind == change.AlterTable, d.Statement.Kind == change.TruncateTable:
		err := s.underFence(ctx, f, d.Target, func(c *sinkConn) error {
			if d.Statement.Kind == change.TruncateTable {
				return c.planTruncate(ctx, d, intent)
			}
			return s.planAlter(ctx, c, d, intent)
		})
		return intent, err
	}
	return nil, &change.Problem{
		Code: "ddl-rows-unknown", Subject: "target table " + d.Target.String(),
		Cause:  fmt.Sprintf("what the statement (%s) did to rows is not in the log: %s", d.Statement.Kind, d.Statement.SQL),
		Remedy: "resync the task",
	}
}

// movedBy follows the statement's renames: true when the source's table has
// another name at the end. A table that takes the name is a Problem: its rows
// and definition were not followed.
func movedBy(d change.DDL) (bool, error) {
	if len(d.Statement.Renames) == 0 {
		return false, nil
	}
	origin := map[change.TableID]change.TableID{d.Source: d.Source}
	for _, r := range d.Statement.Renames {
		from, ok := origin[r.From]
		if !ok {
			from = r.From
		}
		delete(origin, r.From)
		origin[r.To] = from
	}
	now, there := origin[d.Source]
	if there && now != d.Source {
		return false, &change.Problem{
			Code: "ddl-renamed-in", Subject: "target table " + d.Target.String(),
			Cause: fmt.Sprintf("the table %s took the name of %s; its definition and rows were not followed: %s",
				now, d.Source, d.Statement.SQL),
			Remedy: "resync the task",
		}
	}
	return !there, nil
}

// planCreate judges CREATE TABLE of a name that exists: it did nothing, or it
// replaced the table.
func planCreate(d change.DDL, intent *change.Intent) {
	toks := tokens(d.Statement.SQL, dialectOf(d.Statement.DefaultSchema, d.Statement.SQLMode))
	for i := range toks {
		if toks[i].is("TABLE") {
			return
		}
		if toks[i].is("OR") && toks[i+1].is("REPLACE") {
			intent.Layout = nil
			return
		}
	}
}

// planTruncate empties the table with a statement of our own.
func (c *sinkConn) planTruncate(ctx context.Context, d change.DDL, intent *change.Intent) error {
	now, err := c.fingerprint(ctx, d.Target)
	if err != nil {
		return err
	}
	if now == "" {
		return missingTarget(d.Target)
	}
	intent.SQL = "TRUNCATE TABLE " + quoteTable(d.Target)
	intent.Before, intent.After = now, now
	return nil
}

func missingTarget(t change.TableID) error {
	return &change.Problem{
		Code: "target-missing", Subject: "target table " + t.String(),
		Cause:  "the table does not exist any more",
		Remedy: "resync the task, which creates it",
	}
}

// planAlter runs the statement on an empty twin of the target table and, where
// the source's table is not the same, on a twin of that.
func (s *Sink) planAlter(ctx context.Context, c *sinkConn, d change.DDL, intent *change.Intent) error {
	have, err := c.table(ctx, d.Target)
	if errors.Is(err, change.ErrNoTable) {
		return missingTarget(d.Target)
	}
	if err != nil {
		return err
	}
	if intent.Before, err = fingerprintOf(have); err != nil {
		return err
	}
	if intent.SQL, err = rewrite(d, d.Target, c.info.mariadb); err != nil {
		return err
	}
	twin := s.twin(d.Key.Incarnation, "t")
	after, err := c.onTwin(ctx, d, twin, func() error { return c.copyEmpty(ctx, twin, d.Target) })
	if err != nil {
		return err
	}
	if intent.After, err = fingerprintOf(after); err != nil {
		return err
	}
	source := after
	if d.Layout.Fingerprint() != have.Fingerprint() {
		twin := s.twin(d.Key.Incarnation, "s")
		source, err = c.onTwin(ctx, d, twin, func() error { return c.createTwin(ctx, twin, d.Layout.Definition) })
		if err != nil {
			return err
		}
	}
	if intent.Layout, err = renamed(source, d.Source); err != nil {
		return err
	}
	return usableAfter(d, intent, after)
}

// usableAfter refuses a statement after which rows could not be written any more.
func usableAfter(d change.DDL, intent *change.Intent, after *change.Layout) error {
	if len(intent.Layout.Key) == 0 {
		return &change.Problem{
			Code: "table-without-key", Subject: "table " + d.Source.String(),
			Cause:  "without a usable key its rows cannot be told apart after: " + d.Statement.SQL,
			Remedy: "give it a primary key, then resync the task",
		}
	}
	after.Table = d.Target
	if p := misfit(intent.Layout, after); p != nil {
		p.Cause = fmt.Sprintf("after %s: %s", intent.SQL, p.Cause)
		return p
	}
	return nil
}

// renamed is a layout as that of another table.
func renamed(l *change.Layout, t change.TableID) (*change.Layout, error) {
	def, err := parseDefinition(l.Definition)
	if err != nil {
		return nil, err
	}
	out := *l
	out.Table, out.Definition = t, def.create(quoteName(t.Name))
	return &out, nil
}

// twin names an empty copy. One statement at a time plans for an incarnation: the
// fence is held meanwhile.
func (s *Sink) twin(incarnation, which string) change.TableID {
	name := incarnation
	if len(name) > 50 || !plainWord(strings.ReplaceAll(strings.ToLower(name), "-", "_")) {
		sum := sha256.Sum256([]byte(incarnation))
		name = hex.EncodeToString(sum[:16])
	}
	return change.TableID{Schema: s.opts.Schema, Name: "twin_" + name + "_" + which}
}

// onTwin makes a twin, runs the statement on it, reads what came of it and drops
// it. A twin that a crash leaves behind is replaced by the next.
func (c *sinkConn) onTwin(ctx context.Context, d change.DDL, twin change.TableID, create func() error) (*change.Layout, error) {
	drop := []byte("DROP TABLE IF EXISTS " + quoteTable(twin))
	if _, err := c.run(ctx, drop, nil); err != nil {
		return nil, err
	}
	if err := create(); err != nil {
		return nil, err
	}
	l, err := c.alterTwin(ctx, d, twin)
	if c.lost {
		return nil, err
	}
	_, derr := c.run(ctx, drop, nil)
	return l, errors.Join(err, derr)
}

func (c *sinkConn) alterTwin(ctx context.Context, d change.DDL, twin change.TableID) (*change.Layout, error) {
	sql, err := rewrite(d, twin, c.info.mariadb)
	if err != nil {
		return nil, err
	}
	if err := c.statementSession(ctx, d.Statement, twin.Schema); err != nil {
		return nil, err
	}
	_, err = c.run(ctx, []byte(sql), nil)
	if c.lost {
		return nil, err
	}
	if serr := c.rowSession(ctx); serr != nil {
		return nil, errors.Join(err, serr)
	}
	if err != nil {
		return nil, ddlProblem(d.Target, d.Statement.SQL, err)
	}
	return c.table(ctx, twin)
}

// copyEmpty makes a table like another, without rows.
func (c *sinkConn) copyEmpty(ctx context.Context, to, from change.TableID) error {
	_, err := c.run(ctx, []byte("CREATE TABLE "+quoteTable(to)+" LIKE "+quoteTable(from)), nil)
	return err
}

// createTwin makes a table from the source's definition.
func (c *sinkConn) createTwin(ctx context.Context, t change.TableID, text string) error {
	def, err := parseDefinition(text)
	if err == nil {
		def, err = def.portable().withoutForeignKeys("", func(change.TableID) bool { return false })
	}
	if err != nil {
		return change.WithClass(change.PermanentTask, err)
	}
	return c.createLike(ctx, t, def)
}

// statementSession makes the session read and run a statement as the source's
// did: its sql_mode, its time and time zone, from which defaults and conversions
// are computed. Without a known sql_mode it is one in which whatever ran there runs
// here.
func (c *sinkConn) statementSession(ctx context.Context, st *change.Statement, schema string) error {
	mode, set := lenientMode, ""
	if st != nil {
		if st.SQLMode != "" {
			mode = st.SQLMode
		}
		if st.Timestamp != "" {
			set += ", timestamp=" + st.Timestamp
		}
		if st.TimeZone != "" {
			set += ", time_zone=" + quoteString(st.TimeZone)
		}
	}
	if c.info.mariadb {
		set += ", innodb_strict_mode=0, system_versioning_alter_history=KEEP"
	}
	set += "; USE " + quoteName(schema)
	for {
		_, err := c.run(ctx, []byte("SET sql_mode="+quoteString(mode)+set), nil)
		if serverCode(err) != codeBadVariable {
			return err
		}
		// A mode that only the other product knows has no meaning here.
		less := withoutMode(mode, err.Error())
		if less == mode {
			return err
		}
		mode = less
	}
}

// withoutMode removes the mode that the server's refusal names.
func withoutMode(mode, refusal string) string {
	var kept []string
	for _, m := range strings.Split(mode, ",") {
		if !strings.Contains(refusal, "'"+m+"'") {
			kept = append(kept, m)
		}
	}
	return strings.Join(kept, ",")
}

// rowSession is the opposite of statementSession.
func (c *sinkConn) rowSession(ctx context.Context) error {
	_, err := c.run(ctx, []byte("SET sql_mode='"+sinkMode+"', time_zone='+00:00', timestamp=DEFAULT"), nil)
	return err
}

// fingerprint identifies a table's whole definition: columns, keys, all indexes,
// defaults and options; "" when there is no such table.
func (c *sinkConn) fingerprint(ctx context.Context, t change.TableID) (string, error) {
	l, err := c.table(ctx, t)
	if errors.Is(err, change.ErrNoTable) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return fingerprintOf(l)
}

func fingerprintOf(l *change.Layout) (string, error) {
	d, err := parseDefinition(l.Definition)
	if err != nil {
		return "", err
	}
	text, err := d.comparable()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(text))
	return l.Fingerprint() + ":" + hex.EncodeToString(sum[:16]), nil
}

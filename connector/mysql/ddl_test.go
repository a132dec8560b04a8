package mysql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/fault"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// pair is a source table src.name and its target t.name on one server.
type pair struct {
	*target
	name   string
	layout *change.Layout
	at     uint64
}

func newPair(t *testing.T, x *target, name, columns string) *pair {
	t.Helper()
	x.exec(t, "CREATE TABLE src."+quoteName(name)+" "+columns)
	l, err := x.readLayout(t, change.TableID{Schema: "src", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	x.prepare(t, name, l)
	return &pair{target: x, name: name, layout: l}
}

func (p *pair) ddl(kind change.StatementKind, sql string) change.DDL {
	return change.DDL{
		Key: change.CheckpointKey{Incarnation: "inc-" + p.name}, Target: change.TableID{Schema: "t", Name: p.name},
		Layout: p.layout, Source: change.TableID{Schema: "src", Name: p.name},
		Statement: &change.Statement{Kind: kind, DefaultSchema: "src", SQL: sql, Tables: []change.TableID{{Schema: "src", Name: p.name}}},
		Expected:  pos(p.at), Group: pos(p.at + 1),
	}
}

// run runs the statement at the source and brings it to the target.
func (p *pair) run(t *testing.T, sql string) (*change.Layout, error) {
	t.Helper()
	p.exec(t, "USE src", sql)
	return p.bring(t, p.ddl(change.AlterTable, sql))
}

// exec of a pair runs statements in one session.
func (p *pair) exec(t *testing.T, sql ...string) { t.Helper(); p.target.exec(t, sql...) }

func (p *pair) bring(t *testing.T, d change.DDL) (*change.Layout, error) {
	t.Helper()
	l, err := p.sink.ApplyDDL(testContext(t), p.fence, d)
	if err == nil {
		p.at++
		p.layout = l
	}
	return l, err
}

// alike fails the test unless source and target tables are defined alike and the
// layout is the source's.
func (p *pair) alike(t *testing.T) {
	t.Helper()
	src, err := p.readLayout(t, change.TableID{Schema: "src", Name: p.name})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.layout.Fingerprint(), src.Fingerprint(); got != want {
		t.Errorf("got layout %+v, want the source's %+v", p.layout, src)
	}
	if p.layout.Table != src.Table || p.layout.Definition != src.Definition {
		t.Errorf("got definition of %s %s, want %s", p.layout.Table, p.layout.Definition, src.Definition)
	}
	dst := p.target.layout(t, p.name)
	if got, want := dst.Definition, src.Definition; got != want {
		t.Errorf("got target %s, want %s", got, want)
	}
	if left := p.query(t, "SHOW TABLES FROM runnel LIKE 'twin%'"); len(left) > 0 {
		t.Errorf("got twins left: %v", left)
	}
}

func newPairs(t *testing.T) *target {
	t.Helper()
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	x.exec(t, "CREATE DATABASE src CHARACTER SET utf8mb4")
	return x
}

func TestStatementsReachTheTarget(t *testing.T) {
	x := newPairs(t)
	p := newPair(t, x, "a`b.c", "(id INT PRIMARY KEY, v DECIMAL(10,1), w VARCHAR(20) CHARACTER SET latin1, KEY kv (v)) COMMENT='x;) ENGINE=y'")
	x.mustApply(t, p.batch(p.name, p.layout, 0, 1, insert(num(1), decimal("1.5"), text("a")), insert(num(2), decimal("2.5"), null())))
	p.at = 1
	x.exec(t, "INSERT INTO src.`a``b.c` VALUES (1,1.5,'a'),(2,2.5,NULL)")
	for _, sql := range []string{
		"ALTER TABLE `a``b.c` ADD COLUMN x INT NOT NULL DEFAULT 7 FIRST, ADD INDEX (x)",
		"ALTER TABLE src.`a``b.c` MODIFY v DECIMAL(10,0) /* rounds */, ALGORITHM=COPY",
		"CREATE INDEX IF NOT EXISTS `on` USING BTREE ON `a``b.c` (w(3))",
		"DROP INDEX kv ON `a``b.c`",
		"ALTER TABLE IF EXISTS `src` . `a``b.c` DROP COLUMN IF EXISTS nosuch, CHANGE w w2 VARCHAR(30) CHARACTER SET utf8mb4 DEFAULT 'it''s', COMMENT='REFERENCES `a``b.c`'",
		"ALTER TABLE `a``b.c` ADD h INT INVISIBLE DEFAULT 5, ADD g INT AS (id+1) STORED",
		"ALTER TABLE `a``b.c` DROP PRIMARY KEY, ADD PRIMARY KEY (id, x)",
		"ALTER TABLE `a``b.c` ADD CONSTRAINT self FOREIGN KEY (x) REFERENCES `a``b.c`(id), ADD CONSTRAINT pos CHECK (id > 0)",
		"ALTER TABLE `a``b.c` DROP FOREIGN KEY self, DROP CONSTRAINT pos",
		"ALTER TABLE `a``b.c` ENGINE=InnoDB, FORCE",
		"ALTER TABLE `a``b.c` CONVERT TO CHARACTER SET utf8mb3",
	} {
		x.exec(t, "USE src", "SET foreign_key_checks=0", sql)
		if _, err := p.bring(t, p.ddl(change.AlterTable, sql)); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		if got, want := x.one(t, "SELECT * FROM t.`a``b.c`"), x.one(t, "SELECT * FROM src.`a``b.c`"); got != want {
			t.Errorf("%s: got rows %s, want %s", sql, got, want)
		}
		if !strings.Contains(sql, "FOREIGN") {
			p.alike(t)
		}
	}
	if got, want := x.checkpoint(t, p.name), pos(p.at); got != want {
		t.Errorf("got checkpoint %v, want %v", got, want)
	}
}

// The target has columns and keys of its own: the layout after is still the
// source's, and the target keeps what it has.
func TestTargetMayDiffer(t *testing.T) {
	x := newPairs(t)
	x.exec(t, "CREATE TABLE t.d (id BIGINT PRIMARY KEY, extra INT DEFAULT 3, v VARCHAR(20) CHARACTER SET utf8mb4, KEY (extra)) DEFAULT CHARACTER SET utf8mb4",
		"INSERT INTO t.d (id, extra, v) VALUES (5, 9, 'kept')")
	p := newPair(t, x, "d", "(id BIGINT PRIMARY KEY, v VARCHAR(20) CHARACTER SET latin1) DEFAULT CHARACTER SET latin1")
	l, err := p.run(t, "ALTER TABLE d ADD w VARCHAR(10)")
	if err != nil {
		t.Fatal(err)
	}
	want, err := x.readLayout(t, change.TableID{Schema: "src", Name: "d"})
	if err != nil {
		t.Fatal(err)
	}
	if l.Fingerprint() != want.Fingerprint() || l.Columns[2].Charset != "latin1" {
		t.Errorf("got %+v, want the source's %+v", l.Columns, want.Columns)
	}
	x.mustApply(t, p.batch("d", l, 1, 2, update(row(num(5), text("kept"), null()), row(num(5), text("\xe4"), text("w")))))
	if got, want := x.one(t, "SELECT id, extra, v, w FROM t.d"), "5,9,ä,w"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestStatementsThatEndATable(t *testing.T) {
	x := newPairs(t)
	rename := func(from, to string) change.Rename {
		return change.Rename{From: change.TableID{Schema: "src", Name: from}, To: change.TableID{Schema: "src", Name: to}}
	}
	for i, tc := range []struct {
		kind    change.StatementKind
		sql     string
		renames []change.Rename
		gone    bool
		code    string
	}{
		{change.DropTable, "DROP TABLE IF EXISTS NAME, other", nil, true, ""},
		{change.DropSchema, "DROP DATABASE src", nil, true, ""},
		{change.RenameTable, "RENAME TABLE NAME TO x", []change.Rename{rename("NAME", "x")}, true, ""},
		{change.AlterTable, "ALTER TABLE NAME ADD c INT, RENAME TO x", []change.Rename{rename("NAME", "x")}, true, ""},
		{change.RenameTable, "RENAME TABLE NAME TO x, x TO NAME", []change.Rename{rename("NAME", "x"), rename("x", "NAME")}, false, ""},
		{change.RenameTable, "RENAME TABLE NAME TO x, y TO NAME", []change.Rename{rename("NAME", "x"), rename("y", "NAME")}, false, "ddl-renamed-in"},
		{change.CreateTable, "CREATE OR REPLACE TABLE NAME (a INT)", nil, true, ""},
		{change.CreateTable, "CREATE TABLE IF NOT EXISTS NAME (a INT) COMMENT 'OR REPLACE'", nil, false, ""},
		{change.LostRows, "ALTER TABLE NAME TRUNCATE PARTITION p0", nil, false, "ddl-rows-unknown"},
		{change.RowsByStatement, "DELETE FROM NAME", nil, false, "ddl-rows-unknown"},
		{change.AlterTable, "ALTER TABLE other ADD c INT", nil, false, "ddl-not-understood"},
		{change.AlterTable, "ALTER TABLE NAME ADD c INT; DROP TABLE NAME", nil, false, "ddl-not-understood"},
		{change.AlterTable, "ALTER TABLE NAME ADD v INT", nil, false, "ddl-refused"},
		{change.AlterTable, "ALTER TABLE NAME ADD c NOSUCHTYPE", nil, false, "ddl-refused"},
		{change.AlterTable, "ALTER TABLE NAME DROP PRIMARY KEY", nil, false, "table-without-key"},
		{change.AlterTable, "ALTER TABLE NAME ENGINE=MyISAM", nil, false, "target-engine"},
	} {
		name := fmt.Sprint("end", i)
		p := newPair(t, x, name, "(id INT PRIMARY KEY, v INT)")
		x.exec(t, "INSERT INTO t."+name+" VALUES (1,1)")
		before := x.definition(t, name)
		d := p.ddl(tc.kind, strings.ReplaceAll(tc.sql, "NAME", name))
		for _, r := range tc.renames {
			if r.From.Name == "NAME" {
				r.From.Name = name
			}
			if r.To.Name == "NAME" {
				r.To.Name = name
			}
			d.Statement.Renames = append(d.Statement.Renames, r)
		}
		l, err := p.bring(t, d)
		var problem *change.Problem
		errors.As(err, &problem)
		switch {
		case tc.code != "":
			if problem == nil || problem.Code != tc.code || change.ClassOf(err) != change.PermanentTask || !strings.Contains(problem.Cause, d.Statement.SQL[:10]) {
				t.Errorf("%s: got %v, want the Problem %s that shows it", tc.sql, err, tc.code)
			}
			if got := x.checkpoint(t, name); got != pos(0) {
				t.Errorf("%s: got checkpoint %v, want it where it was", tc.sql, got)
			}
			if cps, err := x.sink.Resolve(testContext(t), x.fence, []change.CheckpointKey{d.Key}); err != nil || cps[0].Intent != nil {
				t.Errorf("%s: got %+v (%v), want no intent", tc.sql, cps, err)
			}
		case err != nil || (l == nil) != tc.gone:
			t.Errorf("%s: got %v (%v), want gone %v", tc.sql, l, err, tc.gone)
		default:
			if got := x.checkpoint(t, name); got != pos(1) {
				t.Errorf("%s: got checkpoint %v, want 1", tc.sql, got)
			}
			_, err := x.sink.LoadLayout(testContext(t), x.fence, d.Key.Incarnation)
			if errors.Is(err, change.ErrNoTable) != tc.gone {
				t.Errorf("%s: got %v from LoadLayout, want ErrNoTable %v", tc.sql, err, tc.gone)
			}
			if again, err := x.sink.ApplyDDL(testContext(t), x.fence, d); err != nil || (again == nil) != tc.gone {
				t.Errorf("%s again: got %v (%v), want the same", tc.sql, again, err)
			}
		}
		if got := x.one(t, "SELECT * FROM t."+name); got != "1,1" {
			t.Errorf("%s: got target rows %q, want them kept", tc.sql, got)
		}
		if got := x.definition(t, name); got != before {
			t.Errorf("%s: got target %s, want %s", tc.sql, got, before)
		}
	}
	if left := x.query(t, "SHOW TABLES FROM runnel LIKE 'twin%'"); len(left) > 0 {
		t.Errorf("got twins left: %v", left)
	}
}

func (x *target) definition(t *testing.T, name string) string {
	t.Helper()
	return x.query(t, "SHOW CREATE TABLE t."+quoteName(name))[0][1]
}

// The source's sql_mode decides how the statement reads and what it does to rows.
func TestStatementRunsUnderTheSourcesMode(t *testing.T) {
	x := newPairs(t)
	p := newPair(t, x, "m", "(id INT PRIMARY KEY, v VARCHAR(20))")
	x.mustApply(t, p.batch("m", p.layout, 0, 1, insert(num(1), text("too long"))))
	p.at = 1
	d := p.ddl(change.AlterTable, `ALTER TABLE "m" MODIFY "v" VARCHAR(3) DEFAULT 'a\', ADD "x" DATE NOT NULL DEFAULT '0000-00-00'`)
	d.Statement.SQLMode = "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,NO_SUCH_MODE_HERE"
	if _, err := p.bring(t, d); err != nil {
		t.Fatal(err)
	}
	if got, want := x.one(t, "SELECT id, v, x, DEFAULT(v) FROM t.m"), `1,too,0000-00-00,a\`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// An owner dies, or is deposed, between intent and position; whoever comes next
// finds in the catalog how far it got.
func TestOpenIntentIsSettledByTheCatalog(t *testing.T) {
	x := newPairs(t)
	stop := errors.New("stop here")
	for i, tc := range []struct {
		point  string
		meddle string // what somebody does to the target meanwhile
		code   string
	}{
		{ddlRunBefore, "", ""},
		{ddlRunAfter, "", ""},
		{ddlRunBefore, "ALTER TABLE t.NAME ADD COLUMN w INT, ADD INDEX wi (w)", ""}, // as the statement does it
		{ddlRunBefore, "ALTER TABLE t.NAME ADD COLUMN other INT", "ddl-undecided"},
		{ddlRunBefore, "DROP TABLE t.NAME", "ddl-undecided"},
	} {
		name := fmt.Sprint("open", i)
		p := newPair(t, x, name, "(id INT PRIMARY KEY, v INT)")
		d := p.ddl(change.AlterTable, "ALTER TABLE "+name+" ADD COLUMN w INT, ADD INDEX wi (w)")
		restore := fault.Set(tc.point, func() error { return change.WithClass(change.PermanentTask, stop) })
		_, err := x.sink.ApplyDDL(testContext(t), x.fence, d)
		restore()
		if !errors.Is(err, stop) {
			t.Fatalf("got %v, want to be stopped at %s", err, tc.point)
		}
		cps, err := x.sink.Load(testContext(t), x.fence)
		if err != nil {
			t.Fatal(err)
		}
		for _, cp := range cps {
			if cp.CheckpointKey == d.Key && (cp.Intent == nil || cp.Intent.Group != d.Group || cp.Position != pos(0)) {
				t.Errorf("got %+v, want an intent for %v at 0", cp, d.Group)
			}
		}
		if res := x.apply(t, p.batch(name, p.layout, 0, 1, insert(num(1), num(1)))); !errors.Is(res[0].Err, change.ErrCheckpointMoved) {
			t.Errorf("got %v for rows over an open intent, want ErrCheckpointMoved", res[0].Err)
		}
		if tc.meddle != "" {
			x.exec(t, strings.ReplaceAll(tc.meddle, "NAME", name))
		}
		l, err := x.sink.ApplyDDL(testContext(t), x.fence, d)
		var problem *change.Problem
		switch {
		case tc.code != "":
			if !errors.As(err, &problem) || problem.Code != tc.code || !strings.Contains(problem.Cause, "ADD COLUMN w") {
				t.Errorf("%s: got %v, want the Problem %s", tc.meddle, err, tc.code)
			}
		case err != nil || len(l.Columns) != 3 || l.Table != d.Source:
			t.Errorf("after %s: got %+v (%v), want three columns", tc.point, l, err)
		default:
			if got := x.checkpoint(t, name); got != pos(1) {
				t.Errorf("got checkpoint %v, want 1", got)
			}
		}
	}
	other := newPair(t, x, "otherintent", "(id INT PRIMARY KEY)")
	d := other.ddl(change.AlterTable, "ALTER TABLE otherintent ADD w INT")
	restore := fault.Set(ddlRunBefore, func() error { return change.WithClass(change.PermanentTask, stop) })
	_, err := x.sink.ApplyDDL(testContext(t), x.fence, d)
	restore()
	d.Group = pos(7)
	_, err2 := x.sink.ApplyDDL(testContext(t), x.fence, d)
	var problem *change.Problem
	if !errors.Is(err, stop) || !errors.As(err2, &problem) || problem.Code != "ddl-other-intent" {
		t.Errorf("got %v and %v, want the Problem ddl-other-intent", err, err2)
	}
}

// A statement that takes longer than the server's limit for idle transactions
// keeps the fence: a claim waits until it is done.
func TestLongStatementKeepsTheFence(t *testing.T) {
	x := newPairs(t)
	x.exec(t, "CREATE TABLE t.slow (id INT PRIMARY KEY)")
	ctx := testContext(t)
	claimed := make(chan error, 1)
	newer := x.fence
	newer.Epoch = 2
	err := x.sink.underFence(ctx, x.fence, change.TableID{}, func(c *sinkConn) error {
		go func() { claimed <- x.sink.Claim(ctx, newer) }()
		err := c.runLong(ctx, "DO SLEEP(6.5)")
		select {
		case cerr := <-claimed:
			t.Errorf("the claim returned (%v) while the statement ran", cerr)
		default:
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-claimed; err != nil {
		t.Fatal(err)
	}
	if err := x.sink.underFence(ctx, x.fence, change.TableID{}, func(*sinkConn) error { return nil }); !errors.Is(err, change.ErrDeposed) {
		t.Errorf("got %v, want ErrDeposed", err)
	}
}

// When the connection that holds the fence is lost, the statement ends too.
func TestLostFenceEndsTheStatement(t *testing.T) {
	x := newPairs(t)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	err := x.sink.holdingFence(ctx, x.fence, change.TableID{}, func(holder, c *sinkConn) error {
		if err := x.db.Exec(ctx, fmt.Sprint("KILL ", holder.c.GetConnectionID())); err != nil {
			return err
		}
		return c.runLong(ctx, "DO SLEEP(30)")
	})
	if err == nil || !strings.Contains(err.Error(), "fence") {
		t.Errorf("got %v, want the loss of the fence", err)
	}
}

// A statement whose client died may still run. The next owner's comes after it,
// even when that owner has claimed: the name lock lives as long as the session.
func TestStatementWaitsForOneWithoutAClient(t *testing.T) {
	x := newPairs(t)
	p := newPair(t, x, "late", "(id INT PRIMARY KEY)")
	ctx := testContext(t)
	old, err := x.sink.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer old.close()
	if err := old.lockName(ctx, "runnel", change.TableID{Schema: "T", Name: "late"}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithCancel(ctx)
	result := make(chan error, 1)
	d := p.ddl(change.TruncateTable, "TRUNCATE late")
	go func() {
		_, err := x.sink.ApplyDDL(short, x.fence, d)
		result <- err
	}()
	for waiting := false; !waiting; {
		select {
		case err := <-result:
			t.Fatalf("got %v while an older statement may run, want to wait", err)
		default:
		}
		waiting = x.one(t, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE state='User lock'") != "0"
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the wait to end with its context", err)
	}
	old.close()
	if _, err := x.sink.ApplyDDL(ctx, x.fence, d); err != nil {
		t.Error(err)
	}
}

// Foreign keys are not part of what tells whether a statement ran: it runs twice.
func TestForeignKeyStatementsRunTwice(t *testing.T) {
	x := newPairs(t)
	p := newPair(t, x, "fk", "(id INT PRIMARY KEY, x INT, KEY (x))")
	stop := errors.New("stop here")
	for _, sql := range []string{
		"ALTER TABLE fk ADD CONSTRAINT c1 FOREIGN KEY (x) REFERENCES nowhere (id)",
		"ALTER TABLE fk DROP FOREIGN KEY c1",
	} {
		d := p.ddl(change.AlterTable, sql)
		restore := fault.Set(ddlRunAfter, func() error { return change.WithClass(change.PermanentTask, stop) })
		_, err := x.sink.ApplyDDL(testContext(t), x.fence, d)
		restore()
		if !errors.Is(err, stop) {
			t.Fatalf("got %v, want to be stopped", err)
		}
		if _, err := p.bring(t, d); err != nil {
			t.Errorf("%s again: %v", sql, err)
		}
		if got, want := strings.Count(x.definition(t, "fk"), "FOREIGN KEY"), strings.Count(sql, "ADD"); got != want {
			t.Errorf("%s: got %d foreign keys, want %d", sql, got, want)
		}
	}
}

// A lock that somebody holds on the table delays the statement and is no fault of
// it.
func TestLockedTableIsTransient(t *testing.T) {
	x := newPairs(t)
	p := newPair(t, x, "locked", "(id INT PRIMARY KEY)")
	ctx := testContext(t)
	holder, err := x.sink.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.close()
	if _, err := holder.run(ctx, []byte("BEGIN; SELECT * FROM t.locked"), nil); err != nil {
		t.Fatal(err)
	}
	d := p.ddl(change.AlterTable, "ALTER TABLE locked ADD w INT")
	if _, err := x.sink.ApplyDDL(ctx, x.fence, d); change.ClassOf(err) != change.Transient || serverCode(err) != codeLockTimeout {
		t.Errorf("got %v of class %s, want a transient lock timeout", err, change.ClassOf(err))
	}
	holder.rollback(ctx)
	if l, err := x.sink.ApplyDDL(ctx, x.fence, d); err != nil || len(l.Columns) != 2 {
		t.Errorf("got %+v (%v) once the lock is gone, want two columns", l, err)
	}
}

// Whatever the log holds, reading it ends without harm, and what is rewritten
// names the target where the source's table stood.
func FuzzRewrite(f *testing.F) {
	for _, s := range []string{
		"ALTER TABLE a ADD b INT", "ALTER TABLE `s`.`a` DROP FOREIGN KEY x, ADD FOREIGN KEY (y) REFERENCES a(z)", "CREATE INDEX i ON a (b)",
		"DROP INDEX i ON s.a", "ALTER TABLE a /*!50100 PARTITION BY HASH (x) */", "ALTER TABLE `a", "ALTER TABLE a COMMENT 'x", "/* ALTER */", "", "ALTER", "DROP CONSTRAINT",
	} {
		f.Add(s, "")
		f.Add(s, "ANSI_QUOTES,NO_BACKSLASH_ESCAPES")
	}
	f.Fuzz(func(t *testing.T, sql, mode string) {
		d := change.DDL{Source: change.TableID{Schema: "s", Name: "a"}, Target: change.TableID{Schema: "t`", Name: "b"},
			Statement: &change.Statement{SQL: sql, DefaultSchema: "s", SQLMode: mode}}
		got, err := rewrite(d, d.Target, true)
		if err == nil && !strings.Contains(got, "`t```.`b`") {
			t.Errorf("got %q from %q, want the target's name in it", got, sql)
		}
		if def, err := parseDefinition(sql); err == nil {
			if _, err := def.comparable(); err == nil {
				def.portable().create("x")
			}
		}
	})
}

package mysql

import (
	"errors"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

func (x *target) task(name string, l *change.Layout) change.TaskTarget {
	return change.TaskTarget{Incarnation: "inc-" + name, Task: "task-" + name, Target: change.TableID{Schema: "new`schema", Name: name}, Layout: l, At: pos(0)}
}

// Prepare creates what the source has, under the target's name, as a table with
// transactions and without references that lead nowhere.
func TestPrepareCreatesTheTable(t *testing.T) {
	x := newPairs(t)
	for name, columns := range map[string]string{
		"plain": "(id INT UNSIGNED ZEROFILL AUTO_INCREMENT PRIMARY KEY, `a``b` ENUM('x;','y)',''), d DATE DEFAULT '0000-00-00', ts TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)," +
			" g INT AS (id * 2) VIRTUAL, j JSON, t TEXT COMPRESSED, i INT INVISIBLE DEFAULT 3, UNIQUE (d, ts), CHECK (i <> 7)) AUTO_INCREMENT=50 COMMENT 'ENGINE=MyISAM, FOREIGN KEY (x)'",
		"aria":      "(id INT PRIMARY KEY) ENGINE=Aria TRANSACTIONAL=1 ROW_FORMAT=PAGE",
		"memory":    "(id INT PRIMARY KEY, KEY USING HASH (id)) ENGINE=MEMORY",
		"parted":    "(id INT, y INT, PRIMARY KEY (id, y)) PARTITION BY RANGE (y) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)",
		"versioned": "(id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
		"select":    "(`select` VARCHAR(64) CHARACTER SET latin1 COLLATE latin1_bin PRIMARY KEY, `%_` INT)",
		"longkey":   "(id INT NOT NULL, txt TEXT, UNIQUE (id), UNIQUE (txt))",
	} {
		x.exec(t, "USE src", "SET sql_mode=''", "CREATE TABLE "+quoteName(name)+" "+columns)
		l, err := x.readLayout(t, change.TableID{Schema: "src", Name: name})
		if err != nil {
			t.Fatal(err)
		}
		task := x.task(name, l)
		for range 2 {
			if err := x.sink.Prepare(testContext(t), x.fence, task); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		got, err := x.readLayout(t, task.Target)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.Fingerprint() != l.Fingerprint() || got.Engine != "InnoDB" {
			t.Errorf("%s: got %s with %s, want like %s", name, got.Definition, got.Engine, l.Definition)
		}
		if l.Engine == "InnoDB" && got.Definition != l.Definition {
			t.Errorf("%s: got %s, want %s", name, got.Definition, l.Definition)
		}
	}
}

func TestPrepareKeepsForeignKeysWithAParent(t *testing.T) {
	x := newPairs(t)
	x.exec(t, "CREATE TABLE src.p1 (id INT PRIMARY KEY)", "CREATE TABLE src.p2 (id INT PRIMARY KEY)", "CREATE DATABASE `new``schema`",
		"CREATE TABLE `new``schema`.p1 (id INT PRIMARY KEY)",
		"CREATE TABLE src.child (id INT PRIMARY KEY, CONSTRAINT c1 FOREIGN KEY (id) REFERENCES src.p1 (id) ON DELETE CASCADE, CONSTRAINT `c,2` FOREIGN KEY (id) REFERENCES src.p2 (id))")
	l, err := x.readLayout(t, change.TableID{Schema: "src", Name: "child"})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.sink.Prepare(testContext(t), x.fence, x.task("child", l)); err != nil {
		t.Fatal(err)
	}
	got := x.query(t, "SHOW CREATE TABLE `new``schema`.child")[0][1]
	if !strings.Contains(got, "CONSTRAINT `c1` FOREIGN KEY") || strings.Contains(got, "c,2") {
		t.Errorf("got %s, want c1 and not c,2", got)
	}
	// Its name is taken in the schema: the key is left out rather than the table.
	task := x.task("child2", l)
	if err := x.sink.Prepare(testContext(t), x.fence, task); err != nil {
		t.Fatal(err)
	}
	if got := x.query(t, "SHOW CREATE TABLE `new``schema`.child2")[0][1]; strings.Contains(got, "CONSTRAINT") {
		t.Errorf("got %s, want no foreign key", got)
	}
}

func TestPrepareComparesAnExistingTable(t *testing.T) {
	x := newPairs(t)
	x.exec(t, "CREATE DATABASE `new``schema`", "CREATE TABLE src.s (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET latin1, n INT NULL, u INT, UNIQUE (u))")
	l, err := x.readLayout(t, change.TableID{Schema: "src", Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ columns, code, says string }{
		{"(n INT, id INT(5) PRIMARY KEY, more INT, u INT UNIQUE, v VARCHAR(20) CHARACTER SET utf8mb4)", "", ""},
		{"(id INT, v VARCHAR(20), n INT, u INT, UNIQUE (u), PRIMARY KEY (id)) ENGINE=MyISAM", "target-engine", "MyISAM"},
		{"(id INT PRIMARY KEY, v VARCHAR(20), u INT)", "target-column-missing", "n (int(11))"},
		{"(id INT PRIMARY KEY, v VARCHAR(19), n INT, u INT)", "target-column-type", "varchar(19)"},
		{"(id INT PRIMARY KEY, v VARCHAR(20), n INT NOT NULL, u INT)", "target-column-type", "NULL"},
		{"(id INT PRIMARY KEY, v VARCHAR(20), n INT AS (1), u INT)", "target-column-type", "generated"},
		{"(id INT UNSIGNED PRIMARY KEY, v VARCHAR(20), n INT, u INT)", "target-column-type", "unsigned"},
		{"(id INT, v VARCHAR(20), n INT, u INT, KEY (id))", "target-without-key", "id"},
		{"(id INT, v VARCHAR(20), n INT, u INT, more INT, PRIMARY KEY (id, more))", "target-without-key", "id"},
		{"(id INT PRIMARY KEY, v VARCHAR(20), n INT, u INT, UNIQUE nn (n))", "target-unique", "nn"},
	} {
		x.exec(t, "CREATE OR REPLACE TABLE `new``schema`.s "+tc.columns)
		err := x.sink.Prepare(testContext(t), x.fence, x.task("s", l))
		var p *change.Problem
		if tc.code == "" {
			if err != nil {
				t.Errorf("%s: got %v, want it to fit", tc.columns, err)
			}
			if err := x.sink.Forget(testContext(t), x.fence, "inc-s"); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if !errors.As(err, &p) || p.Code != tc.code || !strings.Contains(p.Cause, tc.says) || change.ClassOf(err) != change.PermanentTask {
			t.Errorf("%s: got %v, want the Problem %s that says %s", tc.columns, err, tc.code, tc.says)
		}
		if got := x.one(t, "SELECT COUNT(*) FROM runnel.owner"); got != "0" {
			t.Errorf("%s: got %s owner rows, want none", tc.columns, got)
		}
	}
	x.exec(t, "CREATE TABLE src.ci (k VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY)", "CREATE TABLE `new``schema`.ci (k VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY)")
	if l, err = x.readLayout(t, change.TableID{Schema: "src", Name: "ci"}); err != nil {
		t.Fatal(err)
	}
	var p *change.Problem
	if err := x.sink.Prepare(testContext(t), x.fence, x.task("ci", l)); !errors.As(err, &p) || p.Code != "target-without-key" {
		t.Errorf("got %v for a key that folds case, want the Problem target-without-key", err)
	}
}

func TestEmptyTableStartsWithoutRows(t *testing.T) {
	x := newPairs(t)
	x.exec(t, "CREATE TABLE src.e (id INT PRIMARY KEY)", "CREATE DATABASE `new``schema`", "CREATE TABLE `new``schema`.e (id INT PRIMARY KEY)", "INSERT INTO `new``schema`.e VALUES (1)")
	l, err := x.readLayout(t, change.TableID{Schema: "src", Name: "e"})
	if err != nil {
		t.Fatal(err)
	}
	task := x.task("e", l)
	task.Existing = change.EmptyTable
	if err := x.sink.Prepare(testContext(t), x.fence, task); err != nil {
		t.Fatal(err)
	}
	if got := x.one(t, "SELECT COUNT(*) FROM `new``schema`.e"); got != "0" {
		t.Errorf("got %s rows, want none", got)
	}
	x.exec(t, "INSERT INTO `new``schema`.e VALUES (2)")
	if err := x.sink.Prepare(testContext(t), x.fence, task); err != nil {
		t.Fatal(err)
	}
	if got := x.one(t, "SELECT id FROM `new``schema`.e"); got != "2" {
		t.Errorf("got rows %q after preparing again, want the row of this life", got)
	}
}

// A table with system versioning takes no TRUNCATE.
func TestEmptyVersionedTable(t *testing.T) {
	x := newPairs(t)
	x.exec(t, "CREATE TABLE src.v (id INT PRIMARY KEY) WITH SYSTEM VERSIONING", "CREATE DATABASE `new``schema`",
		"CREATE TABLE `new``schema`.v (id INT PRIMARY KEY) WITH SYSTEM VERSIONING", "INSERT INTO `new``schema`.v VALUES (1)")
	l, err := x.readLayout(t, change.TableID{Schema: "src", Name: "v"})
	if err != nil {
		t.Fatal(err)
	}
	task := x.task("v", l)
	task.Existing = change.EmptyTable
	if err := x.sink.Prepare(testContext(t), x.fence, task); err != nil {
		t.Fatal(err)
	}
	if got := x.one(t, "SELECT COUNT(*) FROM `new``schema`.v"); got != "0" {
		t.Errorf("got %s rows, want none", got)
	}
}

// A server that folds names has one table for all spellings.
func TestFoldedNames(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{ExtraArgs: []string{"--lower-case-table-names=1"}}, SinkOptions{})
	x.exec(t, "CREATE DATABASE src", "CREATE TABLE src.s (Id INT PRIMARY KEY, V INT)")
	l, err := x.readLayout(t, change.TableID{Schema: "src", Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	task := change.TaskTarget{Incarnation: "Inc", Target: change.TableID{Schema: "T", Name: "MyTable"}, Layout: l, At: pos(0)}
	for range 2 {
		if err := x.sink.Prepare(testContext(t), x.fence, task); err != nil {
			t.Fatal(err)
		}
	}
	second := task
	second.Task, second.Incarnation, second.Target = "another", "Inc2", change.TableID{Schema: "t", Name: "mytable"}
	if err := x.sink.Prepare(testContext(t), x.fence, second); !errors.Is(err, change.ErrOwnedElsewhere) {
		t.Errorf("got %v for another spelling, want ErrOwnedElsewhere", err)
	}
	d := change.DDL{Key: change.CheckpointKey{Incarnation: "Inc"}, Target: task.Target, Layout: l, Source: l.Table, Expected: pos(0), Group: pos(1),
		Statement: &change.Statement{Kind: change.AlterTable, DefaultSchema: "SRC", SQL: "ALTER TABLE S ADD W INT"}}
	after, err := x.sink.ApplyDDL(testContext(t), x.fence, d)
	if err != nil || len(after.Columns) != 3 {
		t.Fatalf("got %+v (%v), want three columns", after, err)
	}
}

// A definition that only another product knows is shown, not tried for ever.
func TestForeignDefinitionIsRefused(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	l := &change.Layout{Table: change.TableID{Schema: "src", Name: "a"}, Columns: []change.Column{{Name: "id", Type: "int", Base: "int"}}, Key: []int{0},
		Definition: "CREATE TABLE `a` (\n  `id` int NOT NULL,\n  PRIMARY KEY (`id`)\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_no_such_ci"}
	err := x.sink.Prepare(testContext(t), x.fence, change.TaskTarget{Incarnation: "i", Target: change.TableID{Schema: "t", Name: "a"}, Layout: l, At: pos(0)})
	var p *change.Problem
	if !errors.As(err, &p) || p.Code != "create-refused" || change.ClassOf(err) != change.PermanentTask || !strings.Contains(p.Cause, "utf8mb4_no_such_ci") {
		t.Errorf("got %v of class %s, want the Problem create-refused with the statement", err, change.ClassOf(err))
	}
	for _, bad := range []*change.Layout{nil, {Table: l.Table}, {Table: l.Table, Key: []int{0}, Columns: l.Columns}} {
		task := change.TaskTarget{Incarnation: "i", Target: change.TableID{Schema: "t", Name: "b"}, Layout: bad}
		if err := x.sink.Prepare(testContext(t), x.fence, task); change.ClassOf(err) != change.PermanentTask {
			t.Errorf("layout %+v: got %v of class %s, want permanent-task", bad, err, change.ClassOf(err))
		}
	}
}

func TestAdoptTakesFenceAndTables(t *testing.T) {
	x := newPairs(t)
	x.exec(t, "CREATE TABLE src.a (id INT PRIMARY KEY)")
	l, err := x.readLayout(t, change.TableID{Schema: "src", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.sink.Prepare(testContext(t), x.fence, x.task("a", l)); err != nil {
		t.Fatal(err)
	}
	other := change.Fence{StoreID: "store-2", Owner: x.fence.Owner, Epoch: 1}
	if err := x.sink.Claim(testContext(t), other); !errors.Is(err, change.ErrOwnedElsewhere) {
		t.Fatalf("got %v, want ErrOwnedElsewhere", err)
	}
	if err := x.sink.Adopt(testContext(t), other); err != nil {
		t.Fatal(err)
	}
	if err := x.sink.Claim(testContext(t), other); err != nil {
		t.Errorf("claim after adopt: %v", err)
	}
	if err := x.sink.Prepare(testContext(t), other, x.task("a", l)); err != nil {
		t.Errorf("prepare after adopt: %v", err)
	}
	if _, err := x.sink.Load(testContext(t), x.fence); !errors.Is(err, change.ErrOwnedElsewhere) {
		t.Errorf("got %v for the old store, want ErrOwnedElsewhere", err)
	}
}

func TestDefinitionsAreReadOrRefused(t *testing.T) {
	for _, s := range []string{"", "CREATE", "CREATE TABLE", "CREATE TABLE t", "CREATE TABLE t (a INT", "CREATE VIEW v AS SELECT (1)", "CREATE TABLE `t (a INT)"} {
		if d, err := parseDefinition(s); !errors.Is(err, errNotADefinition) {
			t.Errorf("%q: got %+v (%v), want errNotADefinition", s, d, err)
		}
	}
	d, err := parseDefinition("CREATE TABLE `x` (\n  `a` enum('),','`') COMMENT ');',\n  KEY `k` (`a`,`b`)\n) ENGINE=Aria DATA DIRECTORY='/x' COMMENT='ENGINE=Aria' PARTITION BY HASH (a) (PARTITION p0 ENGINE = Aria INDEX DIRECTORY = '/y')")
	if err != nil {
		t.Fatal(err)
	}
	got := d.portable().create("`y`")
	want := "CREATE TABLE `y` (\n  `a` enum('),','`') COMMENT ');',\n  KEY `k` (`a`,`b`)\n) ENGINE=InnoDB  COMMENT='ENGINE=Aria' PARTITION BY HASH (a) (PARTITION p0 ENGINE=InnoDB )"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	ctx := testContext(t)
	if err := x.db.CreateUser(ctx, "weak", "pw", "SELECT", "INSERT ON runnel.*"); err != nil {
		t.Fatal(err)
	}
	if err := x.db.CreateUser(ctx, "enough", "p'w", "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP ON `runn_l`.*", "ALL ON t.*"); err != nil {
		t.Fatal(err)
	}
	check := func(cfg Config) map[string]*change.Problem {
		t.Helper()
		problems, err := newTestSink(t, cfg, SinkOptions{}).Check(ctx)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]*change.Problem{}
		for _, p := range problems {
			out[p.Code] = p
			if p.Subject == "" || p.Cause == "" || p.Remedy == "" {
				t.Errorf("got %+v, want subject, cause and remedy", p)
			}
		}
		return out
	}
	cfg := targetConfig(x.db)
	cfg.User, cfg.Password = "enough", "p'w"
	if got := check(cfg); len(got) != 0 {
		t.Errorf("got %v, want none", got)
	}
	cfg.User, cfg.Password = "weak", "pw"
	if got := check(cfg); got["target-privileges"] == nil || !strings.Contains(got["target-privileges"].Cause, "UPDATE, DELETE, CREATE, ALTER, INDEX, DROP") {
		t.Errorf("got %v, want target-privileges that lists what is missing", got)
	}
	cfg.Password = "wrong"
	if got := check(cfg); got["access-denied"] == nil {
		t.Errorf("got %v, want access-denied", got)
	}
	x.exec(t, "SET GLOBAL read_only=1", "SET GLOBAL max_allowed_packet=65536")
	got := check(targetConfig(x.db))
	if got["target-read-only"] == nil || got["target-packet-size"] == nil {
		t.Errorf("got %v, want target-read-only and target-packet-size", got)
	}
	cfg.Addr = "127.0.0.1:1"
	if got := check(cfg); got["unreachable"] == nil {
		t.Errorf("got %v, want unreachable", got)
	}
	if s, err := NewSink(Config{}, SinkOptions{}); err == nil {
		t.Errorf("got %v without an address, want an error", s)
	}
}

func TestNotesNameTriggers(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	x.exec(t, "CREATE TABLE t.a (id INT PRIMARY KEY)", "CREATE TRIGGER t.audit AFTER INSERT ON t.a FOR EACH ROW SET @x = 1")
	got, err := x.sink.Notes(testContext(t), change.TableID{Schema: "t", Name: "a"})
	if err != nil || len(got) != 1 || got[0].Code != "target-trigger" || !strings.Contains(got[0].Remedy, "`t`.`audit`") {
		t.Errorf("got %v (%v), want the trigger named", got, err)
	}
}

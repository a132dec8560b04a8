package mysql

import (
	"slices"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

func problemCodes(ps []*change.Problem) []string {
	var out []string
	for _, p := range ps {
		out = append(out, p.Code)
		if p.Subject == "" || p.Cause == "" || p.Remedy == "" {
			out = append(out, "incomplete: "+p.Error())
		}
	}
	return out
}

// CheckTable finds what Prepare would refuse, and changes nothing.
func TestCheckTable(t *testing.T) {
	db := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	sink := newTestSink(t, targetConfig(db), SinkOptions{})
	x := &target{db: db, sink: sink}
	x.exec(t, "CREATE DATABASE src", "CREATE DATABASE t",
		"CREATE TABLE src.a (id INT PRIMARY KEY, v VARCHAR(20), n INT)",
		"CREATE TABLE t.fits (id INT PRIMARY KEY, v VARCHAR(20), n INT, more INT)",
		"CREATE TABLE t.narrow (id INT PRIMARY KEY, v VARCHAR(10), n INT)",
		"CREATE TABLE t.notnull (id INT PRIMARY KEY, v VARCHAR(20), n INT NOT NULL)",
		"CREATE TABLE t.myisam (id INT PRIMARY KEY, v VARCHAR(20), n INT) ENGINE=MyISAM",
		"CREATE TABLE t.full (id INT PRIMARY KEY, v VARCHAR(20), n INT)", "INSERT INTO t.full VALUES (1,'a',1)",
		"CREATE TABLE t.bad (id INT PRIMARY KEY)", "INSERT INTO t.bad VALUES (1)",
		"CREATE TABLE t.trig (id INT PRIMARY KEY, v VARCHAR(20), n INT)", "CREATE TRIGGER t.tr BEFORE INSERT ON t.trig FOR EACH ROW SET NEW.n=1",
		"CREATE VIEW t.view AS SELECT * FROM t.fits", "CREATE SEQUENCE t.seq")
	l, err := x.readLayout(t, change.TableID{Schema: "src", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name     string
		existing change.ExistingTable
		want     []string
	}{
		{"absent", change.FreshTable, nil},
		{"fits", change.FreshTable, nil},
		{"narrow", change.FreshTable, []string{"target-column-type"}},
		{"narrow", change.EmptyTable, nil}, // it is made anew
		{"notnull", change.KeepTable, []string{"target-column-type"}},
		{"myisam", change.FreshTable, []string{"target-engine"}},
		{"full", change.FreshTable, []string{"target-not-empty"}},
		{"full", change.KeepTable, nil},
		{"full", change.EmptyTable, nil},
		{"bad", change.FreshTable, []string{"target-column-missing", "target-not-empty"}},
		{"trig", change.FreshTable, []string{"target-trigger-before"}},
		{"view", change.FreshTable, []string{"target-not-a-table"}},
		{"view", change.EmptyTable, []string{"target-not-a-table"}},
		{"seq", change.KeepTable, []string{"target-not-a-table"}},
	} {
		task := change.TaskTarget{Target: change.TableID{Schema: "t", Name: tc.name}, Layout: l, Existing: tc.existing}
		got, err := sink.CheckTable(testContext(t), task)
		if err != nil || !slices.Equal(problemCodes(got), tc.want) {
			t.Errorf("%s, existing %q: got %v, %v, want %v", tc.name, tc.existing, problemCodes(got), err, tc.want)
		}
		if tc.name == "view" && len(got) == 1 && !strings.Contains(got[0].Cause, "a view has this name") {
			t.Errorf("view: got %s", got[0])
		}
	}
	if rows := x.query(t, "SHOW DATABASES LIKE 'runnel'"); len(rows) > 0 {
		t.Error("the check made our schema")
	}
}

// A table that a task writes holds that task's rows.
func TestCheckTableOfATaskThatRuns(t *testing.T) {
	x := newPairs(t)
	x.exec(t, "CREATE TABLE src.a (id INT PRIMARY KEY)")
	l, err := x.readLayout(t, change.TableID{Schema: "src", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	task := x.task("a", l)
	if err := x.sink.Prepare(testContext(t), x.fence, task); err != nil {
		t.Fatal(err)
	}
	x.exec(t, "INSERT INTO "+quoteTable(task.Target)+" VALUES (1)")
	got, err := x.sink.CheckTable(testContext(t), change.TaskTarget{Target: task.Target, Layout: l, Existing: change.FreshTable})
	if err != nil || len(got) > 0 {
		t.Errorf("got %v, %v, want no problem", problemCodes(got), err)
	}
}

func TestCheckTableNamesMissingPrivileges(t *testing.T) {
	x := newTarget(t, testdb.MariaDBOptions{}, SinkOptions{})
	x.exec(t, "CREATE DATABASE src", "CREATE TABLE src.a (id INT PRIMARY KEY)", "CREATE TABLE t.alone (id INT PRIMARY KEY)",
		"CREATE TABLE t.half (id INT PRIMARY KEY)")
	const all = "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP"
	if err := x.db.CreateUser(testContext(t), "few", "p", all+" ON runnel.*", all+" ON `open\\_%`.*", "SELECT ON half.*",
		all+" ON t.alone", "SELECT, INSERT ON t.half"); err != nil {
		t.Fatal(err)
	}
	cfg := targetConfig(x.db)
	cfg.User, cfg.Password = "few", "p"
	sink := newTestSink(t, cfg, SinkOptions{})
	l, err := x.readLayout(t, change.TableID{Schema: "src", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[change.TableID]string{
		{Schema: "open_one", Name: "a"}: "",
		{Schema: "t", Name: "alone"}:    "",
		{Schema: "half", Name: "a"}:     "'few'@'%' lacks INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP on it",
		{Schema: "t", Name: "half"}:     "'few'@'%' lacks UPDATE, DELETE, CREATE, ALTER, INDEX, DROP on it",
		{Schema: "closed", Name: "a"}:   "'few'@'%' lacks " + all + " on it",
	} {
		got, err := sink.CheckTable(testContext(t), change.TaskTarget{Target: target, Layout: l, Existing: change.FreshTable})
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || got[0].Cause != want || got[0].Subject != "schema "+target.Schema+" at target lake") {
			t.Errorf("%s: got %v, want %q", target, got, want)
		}
	}
}

func TestSourceNotesTellOfCascades(t *testing.T) {
	db := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	execSQL(t, db, "CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY)",
		"CREATE TABLE shop.items (id INT PRIMARY KEY, o INT, FOREIGN KEY (o) REFERENCES orders (id) ON DELETE CASCADE)",
		"CREATE TABLE shop.links (id INT PRIMARY KEY, o INT, FOREIGN KEY (o) REFERENCES orders (id) ON UPDATE SET NULL)",
		"CREATE TABLE shop.plain (id INT PRIMARY KEY, o INT, FOREIGN KEY (o) REFERENCES orders (id) ON DELETE RESTRICT)")
	s, err := NewSource(Config{Name: "source shop", Addr: db.Addr(), User: "root"}, SourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var tables []change.TableID
	for _, name := range []string{"plain", "orders", "links", "items", "gone"} {
		tables = append(tables, change.TableID{Schema: "shop", Name: name})
	}
	got, err := s.Notes(testContext(t), tables)
	if err != nil || !slices.Equal(problemCodes(got), []string{"cascade", "cascade"}) {
		t.Fatalf("got %v, %v, want a note on links and on items", got, err)
	}
	if got[0].Subject != "table shop.links" || got[1].Subject != "table shop.items" || !strings.Contains(got[1].Cause, "shop.orders") ||
		!strings.Contains(got[1].Remedy, "runnel task resync shop.items") {
		t.Errorf("got %v and %v", got[0], got[1])
	}
}

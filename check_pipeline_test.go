package runnel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/internal/testdb"
)

// TestCheckLooksAtTargetTablesToo: what apply or a task would stumble over is
// found before.
func TestCheckLooksAtTargetTablesToo(t *testing.T) {
	src := newServer(t, testdb.MariaDBOptions{}, "ALL PRIVILEGES")
	dst := testdb.MariaDBFor(t, testdb.MariaDBOptions{NoBinlog: true})
	const all = "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP ON "
	if err := dst.CreateUser(t.Context(), account, "hunter2", all+"runnel.*", all+"lake.*"); err != nil {
		t.Fatal(err)
	}
	for db, sql := range map[*testdb.MariaDB][]string{
		src: {
			"CREATE DATABASE lake", "CREATE DATABASE closed", "CREATE VIEW lake.seen AS SELECT 1 AS one",
			"CREATE TABLE closed.a (id INT PRIMARY KEY)", "CREATE TABLE closed.b (id INT PRIMARY KEY)",
			"CREATE TABLE lake.orders (id INT PRIMARY KEY, v INT)",
			"CREATE TABLE lake.items (id INT PRIMARY KEY, o INT, FOREIGN KEY (o) REFERENCES orders (id) ON DELETE CASCADE)",
			"CREATE TABLE lake.narrow (id BIGINT PRIMARY KEY)", "CREATE TABLE lake.old (id INT PRIMARY KEY)",
			"CREATE TABLE lake.engine (id INT PRIMARY KEY)", "CREATE TABLE lake.viewed (id INT PRIMARY KEY)",
		},
		dst: {
			"CREATE DATABASE lake", "CREATE TABLE lake.orders (id INT PRIMARY KEY, v INT NOT NULL)", "CREATE TABLE lake.narrow (id INT PRIMARY KEY)",
			"CREATE TABLE lake.old (id INT PRIMARY KEY)", "INSERT INTO lake.old VALUES (1)",
			"CREATE TABLE lake.engine (id INT PRIMARY KEY) ENGINE=MyISAM", "CREATE VIEW lake.viewed AS SELECT 1 AS id",
		},
	} {
		if err := db.Exec(t.Context(), sql...); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TEST_PASSWORD", "hunter2")
	var d Definitions
	server := "kind: %s\nname: %s\ntype: mysql\naddress: %s\nuser: runnel\npasswordEnv: TEST_PASSWORD\n---\n"
	text := fmt.Sprintf(server, "source", "shop", src.Addr()) + fmt.Sprintf(server, "target", "lake", dst.Addr())
	want := map[string][]string{"source shop": nil, "target lake": nil}
	for name, codes := range map[string][]string{
		"closed.*": {"target-privileges"}, "lake.orders": {"target-column-type"}, "lake.narrow": {"target-column-type"}, "lake.old": {"target-not-empty"},
		"lake.engine": {"target-engine"}, "lake.viewed": {"target-not-a-table"}, "lake.items": nil, "lake.seen": {"not-a-table"}, "lake.none": {"no-such-table"},
	} {
		pipeline := strings.NewReplacer(".", "-", "*", "all").Replace(name)
		text += "{kind: pipeline, name: " + pipeline + ", source: shop, target: lake, tables: {include: ['" + name + "']}}\n---\n"
		want["pipeline "+pipeline] = codes
	}
	if err := ReadDefinitions(&d, "d.yaml", strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	for _, v := range CheckDefinitions(t.Context(), d) {
		if got := codes(v); !slices.Equal(got, want[v.Subject]) {
			t.Errorf("%s: got %v, want %v (%s)", v.Subject, got, want[v.Subject], verdictString(v))
		}
		switch v.Subject {
		case "pipeline lake-items":
			if len(v.Notes) != 1 || !strings.Contains(v.Notes[0].Remedy, "runnel task resync lake.items") {
				t.Errorf("%s: got notes %v, want one on its foreign key", v.Subject, v.Notes)
			}
		case "pipeline lake-seen":
			if len(v.Problems) == 1 && !strings.Contains(v.Problems[0].Cause, "a view") {
				t.Errorf("got %v, want it called a view", v.Problems[0])
			}
		}
	}
	rows, err := dst.Query(t.Context(), "SHOW DATABASES LIKE 'runnel'")
	if err != nil || len(rows) > 0 {
		t.Errorf("the check left %v at the target (%v)", rows, err)
	}
}

func TestVerdictsWithoutFindingsHaveEmptyLists(t *testing.T) {
	b, err := json.Marshal([]Verdict{{Subject: "source a"}})
	if want := `[{"subject":"source a","verified":[],"problems":[],"notes":[]}]`; err != nil || string(b) != want {
		t.Errorf("got %s, %v, want %s", b, err, want)
	}
}

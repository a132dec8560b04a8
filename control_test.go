package runnel

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/testdb"
	"github.com/runnel-dev/runnel/internal/web"
)

// TestTheAPIChecksTargetTablesAndTellsViews: what the process says about tables is
// what the command line says by itself.
func TestTheAPIChecksTargetTablesAndTellsViews(t *testing.T) {
	src := newServer(t, testdb.MariaDBOptions{}, "ALL PRIVILEGES")
	dst := newServer(t, testdb.MariaDBOptions{NoBinlog: true}, "ALL PRIVILEGES")
	ctx := t.Context()
	if err := src.Exec(ctx, "CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY)", "CREATE TABLE shop.log (line TEXT)", "CREATE VIEW shop.v AS SELECT * FROM shop.a"); err != nil {
		t.Fatal(err)
	}
	if err := dst.Exec(ctx, "CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY)", "INSERT INTO shop.a VALUES (9)"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEST_PASSWORD", "hunter2")
	server := tablesync.ServerSpec{Name: "shop", Type: "mysql", Address: src.Addr(), User: account, PasswordEnv: "TEST_PASSWORD"}
	lake := server
	lake.Name, lake.Address = "lake", dst.Addr()
	with := func(include ...string) Definitions {
		return Definitions{
			Sources: []tablesync.ServerSpec{server}, Targets: []tablesync.ServerSpec{lake},
			Pipelines: []tablesync.PipelineSpec{{Name: "all", Source: "shop", Target: "lake", Tables: tablesync.TableSpec{Include: include}}},
		}
	}
	r := start(t, Config{DataDir: t.TempDir()}, "")
	for _, tc := range []struct {
		include []string
		want    []string
	}{
		{[]string{"shop.*"}, []string{"target-not-empty"}}, // log has no key and is refused alone
		{[]string{"shop.v", "shop.a"}, []string{"not-a-table", "target-not-empty"}},
		{[]string{"shop.v", "shop.log"}, []string{"table-without-key", "not-a-table"}},
		{[]string{"shop.none"}, []string{"no-such-table"}},
		{[]string{"other.*"}, nil},
	} {
		problems, err := r.client.Check(ctx, with(tc.include...))
		var got []string
		for _, p := range problems {
			got = append(got, p.Code)
		}
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("check %v: got %v, %v, want %v", tc.include, got, err, tc.want)
		}
	}
	var p *web.Problem
	if _, err := r.client.Apply(ctx, with("shop.v"), tablesync.ApplyOptions{}); !errors.As(err, &p) || p.Code != "not-a-table" || !strings.Contains(p.Detail, "a view") {
		t.Errorf("apply of a view: got %v, want it called a view", err)
	}
	d := with("shop.*")
	d.Pipelines[0].Existing = "empty"
	if problems, err := r.client.Check(ctx, d); err != nil || len(problems) > 0 {
		t.Errorf("with existing: empty: got %v, %v, want no problem", problems, err)
	}
	if _, err := r.client.Apply(ctx, d, tablesync.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	// Its rows are those of its task now.
	if err := src.Exec(ctx, "INSERT INTO shop.a VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	r.until(t, "the row is there", func(ctx context.Context) bool {
		got, err := dst.Query(ctx, "SELECT id FROM shop.a")
		return err == nil && len(got) == 1 && got[0][0] == "1"
	})
	if problems, err := r.client.Check(ctx, with("shop.*")); err != nil || len(problems) > 0 {
		t.Errorf("of a pipeline that runs: got %v, %v, want no problem", problems, err)
	}
	r.end(t)
}

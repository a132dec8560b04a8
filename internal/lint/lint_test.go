package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRepository(t *testing.T) {
	files, err := Load("../..")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(files, func(f *File) bool { return f.Path == "internal/lint/lint_test.go" }) {
		t.Fatalf("loaded %d files without this one: the rules look at the wrong tree", len(files))
	}
	for _, f := range Check(files) {
		t.Error(f)
	}
}

func TestModulePath(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if first, _, _ := strings.Cut(string(mod), "\n"); first != "module "+Module {
		t.Errorf("go.mod starts with %q, want module %s", first, Module)
	}
}

// The table must not contradict itself: a row lists lower levels only; nobody but
// tests is offered test support, except the demo.
func TestLayersTable(t *testing.T) {
	for _, row := range layers {
		for _, to := range row.may {
			dir := strings.Replace(to, "/*", "/x", 1)
			target, ok := rowOf(dir)
			if !ok {
				t.Errorf("%s may import %s, which has no row", row.dir, to)
				continue
			}
			if target.level >= row.level {
				t.Errorf("%s (level %d) may import %s (level %d)", row.dir, row.level, to, target.level)
			}
			support := slices.Contains(testSupport, to) && !slices.Contains(testSupport, row.dir)
			if support && row.dir != "cmd/*" && row.dir != "internal/demo" && row.dir != "scripts/*" {
				t.Errorf("%s may import test support %s", row.dir, to)
			}
		}
	}
}

// source is a file that may break rules.
type source struct {
	path string
	body string // without a package clause, unless it has one
}

func TestRules(t *testing.T) {
	const us = `"github.com/runnel-dev/runnel`
	long := strings.Repeat("\n", maxLines)
	tests := []struct {
		name string
		src  source
		want []string // "line rule" of each finding but missing package comments
	}{
		{"lower layer", source{"actor/a.go", `import _ ` + us + `/retry"`}, nil},
		{"upper layer", source{"actor/a.go", `import _ ` + us + `/cluster"`}, []string{"2 layers"}},
		{"not in the row", source{"actor/a.go", `import _ ` + us + `/change"`}, []string{"2 layers"}},
		{"root imports web", source{"runnel.go", `import _ ` + us + `/internal/web"`}, nil},
		{"root imported from below", source{"internal/web/a.go", `import _ ` + us + `"`}, []string{"2 layers"}},
		{"root must not know the demo", source{"runnel.go", `import _ ` + us + `/internal/demo"`}, []string{"2 layers"}},
		{"cmd imports root and servers", source{"cmd/runnel/a.go", "import _ " + us + "\"\nimport _ " + us + `/internal/testdb"`}, nil},
		{"web must not know connectors", source{"internal/web/a.go", `import _ ` + us + `/connector/mysql"`}, []string{"2 layers"}},
		{"connectors are strangers", source{"connector/mysql/a.go", `import _ ` + us + `/connector/postgres"`}, []string{"2 layers"}},
		{"connector and its suite", source{"connector/mysql/a.go", `import _ ` + us + `/connector/connectortest"`}, []string{"2 layers"}},
		{"dataflow and the suite", source{"dataflow/a.go", `import _ ` + us + `/connector/connectortest"`}, []string{"2 layers"}},
		{"connector test and its suite", source{"connector/mysql/a_test.go", `import _ ` + us + `/connector/connectortest"`}, nil},
		{"faults for everyone", source{"connector/mysql/a.go", `import _ ` + us + `/internal/fault"`}, nil},
		{"faults are a leaf", source{"internal/fault/a.go", `import _ ` + us + `/retry"`}, []string{"2 layers"}},
		{"level 4 strangers", source{"schedule/a.go", `import _ ` + us + `/workflow"`}, []string{"2 layers"}},
		{"test of a later package in a layer", source{"delivery/a_test.go", `import _ ` + us + `/persistence/sqlite"`}, nil},
		{"driver adapts to parent", source{"persistence/sqlite/a.go", `import _ ` + us + `/persistence"`}, nil},
		{"parent must not know drivers", source{"persistence/a.go", `import _ ` + us + `/persistence/sqlite"`}, []string{"2 layers"}},
		{"servers in production", source{"internal/capture/a.go", `import _ ` + us + `/internal/testdb"`}, []string{"2 layers"}},
		{"servers in a test", source{"internal/capture/a_test.go", `import _ ` + us + `/internal/testdb"`}, nil},
		{"test reaches down", source{"internal/capture/a_test.go", `import _ ` + us + `/connector/mysql"`}, nil},
		{"test reaches up", source{"internal/capture/a_test.go", `import _ ` + us + `/cluster"`}, []string{"2 layers"}},
		{"own package from an external test", source{"actor/a_test.go", "package actor_test\nimport _ " + us + `/actor"`}, nil},
		{"package without a row", source{"newthing/a.go", ``}, []string{"1 layers"}},
		{"sub-package without a row", source{"actor/inner/a.go", ``}, []string{"1 layers"}},
		{"name that only starts like ours", source{"actor/a.go", `import _ ` + us + `x/cluster"`}, nil},
		{"foreign code in the model", source{"change/a.go", `import _ "golang.org/x/sys/unix"`}, []string{"2 layers"}},
		{"standard library in the model", source{"change/a.go", `import _ "encoding/json"`}, nil},
		{"driver elsewhere", source{"internal/capture/a.go", `import _ "github.com/go-mysql-org/go-mysql/replication"`}, []string{"2 layers"}},
		{"driver at home", source{"connector/mysql/a.go", `import _ "github.com/go-mysql-org/go-mysql/replication"`}, nil},

		{"longest file", source{"actor/a.go", long[1:]}, nil},
		{"too long", source{"actor/a.go", long}, []string{"1 length"}},
		{"generated", source{"actor/a.go", "\n// Code generated by hand. DO NOT EDIT.\npackage actor\n" + long}, nil},
		{"vague directory", source{"actor/util/a.go", ``}, []string{"1 layers", "1 name"}},
		{"vague clause", source{"actor/a.go", `package helpers`}, []string{"1 name"}},

		{"sleeping test", source{"actor/a_test.go", "import \"time\"\nfunc f() { time.Sleep(1) }"}, []string{"3 sleep"}},
		{"sleep under another name", source{"actor/a_test.go", "import tm \"time\"\nvar f = tm.Sleep"}, []string{"3 sleep"}},
		{"sleep outside tests", source{"actor/a.go", "import \"time\"\nfunc f() { time.Sleep(1) }"}, nil},
		{"skipped test", source{"actor/a_test.go", "import \"testing\"\nfunc TestX(t *testing.T) {\n t.Skip(1)\n t.Run(\"\", func(u *testing.T) { u.SkipNow() })\n}"}, []string{"4 skip", "5 skip"}},
		{"skip in a helper", source{"connector/connectortest/a.go", "import \"testing\"\nfunc f(tb testing.TB) { tb.Skipf(\"\") }"}, []string{"3 skip"}},
		{"skip of something else", source{"actor/a_test.go", "import \"testing\"\nfunc TestX(t *testing.T) { r.Skip() }"}, nil},

		{"panic", source{"actor/a.go", "func f() {\n panic(1)\n}"}, []string{"3 panic"}},
		{"panic with its invariant", source{"actor/a.go", "func f() {\n // invariant: the caller holds mu\n panic(1)\n panic(2) // invariant: n > 0\n}"}, nil},
		{"invariant without a word", source{"actor/a.go", "func f() {\n panic(1) // invariant:\n}"}, []string{"3 panic"}},
		{"invariant too far away", source{"actor/a.go", "func f() {\n // invariant: x\n\n panic(1)\n}"}, []string{"5 panic"}},
		{"panic in a program", source{"cmd/runnel/a.go", "func f() { panic(1) }"}, nil},
		{"panic in a test", source{"actor/a_test.go", "func f() { panic(1) }"}, nil},

		{"context from nowhere", source{"actor/a.go", "import \"context\"\nvar a = context.Background()\nvar b = context.TODO()"}, []string{"3 context", "4 context"}},
		{"detached context", source{"actor/a.go", "import \"context\"\n// detached: ends with the process\nvar a = context.Background()"}, nil},
		{"context of a program", source{"cmd/runnel/a.go", "import \"context\"\nvar a = context.Background()"}, nil},
		{"context derived", source{"actor/a.go", "import \"context\"\nvar a = context.WithoutCancel(x)"}, nil},

		{"discard", source{"actor/a.go", "func f() {\n _ = g()\n _, _ = g()\n}"}, []string{"3 discard", "4 discard"}},
		{"discard with a reason", source{"actor/a.go", "func f() {\n _ = g() // the file was only read\n}"}, nil},
		{"discard over lines", source{"actor/a.go", "func f() {\n _ = g(func() {\n }) // logged by g\n}"}, nil},
		{"reason above does not count", source{"actor/a.go", "func f() {\n // only read\n _ = g()\n}"}, []string{"4 discard"}},
		{"discard of a value", source{"actor/a.go", "func f() {\n _ = x\n a, _ := g()\n}"}, nil},
		{"discard in a test", source{"actor/a_test.go", "func f() { _ = g() }"}, nil},

		{"unfinished", source{"actor/a.go", "// TODO(me): later\nvar a int /* FIXME */"}, []string{"2 unfinished", "3 unfinished"}},
		{"talk about it", source{"actor/a.go", "// a is not a TODO\nvar a int"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, f := range Check([]*File{parse(t, tt.src)}) {
				if f.Rule != "doc" {
					got = append(got, fmt.Sprintf("%d %s", f.Line, f.Rule))
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestPackageComments(t *testing.T) {
	tests := []struct {
		name string
		srcs []source
		want []string
	}{
		{"good", []source{{"actor/doc.go", "// Package actor runs actors.\npackage actor"}, {"actor/a.go", ""}}, nil},
		{"missing", []source{{"actor/a.go", ""}}, []string{"actor/a.go:0"}},
		{"wrong start", []source{{"actor/doc.go", "// Actors run.\npackage actor"}}, []string{"actor/doc.go:1"}},
		{"wrong name", []source{{"actor/doc.go", "// Package actors runs.\npackage actor"}}, []string{"actor/doc.go:1"}},
		{"wrong file", []source{{"actor/a.go", "// Package actor runs actors.\npackage actor"}}, []string{"actor/a.go:1"}},
		{"command", []source{{"cmd/runnel/main.go", "// Command runnel moves rows.\npackage main"}}, nil},
		{"command by its name", []source{{"cmd/runnel/main.go", "// Runnel moves rows.\npackage main"}}, nil},
		{"command as a package", []source{{"cmd/runnel/main.go", "// Package main moves rows.\npackage main"}}, []string{"cmd/runnel/main.go:1"}},
		{"root", []source{{"doc.go", "// Package runnel moves rows.\npackage runnel"}}, nil},
		{"tests need none", []source{{"actor/a_test.go", ""}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var files []*File
			for _, s := range tt.srcs {
				files = append(files, parse(t, s))
			}
			var got []string
			for _, f := range Check(files) {
				got = append(got, fmt.Sprintf("%s:%d", f.File, f.Line))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestLoadLeavesOutWhatIsNotOurs(t *testing.T) {
	root := t.TempDir()
	for name, body := range map[string]string{
		"actor/a.go": "package actor", "bench/go.mod": "module x", "bench/b.go": "package b",
		"actor/testdata/c.go": "not go at all", ".hidden/d.go": "package d", "_old/e.go": "package e", "actor/f.txt": "",
	} {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, f.Path)
	}
	if want := []string{"actor/a.go"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func parse(t *testing.T, s source) *File {
	t.Helper()
	body := s.body
	if !strings.Contains(body, "package ") {
		name := filepath.Base(filepath.Dir(s.path))
		if name == "." {
			name = "runnel"
		}
		body = "package " + name + "\n" + body
	}
	f, err := Parse(s.path, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

package lint

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// layer is one row of the table of layers: a package or a family of packages.
type layer struct {
	level int      // ten times the layer, plus an order within it; a package imports lower levels only
	dir   string   // directory relative to the module root; "x/*" is every package below x
	may   []string // what it may import of ours, in the same notation
}

// The root is the directory "", which the table writes as rootDir.
const rootDir = "."

// layers is the table. Whatever is not in it does not pass: a new package starts
// here, with a decision on what it may know.
var layers = []layer{
	{0, "change", nil},
	{0, "retry", nil},

	{10, "actor", []string{"retry"}},
	{11, "actor/actortest", []string{"actor", "retry"}}, // test support, for users too
	{10, "stream", []string{"retry"}},
	{10, "connector/*", []string{"change", "retry"}}, // never each other

	{20, "internal/capture", []string{"change", "stream", "retry"}},
	{20, "persistence", []string{"actor", "retry"}},
	{21, "persistence/*", []string{"persistence", "retry"}}, // drivers are leaves that adapt to their parent
	{22, "delivery", []string{"change", "persistence", "retry"}},

	{30, "cluster", []string{"actor", "persistence", "retry"}},

	// Level 4 packages never import each other.
	{40, "internal/tablesync", []string{"change", "stream", "internal/capture", "actor", "persistence", "cluster", "retry"}},
	{40, "schedule", []string{"actor", "persistence", "cluster", "retry"}},
	{40, "workflow", []string{"actor", "persistence", "cluster", "retry"}},
	{40, "dataflow", []string{"change", "stream", "connector/*", "retry"}},

	{50, "internal/web", []string{
		"change", "retry", "actor", "stream", "internal/capture", "persistence", "persistence/*", "delivery",
		"cluster", "internal/tablesync", "schedule", "workflow", "dataflow",
	}}, // all below except connectors

	{60, rootDir, []string{
		"change", "retry", "actor", "stream", "connector/*", "internal/capture", "persistence", "persistence/*", "delivery",
		"cluster", "internal/tablesync", "schedule", "workflow", "dataflow", "internal/web",
	}},

	{70, "internal/demo", []string{
		"change", "retry", "actor", "stream", "connector/*", "internal/capture", "persistence", "persistence/*", "delivery",
		"cluster", "internal/tablesync", "schedule", "workflow", "dataflow", "internal/web", rootDir, "internal/testdb",
	}},
	{71, "cmd/*", []string{
		"change", "retry", "actor", "stream", "connector/*", "internal/capture", "persistence", "persistence/*", "delivery",
		"cluster", "internal/tablesync", "schedule", "workflow", "dataflow", "internal/web", rootDir, "internal/testdb", "internal/demo",
		"internal/benchactors",
	}},

	// Support. Leaves may be imported by anyone, see leaves.
	{20, "internal/benchactors", []string{"actor"}}, // what runnel bench actors shows
	{0, "internal/fault", nil},
	{0, "internal/invariants", nil},
	{10, "internal/testdb", nil},
	{10, "internal/lint", nil},
	{20, "connector/connectortest", []string{"change", "retry", "internal/testdb"}},
	{20, "scripts/*", []string{"internal/lint"}},
}

// leaves import nothing of ours and may be imported by every package.
var leaves = []string{"internal/fault", "internal/invariants"}

// testSupport may be imported by the tests of every package.
var testSupport = []string{"internal/testdb", "internal/lint", "internal/fault", "internal/invariants", "connector/connectortest", "actor/actortest"}

// standardOnly lists the packages that use nothing but the standard library.
var standardOnly = []string{"change", "retry", "internal/fault", "internal/invariants", "internal/lint"}

// drivers are the foreign packages that few may know, by import path prefix.
var drivers = []struct {
	prefix string
	users  []string
}{
	{"github.com/go-mysql-org/go-mysql", []string{"connector/mysql", "internal/testdb", "internal/demo"}},
	{"github.com/jackc/pgx", []string{"connector/postgres", "persistence/postgres", "internal/testdb", "internal/demo"}},
	{"modernc.org/sqlite", []string{"connector/sqlite", "persistence/sqlite"}},
	{"github.com/spf13/cobra", []string{"cmd/*"}},
}

// rowOf finds the row of a directory; an exact row wins over a family.
func rowOf(dir string) (layer, bool) {
	var family *layer
	for i, row := range layers {
		if row.dir == dir {
			return row, true
		}
		if matches(row.dir, dir) {
			family = &layers[i]
		}
	}
	if family == nil {
		return layer{}, false
	}
	return *family, true
}

// matches says whether a directory belongs to a row's notation. A sub-package of
// a listed package is a package of its own and needs its own row, except within
// a family.
func matches(notation, dir string) bool {
	if parent, ok := strings.CutSuffix(notation, "/*"); ok {
		return strings.HasPrefix(dir, parent+"/")
	}
	return notation == dir
}

func matchesAny(notations []string, dir string) bool {
	return slices.ContainsFunc(notations, func(n string) bool { return matches(n, dir) })
}

// checkLayers holds every import against the table.
func checkLayers(f *File) []Finding {
	dir := f.dir()
	if dir == "" {
		dir = rootDir
	}
	row, ok := rowOf(dir)
	if !ok {
		return []Finding{f.finding(f.ast.Package, "layers", "package %s has no row in internal/lint/layers.go: decide what it may import", dir)}
	}
	var found []Finding
	for _, imp := range f.ast.Imports {
		target, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			continue // the parser has checked it
		}
		ours, isOurs := strings.CutPrefix(target, Module)
		switch {
		case isOurs && (ours == "" || ours[0] == '/'):
			to := strings.TrimPrefix(ours, "/")
			if to == "" {
				to = rootDir
			}
			if to != dir && !f.mayImport(row, dir, to) {
				found = append(found, f.finding(imp.Pos(), "layers", "%s may not import %s", dir, to))
			}
		case !f.isTest() && slices.Contains(standardOnly, dir) && isForeign(target):
			found = append(found, f.finding(imp.Pos(), "layers", "%s uses the standard library only, not %s", dir, target))
		case !f.isTest():
			found = append(found, f.checkDriver(imp.Pos(), dir, target)...)
		}
	}
	return found
}

// mayImport decides on one import of our own. Tests may reach for anything below
// their package, and for test support.
func (f *File) mayImport(row layer, dir, to string) bool {
	if slices.Contains(leaves, to) {
		return !slices.Contains(leaves, dir)
	}
	if to != "connector/connectortest" && matchesAny(row.may, to) {
		return true
	}
	if !f.isTest() {
		return false
	}
	target, known := rowOf(to)
	return slices.Contains(testSupport, to) || known && target.level < row.level
}

func (f *File) checkDriver(at tokenPos, dir, target string) []Finding {
	for _, d := range drivers {
		if (target == d.prefix || strings.HasPrefix(target, d.prefix+"/")) && !matchesAny(d.users, dir) {
			return []Finding{f.finding(at, "layers", "%s may not import the driver %s, only %s may", dir, target, strings.Join(d.users, ", "))}
		}
	}
	return nil
}

// isForeign says whether an import path is outside the standard library, whose
// paths have no dot in the first element.
func isForeign(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return strings.Contains(first, ".") && path.Clean(importPath) == importPath
}

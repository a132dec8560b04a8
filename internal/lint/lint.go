package lint

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is the module path that imports of our own packages start with.
const Module = "github.com/runnel-dev/runnel"

// Finding is one place that breaks a rule.
type Finding struct {
	File string // slash-separated, relative to the module root
	Line int    // from 1; 0 when the finding is about a whole package
	Rule string // short name of the rule
	Text string // what is wrong and what to do instead
}

func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Rule, f.Text)
}

// File is one parsed source file.
type File struct {
	Path  string // slash-separated, relative to the module root
	Lines int    // lines of text
	fset  *token.FileSet
	ast   *ast.File
}

// Load parses the Go files under root except those of nested modules, of testdata
// and of directories whose name starts with a dot or an underscore.
func Load(root string) ([]*File, error) {
	var files []*File
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("walk module: %w", err)
		}
		if d.IsDir() {
			if p != root && skipDir(p, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(p) != ".go" || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return fmt.Errorf("walk module: %w", err)
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return fmt.Errorf("read source: %w", err)
		}
		f, err := Parse(filepath.ToSlash(rel), src)
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

func skipDir(p, name string) bool {
	if name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return true
	}
	_, err := os.Stat(filepath.Join(p, "go.mod"))
	return err == nil
}

// Parse reads one file whose path is given relative to the module root.
func Parse(name string, src []byte) (*File, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse source: %w", err)
	}
	lines := bytes.Count(src, []byte("\n"))
	if len(src) > 0 && src[len(src)-1] != '\n' {
		lines++
	}
	return &File{Path: name, Lines: lines, fset: fset, ast: tree}, nil
}

// Check returns the findings of all rules, in the order of files and lines.
func Check(files []*File) []Finding {
	var all []Finding
	for _, f := range files {
		for _, rule := range fileRules {
			all = append(all, rule(f)...)
		}
	}
	all = append(all, checkDocs(files)...)
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule, b.Rule))
	})
	return all
}

// dir is the package's directory relative to the module root, "" for the root.
func (f *File) dir() string {
	d := path.Dir(f.Path)
	if d == "." {
		return ""
	}
	return d
}

func (f *File) isTest() bool { return strings.HasSuffix(f.Path, "_test.go") }

// isMain says whether the file belongs to a program, which may end itself and
// owns the outermost context.
func (f *File) isMain() bool { return under(f.dir(), "cmd") }

func (f *File) line(p token.Pos) int { return f.fset.Position(p).Line }

func (f *File) finding(p token.Pos, rule, format string, args ...any) Finding {
	return Finding{File: f.Path, Line: f.line(p), Rule: rule, Text: fmt.Sprintf(format, args...)}
}

// importName is the name by which the file knows an imported package, "" when it
// does not import it.
func (f *File) importName(importPath string) string {
	for _, imp := range f.ast.Imports {
		if p, err := strconv.Unquote(imp.Path.Value); err != nil || p != importPath {
			continue
		}
		if imp.Name != nil {
			return imp.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

// uses finds every call of package-level functions of an imported package,
// and every use of them as a value.
func (f *File) uses(importPath string, names ...string) []*ast.SelectorExpr {
	local := f.importName(importPath)
	if local == "" {
		return nil
	}
	var found []*ast.SelectorExpr
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && slices.Contains(names, sel.Sel.Name) {
			found = append(found, sel)
		}
		return true
	})
	return found
}

// reasoned says whether a comment that starts with marker stands on the line of p
// or on the one above and goes on to give a reason.
func (f *File) reasoned(p token.Pos, marker string) bool {
	line := f.line(p)
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			reason, ok := strings.CutPrefix(strings.TrimSpace(strings.TrimPrefix(c.Text, "//")), marker)
			if at := f.line(c.Pos()); ok && strings.TrimSpace(reason) != "" && (at == line || at == line-1) {
				return true
			}
		}
	}
	return false
}

// under says whether a directory is parent or lies in it.
func under(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }

package lint

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenPos = token.Pos

// maxLines is how long a file may be. Longer ones are cut by concern, with the
// type as the prefix of the file's name.
const maxLines = 700

// vagueNames say nothing about what a package is for.
var vagueNames = []string{"util", "utils", "common", "helper", "helpers", "types", "base", "misc"}

// fileRules look at one file each.
var fileRules = []func(*File) []Finding{
	checkLayers, checkLength, checkPackageName, checkSleep, checkSkip, checkPanic, checkContext, checkDiscard, checkUnfinished,
}

func checkLength(f *File) []Finding {
	if f.Lines <= maxLines || ast.IsGenerated(f.ast) {
		return nil
	}
	return []Finding{f.finding(f.ast.Package, "length", "%d lines, at most %d: split the file by concern", f.Lines, maxLines)}
}

func checkPackageName(f *File) []Finding {
	name := strings.TrimSuffix(f.ast.Name.Name, "_test")
	for _, n := range []string{name, path.Base(f.dir())} {
		if slices.Contains(vagueNames, n) {
			return []Finding{f.finding(f.ast.Package, "name", "%q names no purpose: call the package by what it provides", n)}
		}
	}
	return nil
}

func checkSleep(f *File) []Finding {
	if !f.isTest() {
		return nil
	}
	var found []Finding
	for _, use := range f.uses("time", "Sleep") {
		found = append(found, f.finding(use.Pos(), "sleep", "a test waits for a signal, not for a time: use a channel, a context or testing/synctest"))
	}
	return found
}

// checkSkip finds skipped tests, in tests and in what tests are helped by.
func checkSkip(f *File) []Finding {
	params := testParams(f)
	if len(params) == 0 {
		return nil
	}
	var found []Finding
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if ok && params[x.Name] && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
			found = append(found, f.finding(sel.Pos(), "skip", "a skipped test proves nothing: fail and name what is missing"))
		}
		return true
	})
	return found
}

// testParams are the names of parameters of type *testing.T, B, F or testing.TB.
func testParams(f *File) map[string]bool {
	local := f.importName("testing")
	if local == "" {
		return nil
	}
	names := make(map[string]bool)
	ast.Inspect(f.ast, func(n ast.Node) bool {
		fn, ok := n.(*ast.FuncType)
		if !ok {
			return true
		}
		for _, p := range fn.Params.List {
			typ := p.Type
			if star, ok := typ.(*ast.StarExpr); ok {
				typ = star.X
			}
			sel, ok := typ.(*ast.SelectorExpr)
			if !ok {
				continue
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == local {
				for _, id := range p.Names {
					names[id.Name] = true
				}
			}
		}
		return true
	})
	return names
}

func checkPanic(f *File) []Finding {
	if f.isTest() || f.isMain() {
		return nil
	}
	var found []Finding
	ast.Inspect(f.ast, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "panic" && !f.reasoned(call.Pos(), "invariant:") {
			found = append(found, f.finding(call.Pos(), "panic", "return an error, or say in `// invariant: …` why this cannot happen"))
		}
		return true
	})
	return found
}

func checkContext(f *File) []Finding {
	if f.isTest() || f.isMain() {
		return nil
	}
	var found []Finding
	for _, use := range f.uses("context", "Background", "TODO") {
		if !f.reasoned(use.Pos(), "detached:") {
			found = append(found, f.finding(use.Pos(), "context", "take the caller's context, or say in `// detached: …` why this outlives it and what ends it"))
		}
	}
	return found
}

// checkDiscard finds calls whose results are all thrown away by assignment.
func checkDiscard(f *File) []Finding {
	if f.isTest() {
		return nil
	}
	trailing := make(map[int]bool)
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			if strings.TrimLeft(c.Text, "/* ") != "" {
				trailing[f.line(c.Pos())] = true
			}
		}
	}
	var found []Finding
	ast.Inspect(f.ast, func(n ast.Node) bool {
		as, ok := n.(*ast.AssignStmt)
		if ok && discards(as) && !trailing[f.line(as.End())] {
			found = append(found, f.finding(as.Pos(), "discard", "handle the result, or say at the end of the line why it does not matter"))
		}
		return true
	})
	return found
}

func discards(as *ast.AssignStmt) bool {
	for _, l := range as.Lhs {
		if id, ok := l.(*ast.Ident); !ok || id.Name != "_" {
			return false
		}
	}
	return slices.ContainsFunc(as.Rhs, func(e ast.Expr) bool {
		_, ok := e.(*ast.CallExpr)
		return ok
	})
}

var unfinished = regexp.MustCompile(`^(//|/\*)\s*(TODO|FIXME|XXX)\b`)

func checkUnfinished(f *File) []Finding {
	var found []Finding
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			if unfinished.MatchString(c.Text) {
				found = append(found, f.finding(c.Pos(), "unfinished", "finish it, or write down where it is a decision"))
			}
		}
	}
	return found
}

// checkDocs wants of each package a comment that tells what it is, and of each
// library that it stands in doc.go.
func checkDocs(files []*File) []Finding {
	type pack struct {
		first *File // where a missing comment is reported
		docs  []*File
	}
	packs := make(map[string]*pack)
	for _, f := range files {
		if f.isTest() {
			continue
		}
		p := packs[f.dir()]
		if p == nil {
			p = &pack{first: f}
			packs[f.dir()] = p
		}
		if f.ast.Doc != nil {
			p.docs = append(p.docs, f)
		}
	}
	var found []Finding
	for dir, p := range packs {
		if len(p.docs) == 0 {
			found = append(found, Finding{File: p.first.Path, Rule: "doc", Text: "package " + p.first.ast.Name.Name + " has no comment that says what it is"})
		}
		for _, f := range p.docs {
			found = append(found, checkDocText(f, dir)...)
		}
	}
	return found
}

func checkDocText(f *File, dir string) []Finding {
	name, text := f.ast.Name.Name, f.ast.Doc.Text()
	starts := []string{"Package " + name + " "}
	if name == "main" {
		cmd := path.Base(dir)
		first, size := utf8.DecodeRuneInString(cmd)
		starts = []string{"Command " + cmd + " ", string(unicode.ToUpper(first)) + cmd[size:] + " "}
	}
	if !slices.ContainsFunc(starts, func(s string) bool { return strings.HasPrefix(text, s) }) {
		return []Finding{f.finding(f.ast.Doc.Pos(), "doc", "the comment starts with %q", strings.TrimSpace(starts[0]))}
	}
	if name != "main" && path.Base(f.Path) != "doc.go" {
		return []Finding{f.finding(f.ast.Doc.Pos(), "doc", "the package comment of a library stands in doc.go")}
	}
	return nil
}

package runnel

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// FileError is one fault of a YAML file.
type FileError struct {
	File string
	Line int // from 1; 0 when the fault concerns the file as a whole
	Text string
}

func (e *FileError) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Text
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text)
}

// faults collects what is wrong with one file.
type faults struct {
	file string
	list []error
}

func (f *faults) add(line int, format string, args ...any) {
	f.list = append(f.list, &FileError{File: f.file, Line: line, Text: fmt.Sprintf(format, args...)})
}

// addYAML takes over an error of the YAML library, whose texts start with the
// line they are about.
func (f *faults) addYAML(err error) {
	texts := []string{err.Error()}
	var te *yaml.TypeError
	if errors.As(err, &te) {
		texts = te.Errors
	}
	for _, t := range texts {
		line, text := cutLine(strings.TrimPrefix(t, "yaml: "))
		f.add(line, "%s", plainYAML(text))
	}
}

var (
	lineForm = regexp.MustCompile(`^line (\d+): `)
	typeForm = regexp.MustCompile("^cannot unmarshal !!(\\w+)(?: `(.*)`)? into (.+)$")
)

func cutLine(s string) (line int, rest string) {
	m := lineForm.FindStringSubmatch(s)
	if m == nil {
		return 0, s
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0, s
	}
	return n, s[len(m[0]):]
}

// plainYAML says a type mismatch without Go's type names.
func plainYAML(text string) string {
	m := typeForm.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	got := map[string]string{"str": "text", "int": "a number", "float": "a number", "bool": "true or false", "seq": "a list", "map": "a mapping"}[m[1]]
	if got == "" {
		got = m[1]
	}
	want := "a mapping"
	switch {
	case strings.HasPrefix(m[3], "[]"):
		want = "a list"
	case strings.HasPrefix(m[3], "int"), strings.HasPrefix(m[3], "uint"), strings.HasPrefix(m[3], "float"):
		want = "a number"
	case m[3] == "bool":
		want = "true or false"
	case m[3] == "string":
		want = "text"
	}
	if m[2] != "" {
		return fmt.Sprintf("want %s, found %s %q", want, got, m[2])
	}
	return fmt.Sprintf("want %s, found %s", want, got)
}

// documents splits a YAML stream. Syntax errors go to f.
func documents(f *faults, r io.Reader) []*yaml.Node {
	var docs []*yaml.Node
	dec := yaml.NewDecoder(r)
	for {
		var n yaml.Node
		err := dec.Decode(&n)
		switch {
		case errors.Is(err, io.EOF):
			return docs
		case err != nil:
			f.addYAML(err)
			return docs
		}
		if n.Kind == yaml.DocumentNode && len(n.Content) == 1 && n.Content[0].Tag != "!!null" {
			docs = append(docs, n.Content[0])
		}
	}
}

// checkKeys reports every key under n that t, a struct with yaml tags, does not
// have. refuse, when not nil, may name a better reason for a key.
func checkKeys(f *faults, n *yaml.Node, t reflect.Type, path string, refuse func(key string) string) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		for i, c := range n.Content {
			checkKeys(f, c, t.Elem(), fmt.Sprintf("%s[%d]", path, i), refuse)
		}
	case t.Kind() == reflect.Struct && n.Kind == yaml.MappingNode:
		known := yamlFields(t)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Tag == "!!merge" {
				f.add(key.Line, "merge keys (<<) are not read; write the keys out")
				continue
			}
			at := strings.TrimPrefix(path+"."+key.Value, ".")
			if ft, ok := known[key.Value]; ok {
				checkKeys(f, n.Content[i+1], ft, at, refuse)
				continue
			}
			f.add(key.Line, "%s", unknownKey(at, key.Value, known, refuse))
		}
	}
}

func unknownKey(at, key string, known map[string]reflect.Type, refuse func(string) string) string {
	if refuse != nil {
		if why := refuse(key); why != "" {
			return why
		}
	}
	names := make([]string, 0, len(known))
	for k := range known {
		names = append(names, k)
	}
	slices.Sort(names)
	if near := nearest(key, names); near != "" {
		return fmt.Sprintf("unknown key %q; did you mean %q?", at, near)
	}
	return fmt.Sprintf("unknown key %q; known here: %s", at, strings.Join(names, ", "))
}

// yamlFields lists the keys of a struct.
func yamlFields(t reflect.Type) map[string]reflect.Type {
	out := make(map[string]reflect.Type)
	for i := range t.NumField() {
		sf := t.Field(i)
		name, opts, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		switch {
		case strings.Contains(opts, "inline"):
			for k, v := range yamlFields(sf.Type) {
				out[k] = v
			}
		case name != "" && name != "-":
			out[name] = sf.Type
		}
	}
	return out
}

// nearest returns the name that a typing error most likely meant, "" when none
// is near.
func nearest(s string, names []string) string {
	best, limit := "", max(1, len(s)/3)
	for _, n := range names {
		if d := distance(strings.ToLower(s), strings.ToLower(n)); d <= limit {
			best, limit = n, d-1
		}
	}
	return best
}

// distance counts the single-byte edits between a and b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}

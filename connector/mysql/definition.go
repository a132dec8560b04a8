package mysql

import (
	"errors"
	"fmt"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

var errNotADefinition = errors.New("not a CREATE TABLE statement of a form we know")

// definition is a CREATE TABLE statement as SHOW CREATE TABLE prints it, taken
// apart: CREATE TABLE name (elements) options.
type definition struct {
	elements []string // columns, keys, constraints
	options  string   // what follows the closing parenthesis
}

// token is a lexical piece of such a statement. Comments that hold SQL for some
// versions only are read as if their content stood there.
type token struct {
	kind       byte // 'w' word or number, '`' name, '\'' string, else the character itself
	start, end int
}

// word is the token in upper case, "" when it is no word.
func (t token) word(s string) string {
	if t.kind != 'w' {
		return ""
	}
	return strings.ToUpper(s[t.start:t.end])
}

// name is the identifier that the token stands for.
func (t token) name(s string) string {
	if t.kind == '`' {
		q := s[t.start : t.start+1]
		return strings.ReplaceAll(s[t.start+1:t.end-1], q+q, q)
	}
	return s[t.start:t.end]
}

// lexis is how a session's sql_mode makes the server read quotes.
type lexis struct{ ansiQuotes, noBackslash bool }

// tokens splits what the server printed. An unfinished string or name is an error.
func tokens(s string) ([]token, error) { return lexis{}.tokens(s) }

// tokens splits s. A name in double quotes is of the kind of a name.
func (x lexis) tokens(s string) ([]token, error) {
	var out []token
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
			i++
		case strings.HasPrefix(s[i:], "*/"):
			i += 2
		case strings.HasPrefix(s[i:], "/*"):
			end, err := commentEnd(s, i)
			if err != nil {
				return nil, err
			}
			i = end
		case c == '#', strings.HasPrefix(s[i:], "--") && (i+2 == len(s) || s[i+2] <= ' '):
			if i = i + strings.IndexByte(s[i:]+"\n", '\n') + 1; i > len(s) {
				i = len(s)
			}
		case c == '`' || c == '\'' || c == '"':
			end := x.quoteEnd(s, i)
			if end < 0 {
				return nil, fmt.Errorf("read statement: the quote at byte %d does not end: %w", i, errNotADefinition)
			}
			kind := c
			if c == '"' {
				if kind = '\''; x.ansiQuotes {
					kind = '`'
				}
			}
			out = append(out, token{kind, i, end})
			i = end
		case wordByte(c):
			start := i
			for i < len(s) && wordByte(s[i]) {
				i++
			}
			out = append(out, token{'w', start, i})
		default:
			out = append(out, token{c, i, i + 1})
			i++
		}
	}
	return out, nil
}

func wordByte(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// commentEnd is where reading goes on: behind the version number of a comment
// that holds SQL, behind any other comment.
func commentEnd(s string, i int) (int, error) {
	j := i + 2
	if j < len(s) && s[j] == 'M' {
		j++
	}
	if j < len(s) && s[j] == '!' {
		for j++; j < len(s) && s[j] >= '0' && s[j] <= '9'; j++ {
		}
		return j, nil
	}
	end := strings.Index(s[i+2:], "*/")
	if end < 0 {
		return 0, fmt.Errorf("read statement: the comment at byte %d does not end: %w", i, errNotADefinition)
	}
	return i + 2 + end + 2, nil
}

// quoteEnd is the end of the quoted piece that starts at i, -1 when it has none.
func (x lexis) quoteEnd(s string, i int) int {
	q := s[i]
	backslash := q != '`' && !x.noBackslash && (q != '"' || !x.ansiQuotes)
	for i++; i < len(s); i++ {
		switch {
		case s[i] == '\\' && backslash:
			i++
		case s[i] != q:
		case i+1 < len(s) && s[i+1] == q:
			i++
		default:
			return i + 1
		}
	}
	return -1
}

// parseDefinition takes a CREATE TABLE statement apart.
func parseDefinition(s string) (definition, error) {
	var d definition
	toks, err := tokens(s)
	if err != nil {
		return d, err
	}
	if len(toks) < 4 || toks[0].word(s) != "CREATE" || toks[1].word(s) != "TABLE" {
		return d, fmt.Errorf("read definition: %w", errNotADefinition)
	}
	depth, from := 0, 0
	for _, t := range toks {
		switch t.kind {
		case '(':
			if depth++; depth == 1 {
				from = t.end
			}
		case ',':
			if depth == 1 {
				d.elements = append(d.elements, strings.TrimSpace(s[from:t.start]))
				from = t.end
			}
		case ')':
			if depth--; depth == 0 {
				d.elements = append(d.elements, strings.TrimSpace(s[from:t.start]))
				d.options = s[t.end:]
				return d, nil
			}
		}
	}
	return d, fmt.Errorf("read definition: the column list does not end: %w", errNotADefinition)
}

// create is the statement that creates the table under the quoted name.
func (d definition) create(name string) string {
	return "CREATE TABLE " + name + " (\n  " + strings.Join(d.elements, ",\n  ") + "\n)" + d.options
}

// withoutForeignKeys leaves out the foreign keys for whose parent keep is false.
// A parent without a schema in its name has the one given.
func (d definition) withoutForeignKeys(schema string, keep func(parent change.TableID) bool) (definition, error) {
	out := definition{options: d.options}
	for _, e := range d.elements {
		parent, ok, err := foreignKey(e, schema)
		if err != nil {
			return out, err
		}
		if !ok || keep(parent) {
			out.elements = append(out.elements, e)
		}
	}
	return out, nil
}

// foreignKey reads the parent out of an element that is a foreign key.
func foreignKey(element, schema string) (parent change.TableID, ok bool, err error) {
	toks, err := tokens(element)
	if err != nil {
		return parent, false, err
	}
	at := 0
	if len(toks) > 0 && toks[0].word(element) == "CONSTRAINT" {
		if at = 1; len(toks) > 1 && toks[1].word(element) != "FOREIGN" {
			at = 2
		}
	}
	if len(toks) < at+2 || toks[at].word(element) != "FOREIGN" || toks[at+1].word(element) != "KEY" {
		return parent, false, nil
	}
	for i := at; i+1 < len(toks); i++ {
		if toks[i].word(element) != "REFERENCES" {
			continue
		}
		parent = change.TableID{Schema: schema, Name: toks[i+1].name(element)}
		if i+3 < len(toks) && toks[i+2].kind == '.' {
			parent = change.TableID{Schema: parent.Name, Name: toks[i+3].name(element)}
		}
		return parent, true, nil
	}
	return parent, false, fmt.Errorf("read foreign key %s: %w", element, errNotADefinition)
}

// portable makes the options fit another server: the engine is one with
// transactions, and no directory of the source's machine is named.
func (d definition) portable() (definition, error) {
	s := d.options
	toks, err := tokens(s)
	if err != nil {
		return d, err
	}
	var b strings.Builder
	from := 0
	cut := func(start, end int, with string) {
		b.WriteString(s[from:start])
		b.WriteString(with)
		from = end
	}
	for i := 0; i < len(toks); i++ {
		word := toks[i].word(s)
		switch {
		case word == "ENGINE":
			if v := valueAfter(toks, i); v > 0 {
				cut(toks[i].start, toks[v].end, "ENGINE=InnoDB")
				i = v
			}
		case (word == "DATA" || word == "INDEX") && i+1 < len(toks) && toks[i+1].word(s) == "DIRECTORY":
			if v := valueAfter(toks, i+1); v > 0 {
				cut(toks[i].start, toks[v].end, "")
				i = v
			}
		}
	}
	b.WriteString(s[from:])
	return definition{elements: d.elements, options: b.String()}, nil
}

// valueAfter is the index of the value of the option at i, 0 when there is none.
func valueAfter(toks []token, i int) int {
	v := i + 1
	if v < len(toks) && toks[v].kind == '=' {
		v++
	}
	if v >= len(toks) || toks[v].kind != 'w' && toks[v].kind != '\'' {
		return 0
	}
	return v
}

// comparable is the text of the definition that equals for two tables that were
// made alike: without name, foreign keys, counter and directories.
func (d definition) comparable() (string, error) {
	plain, err := d.withoutForeignKeys("", func(change.TableID) bool { return false })
	if err != nil {
		return "", err
	}
	if plain, err = plain.portable(); err != nil {
		return "", err
	}
	return withoutCounter(plain.create("``")), nil
}

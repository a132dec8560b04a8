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

// parseDefinition takes a CREATE TABLE statement apart.
func parseDefinition(s string) (definition, error) {
	var d definition
	toks := tokens(s, dialect{})
	if len(toks) < 3 || !toks[0].is("CREATE") || !toks[1].is("TABLE") {
		return d, fmt.Errorf("read definition: %w", errNotADefinition)
	}
	depth, from := 0, 0
	for i := range toks {
		switch t := &toks[i]; {
		case t.punct('('):
			if depth++; depth == 1 {
				from = t.end
			}
		case t.punct(',') && depth == 1:
			d.elements = append(d.elements, strings.TrimSpace(s[from:t.start]))
			from = t.end
		case t.punct(')'):
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
	p := parser{toks: tokens(element, dialect{}), d: dialect{defaultSchema: schema}}
	if p.eat("CONSTRAINT") && !p.peek().is("FOREIGN") {
		p.skip() // its name
	}
	if !p.eatAll("FOREIGN", "KEY") {
		return parent, false, nil
	}
	for ; p.peek().kind != tokenEnd; p.skip() {
		if p.eat("REFERENCES") && p.name(roleMentioned) {
			return p.out.names[0].id, true, nil
		}
	}
	return parent, false, fmt.Errorf("read foreign key %s: %w", element, errNotADefinition)
}

// portable makes the options fit another server: the engine is one with
// transactions, and no directory of the source's machine is named.
func (d definition) portable() definition {
	s := d.options
	toks := tokens(s, dialect{})
	var b strings.Builder
	from := 0
	cut := func(start, end int, with string) {
		b.WriteString(s[from:start])
		b.WriteString(with)
		from = end
	}
	for i := 0; i < len(toks); i++ {
		switch t := &toks[i]; {
		case t.is("ENGINE"):
			if v := valueAfter(toks, i); v > 0 {
				cut(t.start, toks[v].end, "ENGINE=InnoDB")
				i = v
			}
		case (t.is("DATA") || t.is("INDEX")) && toks[i+1].is("DIRECTORY"):
			if v := valueAfter(toks, i+1); v > 0 {
				cut(t.start, toks[v].end, "")
				i = v
			}
		}
	}
	b.WriteString(s[from:])
	return definition{elements: d.elements, options: b.String()}
}

// valueAfter is the index of the value of the option at i, 0 when there is none.
func valueAfter(toks []token, i int) int {
	v := i + 1
	if toks[v].punct('=') {
		v++
	}
	if toks[v].kind != tokenWord && toks[v].kind != tokenString {
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
	return withoutCounter(plain.portable().create("``")), nil
}

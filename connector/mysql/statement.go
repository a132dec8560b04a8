package mysql

import (
	"strings"

	"github.com/runnel-dev/runnel/change"
)

// nameRole says what a table name does in its statement.
type nameRole uint8

const (
	roleTarget    nameRole = iota // the statement changes this table
	roleRenamed                   // the new name of the table before it
	roleExchanged                 // its rows move to or from the target
	roleMentioned                 // LIKE or REFERENCES
)

// tableName is one table name in a statement: sql[start:end] is the whole name,
// with its schema where it has one.
type tableName struct {
	id         change.TableID // Schema is the default one when the text has none
	start, end int
	role       nameRole
}

// statement is what a logged text does to tables.
type statement struct {
	// kind is "" for a statement that leaves tables and rows alone.
	kind change.StatementKind
	// names are the table names in order. For kinds RowsByStatement and
	// NotUnderstood they are all that may be one.
	names []tableName
	// schema is what DropSchema drops.
	schema string
	// rows is true when a CREATE TABLE also inserts what a SELECT gives.
	rows bool
}

// statementNames gives the spans of all table names of a DDL statement, for a
// sink that writes it with other names. sqlMode is the server's text.
func statementNames(sql, defaultSchema, sqlMode string) (change.StatementKind, []tableName) {
	s := readStatement(sql, dialectOf(defaultSchema, sqlMode))
	return s.kind, s.names
}

// dialectOf derives the dialect of MariaDB under a sql_mode.
func dialectOf(defaultSchema, sqlMode string) dialect {
	d := dialect{defaultSchema: defaultSchema}
	for _, m := range strings.Split(sqlMode, ",") {
		switch strings.TrimSpace(m) {
		case "ANSI_QUOTES":
			d.ansiQuotes = true
		case "NO_BACKSLASH_ESCAPES":
			d.plainBackslash = true
		}
	}
	return d
}

// readStatement classes a statement and finds its table names.
func readStatement(sql string, d dialect) statement {
	p := parser{toks: tokens(sql, d), d: d}
	for p.eat("(") || p.eat(";") || p.setStatement() {
	}
	first := p.toks[p.at]
	if first.kind == tokenEnd {
		return statement{}
	}
	p.at++
	switch {
	case first.is("CREATE"):
		return p.create()
	case first.is("ALTER"):
		return p.alter()
	case first.is("DROP"):
		return p.drop()
	case first.is("RENAME"):
		return p.rename()
	case first.is("TRUNCATE"):
		p.eat("TABLE")
		return p.finish(change.TruncateTable, p.name(roleTarget))
	case first.is("INSERT"), first.is("REPLACE"):
		return p.insert()
	case first.is("LOAD"):
		return p.load()
	case first.is("UPDATE"):
		return p.update()
	case first.is("DELETE") && p.deleteFrom():
		return p.out
	case first.is("DELETE"), first.is("WITH"), first.is("CALL"), first.is("SELECT"),
		first.is("DO"), first.is("EXECUTE"), first.is("VALUES"):
		return p.everyName(change.RowsByStatement)
	case harmless[strings.ToUpper(first.text)] && first.kind == tokenWord:
		return statement{}
	}
	return p.everyName(change.NotUnderstood)
}

// setStatement passes MariaDB's SET STATEMENT variable=value,… FOR, which stands in
// front of the statement that it is for.
func (p *parser) setStatement() bool {
	if !p.toks[p.at].is("SET") || !p.toks[p.at+1].is("STATEMENT") {
		return false
	}
	depth := 0
	for i := p.at + 2; p.toks[i].kind != tokenEnd; i++ {
		switch t := &p.toks[i]; {
		case t.punct('('):
			depth++
		case t.punct(')'):
			depth--
		case t.is("FOR") && depth == 0:
			p.at = i + 1
			return true
		}
	}
	return false
}

// harmless are first words of statements that change neither rows nor the layout
// of tables. OPTIMIZE, ANALYZE, CHECK and REPAIR keep rows.
var harmless = map[string]bool{
	"GRANT": true, "REVOKE": true, "SET": true, "FLUSH": true, "ANALYZE": true, "OPTIMIZE": true, "CHECK": true,
	"REPAIR": true, "INSTALL": true, "UNINSTALL": true, "RESET": true, "BEGIN": true, "COMMIT": true, "ROLLBACK": true,
	"SAVEPOINT": true, "RELEASE": true, "START": true, "XA": true, "USE": true, "LOCK": true, "UNLOCK": true,
	"KILL": true, "PURGE": true, "CHANGE": true, "SHOW": true, "CACHE": true, "BACKUP": true, "SHUTDOWN": true,
	"STOP": true, "HANDLER": true, "PREPARE": true, "DEALLOCATE": true, "HELP": true, "SIGNAL": true, "DELIMITER": true,
}

// objects are what CREATE, ALTER and DROP may be about beside tables, indexes and
// schemas.
var objects = map[string]bool{
	"VIEW": true, "TRIGGER": true, "PROCEDURE": true, "FUNCTION": true, "EVENT": true, "USER": true, "ROLE": true,
	"SERVER": true, "SEQUENCE": true, "PACKAGE": true, "TABLESPACE": true, "LOGFILE": true, "UNDO": true,
	"RESOURCE": true, "INSTANCE": true, "PREPARE": true, "SPATIAL_REFERENCE": true,
}

type parser struct {
	toks []token
	at   int
	d    dialect
	out  statement
}

func (p *parser) peek() *token { return &p.toks[p.at] }

// skip takes the next token, whatever it is; the end stays.
func (p *parser) skip() { p.at = min(p.at+1, len(p.toks)-1) }

// eat takes the next token if it is the keyword or the punctuation character.
func (p *parser) eat(what string) bool {
	t := p.peek()
	if t.is(what) || len(what) == 1 && t.punct(what[0]) {
		p.at++
		return true
	}
	return false
}

func (p *parser) eatAll(words ...string) bool {
	at := p.at
	for _, w := range words {
		if !p.eat(w) {
			p.at = at
			return false
		}
	}
	return true
}

// name reads a table name, with or without a schema.
func (p *parser) name(role nameRole) bool {
	t := p.peek()
	if !t.name() {
		return false
	}
	n := tableName{id: change.TableID{Schema: p.d.defaultSchema, Name: t.text}, start: t.start, end: t.end, role: role}
	p.at++
	if dot := p.peek(); dot.punct('.') && p.toks[p.at+1].name() {
		second := p.toks[p.at+1]
		n.id, n.end = change.TableID{Schema: t.text, Name: second.text}, second.end
		p.at += 2
	}
	if p.d.foldNames {
		n.id = change.TableID{Schema: strings.ToLower(n.id.Schema), Name: strings.ToLower(n.id.Name)}
	}
	p.out.names = append(p.out.names, n)
	return true
}

// finish gives the statement, or all names with NotUnderstood when ok is false.
func (p *parser) finish(kind change.StatementKind, ok bool) statement {
	if !ok {
		return p.everyName(change.NotUnderstood)
	}
	p.out.kind = kind
	return p.out
}

// everyName lists all that may be a table name: whoever captures one of these is
// concerned.
func (p *parser) everyName(kind change.StatementKind) statement {
	p.out = statement{kind: kind}
	for p.at = 0; p.peek().kind != tokenEnd; {
		if !p.name(roleTarget) {
			p.at++
			continue
		}
		// a.b may also be table and column.
		last := p.out.names[len(p.out.names)-1]
		if p.at < 3 || p.toks[p.at-3].start != last.start || !p.toks[p.at-2].punct('.') {
			continue
		}
		table := p.toks[p.at-3]
		last.id, last.end = change.TableID{Schema: p.d.defaultSchema, Name: table.text}, table.end
		if p.d.foldNames {
			last.id.Name = strings.ToLower(last.id.Name)
		}
		p.out.names = append(p.out.names, last)
	}
	return p.out
}

func (p *parser) create() statement {
	temporary := false
	for t := p.peek(); t.kind != tokenEnd; t = p.peek() {
		switch {
		case p.eat("TEMPORARY"):
			temporary = true
		case p.eat("TABLE"):
			if temporary {
				return statement{}
			}
			p.eatAll("IF", "NOT", "EXISTS")
			return p.createTable(p.name(roleTarget))
		case p.eat("INDEX"):
			return p.indexOn()
		case t.is("DATABASE"), t.is("SCHEMA"):
			return statement{}
		case t.kind == tokenWord && objects[strings.ToUpper(t.text)]:
			return statement{}
		case p.eat("="): // DEFINER=view@host: the word behind is no object
			p.skip()
			if p.eat("@") {
				p.skip()
			}
		default:
			p.skip()
		}
	}
	return p.everyName(change.NotUnderstood)
}

// createTable reads on behind the name for LIKE, REFERENCES and SELECT.
func (p *parser) createTable(ok bool) statement {
	if !ok {
		return p.everyName(change.NotUnderstood)
	}
	depth := 0
	for t := p.peek(); t.kind != tokenEnd; t = p.peek() {
		switch {
		case t.punct('('):
			depth++
		case t.punct(')'):
			depth--
		case t.is("LIKE") && depth <= 1 && len(p.out.names) == 1:
			p.at++
			p.name(roleMentioned)
			continue
		case t.is("REFERENCES"):
			p.at++
			p.name(roleMentioned)
			continue
		case t.is("SELECT") && !p.toks[p.at-1].punct('.'):
			p.out.rows = true
		}
		p.at++
	}
	return p.finish(change.CreateTable, true)
}

// indexOn reads [IF [NOT] EXISTS] name [USING type] ON table.
func (p *parser) indexOn() statement {
	for t := p.peek(); t.kind != tokenEnd; t = p.peek() {
		p.at++
		if t.is("ON") {
			return p.finish(change.AlterTable, p.name(roleTarget))
		}
		if t.punct('(') {
			break
		}
	}
	return p.everyName(change.NotUnderstood)
}

func (p *parser) drop() statement {
	temporary := p.eat("TEMPORARY")
	t := p.peek()
	switch {
	case p.eat("TABLE"), p.eat("TABLES"):
		if temporary {
			return statement{}
		}
		p.eatAll("IF", "EXISTS")
		for p.name(roleTarget) {
			if !p.eat(",") {
				return p.finish(change.DropTable, true)
			}
		}
		return p.everyName(change.NotUnderstood)
	case p.eat("INDEX"):
		return p.indexOn()
	case p.eat("DATABASE"), p.eat("SCHEMA"):
		p.eatAll("IF", "EXISTS")
		if t := p.peek(); t.name() {
			p.out.schema = t.text
			if p.d.foldNames {
				p.out.schema = strings.ToLower(t.text)
			}
			return p.finish(change.DropSchema, true)
		}
	case t.kind == tokenWord && objects[strings.ToUpper(t.text)]:
		return statement{}
	}
	return p.everyName(change.NotUnderstood)
}

func (p *parser) rename() statement {
	if p.eat("USER") {
		return statement{}
	}
	if !p.eat("TABLE") && !p.eat("TABLES") {
		return p.everyName(change.NotUnderstood)
	}
	p.eatAll("IF", "EXISTS")
	for p.name(roleTarget) {
		p.lockWait()
		if !p.eat("TO") || !p.name(roleRenamed) {
			break
		}
		if !p.eat(",") {
			return p.finish(change.RenameTable, true)
		}
	}
	return p.everyName(change.NotUnderstood)
}

// lockWait reads MariaDB's WAIT n or NOWAIT.
func (p *parser) lockWait() {
	if !p.eat("NOWAIT") && p.eat("WAIT") {
		p.skip()
	}
}

func (p *parser) insert() statement {
	for p.eat("LOW_PRIORITY") || p.eat("DELAYED") || p.eat("HIGH_PRIORITY") || p.eat("IGNORE") || p.eat("INTO") {
	}
	return p.finish(change.RowsByStatement, p.name(roleTarget))
}

// update lists what may be a table between UPDATE and SET: joins may write several.
func (p *parser) update() statement {
	from := p.at
	depth := 0
	for t := p.peek(); t.kind != tokenEnd; t = p.peek() {
		switch {
		case t.punct('('):
			depth++
		case t.punct(')'):
			depth--
		case t.is("SET") && depth == 0:
			p.toks = append(p.toks[from:p.at:p.at], token{kind: tokenEnd})
			p.out = statement{kind: change.RowsByStatement}
			for p.at = 0; p.peek().kind != tokenEnd; {
				if !p.name(roleTarget) {
					p.at++
				}
			}
			return p.out
		}
		p.at++
	}
	return p.everyName(change.RowsByStatement)
}

// deleteFrom reads a DELETE from one table; false when it is of another form.
func (p *parser) deleteFrom() bool {
	for p.eat("LOW_PRIORITY") || p.eat("QUICK") || p.eat("IGNORE") {
	}
	if !p.eat("FROM") || !p.name(roleTarget) {
		return false
	}
	t := p.peek()
	p.out.kind = change.RowsByStatement
	return t.kind == tokenEnd || t.is("WHERE") || t.is("ORDER") || t.is("LIMIT") || t.punct(';')
}

// load reads LOAD DATA … INTO TABLE name.
func (p *parser) load() statement {
	for t := p.peek(); t.kind != tokenEnd; t = p.peek() {
		p.at++
		if t.is("INTO") && p.eat("TABLE") {
			return p.finish(change.RowsByStatement, p.name(roleTarget))
		}
	}
	return p.everyName(change.NotUnderstood)
}

package mysql

import (
	"strings"

	"github.com/runnel-dev/runnel/change"
)

// alter reads ALTER: of a table its name, renames, and the actions that move rows
// without logging them.
func (p *parser) alter() statement {
	for p.eat("ONLINE") || p.eat("OFFLINE") || p.eat("IGNORE") {
	}
	if !p.eat("TABLE") {
		for t := p.peek(); t.kind != tokenEnd; t = p.peek() {
			if t.is("DATABASE") || t.is("SCHEMA") || t.kind == tokenWord && objects[strings.ToUpper(t.text)] {
				return statement{}
			}
			p.at++
		}
		return p.everyName(change.NotUnderstood)
	}
	p.eatAll("IF", "EXISTS")
	if !p.name(roleTarget) {
		return p.everyName(change.NotUnderstood)
	}
	p.lockWait()
	kind := change.AlterTable
	start, depth := true, 0 // start: an action begins here
	for t := p.peek(); t.kind != tokenEnd; t = p.peek() {
		switch {
		case t.punct('('):
			depth++
		case t.punct(')'):
			depth--
		case t.punct(',') && depth == 0:
			start = true
			p.at++
			continue
		case t.is("REFERENCES"):
			p.at++
			p.name(roleMentioned)
			start = false
			continue
		case start && depth == 0 && t.kind == tokenWord:
			lost, ok := p.action()
			if !ok {
				return p.everyName(change.NotUnderstood)
			}
			if lost {
				kind = change.LostRows
			}
			start = false
			continue
		}
		start = false
		p.at++
	}
	return p.finish(kind, true)
}

// action reads the first words of one action and what names a table in it. lost
// is true when rows appear or vanish without being logged.
func (p *parser) action() (lost, ok bool) {
	switch {
	case p.eat("RENAME"):
		t := p.peek()
		if t.is("COLUMN") || t.is("INDEX") || t.is("KEY") || t.is("CONSTRAINT") {
			return false, true
		}
		_ = p.eat("TO") || p.eat("AS") || p.eat("=")
		return false, p.name(roleRenamed)
	case p.eatAll("EXCHANGE", "PARTITION"):
		p.skip()
		return true, p.eatAll("WITH", "TABLE") && p.name(roleExchanged)
	case p.eatAll("CONVERT", "PARTITION"):
		p.skip()
		return true, p.eatAll("TO", "TABLE") && p.name(roleExchanged)
	case p.eatAll("CONVERT", "TABLE"):
		return true, p.name(roleExchanged)
	case p.eatAll("TRUNCATE", "PARTITION"), p.eatAll("DROP", "PARTITION"),
		p.eatAll("DISCARD", "TABLESPACE"), p.eatAll("IMPORT", "TABLESPACE"),
		p.eatAll("DISCARD", "PARTITION"), p.eatAll("IMPORT", "PARTITION"):
		return true, true
	}
	p.at++
	return false, true
}

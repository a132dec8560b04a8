package mysql

import "strings"

// tokenKind classes the tokens of SQL text.
type tokenKind uint8

const (
	tokenEnd    tokenKind = iota
	tokenWord             // unquoted: keyword, name or number
	tokenQuoted           // a quoted name
	tokenString
	tokenPunct // one character
)

// token is a span of the text. text is the word as it stands, the name without
// its quotes, or the punctuation character; strings have none.
type token struct {
	kind       tokenKind
	start, end int
	text       string
}

// is reports whether the token is the keyword, which is given in upper case.
func (t *token) is(keyword string) bool {
	return t.kind == tokenWord && len(t.text) == len(keyword) && strings.EqualFold(t.text, keyword)
}

func (t *token) punct(c byte) bool { return t.kind == tokenPunct && t.text[0] == c }

// name reports whether the token can be an identifier.
func (t *token) name() bool { return t.kind == tokenWord || t.kind == tokenQuoted }

// dialect is what the session's settings change about reading SQL.
type dialect struct {
	ansiQuotes     bool // "x" is a name
	plainBackslash bool // a backslash is no escape
	foldNames      bool // names compare in lower case (lower_case_table_names)
	mysqlSpecifics bool // the server is MySQL: it runs comments for versions from 5.7
	defaultSchema  string
}

// tokens splits SQL. Comments disappear; what stands in executable comments is
// part of the statement. It never fails: an unclosed quote or comment ends with
// the text.
func tokens(sql string, d dialect) []token {
	s := scanner{sql: sql, d: d}
	out := make([]token, 0, 16+len(sql)/8)
	for {
		t := s.next()
		if t.kind == tokenEnd {
			return append(out, t)
		}
		out = append(out, t)
	}
}

type scanner struct {
	sql   string
	at    int
	d     dialect
	inner int // executable comments that are open
}

func (s *scanner) next() token {
	s.skip()
	start := s.at
	if start >= len(s.sql) {
		return token{kind: tokenEnd, start: len(s.sql), end: len(s.sql)}
	}
	switch c := s.sql[start]; {
	case c == '`':
		return s.quotedName('`')
	case c == '"' && s.d.ansiQuotes:
		return s.quotedName('"')
	case c == '\'' || c == '"':
		s.stringLiteral(c)
		return token{kind: tokenString, start: start, end: s.at}
	case wordByte(c):
		for s.at < len(s.sql) && wordByte(s.sql[s.at]) {
			s.at++
		}
		return token{kind: tokenWord, start: start, end: s.at, text: s.sql[start:s.at]}
	}
	s.at++
	return token{kind: tokenPunct, start: start, end: s.at, text: s.sql[start:s.at]}
}

func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

func spaceByte(c byte) bool {
	return c == ' ' || c >= '\t' && c <= '\r'
}

// skip passes over white space and comments.
func (s *scanner) skip() {
	for s.at < len(s.sql) {
		rest := s.sql[s.at:]
		switch {
		case spaceByte(rest[0]):
			s.at++
		case rest[0] == '#', strings.HasPrefix(rest, "--") && (len(rest) == 2 || rest[2] <= ' '):
			n := strings.IndexByte(rest, '\n')
			if n < 0 {
				n = len(rest) - 1
			}
			s.at += n + 1
		case strings.HasPrefix(rest, "/*"):
			s.comment(rest)
		case s.inner > 0 && strings.HasPrefix(rest, "*/"):
			s.inner--
			s.at += 2
		default:
			return
		}
	}
}

// comment passes over a comment, or enters one whose text is executed.
func (s *scanner) comment(rest string) {
	head := 0
	switch {
	case strings.HasPrefix(rest, "/*!"):
		head = 3
	case strings.HasPrefix(rest, "/*M!") && !s.d.mysqlSpecifics:
		head = 4
	}
	if head > 0 {
		version, n := 0, head
		for n < len(rest) && n < head+6 && rest[n] >= '0' && rest[n] <= '9' {
			version = 10*version + int(rest[n]-'0')
			n++
		}
		// MariaDB leaves out what is meant for MySQL from 5.7 on.
		if s.d.mysqlSpecifics || version < 50700 || version > 99999 {
			s.inner++
			s.at += n
			return
		}
	}
	n := strings.Index(rest[2:], "*/")
	if n < 0 {
		s.at = len(s.sql)
		return
	}
	s.at += n + 4
}

// quotedName reads a name in quotes; a doubled quote stands for one.
func (s *scanner) quotedName(quote byte) token {
	t := token{kind: tokenQuoted, start: s.at}
	s.at++
	from, doubled := s.at, false
	for s.at < len(s.sql) {
		if s.sql[s.at] != quote {
			s.at++
			continue
		}
		if s.at+1 < len(s.sql) && s.sql[s.at+1] == quote {
			doubled = true
			s.at += 2
			continue
		}
		break
	}
	t.text = s.sql[from:s.at]
	if s.at < len(s.sql) {
		s.at++
	}
	t.end = s.at
	if doubled {
		q := string(quote)
		t.text = strings.ReplaceAll(t.text, q+q, q)
	}
	return t
}

func (s *scanner) stringLiteral(quote byte) {
	for s.at++; s.at < len(s.sql); s.at++ {
		switch c := s.sql[s.at]; {
		case c == '\\' && !s.d.plainBackslash:
			s.at++
		case c == quote && s.at+1 < len(s.sql) && s.sql[s.at+1] == quote:
			s.at++
		case c == quote:
			s.at++
			return
		}
	}
	s.at = min(s.at, len(s.sql))
}

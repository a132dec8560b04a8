package mysql

import "strings"

// volatileFunctions give another value each time they are called, whatever the
// session's settings. The current time is not among them: a session can be given
// the time of another.
var volatileFunctions = map[string]bool{
	"RAND": true, "UUID": true, "UUID_SHORT": true, "SYS_GUID": true, "UUID_V4": true, "UUID_V7": true, "RANDOM_BYTES": true,
	"USER": true, "SESSION_USER": true, "SYSTEM_USER": true, "CURRENT_USER": true, "CURRENT_ROLE": true, "DATABASE": true, "SCHEMA": true,
	"CONNECTION_ID": true, "LAST_INSERT_ID": true, "VERSION": true, "SYSDATE": true, "NEXTVAL": true, "LASTVAL": true, "SETVAL": true,
	"SLEEP": true, "GET_LOCK": true, "IS_FREE_LOCK": true, "IS_USED_LOCK": true, "RELEASE_LOCK": true, "LOAD_FILE": true, "FOUND_ROWS": true,
	"ROW_COUNT": true, "MASTER_POS_WAIT": true, "BENCHMARK": true,
}

// volatile reports whether a statement calls such a function, so that running it
// on another server gives other values.
func volatile(toks []token) bool {
	for i := range toks {
		t := &toks[i]
		if t.kind != tokenWord {
			continue
		}
		word := strings.ToUpper(t.text)
		next := toks[min(i+1, len(toks)-1)]
		switch {
		case volatileFunctions[word] && (next.kind == tokenPunct && next.punct('(') || word == "CURRENT_USER" || word == "CURRENT_ROLE"):
			return true
		case word == "NEXT" && next.is("VALUE"):
			return true
		}
	}
	return false
}

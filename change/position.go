package change

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
)

// Position is a place in the log of one source. The zero Position means "none".
//
// Within one history positions are ordered by Order, compared bytewise. Token is
// what the connector needs to open the log there; nobody else reads it.
type Position struct {
	// History names one unbroken log, for example "mariadb:7:binlog". It is
	// printable and holds no "|". Positions of different histories never compare.
	History string
	// Order sorts positions of one history, bytewise.
	Order [16]byte
	// Token is the connector's own resume token: printable, opaque.
	Token string
}

// IsZero reports whether p is no position at all.
func (p Position) IsZero() bool { return p.History == "" }

// Compare orders p and q of one history: -1, 0 or 1. The zero Position is before
// every other. Two histories give ErrHistory.
func (p Position) Compare(q Position) (int, error) {
	switch {
	case p.IsZero() && q.IsZero():
		return 0, nil
	case p.IsZero():
		return -1, nil
	case q.IsZero():
		return 1, nil
	case p.History != q.History:
		return 0, fmt.Errorf("compare positions of %q and %q: %w", p.History, q.History, ErrHistory)
	}
	return bytes.Compare(p.Order[:], q.Order[:]), nil
}

// AtOrBefore reports p ≤ q for positions that are known to share a history (the
// engine checks it where a position enters: on start, on attach, on load). A
// position of another history is never at or before.
func (p Position) AtOrBefore(q Position) bool {
	c, err := p.Compare(q)
	return err == nil && c <= 0
}

// Before reports p < q; see AtOrBefore.
func (p Position) Before(q Position) bool {
	c, err := p.Compare(q)
	return err == nil && c < 0
}

// String is the stored form: history|order in hex|token. The zero Position is "".
func (p Position) String() string {
	if p.IsZero() {
		return ""
	}
	return p.History + "|" + hex.EncodeToString(p.Order[:]) + "|" + p.Token
}

// ParsePosition reads what String wrote.
func ParsePosition(s string) (Position, error) {
	if s == "" {
		return Position{}, nil
	}
	history, rest, ok := strings.Cut(s, "|")
	order, token, ok2 := strings.Cut(rest, "|")
	if !ok || !ok2 || history == "" || len(order) != 32 {
		return Position{}, fmt.Errorf("parse position %q: want history|32 hex digits|token", s)
	}
	p := Position{History: history, Token: token}
	if _, err := hex.Decode(p.Order[:], []byte(order)); err != nil {
		return Position{}, fmt.Errorf("parse position %q: %w", s, err)
	}
	return p, nil
}

// MarshalText implements encoding.TextMarshaler with the form of String.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Position) UnmarshalText(b []byte) (err error) {
	*p, err = ParsePosition(string(b))
	return err
}

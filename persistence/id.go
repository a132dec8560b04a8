package persistence

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of the three parts of an entity id, in bytes.
const (
	MaxTypeBytes    = 40
	MaxRoutingBytes = 200
	MaxRandomBytes  = 64
)

// ErrEntityID is in the chain of every error about the form of an entity id.
var ErrEntityID = errors.New("not an entity id")

// EntityID names one entity: `type/routing/random`. The type chooses the
// definition, the routing part chooses the shard, the random part makes the id
// unique. It is a comparable value; the zero EntityID names nothing. In JSON and
// in the store it is its text.
type EntityID struct{ text string }

var randomText = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// NewEntityID returns an id that no other call returns. Its random part is 26
// characters: the time in milliseconds, then 80 random bits, so that entities
// made together lie together in the store.
func NewEntityID(typ, routing string) (EntityID, error) {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16)
	// The read overwrites the low two bytes of the shifted time. It never fails:
	// crypto/rand ends the process instead.
	rand.Read(b[6:])
	return EntityIDOf(typ, routing, randomText.EncodeToString(b[:]))
}

// EntityIDOf joins three parts that the caller chose.
func EntityIDOf(typ, routing, random string) (EntityID, error) {
	id := typ + "/" + routing + "/" + random
	if err := checkType(typ); err != nil {
		return EntityID{}, idError(id, err)
	}
	if err := checkRouting(routing); err != nil {
		return EntityID{}, idError(id, err)
	}
	if err := checkRandom(random); err != nil {
		return EntityID{}, idError(id, err)
	}
	return EntityID{id}, nil
}

// ParseEntityID reads the text form.
func ParseEntityID(s string) (EntityID, error) {
	if n := strings.Count(s, "/"); n != 2 {
		return EntityID{}, idError(s, fmt.Errorf("it has %d slashes, want type/routing/random", n))
	}
	typ, rest, _ := strings.Cut(s, "/")
	routing, random, _ := strings.Cut(rest, "/")
	if _, err := EntityIDOf(typ, routing, random); err != nil {
		return EntityID{}, err
	}
	// Keeping s itself spares the copy that joining the parts again would make.
	return EntityID{s}, nil
}

func idError(id string, why error) error {
	if len(id) > 80 {
		id = id[:80] + "…"
	}
	return fmt.Errorf("%w: %q: %w", ErrEntityID, id, why)
}

func checkType(s string) error {
	if s == "" || len(s) > MaxTypeBytes {
		return fmt.Errorf("the type has %d bytes, want 1 to %d", len(s), MaxTypeBytes)
	}
	for i, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z':
		case i > 0 && (c >= '0' && c <= '9' || c == '-'):
		default:
			return fmt.Errorf("the type %q may hold a-z, then also 0-9 and -", s)
		}
	}
	return nil
}

func checkRouting(s string) error {
	if s == "" || len(s) > MaxRoutingBytes {
		return fmt.Errorf("the routing part has %d bytes, want 1 to %d", len(s), MaxRoutingBytes)
	}
	if !utf8.ValidString(s) {
		return errors.New("the routing part is not UTF-8")
	}
	for _, r := range s {
		if r == '/' || !unicode.IsPrint(r) {
			return fmt.Errorf("the routing part holds %q; it may hold printable characters except /", r)
		}
	}
	return nil
}

func checkRandom(s string) error {
	if s == "" || len(s) > MaxRandomBytes {
		return fmt.Errorf("the random part has %d bytes, want 1 to %d", len(s), MaxRandomBytes)
	}
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return fmt.Errorf("the random part %q may hold letters, digits, - and _", s)
		}
	}
	return nil
}

// String is the text form, "" for the zero id.
func (id EntityID) String() string { return id.text }

// IsZero reports whether id names nothing.
func (id EntityID) IsZero() bool { return id.text == "" }

// Type is the first part.
func (id EntityID) Type() string {
	t, _, _ := strings.Cut(id.text, "/")
	return t
}

// Routing is the middle part.
func (id EntityID) Routing() string {
	_, rest, _ := strings.Cut(id.text, "/")
	r, _, _ := strings.Cut(rest, "/")
	return r
}

// Random is the last part.
func (id EntityID) Random() string {
	return id.text[strings.LastIndexByte(id.text, '/')+1:]
}

// Shard is the entity's shard of n: FNV-1a 64 of the routing part, modulo n.
// n is at least 1.
func (id EntityID) Shard(n uint32) uint32 { return ShardOf(id.Routing(), n) }

// ShardOf is the shard of everything with this routing part, of n ≥ 1 shards.
func ShardOf(routing string, n uint32) uint32 {
	h := uint64(14695981039346656037)
	for i := range len(routing) {
		h = (h ^ uint64(routing[i])) * 1099511628211
	}
	return uint32(h % uint64(max(n, 1)))
}

// MarshalText is the text form.
func (id EntityID) MarshalText() ([]byte, error) { return []byte(id.text), nil }

// UnmarshalText reads the text form; empty text is the zero id.
func (id *EntityID) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*id = EntityID{}
		return nil
	}
	v, err := ParseEntityID(string(b))
	if err == nil {
		*id = v
	}
	return err
}

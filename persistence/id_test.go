package persistence

import (
	"encoding/json"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestParseEntityID(t *testing.T) {
	tests := []struct{ in, typ, routing, random string }{
		{"sync-task/shop:0/01abc", "sync-task", "shop:0", "01abc"},
		{"a/b/c", "a", "b", "c"},
		{"a1/Größe *?:0/x_-Y", "a1", "Größe *?:0", "x_-Y"},
		{"a/" + strings.Repeat("b", MaxRoutingBytes) + "/c", "a", strings.Repeat("b", MaxRoutingBytes), "c"},
	}
	for _, tt := range tests {
		id, err := ParseEntityID(tt.in)
		if err != nil {
			t.Errorf("%s: got %v", tt.in, err)
			continue
		}
		if id.Type() != tt.typ || id.Routing() != tt.routing || id.Random() != tt.random || id.String() != tt.in {
			t.Errorf("%s: got %q %q %q %q", tt.in, id.Type(), id.Routing(), id.Random(), id)
		}
		if same, err := EntityIDOf(tt.typ, tt.routing, tt.random); same != id || err != nil {
			t.Errorf("%s: got %v, %v from its parts", tt.in, same, err)
		}
	}
	bad := []struct{ in, why string }{
		{"", "0 slashes"}, {"a/b", "1 slashes"}, {"a/b/c/d", "3 slashes"},
		{"/b/c", "type"}, {"A/b/c", "type"}, {"1a/b/c", "type"}, {strings.Repeat("a", MaxTypeBytes+1) + "/b/c", "type"},
		{"a//c", "routing"}, {"a/b\n/c", "routing"}, {"a/\xff/c", "UTF-8"}, {"a/" + strings.Repeat("b", MaxRoutingBytes+1) + "/c", "routing"},
		{"a/b/", "random"}, {"a/b/c d", "random"}, {"a/b/" + strings.Repeat("c", MaxRandomBytes+1), "random"},
	}
	for _, tt := range bad {
		if _, err := ParseEntityID(tt.in); !errors.Is(err, ErrEntityID) || !strings.Contains(err.Error(), tt.why) {
			t.Errorf("%q: got %v, want %v about the %s", tt.in, err, ErrEntityID, tt.why)
		}
	}
}

func TestNewEntityIDIsUniqueAndAscends(t *testing.T) {
	seen := map[EntityID]bool{}
	last := ""
	for range 5000 {
		id, err := NewEntityID("task", "shop:0")
		if err != nil {
			t.Fatal(err)
		}
		if seen[id] {
			t.Fatalf("got %s twice", id)
		}
		seen[id] = true
		if got, want := len(id.Random()), 26; got != want {
			t.Fatalf("got %d characters, want %d", got, want)
		}
		// The first nine characters are 45 of the 48 bits of milliseconds.
		if prefix := id.Random()[:9]; prefix < last {
			t.Errorf("got %s after %s", prefix, last)
		} else {
			last = prefix
		}
	}
	if _, err := NewEntityID("Task", "x"); !errors.Is(err, ErrEntityID) {
		t.Errorf("got %v, want %v", err, ErrEntityID)
	}
}

// The shard is part of what is stored: it must never come out otherwise.
func TestShard(t *testing.T) {
	for routing, want := range map[string]uint32{"shop:0": 251, "a": 140, "Größe": 122} {
		h := fnv.New64a()
		h.Write([]byte(routing))
		if ref := uint32(h.Sum64() % 256); ref != want {
			t.Errorf("%s: FNV-1a 64 gives %d, the test says %d", routing, ref, want)
		}
		id, err := EntityIDOf("x", routing, "y")
		if err != nil {
			t.Fatal(err)
		}
		if got := id.Shard(256); got != want || ShardOf(routing, 256) != want {
			t.Errorf("%s: got shard %d, want %d", routing, got, want)
		}
	}
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 1000 {
		b := make([]byte, rnd.IntN(40))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		n := 1 + rnd.Uint32N(1<<16)
		h := fnv.New64a()
		h.Write(b)
		if got, want := ShardOf(string(b), n), uint32(h.Sum64()%uint64(n)); got != want {
			t.Fatalf("seed %d: %q of %d: got %d, want %d", seed, b, n, got, want)
		}
	}
}

func TestEntityIDAsJSON(t *testing.T) {
	var v struct{ ID EntityID }
	if err := json.Unmarshal([]byte(`{"ID":"a/b/c"}`), &v); err != nil || v.ID.Routing() != "b" {
		t.Errorf("got %v, %v", v, err)
	}
	if b, err := json.Marshal(v); string(b) != `{"ID":"a/b/c"}` || err != nil {
		t.Errorf("got %s, %v", b, err)
	}
	if err := json.Unmarshal([]byte(`{"ID":"a/b"}`), &v); !errors.Is(err, ErrEntityID) {
		t.Errorf("got %v, want %v", err, ErrEntityID)
	}
	if err := json.Unmarshal([]byte(`{"ID":""}`), &v); err != nil || !v.ID.IsZero() {
		t.Errorf("got %v, %v, want the zero id", v, err)
	}
}

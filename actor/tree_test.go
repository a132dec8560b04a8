package actor

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

func goroutinesNow() int { return runtime.NumGoroutine() }

// grove makes actors at the given paths below /user, parents first.
func grove(t *testing.T, s *System, paths ...string) {
	t.Helper()
	for _, p := range paths {
		parent, name := "/user", p
		if i := strings.LastIndexByte(p, '/'); i >= 0 {
			parent, name = "/user/"+p[:i], p[i+1:]
		}
		at := place{s.lookup(parent)}
		if strings.HasPrefix(name, "text") {
			mustSpawn(t, at, name, Stateless(func(Context[string], string) error { return nil }))
		} else {
			mustSpawn(t, at, name, Stateless(func(Context[int], int) error { return nil }))
		}
	}
}

func TestSelect(t *testing.T) {
	s := newSystem(t, Config{})
	grove(t, s, "shop", "shop/orders", "shop/users", "shop/orders/x", "depot", "depot/orders", "depot/text-1", "shopping")
	mustSpawn(t, s.Internal(), "orders", Stateless(func(Context[int], int) error { return nil }))
	tests := []struct {
		pattern string
		want    string
	}{
		{"/user/*/orders", "/user/depot/orders /user/shop/orders"},
		{"/user/shop*", "/user/shop /user/shopping"},
		{"/user/*op*g", "/user/shopping"},
		{"/user/shop/**", "/user/shop /user/shop/orders /user/shop/orders/x /user/shop/users"},
		{"/**/orders", "/system/orders /user/depot/orders /user/shop/orders"},
		{"/user/**/x", "/user/shop/orders/x"},
		{"/user/**/**/x", "/user/shop/orders/x"},
		{"/user/shop/orders", "/user/shop/orders"},
		{"/user/*/text-*", "/user/depot/text-1"},
		{"/user/none/*", ""},
		{"/user", ""},
		{"/*", ""},
	}
	for _, tt := range tests {
		addrs, err := s.Select(tt.pattern)
		var got []string
		for _, a := range addrs {
			got = append(got, a.Path())
		}
		if strings.Join(got, " ") != tt.want || err != nil {
			t.Errorf("%s: got %v, %v, want %s", tt.pattern, got, err, tt.want)
		}
		refs, err := Select[int](s, tt.pattern)
		got = nil
		for _, r := range refs {
			got = append(got, r.Path())
		}
		want := slices.DeleteFunc(strings.Fields(tt.want), func(p string) bool { return strings.Contains(p, "text") })
		if !slices.Equal(got, want) || err != nil {
			t.Errorf("%s: got %v of int, %v, want %v", tt.pattern, got, err, want)
		}
	}
	for _, bad := range []string{"", "user", "/", "/user//x", "/user/a**", "/user/x/"} {
		if _, err := s.Select(bad); !isErr(err, ErrBadPattern) {
			t.Errorf("%q: got %v, want %v", bad, err, ErrBadPattern)
		}
	}
}

func TestTree(t *testing.T) {
	s := newSystem(t, Config{})
	grove(t, s, "b", "b/2", "b/1", "b/3", "a")
	waitFor(t, func() bool { // until all have run Setup
		n, err := s.Tree("/", 0)
		return err == nil && !strings.Contains(n.String(), "starting")
	})
	n, err := s.Tree("/user", 2)
	if err != nil {
		t.Fatal(err)
	}
	want := `/user running, 0 waiting, system
  a running, 0 waiting, default
  b running, 0 waiting, default
    1 running, 0 waiting, default
    2 running, 0 waiting, default
    and 1 more
`
	if got := n.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if _, err := s.Tree("/user/none", 0); !isErr(err, ErrNotFound) {
		t.Errorf("got %v, want %v", err, ErrNotFound)
	}
}

package testdb

import (
	"context"
	"errors"
)

// TB is the part of testing.TB that the helpers need.
type TB interface {
	Helper()
	Context() context.Context
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(func())
}

// MariaDBFor starts a MariaDB server that lives as long as the test. A missing
// program fails the test with the command that installs it: a skipped test proves
// nothing.
func MariaDBFor(t TB, o MariaDBOptions) *MariaDB {
	t.Helper()
	m, err := StartMariaDB(t.Context(), o)
	if err != nil {
		fail(t, err)
	}
	t.Cleanup(func() { stopFor(t, m.server) })
	return m
}

// PostgresFor starts a PostgreSQL server that lives as long as the test. A
// missing program fails the test with the command that installs it.
func PostgresFor(t TB, o PostgresOptions) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context(), o)
	if err != nil {
		fail(t, err)
	}
	t.Cleanup(func() { stopFor(t, p.server) })
	return p
}

// ProxyFor puts a proxy in front of an address for as long as the test lives.
func ProxyFor(t TB, target string) *Proxy {
	t.Helper()
	p, err := NewProxy(target)
	if err != nil {
		fail(t, err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close proxy: %v", err)
		}
	})
	return p
}

func fail(t TB, err error) {
	t.Helper()
	if errors.Is(err, ErrNotInstalled) {
		t.Fatalf("this test needs a database server: %v", err)
	}
	t.Fatalf("prepare test: %v", err)
}

func stopFor(t TB, s *server) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Errorf("stop server in %s: %v", s.dir, err)
	}
}

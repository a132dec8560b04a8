package mysql

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// certificates writes an authority and a certificate for the name db.test.
func certificates(t *testing.T) (ca, cert, key string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "runnel-tls-") // the server's account cannot look into t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sign := func(template, parent *x509.Certificate, public *ecdsa.PublicKey, private *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, template, parent, public, private)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	newKey := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	caKey, serverKey := newKey(), newKey()
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	server := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "db.test"}, DNSNames: []string{"db.test"},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter}
	private, err := x509.MarshalPKCS8PrivateKey(serverKey)
	if err != nil {
		t.Fatal(err)
	}
	return write("ca.pem", "CERTIFICATE", sign(authority, authority, &caKey.PublicKey, caKey)),
		write("cert.pem", "CERTIFICATE", sign(server, authority, &serverKey.PublicKey, caKey)), write("key.pem", "PRIVATE KEY", private)
}

// TestTLS reads log and table over an encrypted connection, and refuses a server
// that cannot prove its name.
func TestTLS(t *testing.T) {
	ca, cert, key := certificates(t)
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{ExtraArgs: []string{"--ssl-cert=" + cert, "--ssl-key=" + key, "--ssl-ca=" + ca}})
	if err := m.CreateUser(testContext(t), "u", "p", "ALL PRIVILEGES"); err != nil {
		t.Fatal(err)
	}
	execSQL(t, m, "ALTER USER u REQUIRE SSL", "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
	for i, options := range []string{"tls=true&server-name=db.test&ca=" + ca, "tls=skip-verify"} {
		cfg, err := ParseDSN(m.DSN("u", "p") + "?" + options)
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewSource(cfg, SourceOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		from := now(t, s)
		execSQL(t, m, fmt.Sprintf("INSERT INTO d.t VALUES (%d)", i))
		if got := len(readTo(t, s, from, wantSchema("d"))); got != 1 {
			t.Errorf("%s: got %d groups, want 1", options, got)
		}
		l := layouts(t, s, change.TableID{Schema: "d", Name: "t"})[change.TableID{Schema: "d", Name: "t"}]
		if got := len(readChunks(t, s, l, 10)); got != i+1 {
			t.Errorf("%s: got %d rows, want %d", options, got, i+1)
		}
	}
	for _, c := range []struct{ options, code string }{
		{"tls=true&server-name=other.test&ca=" + ca, "tls-certificate"},
		{"tls=true&server-name=db.test", "tls-certificate"},
		{"tls=false", "access-denied"},
	} {
		cfg, err := ParseDSN(m.DSN("u", "p") + "?" + c.options)
		if err != nil {
			t.Fatal(err)
		}
		_, err = connect(testContext(t), cfg, change.SourceWide)
		var p *change.Problem
		if !errors.As(err, &p) || p.Code != c.code {
			t.Errorf("%s: got %v, want a problem %s", c.options, err, c.code)
		}
	}
}

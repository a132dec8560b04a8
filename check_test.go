package runnel

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/testdb"
)

const account = "runnel"

func newServer(t *testing.T, o testdb.MariaDBOptions, grants ...string) *testdb.MariaDB {
	t.Helper()
	db := testdb.MariaDBFor(t, o)
	if err := db.CreateUser(t.Context(), account, "hunter2", grants...); err != nil {
		t.Fatal(err)
	}
	return db
}

func codes(v Verdict) []string {
	var out []string
	for _, p := range v.Problems {
		out = append(out, p.Code)
		if p.Subject == "" || p.Cause == "" || p.Remedy == "" {
			out = append(out, "incomplete: "+p.Error())
		}
	}
	return out
}

func TestCheckAddressNamesTheSettingAndTheRemedy(t *testing.T) {
	db := newServer(t, testdb.MariaDBOptions{ExtraArgs: []string{"--binlog-format=STATEMENT"}}, "ALL PRIVILEGES")
	v, err := CheckAddress(t.Context(), tablesync.KindSource, db.DSN(account, ""), "hunter2")
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Problems) != 1 || len(v.Verified) != 0 {
		t.Fatalf("got %+v, want one problem", v)
	}
	p := v.Problems[0]
	if !strings.Contains(p.Cause, "STATEMENT") || !strings.Contains(strings.ToUpper(p.Remedy), "SET GLOBAL BINLOG_FORMAT") {
		t.Errorf("got %+v, want the setting and the statement that mends it", p)
	}
	if err := db.Exec(t.Context(), "SET GLOBAL binlog_format = 'ROW'"); err != nil {
		t.Fatal(err)
	}
	v, err = CheckAddress(t.Context(), tablesync.KindSource, db.DSN(account, "hunter2"), "not this one")
	if err != nil || len(v.Problems) > 0 || len(v.Verified) == 0 {
		t.Errorf("after the remedy: got %+v, %v", v, err)
	}
	if text := strings.Join(v.Verified, "\n"); !strings.Contains(text, "binlog_format=ROW") || !strings.Contains(text, "the log ends at ") {
		t.Errorf("verified: got %q", text)
	}
}

func TestCheckAddressFaults(t *testing.T) {
	db := newServer(t, testdb.MariaDBOptions{NoBinlog: true}, "ALL PRIVILEGES")
	for _, tc := range []struct{ address, kind, code string }{
		{db.DSN(account, "hunter2"), tablesync.KindSource, "log-off"},
		{db.DSN(account, "wrong"), tablesync.KindSource, "access-denied"},
		{db.DSN(account, "wrong"), tablesync.KindTarget, "access-denied"},
		{"mysql://u:hunter2@127.0.0.1:1/", tablesync.KindSource, "unreachable"},
		{"mysql://u:hunter2@127.0.0.1:1/", tablesync.KindTarget, "unreachable"},
	} {
		v, err := CheckAddress(t.Context(), tc.kind, tc.address, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := codes(v); !slices.Equal(got, []string{tc.code}) {
			t.Errorf("%s as %s: got %v, want %s", tc.address, tc.kind, got, tc.code)
		}
		if strings.Contains(verdictString(v), "hunter2") {
			t.Errorf("%s: the password is in %+v", tc.code, v)
		}
	}
	v, err := CheckAddress(t.Context(), tablesync.KindTarget, db.DSN(account, "hunter2"), "")
	if err != nil || len(v.Problems) > 0 || len(v.Verified) == 0 {
		t.Errorf("target: got %+v, %v", v, err)
	}
}

func verdictString(v Verdict) string {
	var b strings.Builder
	for _, p := range v.Problems {
		b.WriteString(p.Error())
	}
	return b.String() + strings.Join(v.Verified, " ")
}

func TestCheckDefinitions(t *testing.T) {
	src := newServer(t, testdb.MariaDBOptions{}, "ALL PRIVILEGES")
	dst := newServer(t, testdb.MariaDBOptions{}, "ALL PRIVILEGES")
	if err := src.Exec(t.Context(), "CREATE DATABASE shop", "CREATE DATABASE crm", "CREATE TABLE shop.a (id INT PRIMARY KEY)",
		"CREATE TABLE shop.log (line TEXT)", "CREATE TABLE crm.a (id INT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Setenv("SHOP_PASSWORD", "hunter2")
	write(t, dir, "password", "hunter2\n")
	write(t, dir, "d.yaml", `
kind: source
name: shop
type: mysql
address: `+src.Addr()+`
user: runnel
passwordEnv: SHOP_PASSWORD
---
kind: target
name: lake
type: mysql
address: `+dst.Addr()+`
user: runnel
passwordFile: `+filepath.Join(dir, "password")+`
---
kind: target
name: lost
type: mysql
address: `+dst.Addr()+`
user: runnel
passwordFile: `+filepath.Join(dir, "absent")+`
---
{kind: pipeline, name: good, source: shop, target: lake, tables: {include: [shop.a]}}
---
{kind: pipeline, name: clash, source: shop, target: lake, tables: {include: [crm.a, crm.none]}, route: {schema: shop}}
---
{kind: pipeline, name: keyless, source: shop, target: lake, tables: {include: [shop.l*]}}
---
{kind: pipeline, name: astray, source: shop, target: ocean, tables: {include: [shop.*]}}
`)
	d, err := LoadDefinitions(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"source shop": nil, "target lake": nil, "target lost": {"password-file"}, "pipeline good": nil,
		"pipeline clash": {"target-taken", "no-such-table"}, "pipeline keyless": {"table-without-key"}, "pipeline astray": {"not-declared"},
	}
	verdicts := CheckDefinitions(t.Context(), d)
	if len(verdicts) != len(want) {
		t.Errorf("got %d verdicts, want %d", len(verdicts), len(want))
	}
	for _, v := range verdicts {
		if got := codes(v); !slices.Equal(got, want[v.Subject]) {
			t.Errorf("%s: got %v, want %v (%s)", v.Subject, got, want[v.Subject], verdictString(v))
		}
	}
	if databases, err := dst.Query(t.Context(), "SHOW DATABASES LIKE 'runnel'"); err != nil || len(databases) > 0 {
		t.Errorf("the check left %v at the target (%v)", databases, err)
	}
}

func TestPasswordsComeFromWhereTheyAreSaidToBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p")
	if err := os.WriteFile(file, []byte("pa ss\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RUNNEL_TEST_EMPTY", "")
	for _, tc := range []struct {
		spec tablesync.ServerSpec
		want string
		code string
	}{
		{tablesync.ServerSpec{}, "", ""},
		{tablesync.ServerSpec{PasswordFile: file}, "pa ss", ""},
		{tablesync.ServerSpec{PasswordFile: file + "x"}, "", "password-file"},
		{tablesync.ServerSpec{PasswordFile: empty}, "", "password-file"},
		{tablesync.ServerSpec{PasswordEnv: "RUNNEL_TEST_EMPTY"}, "", "password-env"},
		{tablesync.ServerSpec{PasswordEnv: "RUNNEL_TEST_NOT_SET"}, "", "password-env"},
	} {
		cfg, err := mysqlConfig(tablesync.KindSource, &tc.spec)
		var v Verdict
		if err != nil {
			v.fail(err)
		}
		if cfg.Password != tc.want || (tc.code == "") != (err == nil) || tc.code != "" && codes(v)[0] != tc.code {
			t.Errorf("%+v: got %q, %v, want %q, %s", tc.spec, cfg.Password, err, tc.want, tc.code)
		}
		if file := tc.spec.PasswordFile; tc.code != "" && !strings.Contains(err.Error(), file+tc.spec.PasswordEnv) {
			t.Errorf("%+v: got %v, which does not name it", tc.spec, err)
		}
	}
}

package mysql

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

func codes(ps []*change.Problem) string {
	var out []string
	for _, p := range ps {
		out = append(out, p.Code)
	}
	return strings.Join(out, " ")
}

func TestCheckFindsWrongSettings(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{ExtraArgs: []string{"--binlog-format=MIXED", "--binlog-row-image=MINIMAL", "--binlog-expire-logs-seconds=60"}})
	s := testSource(t, m, SourceOptions{})
	ps, err := s.Check(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := codes(ps), "binlog-format binlog-row-image log-retention"; got != want {
		t.Fatalf("got problems %s, want %s", got, want)
	}
	if got := ps[0].Remedy; !strings.Contains(got, "SET GLOBAL binlog_format='ROW'") || !strings.Contains(got, "my.cnf") {
		t.Errorf("got remedy %q, want the statement and the line of my.cnf", got)
	}
	execSQL(t, m, "SET GLOBAL binlog_format=ROW", "SET GLOBAL binlog_row_image=FULL", "SET GLOBAL binlog_expire_logs_seconds=0")
	if ps, err = s.Check(testContext(t)); err != nil || len(ps) != 0 {
		t.Errorf("got problems %s and error %v after mending, want none", codes(ps), err)
	}
	// L-22: a replica that does not log what it replicates.
	execSQL(t, m, "CHANGE MASTER TO master_host='127.0.0.1', master_port=1, master_user='x'")
	if ps, err = s.Check(testContext(t)); err != nil || codes(ps) != "replica-without-log" {
		t.Errorf("got problems %q and error %v of a replica, want replica-without-log", codes(ps), err)
	}
}

func TestCheckFindsMissingLog(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{NoBinlog: true})
	s := testSource(t, m, SourceOptions{})
	ps, err := s.Check(testContext(t))
	if err != nil || codes(ps) != "log-off" {
		t.Errorf("got problems %q and error %v, want log-off", codes(ps), err)
	}
	if _, err := s.Now(testContext(t)); change.ClassOf(err) != change.SourceWide {
		t.Errorf("got error %v of class %s from Now, want one of class source-wide", err, change.ClassOf(err))
	}
}

func TestCheckFindsMissingPrivileges(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	for i, c := range []struct {
		grants []string
		want   []string
	}{
		{nil, []string{"SELECT", "BINLOG MONITOR", "REPLICATION SLAVE"}},
		{[]string{"SELECT", "REPLICATION SLAVE"}, []string{"BINLOG MONITOR"}},
		{[]string{"SELECT ON d.*", "BINLOG MONITOR"}, []string{"REPLICATION SLAVE"}},
		{[]string{"SELECT", "BINLOG MONITOR", "REPLICATION SLAVE"}, nil},
	} {
		user := fmt.Sprintf("u%d", i)
		if err := m.CreateUser(testContext(t), user, "p@ss:w/rd", c.grants...); err != nil {
			t.Fatal(err)
		}
		cfg, err := ParseDSN(m.DSN(user, "p@ss:w/rd"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewSource(cfg, SourceOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ps, err := s.Check(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(ps) != len(c.want) {
			t.Errorf("grants %v: got problems %v, want about %v", c.grants, ps, c.want)
			continue
		}
		for i, p := range ps {
			if want := "run GRANT " + c.want[i] + " ON *.* TO '" + user + "'@'%'"; p.Code != "privilege" || p.Remedy != want {
				t.Errorf("grants %v: got %s with remedy %q, want %q", c.grants, p.Code, p.Remedy, want)
			}
		}
	}
}

func TestConnectNamesTheCause(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := free.Addr().String()
	free.Close()
	for _, c := range []struct {
		dsn  string
		code string
	}{
		{m.DSN("root", "secret-word"), "access-denied"},
		{"mysql://root:secret-word@" + closed + "/", "unreachable"},
		{"mysql://root:secret-word@no-such-host.invalid/", "unknown-host"},
		{strings.TrimSuffix(m.DSN("root", "secret-word"), "/") + "/?tls=true", "tls-unsupported"},
	} {
		cfg, err := ParseDSN(c.dsn)
		if err != nil {
			t.Fatal(err)
		}
		_, err = connect(testContext(t), cfg, change.TargetWide)
		var p *change.Problem
		if !errors.As(err, &p) || p.Code != c.code || p.Remedy == "" {
			t.Errorf("%s: got %v, want a problem %s with a remedy", c.code, err, c.code)
		}
		if got := change.ClassOf(err); got != change.TargetWide {
			t.Errorf("%s: got class %s, want target-wide", c.code, got)
		}
		for _, text := range []string{fmt.Sprint(err), fmt.Sprint(cfg), fmt.Sprintf("%+v %#v %s", cfg, cfg, &cfg)} {
			if strings.Contains(text, "secret") {
				t.Errorf("the password is in %q", text)
			}
		}
	}
}

func TestParseDSNRefusesWithoutThePassword(t *testing.T) {
	for _, dsn := range []string{
		"mysql://u:secret%zz@h/", "pg://u:secret@h/", "mysql://u:secret@h/db", "mysql://u:secret@h/?tls=maybe",
		"mysql://u:secret@h/?unknown=1", "mysql://u:secret@/", "mysql://u:secret@h/?ca=x", "mysql://u:secret@h:1/?socket=/x",
	} {
		_, err := ParseDSN(dsn)
		if err == nil {
			t.Errorf("%s: got no error", strings.ReplaceAll(dsn, "secret", "…"))
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the password is in %q", err)
		}
	}
	got, err := ParseDSN("mariadb://u%40x:p%2Fw@h/?tls=skip-verify&server-name=db")
	want := Config{Addr: "h:3306", User: "u@x", Password: "p/w", TLS: TLSConfig{Mode: "skip-verify", ServerName: "db"}}
	if err != nil || got != want {
		t.Errorf("got %#v and error %v, want %#v", got, err, want)
	}
}

// A peer that is no MySQL server, and one that never answers.
func TestConnectToSomethingElse(t *testing.T) {
	for _, greeting := range []string{"HTTP/1.1 400 Bad Request\r\n\r\n", "\x05\x00\x00\x00\x0a5.5\x00", ""} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			if _, err := c.Write([]byte(greeting)); err != nil {
				t.Error(err)
			}
			if greeting == "" { // until the other side gives up
				_, _ = c.Read(make([]byte, 1))
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err = connect(ctx, Config{Addr: l.Addr().String(), User: "root"}, change.SourceWide)
		if err == nil {
			t.Errorf("%q: got no error", greeting)
		}
		if greeting == "" && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v from a silent peer, want the context's error", err)
		}
		cancel()
		l.Close()
		<-done
	}
}

// TestLeastPrivileges: what Check asks for is enough for everything.
func TestLeastPrivileges(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	if err := m.CreateUser(testContext(t), "u", "p", "SELECT ON d.*", "BINLOG MONITOR", "REPLICATION SLAVE"); err != nil {
		t.Fatal(err)
	}
	execSQL(t, m, "CREATE DATABASE d", "CREATE DATABASE hidden", "CREATE TABLE d.t (id INT PRIMARY KEY)", "CREATE TABLE d.c (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id) ON DELETE CASCADE)",
		"CREATE TABLE hidden.t (id INT PRIMARY KEY)")
	cfg, err := ParseDSN(m.DSN("u", "p"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSource(cfg, SourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if ps, err := s.Check(testContext(t)); err != nil || len(ps) != 0 {
		t.Errorf("got problems %v and error %v, want none", ps, err)
	}
	from := now(t, s)
	execSQL(t, m, "INSERT INTO d.t VALUES (1),(2)", "DELETE FROM d.t WHERE id=1")
	if got, want := show(t, s, readTo(t, s, from, wantSchema("d"))), "insert t (1)\ninsert t (2)\nend\ndelete t (1)\nlost-rows [d.c]\nend\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	infos, err := s.Tables(testContext(t), func(change.TableID) bool { return true })
	if err != nil || len(infos) != 2 || infos[1].Problem != nil {
		t.Fatalf("got tables %v and error %v, want two without problems", infos, err)
	}
	l, _, err := s.Pin(testContext(t), infos[1].Table)
	if err != nil {
		t.Fatal(err)
	}
	if l.Fingerprint() != infos[1].Layout.Fingerprint() {
		t.Error("the pinned layout and that of the list differ")
	}
	if got := len(readChunks(t, s, l, 10)); got != 1 {
		t.Errorf("got %d rows, want 1", got)
	}
	var p *change.Problem
	if _, _, err := s.Pin(testContext(t), change.TableID{Schema: "hidden", Name: "t"}); !errors.As(err, &p) || p.Code != "privilege" {
		t.Errorf("got %v for a table that may not be read, want a problem privilege", err)
	}
}

func TestOldUUIDs(t *testing.T) {
	for version, want := range map[string]bool{
		"10.7.8-MariaDB": true, "10.10.5-MariaDB": true, "10.10.6-MariaDB": false, "10.11.4-MariaDB-log": true, "10.11.19-MariaDB-0+deb12u1-log": false,
		"11.0.2-MariaDB": true, "11.2.1-MariaDB": false, "12.0.1-MariaDB": false, "unknown": false,
	} {
		if got := oldUUIDs(version); got != want {
			t.Errorf("%s: got %v, want %v", version, got, want)
		}
	}
}

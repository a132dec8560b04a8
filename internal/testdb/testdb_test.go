package testdb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

const helperEnv = "RUNNEL_TESTDB_HELPER"

// TestMain turns the test binary into the process that owns a server when a test
// runs it again for that.
func TestMain(m *testing.M) {
	if mode := os.Getenv(helperEnv); mode != "" {
		if err := ownServers(mode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// ownServers starts a server, says where it is and waits to be killed.
func ownServers(mode string) error {
	deathSignal = !strings.HasSuffix(mode, "-orphan")
	ctx := context.Background()
	var s *server
	switch strings.TrimSuffix(mode, "-orphan") {
	case "mariadb":
		m, err := StartMariaDB(ctx, MariaDBOptions{})
		if err != nil {
			return err
		}
		s = m.server
	case "postgres":
		p, err := StartPostgres(ctx, PostgresOptions{})
		if err != nil {
			return err
		}
		s = p.server
	}
	fmt.Println(s.PID(), s.Dir())
	_, err := io.Copy(io.Discard, os.Stdin) // ends with the parent
	return errors.Join(err, s.Stop())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// eventually polls without blocking the test longer than it must.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("still not so after 30s: %s", what)
		}
	}
}

func TestMariaDBDefaults(t *testing.T) {
	t.Parallel()
	m := MariaDBFor(t, MariaDBOptions{})
	rows, err := m.Query(t.Context(), "SELECT @@binlog_format, @@log_bin, @@binlog_row_metadata, @@read_only, @@port, @@time_zone, @@character_set_server, NULL, CAST(1.50 AS DECIMAL(5,2)), 1e20")
	must(t, err)
	mustEqual(t, "settings", rows, [][]string{{"ROW", "1", "NO_LOG", "0", strconv.Itoa(m.Port()), "+00:00", "utf8mb4", "NULL", "1.50", "1e20"}})
	mustEqual(t, "address", m.Addr(), "127.0.0.1:"+strconv.Itoa(m.Port()))
	mustEqual(t, "dsn", m.DSN("a", "b@c"), "mysql://a:b%40c@"+m.Addr()+"/")
	if m.PID() == 0 || !strings.Contains(procCommand(m.PID()), m.DataDir()) {
		t.Errorf("pid %d runs %q, want a server in %s", m.PID(), procCommand(m.PID()), m.DataDir())
	}
	must(t, m.CreateUser(t.Context(), "it's", `p\w`, "REPLICATION SLAVE", "SELECT ON mysql.*"))
	grants, err := m.Query(t.Context(), `SHOW GRANTS FOR 'it''s'@'%'`)
	must(t, err)
	mustEqual(t, "number of grants", len(grants), 2)

	dir := m.Dir()
	must(t, m.Stop())
	must(t, m.Stop())
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("directory %s after Stop: %v, want it gone", dir, err)
	}
	if err := m.Restart(t.Context()); err == nil {
		t.Error("Restart after Stop: got nil, want an error")
	}
}

func TestMariaDBOptions(t *testing.T) {
	t.Parallel()
	m := MariaDBFor(t, MariaDBOptions{RowMetadata: "FULL", ServerID: 77, ReadOnly: true, ExtraArgs: []string{"--max-connections=33"}})
	rows, err := m.Query(t.Context(), "SELECT @@binlog_row_metadata, @@server_id, @@read_only, @@max_connections")
	must(t, err)
	mustEqual(t, "settings", rows, [][]string{{"FULL", "77", "1", "33"}})

	silent := MariaDBFor(t, MariaDBOptions{NoBinlog: true})
	rows, err = silent.Query(t.Context(), "SELECT @@log_bin")
	must(t, err)
	mustEqual(t, "log_bin", rows, [][]string{{"0"}})
}

func TestMariaDBBadArgumentShowsLog(t *testing.T) {
	t.Parallel()
	_, err := StartMariaDB(t.Context(), MariaDBOptions{ExtraArgs: []string{"--no-such-argument=1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-argument") {
		t.Fatalf("got %v, want the server's own words about the argument", err)
	}
}

func TestMariaDBRestartAndKillKeepData(t *testing.T) {
	t.Parallel()
	m := MariaDBFor(t, MariaDBOptions{})
	must(t, m.Exec(t.Context(), "CREATE DATABASE d", "USE d", "CREATE TABLE t (a INT PRIMARY KEY) ENGINE=InnoDB", "INSERT INTO t VALUES (1)"))
	port, pid := m.Port(), m.PID()
	must(t, m.Restart(t.Context()))
	mustEqual(t, "port after restart", m.Port(), port)
	if m.PID() == pid {
		t.Errorf("pid after restart: got %d again, want another", pid)
	}
	must(t, m.Exec(t.Context(), "INSERT INTO d.t VALUES (2)"))
	done := m.Done()
	must(t, m.Kill())
	<-done
	if _, err := m.Query(t.Context(), "SELECT 1"); err == nil {
		t.Error("query after Kill: got nil, want an error")
	}
	mustEqual(t, "pid after kill", m.PID(), 0)
	must(t, m.Restart(t.Context()))
	rows, err := m.Query(t.Context(), "SELECT a FROM d.t ORDER BY a")
	must(t, err)
	mustEqual(t, "rows", rows, [][]string{{"1"}, {"2"}})
}

// A directory of the caller's is kept, also where the mysql user cannot go: a
// test's own temporary directory is closed to others.
func TestMariaDBKeepsCallersDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	first := MariaDBFor(t, MariaDBOptions{Dir: dir})
	must(t, first.Exec(t.Context(), "CREATE DATABASE kept"))
	if len(first.Socket()) > 107 {
		t.Errorf("socket path of %d bytes, want at most 107: %s", len(first.Socket()), first.Socket())
	}
	must(t, first.Stop())
	second := MariaDBFor(t, MariaDBOptions{Dir: dir, Port: first.Port()})
	mustEqual(t, "port", second.Port(), first.Port())
	rows, err := second.Query(t.Context(), "SHOW DATABASES LIKE 'kept'")
	must(t, err)
	mustEqual(t, "databases", rows, [][]string{{"kept"}})
}

func TestMariaDBDump(t *testing.T) {
	t.Parallel()
	m := MariaDBFor(t, MariaDBOptions{})
	must(t, m.Exec(t.Context(),
		"CREATE DATABASE d", "CREATE DATABASE e", "USE d",
		"CREATE TABLE `we``ird` (k INT PRIMARY KEY, b VARBINARY(9), s VARCHAR(40), ts TIMESTAMP NULL, g INT AS (k+1) VIRTUAL)",
		"SET time_zone = '+05:00'",
		"INSERT INTO `we``ird` (k,b,s,ts) VALUES (2,X'00ff27','a\nb''c\\\\ü','2024-01-01 05:00:00'),(1,NULL,NULL,NULL)",
		"CREATE TABLE heap1 (a INT)", "INSERT INTO heap1 VALUES (3),(1),(2)",
		"CREATE TABLE e.heap1 (a INT)", "INSERT INTO e.heap1 VALUES (2),(1),(3)",
		"CREATE TABLE empty1 (a INT)", "CREATE VIEW v AS SELECT * FROM heap1", "CREATE SEQUENCE q"))
	got, err := m.Dump(t.Context(), "d", "e", "absent")
	must(t, err)
	heap := "INSERT INTO `heap1` (`a`) VALUES (1);\nINSERT INTO `heap1` (`a`) VALUES (2);\nINSERT INTO `heap1` (`a`) VALUES (3);"
	want := map[string]string{
		"d.we`ird": "INSERT INTO `we``ird` (`k`, `b`, `s`, `ts`, `g`) VALUES (1,NULL,NULL,NULL,2);\n" +
			"INSERT INTO `we``ird` (`k`, `b`, `s`, `ts`, `g`) VALUES (2,0x00FF27,0x610A6227635CC3BC,'2024-01-01 00:00:00',3);",
		"d.heap1": heap, "e.heap1": heap, "d.empty1": "",
	}
	mustEqual(t, "dump", got, want)
}

func TestMariaDBQueryEndsWithContext(t *testing.T) {
	t.Parallel()
	m := MariaDBFor(t, MariaDBOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := m.Query(ctx, "SELECT SLEEP(60)"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want %v", err, context.DeadlineExceeded)
	}
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	p := PostgresFor(t, PostgresOptions{ExtraArgs: []string{"-c", "max_connections=21"}})
	rows, err := p.Query(t.Context(), "SELECT current_setting('wal_level'), current_setting('max_connections'), NULL, 1.50, true")
	must(t, err)
	mustEqual(t, "settings", rows, [][]string{{"logical", "21", "NULL", "1.50", "t"}})
	must(t, p.CreateUser(t.Context(), "re'pl", "x", "REPLICATION", "pg_monitor"))
	must(t, p.CreateDatabase(t.Context(), "Shop"))
	must(t, p.Exec(t.Context(), "CREATE TABLE t (a int primary key)", "INSERT INTO t VALUES (1)"))
	port := p.Port()
	must(t, p.Restart(t.Context()))
	mustEqual(t, "port", p.Port(), port)
	must(t, p.Exec(t.Context(), "INSERT INTO t VALUES (2)"))
	must(t, p.Kill())
	if _, err := p.Query(t.Context(), "SELECT 1"); err == nil {
		t.Error("query after Kill: got nil, want an error")
	}
	must(t, p.Restart(t.Context()))
	rows, err = p.Query(t.Context(), "SELECT a FROM t ORDER BY a")
	must(t, err)
	mustEqual(t, "rows", rows, [][]string{{"1"}, {"2"}})
}

// A dead owner takes its server with it (the kernel's doing), and what a death
// without that leaves behind is cleared by the next start. The owners keep their
// records apart, so that no other test reaps in between.
func TestServerDiesWithItsOwner(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"mariadb", "postgres"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			pid, dir, records := killedOwner(t, mode)
			if runtime.GOOS == "linux" {
				eventually(t, "server of the killed owner is gone", func() bool { return procStart(pid) == "" })
				if !isDir(dir) {
					t.Error("directory is gone: somebody reaped, so the kernel's part is not proved")
				}
			}
			must(t, reapIn(records))
			if isDir(dir) {
				t.Errorf("directory %s is still there after reaping", dir)
			}
		})
		t.Run(mode+" without death signal", func(t *testing.T) {
			t.Parallel()
			pid, dir, records := killedOwner(t, mode+"-orphan")
			if procStart(pid) == "" {
				t.Fatal("server died with its owner: no orphan to reap")
			}
			must(t, reapIn(records))
			eventually(t, "orphan is gone", func() bool { return procStart(pid) == "" })
			if isDir(dir) {
				t.Errorf("directory %s is still there after reaping", dir)
			}
		})
	}
}

// killedOwner runs the test binary as the owner of a server and kills it once the
// server answers. records is where the owner left its records.
func killedOwner(t *testing.T, mode string) (pid int, dir, records string) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	own := t.TempDir()
	cmd.Env = append(os.Environ(), helperEnv+"="+mode, "TMPDIR="+own)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	if _, err := fmt.Sscan(line, &pid, &dir); err != nil {
		t.Fatalf("read %q: %v", line, err)
	}
	if !strings.Contains(procCommand(pid), dir) {
		t.Fatalf("pid %d runs %q, want a server in %s", pid, procCommand(pid), dir)
	}
	must(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Fatal("owner ended in order, want it killed")
	}
	return pid, dir, filepath.Join(own, "runnel-testdb-records-"+strconv.Itoa(os.Getuid()))
}

// A record whose process id belongs to somebody else by now must not cost that
// process its life, nor a directory that is not one of ours.
func TestReaperSparesStrangers(t *testing.T) {
	t.Parallel()
	stranger := exec.CommandContext(t.Context(), "cat")
	in, err := stranger.StdinPipe()
	must(t, err)
	must(t, stranger.Start())
	keep := t.TempDir()
	rec, err := newRecord("/nowhere/data", []string{keep})
	must(t, err)
	rec.OwnerStart = "never"
	must(t, rec.setServer(stranger.Process.Pid))
	eventually(t, "record is gone", func() bool {
		must(t, reapOrphans())
		_, err := os.Stat(rec.path)
		return os.IsNotExist(err)
	})
	must(t, in.Close())
	if err := stranger.Wait(); err != nil {
		t.Errorf("stranger: %v, want it to end by itself", err)
	}
	if !isDir(keep) {
		t.Errorf("directory %s was removed", keep)
	}
}

func TestMissingProgramNamesRemedy(t *testing.T) {
	t.Setenv("RUNNEL_MARIADBD", "/nowhere/mariadbd")
	t.Setenv("RUNNEL_PG_BIN", "/nowhere")
	_, err := StartMariaDB(t.Context(), MariaDBOptions{})
	if !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "RUNNEL_MARIADBD") {
		t.Errorf("got %v, want ErrNotInstalled naming the variable", err)
	}
	if _, err := StartPostgres(t.Context(), PostgresOptions{}); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("got %v, want ErrNotInstalled", err)
	}
	_, err = findProgram("", []string{"no-such-program"}, nil, mariaDBRemedy)
	if !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "apt-get install -y mariadb-server") {
		t.Errorf("got %v, want ErrNotInstalled with the command", err)
	}
}

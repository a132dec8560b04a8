package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/internal/testdb"
)

// process is a `runnel server` that a test can kill.
type process struct {
	cmd     *exec.Cmd
	address string
}

var listening = regexp.MustCompile(`msg=listening address=http://(\S+)`)

// startServer starts this test program as the syncing process.
func startServer(t *testing.T, dataDir string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "server", "--data-dir", dataDir, "--listen", "127.0.0.1:0")
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd}
	lines := bufio.NewScanner(out)
	var log strings.Builder
	for lines.Scan() {
		fmt.Fprintln(&log, lines.Text())
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			p.address = m[1]
		}
		if strings.Contains(lines.Text(), "msg=ready") {
			drained := make(chan struct{})
			go func() {
				defer close(drained)
				for lines.Scan() { // so that the process never waits for its log to be read
				}
			}()
			t.Cleanup(func() { <-drained })
			return p
		}
	}
	t.Fatalf("the server ended at its start:\n%s", &log)
	return nil
}

// kill ends the process as a crash does.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err == nil {
		t.Error("a killed server ended without an error")
	}
}

// stop ends the process as an operator does.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("stop server: %v", err)
	}
}

// until runs a query at a server until it answers with want.
func until(t *testing.T, db *testdb.MariaDB, query, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		rows, err := db.Query(ctx, query)
		if got := fmt.Sprint(rows); got == want {
			return
		} else if ctx.Err() != nil {
			t.Fatalf("%s: got %s, %v, want %s", query, got, err, want)
		}
		<-tick.C
	}
}

const tourDefinitions = `kind: source
name: shop
type: mysql
address: %s
user: runnel
passwordFile: source.password
---
kind: target
name: lake
type: mysql
address: %s
user: runnel
passwordFile: target.password
---
kind: pipeline
name: shop
source: shop
target: lake
tables: {include: [shop.*], exclude: [shop.tmp_*]}
route: {schema: "{schema}_copy"}
`

// TestTour is the README's tour, with the accounts it tells to make.
func TestTour(t *testing.T) {
	ctx := t.Context()
	src := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	dst := testdb.MariaDBFor(t, testdb.MariaDBOptions{NoBinlog: true})
	for db, grants := range map[*testdb.MariaDB]string{
		src: "SELECT, REPLICATION SLAVE, BINLOG MONITOR", dst: "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP",
	} {
		if err := db.CreateUser(ctx, "runnel", "a-password", grants); err != nil {
			t.Fatal(err)
		}
	}
	sql := func(statements ...string) {
		t.Helper()
		if err := src.Exec(ctx, statements...); err != nil {
			t.Fatal(err)
		}
	}
	sql("CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY, note TEXT)", "INSERT INTO shop.orders VALUES (1,'a'),(2,'b')",
		"CREATE TABLE shop.tmp_x (id INT PRIMARY KEY)")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"d.yaml": fmt.Sprintf(tourDefinitions, src.Addr(), dst.Addr()), "source.password": "a-password\n", "target.password": "a-password",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := newCLI(t, nil)
	c.want(exitOK, []string{"ok    source", "no problem found"}, "check", "mysql://runnel@"+src.Addr()+"/", "--password-file", filepath.Join(dir, "source.password"))
	c.env["RUNNEL_PASSWORD"] = "a-password"
	c.want(exitOK, []string{"ok    target", "no problem found"}, "check", "mysql://runnel@"+dst.Addr()+"/", "--as", "target")
	c.want(exitOK, []string{"ok    pipeline shop", "1 tables of source shop match", "no problem found"}, "check", dir)

	dataDir := filepath.Join(t.TempDir(), "data")
	p := startServer(t, dataDir)
	c.env["RUNNEL_SERVER"] = p.address
	c.want(exitOK, []string{"3 of 3 to change", "servers and tables were checked by the process: no problem found"}, "apply", "-f", dir, "--dry-run")
	c.want(exitOK, []string{"3 of 3 changed"}, "apply", "-f", dir)
	c.want(exitOK, []string{"0 of 3 changed"}, "apply", "-f", dir)
	until(t, dst, "SELECT id, note FROM shop_copy.orders ORDER BY id", "[[1 a] [2 b]]")
	sql("CREATE TABLE shop.later (id INT PRIMARY KEY)", "INSERT INTO shop.later VALUES (7)", "DELETE FROM shop.orders WHERE id = 1")
	until(t, dst, "SELECT id FROM shop_copy.later", "[[7]]")
	until(t, dst, "SELECT id FROM shop_copy.orders", "[[2]]")

	c.want(exitOK, []string{"shop.orders  paused"}, "task", "pause", "shop.orders")
	sql("INSERT INTO shop.orders VALUES (3,'c')", "INSERT INTO shop.later VALUES (8)")
	until(t, dst, "SELECT id FROM shop_copy.later ORDER BY id", "[[7] [8]]")
	until(t, dst, "SELECT id FROM shop_copy.orders", "[[2]]") // paused, while its neighbour goes on
	c.want(exitFailed, []string{"data directory " + dataDir + ": another process uses it", "--data-dir"}, "server", "--data-dir", dataDir, "--listen", "127.0.0.1:0")
	p.kill(t)
	p = startServer(t, dataDir)
	c.env["RUNNEL_SERVER"] = p.address
	c.want(exitOK, []string{"paused by an operator"}, "task", "get", "shop.orders")
	c.want(exitOK, []string{"shop.orders  "}, "task", "resume", "shop.orders")
	until(t, dst, "SELECT id FROM shop_copy.orders ORDER BY id", "[[2] [3]]")
	c.want(exitOK, []string{"shop.orders  "}, "task", "resync", "shop.orders")
	sql("INSERT INTO shop.orders VALUES (4,'d')")
	until(t, dst, "SELECT id FROM shop_copy.orders ORDER BY id", "[[2] [3] [4]]")
	c.want(exitOK, []string{"shop.orders  removed"}, "task", "remove", "shop.orders")
	c.want(exitFailed, []string{"no task syncs table shop.orders"}, "task", "get", "shop.orders")
	p.stop(t)
}

func TestApplyRefusesByNameBeforeAnythingStarts(t *testing.T) {
	ctx := t.Context()
	src := testdb.MariaDBFor(t, testdb.MariaDBOptions{ExtraArgs: []string{"--binlog-format=STATEMENT"}})
	dst := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	for _, db := range []*testdb.MariaDB{src, dst} {
		if err := db.CreateUser(ctx, "runnel", "a-password", "ALL PRIVILEGES"); err != nil {
			t.Fatal(err)
		}
	}
	if err := src.Exec(ctx, "CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY)", "CREATE TABLE shop.b (id INT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "d.yaml")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"source.password", "target.password"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("a-password"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := fmt.Sprintf(tourDefinitions, src.Addr(), dst.Addr())
	c := newCLI(t, nil)
	p := startServer(t, t.TempDir())
	defer p.stop(t)
	c.env["RUNNEL_SERVER"] = p.address

	put(good)
	for _, args := range [][]string{{"check", dir}, {"apply", "-f", dir}} {
		c.want(exitFailed, []string{"binlog_format is STATEMENT", "SET GLOBAL binlog_format='ROW'"}, args...)
	}
	c.env["RUNNEL_PASSWORD"] = "a-password"
	c.want(exitFailed, []string{"FAIL  source", "binlog_format is STATEMENT", "SET GLOBAL binlog_format='ROW'"}, "check", "mysql://runnel@"+src.Addr()+"/")
	if err := src.Exec(ctx, "SET GLOBAL binlog_format='ROW'"); err != nil {
		t.Fatal(err)
	}
	for want, text := range map[string]string{
		"refuses user":           strings.Replace(good, "user: runnel", "user: nobody", 1),
		"does not answer":        strings.Replace(good, dst.Addr(), "127.0.0.1:1", 1),
		"cannot be read":         strings.Replace(good, "source.password", "no.password", 1),
		"it would be written by": good + "---\n{kind: pipeline, name: clash, source: shop, target: lake, tables: {include: [shop.a]}, route: {schema: shop_copy, table: b}}\n",
	} {
		put(text)
		c.want(exitFailed, []string{want}, "apply", "-f", dir)
	}
	c.want(exitOK, []string{"0 of 0 tasks"}, "task", "list")
	put(good)
	c.want(exitOK, []string{"3 of 3 changed"}, "apply", "-f", dir)
	if err := dst.Exec(ctx, "SET GLOBAL read_only = ON"); err != nil {
		t.Fatal(err)
	}
	put(strings.Replace(good, "name: lake", "name: lake2", 1) + "---\n{kind: pipeline, name: p2, source: shop, target: lake2, tables: {include: [shop.a]}, route: {schema: other}}\n")
	c.want(exitFailed, []string{"read_only is ON", "SET GLOBAL read_only=OFF"}, "apply", "-f", dir)
}

// TestTheTourKillsItsOwnServer: the command that the README gives for a crash
// finds the server that the README starts, and no other program.
func TestTheTourKillsItsOwnServer(t *testing.T) {
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^runnel server --data-dir \S+$`).FindString(string(b))
	kill := regexp.MustCompile(`(?m)^pkill -9 -f '([^']+)'`).FindStringSubmatch(string(b))
	if command == "" || kill == nil {
		t.Fatalf("got server %q and kill %q, want both in the tour", command, kill)
	}
	pattern, err := regexp.Compile(kill[1])
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]bool{
		command: true, "runnel demo --keep": false, "runnel server --data-dir /tmp/other --listen 127.0.0.1:1": false,
		"sh -c " + command: false, "vi README.md # " + command: false,
	} {
		if got := pattern.MatchString(line); got != want {
			t.Errorf("%q on %q: got %v, want %v", kill[1], line, got, want)
		}
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/tablesync"
)

func TestGoldenOutput(t *testing.T) {
	c := newCLI(t, newEngine())
	c.golden("source-list", "source", "list")
	c.golden("source-get", "source", "get", "shop")
	c.golden("source-list-json", "source", "list", "--output", "json")
	c.golden("target-list", "target", "list")
	c.golden("target-get", "targets", "get", "lake")
	c.golden("pipeline-list", "pipeline", "ls")
	c.golden("pipeline-get", "pipeline", "get", "all")
	c.golden("pipeline-get-json", "pipeline", "get", "all", "-o", "json")
	c.golden("task-list", "task", "list")
	c.golden("task-list-limit", "task", "list", "--limit", "1", "--state", "streaming")
	c.golden("task-list-json", "task", "list", "--table", "shop.u*", "-o", "json")
	c.golden("task-get", "task", "get", "shop.users")
	c.golden("task-get-json", "task", "get", "sync-task/shop:0/0002", "-o", "json")
}

func TestApply(t *testing.T) {
	e := newEngine()
	c := newCLI(t, e)
	dir := t.TempDir()
	file := filepath.Join(dir, "p.yaml")
	text := "kind: source\nname: shop\ntype: mysql\naddress: db1:3306\nuser: u\n---\nkind: pipeline\nname: p\nsource: shop\ntarget: lake\ntables: {include: [shop.*]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.golden("apply-dry-run", "apply", "-f", dir, "--dry-run")
	if len(e.applied) != 0 {
		t.Error("a dry run applied something")
	}
	if !strings.Contains(c.out.String(), "servers and tables were checked by the process: no problem found") {
		t.Errorf("the dry run does not say that it checked:\n%s", &c.out)
	}
	c.golden("apply", "apply", "-f", dir)
	c.golden("apply-json", "apply", "--file", file, "--output", "json")
	c.stdin = text
	c.want(exitOK, []string{"1 of 2 changed"}, "apply", "-f", "-")
	if len(e.applied) != 3 || e.applied[2].Pipelines[0].Tables.Include[0] != "shop.*" {
		t.Errorf("applied: got %+v", e.applied)
	}
	c.stdin = strings.ReplaceAll(text, "user: u", "usr: u\npassword: hunter2")
	c.want(exitFailed, []string{`standard input:5: unknown key "usr"; did you mean "user"?`, "standard input:6: password: a password may not stand here"}, "apply", "-f", "-")
	if strings.Contains(c.errOut.String(), "hunter2") {
		t.Error("the password is repeated")
	}
	c.stdin = "# nothing\n"
	c.want(exitFailed, []string{"there is no definition to read"}, "apply", "-f", "-")
	c.want(exitUsage, []string{"name a file or folder with -f"}, "apply")
	c.want(exitFailed, []string{"no such file"}, "apply", "-f", filepath.Join(dir, "none"))
	c.want(exitFailed, []string{`target "lake" does not exist`, "remedy: correct the definitions"}, "apply", "-f", dir, "--prune")
	e.unfit = []*change.Problem{{Code: "target-not-empty", Subject: "target table shop.a", Cause: "it holds rows", Remedy: "empty it"}}
	c.want(exitFailed, []string{"1 of 2 to change", "target table shop.a: it holds rows\n  remedy: empty it", "1 to mend"}, "apply", "-f", dir, "--dry-run")
	c.want(exitFailed, []string{"target table shop.a: it holds rows"}, "apply", "-f", dir, "--dry-run", "-o", "json")
	if out := strings.TrimSpace(c.out.String()); !strings.HasPrefix(out, "[") || !strings.HasSuffix(out, "]") {
		t.Errorf("got %s, want nothing but the differences", out)
	}
	c.want(exitOK, []string{"1 of 2 changed"}, "apply", "-f", dir)
	e.applyErr = fmt.Errorf("apply: %w", &change.Problem{Code: "binlog-format", Subject: "source shop", Cause: "binlog_format is STATEMENT", Remedy: "SET GLOBAL binlog_format = ROW"})
	c.want(exitFailed, []string{"source shop: binlog_format is STATEMENT\n  remedy: SET GLOBAL binlog_format = ROW"}, "apply", "-f", dir)
}

func TestTaskCommands(t *testing.T) {
	e := newEngine()
	c := newCLI(t, e)
	c.want(exitOK, []string{"shop.items  paused"}, "task", "pause", "shop.items")
	c.want(exitOK, []string{"shop.items  streaming"}, "task", "resume", "sync-task/shop:0/0000")
	// One that is refused does not keep the others from being done.
	c.want(exitFailed, []string{"shop.users  paused", "no task syncs table shop.none"}, "task", "pause", "shop.none", "shop.users")
	if e.tasks[2].State != tablesync.Paused {
		t.Errorf("shop.users: got %s, want paused", e.tasks[2].State)
	}
	c.want(exitFailed, []string{"it is streaming", "remedy: only a paused task can be resumed"}, "task", "resume", "shop.items")
	c.want(exitFailed, []string{"belongs to 2 tasks", "sync-task/shop:0/0001 (pipeline all)", "sync-task/shop:0/0003 (pipeline second)"}, "task", "pause", "shop.orders")
	c.want(exitFailed, []string{"no such task"}, "task", "pause", "sync-task/shop:0/none")
	c.want(exitFailed, []string{"is a pattern; name each table"}, "task", "pause", "shop.*")
	c.want(exitFailed, []string{"neither a task's id nor schema.table"}, "task", "pause", "orders")
	c.want(exitUsage, []string{"requires at least 1 arg"}, "task", "pause")
	if code := c.run("task", "pause", "shop.items", "-o", "json"); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	var done []struct{ ID, Verb, State string }
	if err := json.Unmarshal(c.out.Bytes(), &done); err != nil || len(done) != 1 || done[0].State != "paused" {
		t.Errorf("json: got %+v, %v", done, err)
	}
}

func TestTaskListReadsAllPages(t *testing.T) {
	e := newEngine()
	one := e.tasks[0]
	e.tasks = nil
	for i := range 2345 {
		one.ID = fmt.Sprintf("sync-task/shop:0/%05d", i)
		e.tasks = append(e.tasks, one)
	}
	c := newCLI(t, e)
	for limit, want := range map[string]string{"0": "2345 of 2345 tasks\n", "1500": "1500 of 2345 tasks; more with --limit 0\n", "1000": "1000 of 2345 tasks; more"} {
		c.want(exitOK, []string{want}, "task", "list", "--limit", limit)
	}
}

func TestExitCodesAndUsage(t *testing.T) {
	c := newCLI(t, newEngine())
	c.want(exitOK, []string{"Available Commands"})
	c.want(exitOK, []string{"Examples:"}, "task", "pause", "--help")
	c.want(exitOK, []string{"runnel ", "go1."}, "version")
	c.want(exitOK, []string{"# bash completion"}, "completion", "bash")
	c.want(exitUsage, []string{`unknown command "tsk" for "runnel"; did you mean task?`, "see: runnel --help"}, "tsk")
	c.want(exitUsage, []string{`unknown command "puase" for "runnel task"; did you mean pause?`}, "task", "puase", "x")
	c.want(exitUsage, []string{"unknown flag: --nope"}, "task", "list", "--nope")
	c.want(exitUsage, []string{"want table or json"}, "task", "list", "-o", "yaml")
	c.want(exitUsage, []string{"accepts 1 arg"}, "source", "get")
	c.want(exitUsage, []string{"want 0 or more"}, "task", "list", "--limit", "-1")
	c.want(exitUsage, []string{"want host:port"}, "task", "list", "--server", "ftp://x")
	c.want(exitUsage, []string{`--state "broken": want pending`}, "task", "list", "--state", "broken")
	c.want(exitFailed, []string{`there is no source "none"`, "remedy: list them with"}, "source", "get", "none")
	c.want(exitFailed, []string{"start it with: runnel server"}, "task", "list", "--server", "127.0.0.1:1")
}

func TestCompletion(t *testing.T) {
	c := newCLI(t, newEngine())
	c.want(exitOK, []string{"shop.items\tstreaming", "shop.users\tfailed"}, "__complete", "task", "pause", "sh")
	c.want(exitOK, []string{"needs-resync", "streaming"}, "__complete", "task", "list", "--state", "")
	c.want(exitOK, []string{"table\n", "json\n"}, "__complete", "source", "list", "--output", "")
	if c.run("__complete", "task", "get", "shop.u"); strings.Contains(c.out.String(), "items") || !strings.Contains(c.out.String(), "shop.users") {
		t.Errorf("got %q, want shop.users only", &c.out)
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	a := &app{getenv: func(string) string { return "" }}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() == "completion" || c.Name() == "help" {
			return
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.Example == "" && !c.HasSubCommands() {
			t.Errorf("%s has no example", c.CommandPath())
		}
	}
	walk(a.newRoot())
}

// TestCheckOfWhatSaysNothing: a file without definitions is as wrong for check as
// it is for apply, and an empty password file is no password.
func TestCheckOfWhatSaysNothing(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	c := newCLI(t, newEngine())
	for name, text := range map[string]string{"a.yaml": "", "b.yaml": "# nothing\n", "c.yaml": "---\n---\n"} {
		file := put(name, text)
		want := []string{file + ": there is no definition to read", "a document needs a kind"}
		c.want(exitFailed, want, "check", file)
		c.want(exitFailed, want, "apply", "-f", file)
	}
	c.want(exitFailed, []string{dir + ": there is no definition"}, "check", dir)
	empty := put("empty.password", "\n")
	c.want(exitFailed, []string{"read password: " + empty + " is empty"}, "check", "mysql://u@127.0.0.1:1/", "--password-file", empty)
	file := put("a.yaml", "{kind: source, name: shop, type: mysql, address: '127.0.0.1:1', user: u, passwordFile: empty.password}\n")
	c.want(exitFailed, []string{"password-file: source shop: the password file " + empty + " is empty"}, "check", file)
	conf := put("conf.yaml", "listen: 127.0.0.1:1\n")
	if c.want(exitOK, []string{`"problems": [],`}, "check", conf, "-o", "json"); strings.Contains(c.out.String(), "null") {
		t.Errorf("got null for a list:\n%s", &c.out)
	}
}

func TestTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	for text, want := range map[string]string{"# c\n\n  tok \nother": "tok", "": "", "sha256:00": ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readToken(file)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	if _, err := readToken(file + "x"); err == nil {
		t.Error("missing file: got no error")
	}
}

func TestServerConfiguration(t *testing.T) {
	t.Chdir(t.TempDir())
	c := newCLI(t, nil)
	c.want(exitOK, []string{"dataDir: /d\n", "listen: 127.0.0.1:7717\n"}, "server", "--print-config", "--data-dir", "/d")
	if err := os.WriteFile("runnel.yaml", []byte("listen: 127.0.0.1:1\nlog: {level: warn}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.want(exitOK, []string{"listen: 127.0.0.1:1\n", "level: debug\n"}, "server", "--print-config", "--log-level", "debug")
	if err := os.WriteFile("other.yaml", []byte("lisen: 127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.want(exitFailed, []string{`other.yaml:1: unknown key "lisen"; did you mean "listen"?`}, "server", "--config", "other.yaml")
	c.want(exitFailed, []string{"none.yaml"}, "server", "--config", "none.yaml")
	c.want(exitUsage, []string{"set tokenFile"}, "server", "--listen", "0.0.0.0:7717")
	c.want(exitOK, []string{"ok    configuration runnel.yaml", "it listens on 127.0.0.1:1", "no problem found"}, "check", "runnel.yaml")
	c.want(exitFailed, []string{`unknown key "lisen"`}, "check", "other.yaml")
}

// TestValuesThatAreWrongAreUsageErrors: 2, however the value is wrong and
// whatever else there is; no process needs to run to find it out.
func TestValuesThatAreWrongAreUsageErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCLI(t, nil)
	try := func() {
		t.Helper()
		for want, args := range map[string]string{
			`listen "foo": want host:port`:                      "server --listen foo",
			`listen "127.0.0.1:http": want host:port`:           "server --listen 127.0.0.1:http --token-file t",
			`log.level "x": want debug`:                         "server --log-level x",
			`log.format "xml": want text or json`:               "server --log-format xml",
			`dataDir file is a file`:                            "server --data-dir file",
			`--state "bogus": want pending`:                     "task list --state bogus",
			`--table "orders": want a schema.table`:             "task list --table orders",
			`--limit -1`:                                        "task list --limit -1",
			`server address`:                                    "task list --server ftp://x",
			`--as "both"`:                                       "check mysql://u@h/ --as both",
			`unknown command "foo" for "runnel completion"`:     "completion foo",
			`there is no help for "task foo"`:                   "help task foo",
			`tls is "maybe", want disabled, required or verify`: "check mysql://u@h/?tls=maybe",
		} {
			c.want(exitUsage, []string{want, "see: runnel"}, strings.Fields(args)...)
		}
	}
	try()
	if err := os.WriteFile("runnel.yaml", []byte("log: {level: warn}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	try()
	if err := os.WriteFile("runnel.yaml", []byte("log: {level: loud}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.want(exitFailed, []string{`runnel.yaml: log.level "loud"`}, "server", "--data-dir", "d")
	c.want(exitFailed, []string{`runnel.yaml: log.level "loud"`}, "server", "--listen", "0.0.0.0:1")
	c.want(exitOK, []string{"Stop tables until"}, "help", "task", "pause")
	c.want(exitOK, []string{"bash"}, "completion")
}

func TestPasswordsAreNeverPrinted(t *testing.T) {
	c := newCLI(t, nil)
	for _, args := range [][]string{
		{"check", "mysql://root:hunter2@127.0.0.1:1/"},
		{"check", "mysql://root:hunter2@127.0.0.1:1/", "-o", "json"},
		{"check", "mysql://root:hunter2@127.0.0.1:1/", "--as", "target"},
		{"check", "mysql://root:hunt/er2@127.0.0.1:1/"},
		{"check", "mysql://root:hunter2@127.0.0.1:notaport/"},
		{"check", "oracle://root:hunter2@127.0.0.1:1/"},
		{"check", "mysql://root:hunter2@127.0.0.1:1/?password=hunter2"},
		{"mysql://root:hunter2@127.0.0.1:1/"},
		{"task", "mysql://root:hunter2@127.0.0.1:1/"},
		{"task", "get", "mysql://root:hunter2@127.0.0.1:1/"},
		{"task", "list", "--server", "http://root:hunter2@127.0.0.1:1/"},
		{"check", "--mysql://root:hunter2@127.0.0.1:1/"},
	} {
		if code := c.run(args...); code == exitOK {
			t.Errorf("%q: exit code 0", args)
		}
		out := c.out.String() + c.errOut.String()
		if strings.Contains(out, "hunter2") || strings.Contains(out, "er2") {
			t.Errorf("%q: the password is printed:\n%s", args, out)
		}
	}
}

func TestCheckOfAddressesThatAreWrong(t *testing.T) {
	c := newCLI(t, nil)
	c.want(exitFailed, []string{"FAIL  target 127.0.0.1:1", "unreachable: ", "remedy: check that the server runs", "1 problem found"}, "check", "mysql://root@127.0.0.1:1/", "--as", "target")
	c.want(exitUsage, []string{"want mysql or mariadb"}, "check", "oracle://root@127.0.0.1:1/")
	c.want(exitUsage, []string{`--as "both"`}, "check", "mysql://root@127.0.0.1:1/", "--as", "both")
	c.want(exitUsage, []string{"neither an address such as mysql://user@host:3306/ nor a file or folder"}, "check", "nothing-here")
	c.want(exitUsage, []string{"requires at least 1 arg"}, "check")
	c.want(exitFailed, []string{"read password"}, "check", "mysql://root@127.0.0.1:1/", "--password-file", "/nonexistent")
}

package main

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// TestMain lets the demo start this test program as the syncing process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "server" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestDemoEndsWithoutDifferences(t *testing.T) {
	c := newCLI(t, nil)
	if code := c.run("demo", "--tables", "12", "--duration", "3s", "--json"); code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, &c.out, &c.errOut)
	}
	lines := strings.Split(strings.TrimSpace(c.out.String()), "\n")
	var got map[string]float64
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatalf("last line %q: %v", lines[len(lines)-1], err)
	}
	for _, key := range []string{"tables", "rows_copied", "changes_applied", "rows_per_second", "lag_p50_ms", "lag_p99_ms", "kills"} {
		if got[key] <= 0 {
			t.Errorf("%s: got %v, want more than 0", key, got[key])
		}
	}
	if d, ok := got["differences"]; !ok || d != 0 || len(got) != 8 {
		t.Errorf("got %v, want eight keys and differences 0", got)
	}
	if got["tables"] != 14 { // with the one that arrived and the probe
		t.Errorf("tables: got %v, want 14", got["tables"])
	}
	for _, want := range []string{"killed process", "pause demo_", "resume demo_", "created demo_", "comparing both servers"} {
		if !strings.Contains(c.errOut.String(), want) {
			t.Errorf("progress lacks %q:\n%s", want, &c.errOut)
		}
	}
}

// TestDemoOfFewTables runs demos in which the table that arrives changes which
// one comes second.
func TestDemoOfFewTables(t *testing.T) {
	for _, tables := range []string{"1", "2", "3"} {
		c := newCLI(t, nil)
		if code := c.run("demo", "--tables", tables, "--duration", "1s", "--rate", "500", "--json"); code != exitOK {
			t.Errorf("%s tables: exit code %d\n%s%s", tables, code, &c.out, &c.errOut)
			continue
		}
		paused := regexp.MustCompile(`pause (\S+)\n`).FindStringSubmatch(c.errOut.String())
		if paused == nil || !strings.Contains(c.errOut.String(), "resume "+paused[1]+"\n") {
			t.Errorf("%s tables: the table that was paused (%v) is not the one that was resumed:\n%s", tables, paused, &c.errOut)
		}
	}
}

// everything is standard output and standard error as a terminal or 2>&1 shows
// them. It calls seen when a text that matches until comes.
type everything struct {
	mu    sync.Mutex
	text  strings.Builder
	until *regexp.Regexp
	seen  func()
}

func (e *everything) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.until.Match(p) {
		e.seen()
	}
	return e.text.Write(p)
}

func TestKeptDemoEndsWithTheSummary(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	all := &everything{until: regexp.MustCompile(`^\{`), seen: interrupt}
	a := &app{in: strings.NewReader(""), out: all, err: all, getenv: func(string) string { return "" }}
	if code := a.run(ctx, []string{"demo", "--tables", "2", "--duration", "1s", "--json", "--keep"}); code != exitOK {
		t.Errorf("got exit code %d, want 0", code)
	}
	lines := strings.Split(strings.TrimSpace(all.text.String()), "\n")
	var got map[string]float64
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil || got["tables"] != 4 {
		t.Errorf("last line: got %v (%v), want the summary of 4 tables:\n%s", got, err, &all.text)
	}
	if !strings.Contains(all.text.String(), "Everything is still running") {
		t.Errorf("nobody is told where to look:\n%s", &all.text)
	}
}

// TestInterruptedDemoLeavesNothing: neither a log nor an error that looks like a
// fault, wherever it is interrupted.
func TestInterruptedDemoLeavesNothing(t *testing.T) {
	for _, at := range []string{"tables with .* rows made", "writing for", "comparing both servers"} {
		ctx, interrupt := context.WithCancel(t.Context())
		all := &everything{until: regexp.MustCompile(at), seen: interrupt}
		a := &app{in: strings.NewReader(""), out: all, err: all, getenv: func(string) string { return "" }}
		code := a.run(ctx, []string{"demo", "--tables", "2", "--duration", "1s"})
		interrupt()
		got := all.text.String()
		if code != exitFailed || !strings.HasSuffix(got, "runnel: interrupted\n") || strings.Contains(got, "the log of the syncing process is kept") {
			t.Errorf("interrupted at %q: got exit code %d, want 1, interrupted and no log:\n%s", at, code, got)
		}
	}
}

func TestDemoUsage(t *testing.T) {
	c := newCLI(t, nil)
	for want, args := range map[string][]string{
		"tables 0: want 1 to 100000":      {"--tables", "0"},
		"tables -1: want 1 to 100000":     {"--tables", "-1"},
		"tables 200000: want 1 to 100000": {"--tables", "200000"},
		"duration 10ms: want 1s to 24h":   {"--duration", "10ms"},
		"rate 0: want 1 to 1000000":       {"--rate", "0"},
		`invalid argument "long"`:         {"--duration", "long"},
	} {
		c.want(exitUsage, []string{want, "see: runnel demo --help"}, append([]string{"demo"}, args...)...)
	}
}

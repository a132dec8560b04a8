package main

import (
	"encoding/json"
	"os"
	"strings"
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

func TestDemoUsage(t *testing.T) {
	c := newCLI(t, nil)
	c.want(exitUsage, []string{"want at least 1 table"}, "demo", "--tables", "0")
	c.want(exitUsage, []string{"invalid argument"}, "demo", "--duration", "long")
}

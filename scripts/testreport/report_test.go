package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// module is a module whose packages end in every way a package can.
var module = map[string]string{
	"go.mod": "module example.com/m\n\ngo 1.24\n",
	"good/a_test.go": `package good
import ("fmt"; "testing")
func TestPass(t *testing.T) { fmt.Println("not to be seen") }
func TestTree(t *testing.T) {
	t.Run("a/b", func(t *testing.T) {})
	t.Run("c", func(t *testing.T) { t.Run("d", func(t *testing.T) {}) })
}
func TestSkip(t *testing.T) { t.Skip("no moon") }
`,
	"bad/a_test.go": `package bad
import "testing"
func TestFail(t *testing.T) { t.Error("words of TestFail") }
func TestTree(t *testing.T) {
	t.Run("x/y", func(t *testing.T) { t.Error("words of x/y") })
	t.Run("z", func(t *testing.T) {})
}
func TestParent(t *testing.T) { t.Run("fine", func(t *testing.T) {}); t.Error("words of the parent") }
`,
	"crash/a_test.go": `package crash
import ("os"; "testing")
func TestPass(t *testing.T) {}
func TestExit(t *testing.T) { os.Exit(3) }
`,
	"panics/a_test.go": `package panics
import "testing"
func TestPanic(t *testing.T) { var m map[int]int; m[1] = 1 }
`,
	"broken/a_test.go": `package broken
import "testing"
func TestX(t *testing.T) { undefined_word() }
`,
	"main/a_test.go": `package main
import ("os"; "testing")
func TestMain(m *testing.M) { m.Run(); os.Exit(4) }
func TestPass(t *testing.T) {}
`,
	"none/a.go": "package none\n",
}

func goTest(t *testing.T, args ...string) (got *report, text string, ok bool) {
	t.Helper()
	dir := t.TempDir()
	for name, body := range module {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-json", "-vet=off"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	var w bytes.Buffer
	r := newReport(&w)
	if rerr := r.read(bytes.NewReader(out)); rerr != nil {
		t.Fatal(rerr)
	}
	r.finish(err == nil)
	return r, w.String(), err == nil
}

func TestCounts(t *testing.T) {
	tests := []struct {
		name, pkg string
		want      string
		shows     []string
		hides     []string
	}{
		{"good", "./good", "3 passed, 0 failed, 1 skipped", []string{"ok  \texample.com/m/good", "no moon"}, []string{"not to be seen"}},
		{"failures", "./bad", "2 passed, 3 failed, 0 skipped", []string{"words of TestFail", "words of x/y", "words of the parent"}, nil},
		{"early exit", "./crash", "1 passed, 1 failed, 0 skipped", []string{"TestExit"}, nil},
		{"panic", "./panics", "0 passed, 1 failed, 0 skipped", []string{"assignment to entry in nil map"}, nil},
		{"does not build", "./broken", "0 passed, 1 failed, 0 skipped", []string{"undefined_word"}, nil},
		{"process fails after its tests", "./main", "1 passed, 1 failed, 0 skipped", []string{"FAIL\texample.com/m/main"}, nil},
		{"no tests", "./none", "0 passed, 0 failed, 0 skipped", nil, nil},
		{"no such package", "./absent", "0 passed, 1 failed, 0 skipped", nil, nil},
		{"twice", "./good -count=2", "6 passed, 0 failed, 2 skipped", nil, nil},
		{"all", "./...", "7 passed, 7 failed, 1 skipped", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, text, ok := goTest(t, strings.Fields(tt.pkg)...)
			if got := r.counts(); got != tt.want {
				t.Errorf("got %q, want %q; output:\n%s", got, tt.want, text)
			}
			if ok != (r.failed == 0) {
				t.Errorf("go test says ok=%v with %d failures counted", ok, r.failed)
			}
			for _, s := range tt.shows {
				if !strings.Contains(text, s) {
					t.Errorf("output lacks %q:\n%s", s, text)
				}
			}
			for _, s := range tt.hides {
				if strings.Contains(text, s) {
					t.Errorf("output has %q:\n%s", s, text)
				}
			}
		})
	}
}

// Events that stop in the middle, as when the run is killed, are failures.
func TestEventsThatStop(t *testing.T) {
	const events = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"last words\n"}
no event at all
`
	var w bytes.Buffer
	r := newReport(&w)
	if err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	r.finish(false)
	if got, want := r.counts(), "1 passed, 1 failed, 0 skipped"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, s := range []string{"last words", "no event at all", "did not finish: TestB"} {
		if !strings.Contains(w.String(), s) {
			t.Errorf("output lacks %q:\n%s", s, w.String())
		}
	}
}

func TestOutputIsBounded(t *testing.T) {
	var o output
	line := strings.Repeat("x", 1023) + "\n"
	o.add("first\n")
	for range 4 * keepBytes / len(line) {
		o.add(line)
	}
	o.add("last\n")
	var w bytes.Buffer
	o.writeTo(&w)
	if got, limit := w.Len(), keepBytes+2*len(line)+100; got > limit {
		t.Errorf("kept %d bytes, want at most %d", got, limit)
	}
	for _, s := range []string{"first\n", "last\n", "lines left out"} {
		if !strings.Contains(w.String(), s) {
			t.Errorf("output lacks %q", s)
		}
	}
}

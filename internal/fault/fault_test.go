package fault

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var (
	testFirst  = Register("test.first")
	testSecond = Register("test.second")
)

// TestMain doubles as the child that passes points until it dies.
func TestMain(m *testing.M) {
	if os.Getenv("FAULT_CHILD") == "" {
		os.Exit(m.Run())
	}
	for range 3 {
		for _, p := range []string{testFirst, testSecond} {
			if err := Point(p); err != nil {
				print(err.Error())
				os.Exit(3)
			}
			print(p, " ")
		}
	}
	os.Exit(0)
}

func child(t *testing.T, env string) (output string, killed bool, code int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FAULT_CHILD=1", Env+"="+env)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		killed = status.Signaled() && status.Signal() == syscall.SIGKILL
	}
	return string(out), killed, cmd.ProcessState.ExitCode()
}

func TestChildDiesOnTheNthPass(t *testing.T) {
	out, killed, _ := child(t, "test.second:2")
	if want := "test.first test.second test.first "; !killed || out != want {
		t.Errorf("got killed=%v output %q, want killed and %q", killed, out, want)
	}
	out, killed, _ = child(t, "test.first")
	if !killed || out != "" {
		t.Errorf("got killed=%v output %q, want killed before any output", killed, out)
	}
}

func TestMistypedEnvironmentFails(t *testing.T) {
	for _, env := range []string{"test.third", "test.first:0", "test.first:x", ":1"} {
		out, killed, code := child(t, env)
		if killed || code != 3 || !strings.Contains(out, Env) {
			t.Errorf("%q: got killed=%v code=%d output %q, want code 3 that names %s", env, killed, code, out, Env)
		}
	}
}

func TestSetAndRestore(t *testing.T) {
	want := errors.New("wanted")
	if err := Point(testFirst); err != nil {
		t.Fatalf("got %v before anything is armed, want nil", err)
	}
	outer := Set(testFirst, func() error { return want })
	inner := Set(testFirst, func() error { return nil })
	if err := Point(testFirst); err != nil {
		t.Errorf("got %v with the inner function, want nil", err)
	}
	inner()
	if err := Point(testFirst); !errors.Is(err, want) {
		t.Errorf("got %v after restoring the outer function, want %v", err, want)
	}
	if err := Point(testSecond); err != nil {
		t.Errorf("got %v at another point, want nil", err)
	}
	outer()
	if err := Point(testFirst); err != nil || armed.Load() {
		t.Errorf("got %v, armed=%v after restoring all, want nil and false", err, armed.Load())
	}
}

func TestNames(t *testing.T) {
	got := Names()
	if !slices.Contains(got, testFirst) || !slices.IsSorted(got) {
		t.Errorf("got %q, want a sorted list with %q", got, testFirst)
	}
}

func BenchmarkPointInactive(b *testing.B) {
	for b.Loop() {
		if err := Point(testFirst); err != nil {
			b.Fatal(err)
		}
	}
}

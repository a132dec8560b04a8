package demo

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// holdVariable makes this test program a demo that holds a folder until it is
// killed.
const holdVariable = "RUNNEL_TEST_HOLD_FOLDER"

func TestMain(m *testing.M) {
	if os.Getenv(holdVariable) == "" {
		os.Exit(m.Run())
	}
	f, err := newFolder()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(f.path)
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil { // the killer never writes
		os.Exit(1)
	}
}

// startHolder starts a process with a folder.
func startHolder(t *testing.T) (cmd *exec.Cmd, path string) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holdVariable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, strings.TrimSpace(line)
}

func TestFoldersOfKilledDemosGo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	killed, dead := startHolder(t)
	if err := os.WriteFile(filepath.Join(dead, "runnel.log"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	living, alive := startHolder(t)
	ours, err := newFolder()
	if err != nil {
		t.Fatal(err)
	}
	kept, err := newFolder()
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.release(); err != nil {
		t.Fatal(err)
	}
	if got, err := removeDead(); len(got) > 0 || err != nil {
		t.Errorf("while all live: got %v, %v, want nothing removed", got, err)
	}
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := killed.Wait(); err == nil {
		t.Error("the killed process ended well")
	}
	got, err := removeDead()
	want := []string{fmt.Sprintf("%s of process %d", dead, killed.Process.Pid)}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for path, want := range map[string]bool{dead: false, alive: true, ours.path: true, kept.path: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: got %v, want it there %v", path, err, want)
		}
	}
	if err := ours.remove(); err != nil {
		t.Error(err)
	}
	if err := living.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := living.Wait(); err == nil {
		t.Error("the killed process ended well")
	}
}

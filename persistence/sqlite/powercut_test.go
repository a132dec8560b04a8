//go:build powercut && linux

package sqlite

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// The ioctl that stops a file system at once; noLogFlush loses what its journal
// has not written.
const (
	ioctlShutdown = 0x8004587d
	noLogFlush    = 2
)

// A file system under load is cut off as by a power failure, five times; what was
// acknowledged is there. SIGKILL cannot show this: the kernel keeps the pages.
//
// Needs root, mkfs.ext4 and loop devices:
//
//	go test -tags powercut -run PowerCut -v ./persistence/sqlite
func TestPowerCut(t *testing.T) {
	tmp := t.TempDir()
	image, mount := filepath.Join(tmp, "disk"), filepath.Join(tmp, "mount")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
	}
	if err := os.Mkdir(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	run("truncate", "-s", "512M", image)
	run("mkfs.ext4", "-q", "-F", image)
	run("mount", "-o", "loop", image, mount)
	defer func() { run("umount", mount) }()
	total := acked{}
	for round := range 5 {
		acks := cutUnderLoad(t, mount, total, 1500+round*700)
		run("umount", mount)
		run("mount", "-o", "loop", image, mount)
		events := checkStore(t, filepath.Join(mount, "data"), total)
		t.Logf("round %d: cut off after %d acknowledgements; %d events", round, acks, events)
	}
}

// cutUnderLoad runs a child on the file system and cuts it off after some
// acknowledgements. Those that the child got after the cut began do not count: a
// dead machine gives none, and a sync that the cut overtakes may report success.
func cutUnderLoad(t *testing.T, mount string, total acked, cutAfter int) (acks int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+filepath.Join(mount, "data"))
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cut := int64(math.MaxInt64)
	for in := bufio.NewScanner(stdout); in.Scan(); {
		var pid, entity int
		var seq uint64
		var at int64
		if _, err := fmt.Sscanf(in.Text(), "ack %d %d %d %d", &pid, &entity, &seq, &at); err != nil || at >= cut {
			continue
		}
		total[entity] = max(total[entity], seq)
		if acks++; acks == cutAfter {
			cut = time.Now().UnixNano()
			shutDown(t, mount)
		}
	}
	if err := cmd.Wait(); err == nil || acks < cutAfter {
		t.Fatalf("got a child that ended with %v after %d acknowledgements, want one that the cut ended after %d", err, acks, cutAfter)
	}
	return acks
}

func shutDown(t *testing.T, mount string) {
	t.Helper()
	f, err := os.Open(mount)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flags := uint32(noLogFlush)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), ioctlShutdown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		t.Fatalf("shut down the file system on %s: %v", mount, errno)
	}
}

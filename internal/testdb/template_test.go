package testdb

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// Many builders at once make one template; all of them get it complete, and what
// a killed builder left goes away.
func TestTemplateIsBuiltOnce(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	stale := filepath.Join(cache, "runnel-testdb-x-f1.new-1")
	must(t, os.MkdirAll(filepath.Join(stale, "data"), 0o755))
	zeros := make([]byte, 300<<10)
	var builds atomic.Int32
	build := func(_ context.Context, dir string) error {
		builds.Add(1)
		if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o700); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "sub", "f"), append(zeros, "end"...), 0o640)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			path, err := template(t.Context(), "x", ownAccount(), build)
			if err != nil {
				t.Error(err)
				return
			}
			if size := fileSize(filepath.Join(path, "data", "sub", "f")); size != int64(len(zeros)+3) {
				t.Errorf("size of file in template: got %d, want %d", size, len(zeros)+3)
			}
		})
	}
	all.Wait()
	mustEqual(t, "builds", builds.Load(), int32(1))
	if isDir(stale) {
		t.Error("directory of a killed builder is still there")
	}
}

func TestTemplateThatFailsLeavesNothing(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	cause := errors.New("no room")
	_, err := template(t.Context(), "x", ownAccount(), func(_ context.Context, dir string) error {
		return errors.Join(os.MkdirAll(dir, 0o755), cause)
	})
	if !errors.Is(err, cause) {
		t.Fatalf("got %v, want %v", err, cause)
	}
	left, err := filepath.Glob(filepath.Join(cache, "runnel-testdb-x-f1*"))
	must(t, err)
	mustEqual(t, "left in the cache", left, []string{filepath.Join(cache, "runnel-testdb-x-f1.lock")})
}

func TestCopyTree(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	want := map[string]string{"empty": "", "a/short": "x", "a/holes": string(make([]byte, 200<<10)) + "y" + string(make([]byte, 100<<10))}
	for name, body := range want {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(from, name), []byte(body), 0o600))
	}
	must(t, copyTree(from, to, ownAccount()))
	for name, body := range want {
		got, err := os.ReadFile(filepath.Join(to, name))
		must(t, err)
		if string(got) != body {
			t.Errorf("%s: got %d bytes that differ, want %d", name, len(got), len(body))
		}
		fi, err := os.Stat(filepath.Join(to, name))
		must(t, err)
		mustEqual(t, "permissions of "+name, fi.Mode().Perm(), os.FileMode(0o600))
	}
}

// The lock waits for its owner, and no longer than the context.
func TestLockFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lockFile(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("lock that is held: got %v, want %v", err, context.Canceled)
	}
	must(t, unlock())
	unlock, err = lockFile(t.Context(), path)
	must(t, err)
	must(t, unlock())
}

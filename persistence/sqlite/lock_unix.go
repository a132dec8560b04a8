//go:build unix

package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/runnel-dev/runnel/persistence"
)

// lockDir takes the exclusive lock of the data directory, which ends when the
// file is closed or the process dies. The file holds the owner's pid for others
// to read; only the lock itself decides.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of data directory %s: %w", dir, err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = lockedError(dir, f)
		return nil, errors.Join(err, f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock data directory %s: %w", dir, err), f.Close())
	}
	if err := writePID(f); err != nil {
		return nil, errors.Join(fmt.Errorf("write the lock of data directory %s: %w", dir, err), f.Close())
	}
	return f, nil
}

func lockedError(dir string, f *os.File) error {
	holder := "another process"
	if b, err := io.ReadAll(io.LimitReader(f, 32)); err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			holder = fmt.Sprintf("process %d", pid)
		}
	}
	return fmt.Errorf("lock data directory %s: %w by %s; stop that process or use another directory", dir, persistence.ErrLocked, holder)
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// syncDir makes the names in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

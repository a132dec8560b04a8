//go:build unix

package demo

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// tryLock takes the lock of a file until it is closed; false when another has it.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return true, nil
}

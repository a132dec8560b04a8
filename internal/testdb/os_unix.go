//go:build unix

package testdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockFile takes the exclusive lock of a file that it creates when needed, and
// waits for it until ctx is done. The lock ends with the returned function or
// with the process. The file stays: removing it would let two owners in.
func lockFile(ctx context.Context, path string) (unlock func() error, err error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		unlock, ok, err := tryLockFile(path)
		if ok || err != nil {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for lock %s: %w", path, ctx.Err())
		case <-tick.C:
		}
	}
}

// tryLockFile is lockFile without the wait; ok is false when another has it.
func tryLockFile(path string) (unlock func() error, ok bool, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("open lock: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f.Close, true, nil
	}
	cerr := f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return nil, false, cerr
	}
	return nil, false, errors.Join(fmt.Errorf("lock %s: %w", path, err), cerr)
}

// ownerOf returns the ids of the user and group a file belongs to.
func ownerOf(fi os.FileInfo) (uid, gid int) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, -1
	}
	return int(st.Uid), int(st.Gid)
}

// freeze stops a process where it is, until SIGCONT or SIGKILL.
func (p *process) freeze() error { return p.signal(syscall.SIGSTOP) }

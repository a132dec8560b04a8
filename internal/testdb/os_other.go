//go:build !unix

package testdb

import (
	"context"
	"os"
	"syscall"
)

func serverAttr(account, syscall.Signal) *syscall.SysProcAttr { return nil }

func procStart(int) string               { return "" }
func procCommand(int) string             { return "" }
func procChildren(int) []int             { return nil }
func procSpace() string                  { return "host" }
func ownerOf(os.FileInfo) (uid, gid int) { return -1, -1 }

// Without file locks two builders may both build the cached directory; the one
// that renames second throws its own away.
func lockFile(context.Context, string) (func() error, error) {
	return func() error { return nil }, nil
}

func tryLockFile(string) (func() error, bool, error) {
	return func() error { return nil }, true, nil
}

func (p *process) freeze() error { return nil }

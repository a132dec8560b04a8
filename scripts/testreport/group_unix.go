//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// endGroup makes the end of the command's context end its whole process group
// with SIGQUIT, at which a Go test prints its goroutines.
func endGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGQUIT) }
}

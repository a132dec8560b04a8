package demo

import "syscall"

// dieWithParent lets the kernel kill the child when this process dies. A group of
// its own keeps a Ctrl-C in the terminal from reaching the child before us.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

//go:build !linux

package demo

import "syscall"

// dieWithParent needs a kernel that tells children of their parent's death; here
// it changes nothing.
func dieWithParent() *syscall.SysProcAttr { return nil }

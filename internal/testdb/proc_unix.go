//go:build unix && !linux

package testdb

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

func serverAttr(acct account, _ syscall.Signal) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if acct.switched {
		attr.Credential = &syscall.Credential{Uid: uint32(acct.uid), Gid: uint32(acct.gid), Groups: acct.groups}
	}
	return attr
}

func ps(pid int, column string) string {
	out, err := exec.Command("ps", "-o", column+"=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func procStart(pid int) string   { return ps(pid, "lstart") }
func procCommand(pid int) string { return ps(pid, "command") }

func procChildren(pid int) []int {
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
	if err != nil {
		return nil
	}
	var kids []int
	for _, f := range strings.Fields(string(out)) {
		if kid, err := strconv.Atoi(f); err == nil {
			kids = append(kids, kid)
		}
	}
	return kids
}

func procSpace() string { return "host" }

package testdb

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// serverAttr runs a child under acct, in a process group of its own so that a
// Ctrl-C at our terminal does not reach it, and killed with us. The credential is
// set here rather than by the server itself because a change of user clears the
// death signal.
func serverAttr(acct account, died syscall.Signal) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if deathSignal {
		attr.Pdeathsig = died
	}
	if acct.switched {
		attr.Credential = &syscall.Credential{Uid: uint32(acct.uid), Gid: uint32(acct.gid), Groups: acct.groups}
	}
	return attr
}

// procStart is when a process started, in kernel ticks, as text: with the pid it
// identifies one process for the uptime of the machine. "" when there is none, or
// when it is a zombie.
func procStart(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name in parentheses may hold blanks; fields count from behind it.
	i := bytes.LastIndexByte(b, ')')
	fields := strings.Fields(string(b[i+1:]))
	const state, startTime = 0, 19
	if len(fields) <= startTime || fields[state] == "Z" || fields[state] == "X" {
		return ""
	}
	return fields[startTime]
}

// procCommand is a process's command line, "" when there is none.
func procCommand(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(string(b), "\x00", " ")
}

// procChildren lists the direct children of a process.
func procChildren(pid int) []int {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil // the pattern is constant, so this does not happen
	}
	var kids []int
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // ended meanwhile
		}
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			if kid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
				kids = append(kids, kid)
			}
		}
	}
	return kids
}

// procSpace names the space in which process ids mean something here.
func procSpace() string {
	link, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "unknown"
	}
	return link
}

package testdb

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// deathSignal is off only in the test of the reaper, which needs an orphan. Where
// the kernel knows no death signal it changes nothing.
var deathSignal = true

// process is one running child. The goroutine that started it keeps its OS
// thread until the child has ended: the kernel's death signal is tied to the
// thread, not to the process.
type process struct {
	pid  int
	os   *os.Process
	done chan struct{} // closed when the child has been waited for
	err  error         // how it ended; read only after done
}

type processSpec struct {
	program string
	args    []string
	dir     string // working directory
	log     string // standard output and error are appended here
	acct    account
	diedSig syscall.Signal
}

// startProcess starts a child. The child is waited for by a goroutine that ends
// with it.
func startProcess(spec processSpec) (*process, error) {
	log, err := os.OpenFile(spec.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open server log: %w", err)
	}
	cmd := exec.Command(spec.program, spec.args...)
	cmd.Dir = spec.dir
	cmd.Env = serverEnv()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = serverAttr(spec.acct, spec.diedSig)
	p := &process{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		err = errors.Join(err, log.Close())
		if cmd.Process != nil {
			p.os, p.pid = cmd.Process, cmd.Process.Pid
		}
		started <- err
		if cmd.Process != nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		if p.os != nil {
			err = errors.Join(err, p.os.Kill())
		}
		return nil, fmt.Errorf("start %s: %w", spec.program, err)
	}
	return p, nil
}

// signal sends sig; a child that has already ended is no error.
func (p *process) signal(sig syscall.Signal) error {
	if err := p.os.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", p.pid, err)
	}
	return nil
}

// serverEnv is our environment with what would make a server's answers depend
// on the machine pinned.
func serverEnv() []string {
	env := make([]string, 0, len(os.Environ())+3)
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if name == "TZ" || strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "MYSQL") {
			continue
		}
		env = append(env, kv)
	}
	return append(env, "TZ=UTC", "LC_ALL=C", "LANG=C")
}

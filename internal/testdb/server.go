package testdb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrNotInstalled says that a server program is not on this machine. The error
// that wraps it names the program and the command that installs it.
var ErrNotInstalled = errors.New("server program is not installed")

// errStopped answers Restart after Stop has given the directory away.
var errStopped = errors.New("server was stopped and its directory released")

const (
	startTries   = 5                     // ports tried when the caller left the choice to us
	startLimit   = 90 * time.Second      // longest wait for a server to answer, unless ctx is shorter
	stopLimit    = 60 * time.Second      // longest orderly stop before the process is killed
	probeEvery   = 15 * time.Millisecond // how often a starting server is asked
	probeLimit   = 5 * time.Second       // longest single question
	logTailBytes = 4096                  // how much of a log an error quotes
)

// server is what MariaDB and Postgres have in common: one directory, one port,
// and at most one process at a time.
type server struct {
	program  string                          // path of the server program
	dir      string                          // owns everything the server writes
	temp     bool                            // dir is ours to remove
	extraDir string                          // short directory for the socket, "" when dir is short enough
	acct     account                         // who runs the process
	stopSig  syscall.Signal                  // asks for an orderly stop
	diedSig  syscall.Signal                  // what the kernel sends when our process dies
	args     func(port int) []string         // command line for a port
	probe    func(ctx context.Context) error // nil once the server answers as ours
	fixed    bool                            // the caller chose the port
	children func(pid int) []int             // processes to kill with the server, nil for none

	port atomic.Int32            // set by start, constant after it
	proc atomic.Pointer[process] // nil while none runs; changed under mu, read by anyone

	// mu makes start, Stop, Kill and Restart one after another. It is held while
	// they wait, so what others may ask in the meantime stands outside.
	mu struct {
		sync.Mutex
		hold     *portHold
		rec      *record
		released bool // Stop has run: the directory is no longer ours
	}
}

// Addr is the server's TCP address, "127.0.0.1:port".
func (s *server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port())) }

// Port is the server's TCP port; it stays the same over Restart.
func (s *server) Port() int { return int(s.port.Load()) }

// Dir is the directory that holds the server's data, log and socket.
func (s *server) Dir() string { return s.dir }

// DataDir is the server's own data directory, inside Dir.
func (s *server) DataDir() string { return filepath.Join(s.dir, "data") }

// LogFile is the file the server's log goes to.
func (s *server) LogFile() string { return filepath.Join(s.dir, "server.log") }

// PID is the process id of the running server, 0 when it does not run.
func (s *server) PID() int {
	if proc := s.proc.Load(); proc != nil {
		return proc.pid
	}
	return 0
}

// Done is closed when the process that runs now has ended for any reason. Nil,
// which blocks for ever, when none runs.
func (s *server) Done() <-chan struct{} {
	if proc := s.proc.Load(); proc != nil {
		return proc.done
	}
	return nil
}

// Stop ends the server and releases what it holds; a temporary directory is
// removed. A server in a directory of the caller's is stopped in order, so the
// directory can be started again; one whose directory goes away is killed.
// Stop after Stop does nothing.
func (s *server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.released {
		return nil
	}
	s.mu.released = true
	var errs []error
	if s.temp {
		errs = append(errs, s.killLocked())
	} else {
		errs = append(errs, s.endLocked())
	}
	if s.mu.hold != nil {
		errs = append(errs, s.mu.hold.Close())
	}
	if s.extraDir != "" {
		errs = append(errs, os.RemoveAll(s.extraDir))
	}
	if s.temp {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// Kill ends the server the way a crash does, with SIGKILL, and returns when the
// process is gone. The directory and the port stay reserved for Restart.
func (s *server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killLocked()
}

// Restart stops the server in order, if it runs, and starts it again with the
// same directory and port. It returns when the server answers.
func (s *server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.released {
		return fmt.Errorf("restart server in %s: %w", s.dir, errStopped)
	}
	if err := s.endLocked(); err != nil {
		return err
	}
	return s.launchLocked(ctx)
}

// start picks a port and launches the server, trying other ports when one turns
// out to be taken by a stranger.
func (s *server) start(ctx context.Context, port int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fixed = port != 0
	s.port.Store(int32(port))
	for try := 1; ; try++ {
		if !s.fixed {
			hold, err := reservePort()
			if err != nil {
				return err
			}
			s.mu.hold = hold
			s.port.Store(int32(hold.port))
		}
		err := s.launchLocked(ctx)
		if err == nil {
			return nil
		}
		if s.fixed || try == startTries || ctx.Err() != nil || !errors.Is(err, errPortTaken) {
			return err
		}
		if cerr := s.mu.hold.Close(); cerr != nil {
			return errors.Join(err, cerr)
		}
		s.mu.hold = nil
	}
}

// launchLocked starts the process on the current port and waits for it to answer.
func (s *server) launchLocked(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	logAt := fileSize(s.LogFile())
	rec, err := newRecord(s.DataDir(), s.ownedDirs())
	if err != nil {
		return err
	}
	proc, err := startProcess(processSpec{
		program: s.program, args: s.args(s.Port()), dir: s.dir, log: s.LogFile(),
		acct: s.acct, diedSig: s.diedSig,
	})
	if err != nil {
		return errors.Join(err, rec.remove())
	}
	s.proc.Store(proc)
	s.mu.rec = rec
	err = rec.setServer(proc.pid)
	if err == nil {
		err = s.awaitLocked(ctx, proc, logAt)
	}
	if err != nil {
		return errors.Join(err, s.killLocked())
	}
	return nil
}

// awaitLocked asks the server until it answers, its process ends or ctx is done.
func (s *server) awaitLocked(ctx context.Context, proc *process, logAt int64) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	var last error
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s in %s to answer: %w (last answer: %v)%s",
				filepath.Base(s.program), s.dir, ctx.Err(), last, s.quoteLog(logAt))
		case <-proc.done:
			tail := s.quoteLog(logAt)
			err := fmt.Errorf("start %s in %s: process ended: %v%s", filepath.Base(s.program), s.dir, proc.err, tail)
			if portTaken(tail) {
				err = errors.Join(err, errPortTaken)
			}
			return err
		case <-tick.C:
		}
		pctx, cancel := context.WithTimeout(ctx, probeLimit)
		last = s.probe(pctx)
		cancel()
		if last == nil {
			return nil
		}
	}
}

// endLocked stops the process in order and kills it when that takes too long.
func (s *server) endLocked() error {
	proc := s.proc.Load()
	if proc == nil {
		return nil
	}
	if err := proc.signal(s.stopSig); err != nil {
		return errors.Join(err, s.killLocked())
	}
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-proc.done:
		return s.forgetLocked()
	case <-limit.C:
		err := fmt.Errorf("stop %s in %s: still running after %v, killed", filepath.Base(s.program), s.dir, stopLimit)
		return errors.Join(err, s.killLocked())
	}
}

func (s *server) killLocked() error {
	proc := s.proc.Load()
	if proc == nil {
		return nil
	}
	kids, err := s.frozenChildren(proc)
	if err != nil {
		return err
	}
	if err := proc.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-proc.done
	killVerified(slices.Collect(maps.Keys(kids)), childName)
	return errors.Join(awaitEnd(kids), s.forgetLocked())
}

// frozenChildren stops a process and lists its children with their start times:
// a process that is stopped makes no further ones.
func (s *server) frozenChildren(proc *process) (map[int]string, error) {
	if s.children == nil {
		return nil, nil
	}
	if err := proc.freeze(); err != nil {
		return nil, err
	}
	kids := make(map[int]string)
	for _, pid := range s.children(proc.pid) {
		kids[pid] = procStart(pid)
	}
	return kids, nil
}

// awaitEnd waits for killed children: while one lives it holds on to the shared
// memory of its server, and the server cannot start again.
func awaitEnd(kids map[int]string) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(probeLimit)
	defer limit.Stop()
	for pid, start := range kids {
		for start != "" && procStart(pid) == start {
			select {
			case <-tick.C:
			case <-limit.C:
				return fmt.Errorf("wait for killed process %d to end: still there after %v", pid, probeLimit)
			}
		}
	}
	return nil
}

// forgetLocked drops a process that has ended, and its record.
func (s *server) forgetLocked() error {
	rec := s.mu.rec
	s.proc.Store(nil)
	s.mu.rec = nil
	if rec == nil {
		return nil
	}
	return rec.remove()
}

// ownedDirs lists what a reaper may remove once the owner is dead.
func (s *server) ownedDirs() []string {
	var dirs []string
	if s.temp {
		dirs = append(dirs, s.dir)
	}
	if s.extraDir != "" {
		dirs = append(dirs, s.extraDir)
	}
	return dirs
}

// quoteLog returns the end of what the log gained since offset, ready to be
// appended to an error.
func (s *server) quoteLog(since int64) string {
	b, err := os.ReadFile(s.LogFile())
	if err != nil {
		return fmt.Sprintf("\n(read log: %v)", err)
	}
	if since < int64(len(b)) {
		b = b[since:]
	}
	if len(b) > logTailBytes {
		b = b[len(b)-logTailBytes:]
	}
	return "\n" + s.LogFile() + ":\n" + strings.TrimSpace(string(b))
}

func portTaken(log string) bool {
	return strings.Contains(log, "Address already in use") || strings.Contains(log, "address already in use")
}

func fileSize(path string) int64 {
	fi, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return fi.Size()
}

package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/web"
)

const (
	startLimit = 60 * time.Second // from the start of the child to its readiness
	stopLimit  = 30 * time.Second // of an orderly stop
	askEvery   = 20 * time.Millisecond
)

// child is the syncing process, over all its lives. It is started again at the
// same address with the same data. The goroutine of Run uses it, except where a
// method says otherwise.
type child struct {
	command, dataDir, logFile string
	env                       []string
	address                   string
	client                    *web.Client
	kills                     int

	life *life // nil while it does not run

	mu struct {
		sync.Mutex
		lives int
		past  tablesync.Counters // of the lives that ended
		last  tablesync.Counters // of the present life, when it was last asked
	}
	total tablesync.Counters // over all lives; valid after the last sum
}

// life is one process.
type life struct {
	process *os.Process
	done    chan struct{} // closed when it has been waited for
	err     error         // how it ended; after done
}

func newChild(command, dataDir, logFile string, env ...string) (*child, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	client, err := web.NewClient(address, "")
	if err != nil {
		return nil, err
	}
	return &child{command: command, dataDir: dataDir, logFile: logFile, env: append(os.Environ(), env...), address: address, client: client}, nil
}

func (c *child) pid() int { return c.life.process.Pid }

// start starts a life and returns when it is ready to work.
func (c *child) start(ctx context.Context) error {
	l, err := c.launch()
	if err != nil {
		return err
	}
	c.life = l
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	var last error
	for {
		if last = c.isReady(ctx); last == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-l.done:
			return fmt.Errorf("the syncing process ended while it started (%v)%s", l.err, c.quoteLog())
		case <-ctx.Done():
			return fmt.Errorf("wait for the syncing process: %w (last answer: %v)%s", ctx.Err(), last, c.quoteLog())
		}
	}
}

// isReady asks whether the process at the address is ours and ready.
func (c *child) isReady(ctx context.Context) error {
	if err := c.client.Ready(ctx); err != nil {
		return err
	}
	v, err := c.client.Version(ctx)
	if err != nil {
		return err
	}
	if v.PID != c.life.process.Pid {
		return fmt.Errorf("process %d answers at %s, want %d", v.PID, c.address, c.life.process.Pid)
	}
	return nil
}

// launch starts the process. The goroutine that starts it keeps its thread until
// the process has ended: the kernel's death signal is tied to the thread.
func (c *child) launch() (*life, error) {
	log, err := os.OpenFile(c.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of the syncing process: %w", err)
	}
	cmd := exec.Command(c.command, "server", "--data-dir", c.dataDir, "--listen", c.address, "--log-level", "info", "--log-format", "text")
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = c.env, log, log, dieWithParent()
	l := &life{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := errors.Join(cmd.Start(), log.Close())
		l.process = cmd.Process
		started <- err
		if cmd.Process != nil {
			l.err = cmd.Wait()
		}
		close(l.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start the syncing process: %w", err)
	}
	return l, nil
}

// kill ends the process as a crash does and starts it again.
func (c *child) kill(ctx context.Context) error {
	c.count(ctx)
	if err := c.end(); err != nil {
		return err
	}
	c.kills++
	return c.start(ctx)
}

// end kills the process and adds up what it did.
func (c *child) end() error {
	if err := c.life.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the syncing process: %w", err)
	}
	<-c.life.done
	c.life = nil
	c.client.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.past, c.mu.last = add(c.mu.past, c.mu.last), tablesync.Counters{}
	c.mu.lives++
	return nil
}

// count asks for the counters and returns the sum over all lives. It may be called
// from any goroutine; an answer that does not come leaves the last one.
func (c *child) count(ctx context.Context) tablesync.Counters {
	c.mu.Lock()
	life := c.mu.lives
	c.mu.Unlock()
	n, err := c.client.Counters(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && life == c.mu.lives && n.RowsCopied >= c.mu.last.RowsCopied && n.ChangesApplied >= c.mu.last.ChangesApplied {
		c.mu.last = n
	}
	return add(c.mu.past, c.mu.last)
}

func add(a, b tablesync.Counters) tablesync.Counters {
	b.RowsCopied += a.RowsCopied
	b.ChangesApplied += a.ChangesApplied
	b.Transactions += a.Transactions
	return b
}

// died returns why the process is not there any more, nil while it runs.
func (c *child) died() error {
	if c.life == nil {
		return nil
	}
	select {
	case <-c.life.done:
		return fmt.Errorf("the syncing process ended by itself (%v)%s", c.life.err, c.quoteLog())
	default:
		return nil
	}
}

// stop asks the process to end, and makes it.
func (c *child) stop() error {
	defer c.client.Close()
	if c.life == nil {
		return nil
	}
	l := c.life
	c.life = nil
	if err := l.process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the syncing process: %w", err)
	}
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-l.done:
		if l.err != nil {
			return fmt.Errorf("stop the syncing process: %w%s", l.err, c.quoteLog())
		}
		return nil
	case <-limit.C:
		err := fmt.Errorf("stop the syncing process: it still ran after %v and was killed%s", stopLimit, c.quoteLog())
		err = errors.Join(err, l.process.Kill())
		<-l.done
		return err
	}
}

// quoteLog is the end of the log, to be appended to an error.
func (c *child) quoteLog() string {
	const most = 3000
	b, err := os.ReadFile(c.logFile)
	if err != nil {
		return fmt.Sprintf("\n(read log: %v)", err)
	}
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return "\n" + c.logFile + ":\n" + strings.TrimSpace(string(b))
}

package fault

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Env is the environment variable that arms one point in a child process.
const Env = "RUNNEL_FAULT"

// armed is false while no point is armed: Point then does nothing else.
var armed atomic.Bool

// registry is filled before any Register of another package variable runs.
var registry = newPoints(os.Getenv(Env))

type points struct {
	mu     sync.Mutex
	names  map[string]bool
	funcs  map[string]func() error
	kill   string // the point Env named, "" when none
	passes int    // passes of kill still to go before the process ends
	bad    error  // why Env could not be read
}

func newPoints(env string) *points {
	p := &points{names: map[string]bool{}, funcs: map[string]func() error{}}
	if env != "" {
		p.kill, p.passes, p.bad = parseEnv(env)
		armed.Store(true)
	}
	return p
}

// parseEnv reads "name" or "name:n".
func parseEnv(v string) (name string, n int, err error) {
	name, count, counted := strings.Cut(v, ":")
	n = 1
	if counted {
		n, err = strconv.Atoi(count)
	}
	if err != nil || n < 1 || name == "" {
		return "", 0, fmt.Errorf("read %s=%q: want name or name:n with n from 1", Env, v)
	}
	return name, n, nil
}

// Register makes a point known to Names and returns its name. Call it from
// package variables, so that every point is known before the first is passed.
func Register(name string) string {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	registry.names[name] = true
	return name
}

// Names lists the registered points in alphabetical order.
func Names() []string {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	names := make([]string, 0, len(registry.names))
	for n := range registry.names {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Point passes the named point: nil unless a test armed it. An error is what the
// test wants the operation to fail with at this place.
func Point(name string) error {
	if !armed.Load() {
		return nil
	}
	return pass(name)
}

func pass(name string) error {
	registry.mu.Lock()
	if err := registry.bad; err != nil {
		registry.mu.Unlock()
		return err
	}
	if registry.kill != "" && !registry.names[registry.kill] {
		registry.mu.Unlock()
		return fmt.Errorf("%s names the unknown point %q", Env, registry.kill)
	}
	if name == registry.kill {
		registry.passes--
		if registry.passes == 0 {
			die()
		}
	}
	fn := registry.funcs[name]
	registry.mu.Unlock()
	if fn == nil {
		return nil
	}
	return fn()
}

// Set arms a point of this process: each pass calls fn and fails with its error.
// A nil fn disarms. The returned function restores what was armed before.
func Set(name string, fn func() error) (restore func()) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	before := registry.funcs[name]
	setLocked(name, fn)
	return func() {
		registry.mu.Lock()
		defer registry.mu.Unlock()
		setLocked(name, before)
	}
}

func setLocked(name string, fn func() error) {
	if fn == nil {
		delete(registry.funcs, name)
	} else {
		registry.funcs[name] = fn
	}
	armed.Store(len(registry.funcs) > 0 || registry.kill != "" || registry.bad != nil)
}

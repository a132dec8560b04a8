package actor

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The phases run in order, tasks of one side by side, actors in between.
func TestShutdownPhases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		var tr trace
		mustSpawn(t, s, "a", traced(&tr, func(Context[int], int) error { return nil }).setup)
		synctest.Wait()
		task := func(name string, d time.Duration) func(context.Context) error {
			return func(context.Context) error { <-time.After(d); tr.add("%s", name); return nil }
		}
		add := func(phase, name string, run func(context.Context) error) func() {
			remove, err := s.OnShutdown(phase, name, run)
			if err != nil {
				t.Fatal(err)
			}
			return remove
		}
		add(PhaseClose, "close", task("close", 0))
		add(PhaseDrain, "slow", task("drain slow", 2*time.Second))
		add(PhaseDrain, "fast", task("drain fast", time.Second))
		add(PhaseDrain, "adds", func(context.Context) error {
			add(PhaseClose, "added late", task("added late", time.Second))
			_, err := s.OnShutdown(PhaseDrain, "x", task("", 0))
			if !isErr(err, ErrStopped) {
				t.Errorf("got %v, want %v for a phase that has begun", err, ErrStopped)
			}
			return nil
		})
		add(PhaseStop, "before", task("before the actors", 0))
		add(PhaseDrain, "removed", task("removed", 0))()
		begin := time.Now()
		if err := s.Shutdown(testContext(t)); err != nil {
			t.Error(err)
		}
		want := `/user/a: started
drain fast
drain slow
before the actors
/user/a: stopped cause <nil>
close
added late`
		if got := tr.String(); got != want || time.Since(begin) != 3*time.Second {
			t.Errorf("got after %v\n%s\nwant after 3s\n%s", time.Since(begin), got, want)
		}
		if _, err := s.OnShutdown("none", "x", nil); !isErr(err, ErrNotFound) {
			t.Errorf("got %v, want %v", err, ErrNotFound)
		}
	})
}

// A task that fails, panics, leaves or overruns its deadline is named, and the
// rest goes on.
func TestShutdownTaskFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Phases: []Phase{{Name: "leave", Deadline: time.Second}, {Name: PhaseStop}, {Name: "last"}}})
		if err != nil {
			t.Fatal(err)
		}
		mustSpawn(t, s, "a", Stateless(func(Context[int], int) error { return nil }))
		release := make(chan struct{})
		last := false
		for name, run := range map[string]func(context.Context) error{
			"fails":  func(context.Context) error { return errBoom },
			"panics": func(context.Context) error { panic("kaboom") },
			"leaves": func(context.Context) error { runtime.Goexit(); return nil },
			"obeys":  func(ctx context.Context) error { <-ctx.Done(); return nil },
			"stays":  func(context.Context) error { <-release; return nil },
		} {
			if _, err := s.OnShutdown("leave", name, run); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.OnShutdown("last", "last", func(context.Context) error { last = true; return nil }); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		err = s.Shutdown(testContext(t))
		for _, want := range []error{errBoom, ErrGoexit, context.DeadlineExceeded} {
			if !errors.Is(err, want) {
				t.Errorf("got %v, want %v in it", err, want)
			}
		}
		for _, want := range []string{"task fails: boom", "task panics: panic: kaboom", "task stays has not returned"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
		}
		if !last || time.Since(begin) != time.Second || s.Stats().Actors != 0 {
			t.Errorf("got last phase run: %v after %v with %d actors, want true after 1s with none", last, time.Since(begin), s.Stats().Actors)
		}
		close(release)
	})
}

// The actors' phase may have a deadline of its own; what is left then is refused.
func TestShutdownStopDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Phases: []Phase{{Name: PhaseStop, Deadline: time.Second}}})
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		ref := mustSpawn(t, s, "stuck", Stateless(func(Context[int], int) error { <-release; return nil }))
		_ = ref.Tell(1)
		synctest.Wait()
		err = s.Shutdown(testContext(t))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "/user/stuck") {
			t.Errorf("got %v, want the deadline and /user/stuck", err)
		}
		if err := ref.Tell(2); !isErr(err, ErrStopped) {
			t.Errorf("got %v, want %v", err, ErrStopped)
		}
		close(release)
	})
}

func TestExtension(t *testing.T) {
	var made, fail atomic.Int32
	fail.Store(1)
	other := NewExtension("other", func(*System) (int, error) { return 7, nil })
	ext := NewExtension("ext", func(s *System) (*System, error) {
		if fail.Add(-1) == 0 {
			return nil, errBoom
		}
		made.Add(1)
		if n, err := other.Get(s); n != 7 {
			return nil, err
		}
		return s, nil
	})
	a, b := newSystem(t, Config{}), newSystem(t, Config{})
	if _, err := ext.Get(a); !isErr(err, errBoom) || !strings.Contains(err.Error(), "ext") {
		t.Errorf("got %v, want boom of ext", err)
	}
	got := make(chan *System, 8)
	for range 8 {
		go func() {
			s, err := ext.Get(a)
			if err != nil {
				t.Error(err)
			}
			got <- s
		}()
	}
	for range 8 {
		if s := recv(t, got); s != a {
			t.Errorf("got the instance of %p, want %p", s, a)
		}
	}
	if s, err := ext.Get(b); s != b || err != nil || made.Load() != 2 {
		t.Errorf("got %p, %v after %d makes, want %p after 2", s, err, made.Load(), b)
	}
}

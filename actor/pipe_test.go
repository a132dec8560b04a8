package actor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnel-dev/runnel/retry"
)

// pipeMsg tells the piping actor what to do.
type pipeMsg struct {
	start  func(context.Context) (int, error)
	fail   bool
	change bool
	result string
}

func pipeActor(got chan<- string) Setup[pipeMsg] {
	return Stateless(func(x Context[pipeMsg], m pipeMsg) error {
		switch {
		case m.start != nil:
			return PipeToSelf(x, m.start, func(r int, err error) pipeMsg {
				return pipeMsg{result: fmt.Sprint(r, " ", err)}
			})
		case m.fail:
			return errBoom
		case m.change:
			x.Advance()
		default:
			got <- m.result
		}
		return nil
	})
}

func TestPipeToSelf(t *testing.T) {
	s := newSystem(t, Config{})
	got := make(chan string, 4)
	ref := mustSpawn(t, s, "a", pipeActor(got))
	tests := []struct {
		name string
		fn   func(context.Context) (int, error)
		want string
	}{
		{"result", func(context.Context) (int, error) { return 7, nil }, "7 <nil>"},
		{"error", func(context.Context) (int, error) { return 0, errBoom }, "0 boom"},
		{"panic", func(context.Context) (int, error) { panic("kaboom") }, "0 actor /user/a: panic: kaboom"},
		{"goexit", func(context.Context) (int, error) { runtime.Goexit(); return 1, nil }, "0 called runtime.Goexit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_ = ref.Tell(pipeMsg{start: tt.fn})
			if g := recv(t, got); g != tt.want {
				t.Errorf("got %q, want %q", g, tt.want)
			}
		})
	}
	waitFor(t, func() bool { return s.Stats().BlockingRunning == 0 })
}

// A result of a generation that has ended is dropped, and its function was told.
func TestPipeStaleGenerationDropped(t *testing.T) {
	for name, change := range map[string]pipeMsg{"restart": {fail: true}, "advance": {change: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSystem(t, Config{})
				letters := Subscribe[DeadLetter](s, 4)
				got := make(chan string, 4)
				ref := mustSpawn(t, s, "a", pipeActor(got), Props{Supervision: Supervision{Backoff: retry.Policy{Initial: time.Second}}})
				_ = ref.Tell(pipeMsg{start: func(ctx context.Context) (int, error) {
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), ErrStale) {
						t.Errorf("got cause %v, want %v", context.Cause(ctx), ErrStale)
					}
					return 42, nil
				}})
				_ = ref.Tell(change)
				_ = ref.Tell(pipeMsg{start: func(context.Context) (int, error) { return 43, nil }})
				if g := <-got; g != "43 <nil>" {
					t.Errorf("got %q, want only the result of the present generation", g)
				}
				if l := <-letters.C(); l.Message != 42 || l.Reason != ReasonStale || l.Path != "/user/a" {
					t.Errorf("got %+v, want 42 stale", l)
				}
				synctest.Wait()
				if len(got) > 0 {
					t.Errorf("got %q too", <-got)
				}
			})
		})
	}
}

// Stopping cancels the function; its result becomes a dead letter.
func TestPipeOfStoppedActor(t *testing.T) {
	s := newSystem(t, Config{})
	letters := Subscribe[DeadLetter](s, 4)
	entered := make(chan struct{})
	ref := mustSpawn(t, s, "a", pipeActor(nil))
	_ = ref.Tell(pipeMsg{start: func(ctx context.Context) (int, error) {
		close(entered)
		<-ctx.Done()
		return 0, ctx.Err()
	}})
	recv(t, entered)
	ref.Stop()
	if l := recv(t, letters.C()); l.Message != context.Canceled || l.Reason != ReasonStopped {
		t.Errorf("got %+v, want %v of a stopped actor", l, context.Canceled)
	}
}

func TestBlockingPoolIsBounded(t *testing.T) {
	s := newSystem(t, Config{Blocking: Blocking{Workers: 2, Queue: 3}})
	release, result := make(chan struct{}), make(chan string, 8)
	errs := make(chan error, 8)
	ref := mustSpawn(t, s, "a", Stateless(func(x Context[pipeMsg], m pipeMsg) error {
		if m.result != "" {
			result <- m.result
			return nil
		}
		errs <- PipeToSelf(x, func(context.Context) (int, error) { <-release; return 1, nil },
			func(r int, err error) pipeMsg { return pipeMsg{result: fmt.Sprint(r, err)} })
		return nil
	}))
	for range 6 {
		_ = ref.Tell(pipeMsg{})
	}
	for i := range 6 {
		var want error
		if i == 5 {
			want = ErrBlockingFull
		}
		if err := recv(t, errs); !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), "/user/a") {
			t.Errorf("pipe %d: got %v, want %v", i, err, want)
		}
	}
	if st := s.Stats(); st.BlockingRunning != 2 || st.BlockingQueued != 3 {
		t.Errorf("got %d running and %d queued, want 2 and 3", st.BlockingRunning, st.BlockingQueued)
	}
	close(release)
	for range 5 {
		recv(t, result)
	}
}

// A panic in wrap is the actor's failure.
func TestPanicInWrap(t *testing.T) {
	s := newSystem(t, Config{})
	failed := Subscribe[ActorFailed](s, 1)
	ref := mustSpawn(t, s, "a", Stateless(func(x Context[int], _ int) error {
		return PipeToSelf(x, func(context.Context) (int, error) { return 0, nil }, func(int, error) int { panic("wrap") })
	}))
	_ = ref.Tell(1)
	if got := recv(t, failed.C()).Failure.Panic; got != "wrap" {
		t.Errorf("got %v, want wrap", got)
	}
}

func TestContextEndsWithItsGeneration(t *testing.T) {
	s := newSystem(t, Config{})
	ctxs := make(chan context.Context, 2)
	ref := mustSpawn(t, s, "a", Stateless(func(x Context[string], m string) error {
		if m == "advance" {
			x.Advance()
		}
		ctxs <- x.Context()
		return nil
	}))
	_ = ref.Tell("first")
	first := recv(t, ctxs)
	if first.Err() != nil {
		t.Errorf("got %v, want a live context", first.Err())
	}
	_ = ref.Tell("advance")
	second := recv(t, ctxs)
	if first.Err() == nil || second.Err() != nil {
		t.Errorf("got %v and %v, want the first ended", first.Err(), second.Err())
	}
	ref.Stop()
	recv(t, second.Done())
}

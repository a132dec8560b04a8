package actor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newSystem makes a System that the test's end shuts down.
func newSystem(t testing.TB, c Config) *System {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func mustSpawn[M any](t testing.TB, at Spawner, name string, setup Setup[M], p ...Props) Ref[M] {
	t.Helper()
	r, err := Spawn(at, name, setup, p...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// recv takes one value or fails the test.
func recv[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came within 30 s")
	}
	panic("unreachable")
}

// handler is a behavior out of two functions.
type handler[M any] struct {
	msg func(Context[M], M) error
	sig func(Context[M], Signal) error
}

func (h handler[M]) Receive(x Context[M], m M) error { return h.msg(x, m) }

func (h handler[M]) Signal(x Context[M], s Signal) error {
	if h.sig == nil {
		return nil
	}
	return h.sig(x, s)
}

func (h handler[M]) setup(Context[M]) (Behavior[M], error) { return h, nil }

// Every message of each sender is handled once, in order, by one worker at a time.
func TestOrderAndNoOverlap(t *testing.T) {
	for _, workers := range []int{1, 2, 4} {
		for _, throughput := range []int{1, 5, 300} {
			t.Run(fmt.Sprintf("workers=%d,throughput=%d", workers, throughput), func(t *testing.T) {
				const actors, senders, each = 20, 4, 300
				s := newSystem(t, Config{
					Dispatchers: map[string]Dispatcher{DefaultDispatcher: {Workers: workers, Throughput: throughput}},
					Mailbox:     Mailbox{Capacity: Unbounded},
				})
				var done sync.WaitGroup
				done.Add(actors)
				setup := func(Context[[2]int]) (Behavior[[2]int], error) {
					var last [senders]int // plain memory: the race detector checks exclusion
					var busy atomic.Int32
					n := 0
					return Func[[2]int](func(x Context[[2]int], m [2]int) error {
						if busy.Add(1) != 1 {
							t.Error("two workers in one actor")
						}
						defer busy.Add(-1)
						if got, want := m[1], last[m[0]]+1; got != want {
							t.Errorf("%s: sender %d: got message %d, want %d", x.Path(), m[0], got, want)
						}
						last[m[0]] = m[1]
						if n++; n == senders*each {
							done.Done()
						}
						return nil
					}), nil
				}
				var refs []Ref[[2]int]
				for range actors {
					refs = append(refs, mustSpawn(t, s, "", setup))
				}
				for k := range senders {
					go func() {
						for i := 1; i <= each; i++ {
							for _, r := range refs {
								if err := r.Tell([2]int{k, i}); err != nil {
									t.Error(err)
								}
							}
						}
					}()
				}
				finished := make(chan struct{})
				go func() { done.Wait(); close(finished) }()
				recv(t, finished)
			})
		}
	}
}

func TestAsk(t *testing.T) {
	type get struct{ to Reply[string] }
	s := newSystem(t, Config{})
	ref := mustSpawn(t, s, "echo", Stateless(func(x Context[get], m get) error {
		m.to.Send("from " + x.Path())
		return nil
	}))
	got, err := Ask(testContext(t), ref, func(to Reply[string]) get { return get{to} })
	if want := "from /user/echo"; got != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	_, err = Ask(testContext(t), Ref[get]{}, func(to Reply[string]) get { return get{to} })
	if !errors.Is(err, ErrNoActor) {
		t.Errorf("got %v, want %v", err, ErrNoActor)
	}
}

package actor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// script is an actor that does what it is told, and traces it.
type script struct {
	do string
	to Reply[string]
}

func scripted(got *[]string, x Context[script], m script, closed *bool) error {
	switch {
	case m.do == "open":
		*closed = false
		*got = append(*got, fmt.Sprint("unstashed ", x.Unstash(), " left ", x.Stashed()))
		return nil
	case *closed:
		if err := x.Stash(); err != nil {
			*got = append(*got, err.Error())
		}
		return nil
	}
	*got = append(*got, m.do)
	m.to.Send(m.do)
	return nil
}

// Stashed messages come back in order, before those that came after them and
// before those that the turn had already taken.
func TestStashKeepsOrder(t *testing.T) {
	for _, throughput := range []int{1, 3, 100} {
		t.Run(fmt.Sprint(throughput), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{DefaultDispatcher: {Workers: 1, Throughput: throughput}}})
				hold := mustSpawn(t, s, "hold", Stateless(func(Context[int], int) error { <-time.After(time.Second); return nil }))
				_ = hold.Tell(1) // so that all of it is waiting when the first is handled
				var got []string
				closed := true
				ref := mustSpawn(t, s, "a", Stateless(func(x Context[script], m script) error { return scripted(&got, x, m, &closed) }))
				for _, do := range strings.Fields("1 2 3 open 4 5 6") {
					_ = ref.Tell(script{do: do})
				}
				<-time.After(2 * time.Second)
				synctest.Wait()
				if want := strings.Split("unstashed 3 left 0,1,2,3,4,5,6", ","); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
}

// The stash is bounded; an Ask that is stashed is answered after Unstash.
func TestStashLimitAndAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		var got []string
		closed := true
		ref := mustSpawn(t, s, "a", Stateless(func(x Context[script], m script) error { return scripted(&got, x, m, &closed) }), Props{Stash: 2})
		answers := make(chan string, 1)
		go func() {
			a, err := Ask(testContext(t), ref, func(to Reply[string]) script { return script{"asked", to} })
			answers <- fmt.Sprint(a, err)
		}()
		synctest.Wait()
		for _, do := range []string{"2", "3", "open"} {
			_ = ref.Tell(script{do: do})
		}
		if a := <-answers; a != "asked<nil>" {
			t.Errorf("got answer %q, want asked", a)
		}
		synctest.Wait()
		if want := []string{"stash of /user/a: stash full", "unstashed 2 left 0", "asked", "2"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// When the actor stops, what is stashed becomes dead letters in order, and an Ask
// among it returns at once.
func TestStashOfAStoppedActor(t *testing.T) {
	s := newSystem(t, Config{})
	letters := Subscribe[DeadLetter](s, 8)
	ref := mustSpawn(t, s, "a", Stateless(func(x Context[script], m script) error {
		if m.do == "stop" {
			x.Stop()
			return nil
		}
		return x.Stash()
	}))
	_ = ref.Tell(script{do: "1"})
	lost := make(chan error, 1)
	go func() {
		_, err := Ask(testContext(t), ref, func(to Reply[string]) script { return script{"2", to} })
		lost <- err
	}()
	waitFor(t, func() bool { // until both are stashed
		n, err := s.Select("/user/a")
		return len(n) == 1 && err == nil && stashedIn(ref) == 2
	})
	_ = ref.Tell(script{do: "stop"})
	if err := recv(t, lost); !isErr(err, ErrStopped) {
		t.Errorf("got %v, want %v", err, ErrStopped)
	}
	for _, want := range []string{"1", "2"} {
		l := recv(t, letters.C())
		if m, ok := l.Message.(script); !ok || m.do != want || l.Reason != ReasonStopped {
			t.Errorf("got %+v, want message %s", l, want)
		}
	}
}

// stashedIn reads the stash of an idle actor.
func stashedIn[M any](r Ref[M]) int {
	c := r.to.(*cell)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != idle || c.ext == nil {
		return -1
	}
	return c.ext.stashed
}

// A restart puts the stash back before the mailbox; what belonged to the failed
// incarnation, a timer's message, does not come back.
func TestRestartUnstashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{Supervision: Supervision{Backoff: quickly}})
		starts := 0
		var got []string
		ref := mustSpawn(t, s, "a", func(x Context[string]) (Behavior[string], error) {
			if starts++; starts == 1 {
				x.After(0, "timer")
			}
			return Func[string](func(x Context[string], m string) error {
				switch {
				case m == "fail":
					return errBoom
				case starts == 1:
					return x.Stash()
				}
				got = append(got, m)
				return nil
			}), nil
		})
		synctest.Wait()
		for _, m := range []string{"1", "2", "fail", "3"} {
			_ = ref.Tell(m)
		}
		synctest.Wait()
		if want := []string{"1", "2", "3"}; !slices.Equal(got, want) || starts != 2 {
			t.Errorf("got %q in %d starts, want %q in 2", got, starts, want)
		}
		if n := s.Stats().DeadLetters[ReasonStale]; n != 1 {
			t.Errorf("got %d stale, want the timer's message", n)
		}
	})
}

// Only a message that is being handled can be stashed, and once.
func TestNothingToStash(t *testing.T) {
	s := newSystem(t, Config{})
	errs := make(chan error, 8)
	ref := mustSpawn(t, s, "a", func(x Context[int]) (Behavior[int], error) {
		errs <- x.Stash()
		return handler[int]{
			msg: func(x Context[int], m int) error {
				errs <- x.Stash()
				errs <- x.Stash()
				x.Stop()
				return nil
			},
			sig: func(x Context[int], sig Signal) error { errs <- x.Stash(); return nil },
		}, nil
	})
	_ = ref.Tell(1)
	for _, want := range []error{ErrNoMessage, ErrNoMessage, nil, ErrNoMessage, ErrNoMessage} {
		if got := recv(t, errs); !isErr(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

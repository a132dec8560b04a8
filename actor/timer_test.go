package actor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnel-dev/runnel/retry"
)

func TestAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		begin := time.Now()
		got := make(chan string, 8)
		mustSpawn(t, s, "a", handler[string]{
			msg: func(_ Context[string], m string) error {
				got <- fmt.Sprint(m, " at ", time.Since(begin))
				return nil
			},
			sig: func(x Context[string], sig Signal) error {
				if sig != (Started{}) {
					return nil
				}
				x.After(3*time.Second, "third")
				x.After(time.Second, "first")
				x.After(-time.Second, "now")
				x.After(math.MaxInt64, "never")
				stop := x.After(2*time.Second, "second")
				if !stop.Stop() || stop.Stop() {
					t.Error("got Stop wrong, want true then false")
				}
				return nil
			},
		}.setup)
		for _, want := range []string{"now at 0s", "first at 1s", "third at 3s"} {
			if g := <-got; g != want {
				t.Errorf("got %q, want %q", g, want)
			}
		}
		if got := s.Stats().Timers; got != 1 {
			t.Errorf("got %d timers pending, want the one that never comes", got)
		}
	})
}

// Stop holds even when the timer's message already waits in the mailbox.
func TestStopOfADueTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		done := make(chan string, 4)
		ref := mustSpawn(t, s, "a", Stateless(func(x Context[string], m string) error {
			if m == "go" {
				tm := x.After(time.Second, "late")
				<-time.After(2 * time.Second) // the timer fires meanwhile
				if !tm.Stop() {
					t.Error("got false from Stop, want true: the message is unhandled")
				}
				return nil
			}
			done <- m
			return nil
		}))
		_ = ref.Tell("go")
		_ = ref.Tell("end")
		if got := <-done; got != "end" {
			t.Errorf("got %q, want end", got)
		}
		synctest.Wait()
		if len(done) > 0 {
			t.Errorf("got %q after Stop", <-done)
		}
	})
}

func TestRestartAndStopCancelTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		got := make(chan string, 8)
		setups := 0
		ref := mustSpawn(t, s, "a", func(x Context[string]) (Behavior[string], error) {
			setups++
			x.After(time.Minute, fmt.Sprint("from ", setups))
			return Func[string](func(_ Context[string], m string) error {
				if m == "fail" {
					return errBoom
				}
				got <- m
				return nil
			}), nil
		}, Props{Supervision: Supervision{Backoff: retry.Policy{Initial: time.Second}}})
		_ = ref.Tell("fail")
		if g := <-got; g != "from 2" {
			t.Errorf("got %q, want from 2", g)
		}
		_ = ref.Tell("fail") // stopped while it waits for its restart
		synctest.Wait()
		ref.Stop()
		if err := ref.Await(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if n := s.Stats().Timers; n != 0 {
			t.Errorf("got %d timers pending, want 0", n)
		}
	})
}

// What the handler of Restarting starts does not reach the next behavior.
func TestRestartingStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		got := make(chan string, 4)
		ref := mustSpawn(t, s, "a", handler[string]{
			msg: func(_ Context[string], m string) error {
				if m == "fail" {
					return errBoom
				}
				got <- m
				return nil
			},
			sig: func(x Context[string], sig Signal) error {
				if _, ok := sig.(Restarting); ok {
					x.After(time.Minute, "leftover")
				}
				return nil
			},
		}.setup)
		_ = ref.Tell("fail")
		<-time.After(time.Hour)
		if len(got) > 0 || s.Stats().Timers != 0 {
			t.Errorf("got %d messages and %d timers, want none", len(got), s.Stats().Timers)
		}
	})
}

// The heap against a sorted slice.
func TestTimerHeapModel(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 3))
	ts := &timers{base: time.Now(), wake: make(chan struct{}, 1)}
	var want []*timer
	for step := range 20_000 {
		if k := r.IntN(3); k < 2 && len(want) < 300 {
			tm := &timer{}
			ts.add(tm, time.Hour+time.Duration(r.IntN(1000))*time.Minute)
			want = append(want, tm)
		} else if len(want) > 0 {
			i := r.IntN(len(want))
			ts.remove(want[i])
			if want[i].pos != 0 {
				t.Fatalf("seed %d step %d: got pos %d after remove", seed, step, want[i].pos)
			}
			want = slices.Delete(want, i, i+1)
		}
		if ts.len() != len(want) {
			t.Fatalf("seed %d step %d: got %d timers, want %d", seed, step, ts.len(), len(want))
		}
		for i, tm := range ts.mu.heap {
			if tm.pos != i+1 || i > 0 && ts.mu.heap[(i-1)/4].when > tm.when {
				t.Fatalf("seed %d step %d: heap broken at %d", seed, step, i)
			}
		}
	}
}

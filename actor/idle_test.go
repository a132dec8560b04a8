package actor

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// clocked is an actor that notes each message with the second in which it comes.
func clocked(s *System, t *testing.T, begin func(Context[string])) (Ref[string], *[]string) {
	var got []string
	from := time.Now()
	ref := mustSpawn(t, s, "a", handler[string]{
		msg: func(x Context[string], m string) error {
			got = append(got, fmt.Sprint(m, " ", time.Since(from)))
			switch m {
			case "off":
				x.ReceiveTimeout(0, "")
			case "fail":
				return errBoom
			}
			return nil
		},
		sig: func(x Context[string], sig Signal) error {
			if sig == (Started{}) {
				begin(x)
			}
			return nil
		},
	}.setup, Props{Supervision: Supervision{Backoff: quickly}})
	return ref, &got
}

// The timeout counts from the last message, comes again and again, and ends when
// told so.
func TestReceiveTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		ref, got := clocked(s, t, func(x Context[string]) { x.ReceiveTimeout(10*time.Second, "idle") })
		<-time.After(7 * time.Second)
		_ = ref.Tell("one")
		<-time.After(7 * time.Second)
		_ = ref.Tell("two")
		<-time.After(23 * time.Second)
		_ = ref.Tell("off")
		<-time.After(time.Hour)
		synctest.Wait()
		want := []string{"one 7s", "two 14s", "idle 24s", "idle 34s", "off 37s"}
		if !slices.Equal(*got, want) || s.Stats().Timers != 0 {
			t.Errorf("got %q and %d timers, want %q and none", *got, s.Stats().Timers, want)
		}
	})
}

// A restart ends it; here Started sets it again, once and not twice.
func TestReceiveTimeoutAndRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		ref, got := clocked(s, t, func(x Context[string]) { x.ReceiveTimeout(10*time.Second, "idle") })
		<-time.After(5 * time.Second)
		_ = ref.Tell("fail")
		<-time.After(11 * time.Second)
		synctest.Wait()
		if want := []string{"fail 5s", "idle 15s"}; !slices.Equal(*got, want) || s.Stats().Timers != 1 {
			t.Errorf("got %q and %d timers, want %q and 1", *got, s.Stats().Timers, want)
		}
	})
}

// A repeating timer keeps its beat, skips what it is too late for, and stops.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		begin := time.Now()
		var at []time.Duration
		var tick Timer
		n := 0
		mustSpawn(t, s, "a", handler[int]{
			msg: func(x Context[int], _ int) error {
				at = append(at, time.Since(begin))
				switch n++; n {
				case 2:
					<-time.After(2500 * time.Millisecond) // the beats at 3 s and 4 s are over
				case 4:
					if !tick.Stop() || tick.Stop() {
						t.Error("got Stop wrong, want true then false")
					}
				}
				return nil
			},
			sig: func(x Context[int], sig Signal) error {
				if sig == (Started{}) {
					tick = x.Every(time.Second, 1)
					if (x.Every(0, 1) != Timer{}) {
						t.Error("got a timer that repeats without pause")
					}
				}
				return nil
			},
		}.setup)
		<-time.After(time.Minute)
		synctest.Wait()
		s1 := time.Second
		// The beat at 3 s has come when the handler returns at 4.5 s; the next is 5 s.
		if want := []time.Duration{s1, 2 * s1, 4500 * time.Millisecond, 5 * s1}; !slices.Equal(at, want) || s.Stats().Timers != 0 {
			t.Errorf("got %v and %d timers, want %v and none", at, s.Stats().Timers, want)
		}
	})
}

// Many timers cost no goroutine.
func TestTimersHaveNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		before := s.Stats().Timers
		setup := handler[int]{msg: func(Context[int], int) error { return nil }, sig: func(x Context[int], sig Signal) error {
			if sig == (Started{}) {
				x.Every(time.Hour, 1)
				x.ReceiveTimeout(time.Hour, 2)
			}
			return nil
		}}.setup
		synctest.Wait()
		goroutines := goroutinesNow()
		for range 1000 {
			mustSpawn(t, s, "", setup)
		}
		synctest.Wait()
		if got := s.Stats().Timers - before; got != 2000 || goroutinesNow() > goroutines {
			t.Errorf("got %d timers on %d more goroutines, want 2000 on none", got, goroutinesNow()-goroutines)
		}
	})
}

// Passivation happens only when nothing waits; nothing is lost by it: a message is
// handled, or its sender is told that the actor has gone.
func TestPassivate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		var got []string
		gate := make(chan struct{})
		ref := mustSpawn(t, s, "a", handler[string]{
			msg: func(x Context[string], m string) error {
				got = append(got, m)
				switch m {
				case "go":
					x.Passivate()
				case "hold and go":
					<-gate
					x.Passivate()
				case "pipe and go":
					x.Passivate()
					return PipeToSelf(x, func(context.Context) (string, error) { <-gate; return "piped", nil },
						func(r string, _ error) string { return r })
				}
				return nil
			},
			sig: func(x Context[string], sig Signal) error {
				got = append(got, fmt.Sprintf("%T", sig))
				if sig == (Passivated{}) {
					if err := Tell(x, x.Self(), "late"); !isErr(err, ErrStopped) {
						t.Errorf("got %v, want %v", err, ErrStopped)
					}
				}
				return nil
			},
		}.setup)
		_ = ref.Tell("hold and go")
		_ = ref.Tell("one waits")
		gate <- struct{}{}
		_ = ref.Tell("pipe and go")
		synctest.Wait()
		gate <- struct{}{}
		synctest.Wait()
		if n := s.Stats().Actors; n != 1 {
			t.Fatalf("got %d actors while something waited, want 1", n)
		}
		_ = ref.Tell("go")
		synctest.Wait()
		if err := ref.Tell("after"); !isErr(err, ErrStopped) {
			t.Errorf("got %v, want %v", err, ErrStopped)
		}
		want := []string{"actor.Started", "hold and go", "one waits", "pipe and go", "piped", "go", "actor.Passivated", "actor.Stopped"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if again := mustSpawn(t, s, "a", Stateless(func(Context[string], string) error { return nil })); again == ref {
			t.Error("got the old actor under the name")
		}
	})
}

// Senders race with passivation and make the actor anew: every message is handled.
func TestPassivateRace(t *testing.T) {
	s := newSystem(t, Config{})
	handled := make(chan int, 4000)
	setup := Stateless(func(x Context[int], m int) error {
		handled <- m
		x.Passivate()
		return nil
	})
	for g := range 4 {
		go func() {
			for i := range 1000 {
				for {
					ref, err := Lookup[int](s, "/user/a")
					if err != nil {
						ref, err = Spawn(s, "a", setup)
					}
					if err == nil && ref.Tell(g*1000+i) == nil {
						break
					}
				}
			}
		}()
	}
	seen := map[int]bool{}
	for range 4000 {
		m := recv(t, handled)
		if seen[m] {
			t.Fatalf("got message %d twice", m)
		}
		seen[m] = true
	}
}

package actor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestDeadLetters(t *testing.T) {
	s := newSystem(t, Config{})
	letters := Subscribe[DeadLetter](s, 8)
	entered, release := make(chan struct{}), make(chan struct{})
	ref := mustSpawn(t, s, "a", Stateless(func(x Context[string], _ string) error {
		close(entered)
		<-release
		x.Stop()
		return nil
	}))
	for _, m := range []string{"handled", "waits 1", "waits 2"} {
		if err := ref.Tell(m); err != nil {
			t.Fatal(err)
		}
	}
	recv(t, entered)
	close(release)
	if err := ref.Await(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := ref.Tell("too late"); !errors.Is(err, ErrStopped) {
		t.Errorf("got %v, want %v", err, ErrStopped)
	}
	for _, want := range []string{"waits 1", "waits 2", "too late"} {
		if l := recv(t, letters.C()); l != (DeadLetter{"/user/a", want, ReasonStopped}) {
			t.Errorf("got %+v, want %q to stopped /user/a", l, want)
		}
	}
	if got := s.Stats().DeadLetters[ReasonStopped]; got != 3 {
		t.Errorf("got %d counted, want 3", got)
	}
	if err := (Ref[int]{}).Tell(1); !errors.Is(err, ErrNoActor) {
		t.Errorf("got %v, want %v", err, ErrNoActor)
	}
}

func TestSubscriptions(t *testing.T) {
	s := newSystem(t, Config{})
	ints, all := Subscribe[int](s, 2), Subscribe[any](s, 10)
	for i := range 5 {
		s.Publish(i)
	}
	s.Publish("text")
	if got := ints.Dropped(); got != 3 {
		t.Errorf("got %d dropped, want 3", got)
	}
	if a, b := <-ints.C(), <-ints.C(); a != 0 || b != 1 {
		t.Errorf("got %d and %d, want 0 and 1", a, b)
	}
	if got := len(all.C()); got != 6 || all.Dropped() != 0 {
		t.Errorf("got %d and %d dropped, want 6 and 0", got, all.Dropped())
	}
	ints.Close()
	ints.Close()
	s.Publish(6)
	if v, open := <-ints.C(); open {
		t.Errorf("got %d after Close", v)
	}
	if err := s.Shutdown(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for range 7 {
		<-all.C()
	}
	if _, open := <-all.C(); open {
		t.Error("got an open subscription after Shutdown")
	}
	if _, open := <-Subscribe[int](s, 1).C(); open {
		t.Error("got an open subscription of a system that has shut down")
	}
}

// Subscribers come and go while events are published.
func TestSubscriptionRace(t *testing.T) {
	s := newSystem(t, Config{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 300 {
				sub := Subscribe[int](s, 4)
				s.Publish(i)
				<-sub.C()
				sub.Close()
			}
		})
	}
	wg.Wait()
	if s.events.active() {
		t.Error("got subscribers left")
	}
}

// Spawning from outside and from handlers goes on while the system shuts down:
// every actor that was made stops, nothing is left.
func TestShutdownWhileSpawning(t *testing.T) {
	for range 20 {
		s, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		var started, ended atomic.Int64
		var setup Setup[int]
		setup = handler[int]{
			msg: func(x Context[int], depth int) error {
				for range depth {
					kid, err := Spawn(x, "", setup)
					if err == nil {
						_ = Tell(x, kid, depth-1)
					} else if !errors.Is(err, ErrStopped) {
						t.Error(err)
					}
				}
				return nil
			},
			sig: func(_ Context[int], sig Signal) error {
				switch sig.(type) {
				case Started:
					started.Add(1)
				case Stopped:
					ended.Add(1)
				}
				return nil
			},
		}.setup
		var wg sync.WaitGroup
		begun := make(chan struct{}, 4)
		for range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					ref, err := Spawn(s, "", setup)
					if err != nil {
						if !errors.Is(err, ErrStopped) {
							t.Error(err)
						}
						return
					}
					_ = ref.Tell(4)
					if i == 20 {
						begun <- struct{}{}
					}
				}
			})
		}
		recv(t, begun)
		if err := s.Shutdown(testContext(t)); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if started.Load() != ended.Load() || s.Stats().Actors != 0 {
			t.Errorf("got %d started, %d stopped, %d left, want the same and 0", started.Load(), ended.Load(), s.Stats().Actors)
		}
	}
}

func TestShutdownOrderAndRepeat(t *testing.T) {
	s := newSystem(t, Config{})
	var tr trace
	nothing := func(Context[int], int) error { return nil }
	for _, at := range []Spawner{s.Internal(), s} {
		mustSpawn(t, at, "a", traced(&tr, nothing).setup)
	}
	waitFor(t, func() bool { return strings.Count(tr.String(), "started") == 2 })
	errs := make(chan error, 2)
	for range 2 {
		go func() { errs <- s.Shutdown(testContext(t)) }()
	}
	for range 2 {
		if err := recv(t, errs); err != nil {
			t.Error(err)
		}
	}
	if got, want := tr.String(), "/user/a: stopped cause <nil>\n/system/a: stopped cause <nil>"; !strings.HasSuffix(got, want) {
		t.Errorf("got\n%s\nwant it to end in\n%s", got, want)
	}
	if _, err := Spawn(s, "late", Stateless(nothing)); !errors.Is(err, ErrStopped) {
		t.Errorf("got %v, want %v", err, ErrStopped)
	}
}

// A handler that does not return makes Shutdown give up at its deadline, naming
// it; what it left then is refused, and the goroutines end with the handler.
func TestShutdownDeadline(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	other := mustSpawn(t, s.Internal(), "other", Stateless(func(Context[int], int) error { return nil }))
	ref := mustSpawn(t, s, "stuck", Stateless(func(Context[int], int) error {
		close(entered)
		<-release
		return nil
	}))
	_ = ref.Tell(1)
	recv(t, entered)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err = s.Shutdown(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "/user/stuck") {
		t.Errorf("got %v, want a deadline that names /user/stuck", err)
	}
	if err := other.Tell(1); !errors.Is(err, ErrStopped) {
		t.Errorf("got %v, want %v", err, ErrStopped)
	}
	close(release)
	for _, d := range s.dispatchers {
		recv(t, d.ended)
	}
}

// Random spawn, tell, ask, watch, fail and stop from many goroutines: nothing
// deadlocks, every message is handled or a dead letter, every actor ends.
func TestStress(t *testing.T) {
	seed := rand.Uint64()
	s, err := New(Config{
		Dispatchers: map[string]Dispatcher{"control": {Workers: 3, Throughput: 2}, DefaultDispatcher: {Workers: 2}},
		Mailbox:     Mailbox{Capacity: 64, Overflow: DropOldest},
		Supervision: Supervision{Backoff: quickly},
	})
	if err != nil {
		t.Fatal(err)
	}
	var handled, told atomic.Int64
	const names = 40
	setup := handler[int]{
		msg: func(x Context[int], m int) error {
			if m < 0 { // a timer: those that the actor's end cancels are never heard of
				return nil
			}
			handled.Add(1)
			switch m % 50 {
			case 1:
				return errBoom
			case 2:
				panic("kaboom")
			case 3:
				x.Stop()
			case 4:
				if peer, err := Lookup[int](x.System(), fmt.Sprintf("/user/%d", m%names)); err == nil {
					x.Watch(peer)
					told.Add(1)
					_ = Tell(x, peer, 0)
				}
			case 5:
				x.After(time.Duration(m)*time.Nanosecond, -1)
			case 6:
				told.Add(1)
				if PipeToSelf(x, func(context.Context) (int, error) { return 0, nil }, func(int, error) int { return 0 }) != nil {
					told.Add(-1)
				}
			}
			return nil
		},
	}.setup
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(g)))
			for range 3000 {
				name := fmt.Sprint(r.IntN(names))
				ref, err := Lookup[int](s, "/user/"+name)
				if err != nil {
					ref, err = Spawn(s, name, setup, Props{Dispatcher: []string{"control", ""}[r.IntN(2)]})
					if err != nil {
						continue // another goroutine was first
					}
				}
				if r.IntN(100) == 0 {
					ref.Stop()
				}
				told.Add(1)
				_ = ref.Tell(r.IntN(1000))
			}
		})
	}
	wg.Wait()
	if err := s.Shutdown(testContext(t)); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	st := s.Stats()
	lost := int64(0)
	for _, n := range st.DeadLetters {
		lost += int64(n)
	}
	if got, want := handled.Load()+lost, told.Load(); got != want || st.Actors != 0 || st.Timers != 0 {
		t.Errorf("seed %d: got %d handled + %d lost of %d, %d actors and %d timers left", seed, handled.Load(), lost, want, st.Actors, st.Timers)
	}
}

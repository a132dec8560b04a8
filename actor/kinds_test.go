package actor

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// kinds are dispatchers of every kind, with two workers where there are any.
func kinds() map[string]Dispatcher {
	return map[string]Dispatcher{
		"shared":  {Workers: 2},
		"elastic": {Kind: Elastic, Workers: 2},
		"pinned":  {Kind: Pinned, Workers: 50},
		"calling": {Kind: Calling},
		"custom":  {Executor: spawning{}},
	}
}

// spawning is an Executor with a goroutine for each turn.
type spawning struct{}

func (spawning) Execute(t Turn) { go t.Run() }

// Whatever runs the turns: no overlap, each sender's order, nothing lost.
func TestKindsKeepOrder(t *testing.T) {
	for kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			const actors, senders, each = 10, 4, 200
			s := newSystem(t, Config{Dispatchers: kinds(), Mailbox: Mailbox{Capacity: Unbounded}})
			var done sync.WaitGroup
			done.Add(actors)
			var refs []Ref[[2]int]
			for range actors {
				var last [senders]int // plain memory: the race detector checks exclusion
				n := 0
				refs = append(refs, mustSpawn(t, s, "", Stateless(func(x Context[[2]int], m [2]int) error {
					if got, want := m[1], last[m[0]]+1; got != want {
						t.Errorf("%s: sender %d: got message %d, want %d", x.Path(), m[0], got, want)
					}
					last[m[0]] = m[1]
					if n++; n == senders*each {
						done.Done()
					}
					return nil
				}), Props{Dispatcher: kind}))
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
			done.Wait()
		})
	}
}

// A handler that ends its goroutine fails its actor, not its dispatcher.
func TestKindsSurviveGoexit(t *testing.T) {
	for kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			s := newSystem(t, Config{Dispatchers: kinds(), Supervision: Supervision{Backoff: quickly}})
			failed := Subscribe[ActorFailed](s, 8)
			type m struct{ to Reply[string] }
			ref := mustSpawn(t, s, "a", Stateless(func(x Context[m], m m) error {
				if m.to == (Reply[string]{}) {
					runtime.Goexit()
				}
				m.to.Send("lives")
				return nil
			}), Props{Dispatcher: kind})
			go func() { _ = ref.Tell(m{}) }() // in a calling dispatcher it is this goroutine that ends
			if got := recv(t, failed.C()).Failure; !isErr(got, ErrGoexit) {
				t.Errorf("got %v, want %v", got, ErrGoexit)
			}
			got, err := Ask(testContext(t), ref, func(to Reply[string]) m { return m{to} })
			if got != "lives" || err != nil {
				t.Errorf("got %q, %v, want an answer after the restart", got, err)
			}
		})
	}
}

// Trees of every kind stop, whichever kind the parent has.
func TestKindsStopTogether(t *testing.T) {
	s := newSystem(t, Config{Dispatchers: kinds()})
	var alive atomic.Int32
	var setup func(depth int) Setup[int]
	setup = func(depth int) Setup[int] {
		return handler[int]{msg: func(Context[int], int) error { return nil }, sig: func(x Context[int], sig Signal) error {
			switch sig.(type) {
			case Started:
				alive.Add(1)
				if depth == 0 {
					return nil
				}
				for kind := range kinds() {
					if _, err := Spawn(x, kind, setup(depth-1), Props{Dispatcher: kind}); err != nil {
						return err
					}
				}
			case Stopped:
				alive.Add(-1)
			}
			return nil
		}}.setup
	}
	root := mustSpawn(t, s, "root", setup(2))
	waitFor(t, func() bool { return alive.Load() == 1+5+25 })
	root.Stop()
	if err := root.Await(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if got := alive.Load(); got != 0 || s.Stats().Actors != 0 {
		t.Errorf("got %d without Stopped and %d actors, want none", got, s.Stats().Actors)
	}
}

// An elastic dispatcher adds goroutines up to its bound and keeps none.
func TestElasticGrowsToItsBoundAndShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{"io": {Kind: Elastic, Workers: 3}}})
		release := make(chan struct{})
		var running, most atomic.Int32
		for range 10 {
			ref := mustSpawn(t, s, "", Stateless(func(Context[int], int) error {
				most.Store(max(most.Load(), running.Add(1)))
				<-release
				running.Add(-1)
				return nil
			}), Props{Dispatcher: "io"})
			_ = ref.Tell(1)
		}
		synctest.Wait()
		st := s.dispatchers["io"].stats()
		if running.Load() != 3 || st.Busy != 3 || st.Queued != 7 {
			t.Errorf("got %d handlers, %d busy and %d queued, want 3, 3 and 7", running.Load(), st.Busy, st.Queued)
		}
		<-time.After(time.Second)
		if st := s.dispatchers["io"].stats(); st.WaitNow != time.Second || st.BusyTime != 3*time.Second {
			t.Errorf("got a wait of %v and %v busy, want 1s and 3s", st.WaitNow, st.BusyTime)
		}
		close(release)
		synctest.Wait()
		// One is the dispatcher's own hold on its end.
		if got := s.dispatchers["io"].live.Load() - 1; got != 0 || most.Load() != 3 {
			t.Errorf("got %d goroutines left and %d handlers at most, want 0 and 3", got, most.Load())
		}
	})
}

// Pinned actors each have one goroutine for life; the number is bounded and
// given back, also by a spawn that fails.
func TestPinned(t *testing.T) {
	s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{"own": {Kind: Pinned, Workers: 2}}})
	ask := func(r Ref[Reply[uint64]]) uint64 {
		id, err := Ask(testContext(t), r, func(to Reply[uint64]) Reply[uint64] { return to })
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	setup := Stateless(func(_ Context[Reply[uint64]], to Reply[uint64]) error { to.Send(goroutineID()); return nil })
	own := Props{Dispatcher: "own"}
	a := mustSpawn(t, s, "a", setup, own)
	for range 5 {
		if _, err := Spawn(s, "a", setup, own); !isErr(err, ErrNameTaken) {
			t.Fatalf("got %v, want %v", err, ErrNameTaken)
		}
	}
	b := mustSpawn(t, s, "b", setup, own)
	idA, idB := ask(a), ask(b)
	if idA == idB || idA != ask(a) || idB != ask(b) {
		t.Errorf("got goroutines %d and %d then others, want two that stay", idA, idB)
	}
	if _, err := Spawn(s, "c", setup, own); !isErr(err, ErrDispatcherFull) {
		t.Errorf("got %v, want %v", err, ErrDispatcherFull)
	}
	b.Stop()
	waitFor(t, func() bool { // the goroutine ends just after the actor
		_, err := Spawn(s, "d", setup, own)
		return err == nil
	})
}

// A calling dispatcher has run the handler when Tell returns; what the handler
// sends runs after it, without recursion.
func TestCallingRunsInTheSender(t *testing.T) {
	s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{DefaultDispatcher: {Kind: Calling}}})
	var got []string
	b := mustSpawn(t, s, "b", Stateless(func(_ Context[int], m int) error { got = append(got, fmt.Sprint("b", m)); return nil }))
	a := mustSpawn(t, s, "a", Stateless(func(x Context[int], m int) error {
		err := Tell(x, b, m)
		got = append(got, fmt.Sprint("a", m))
		return err
	}))
	_ = a.Tell(1)
	_ = a.Tell(2)
	if want := "[a1 b1 a2 b2]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
	depth, deepest := 0, 0
	var self Ref[int]
	self = mustSpawn(t, s, "self", Stateless(func(x Context[int], m int) error {
		depth++
		defer func() { depth-- }()
		deepest = max(deepest, depth)
		if m == 0 {
			return nil
		}
		return Tell(x, self, m-1)
	}))
	_ = self.Tell(100_000)
	if deepest != 1 {
		t.Errorf("got handlers %d deep in each other, want 1", deepest)
	}
}

// A turn given to an Executor after the system has ended does nothing.
func TestTurnAfterShutdown(t *testing.T) {
	turns := make(chan Turn, 8)
	s, err := New(Config{Dispatchers: map[string]Dispatcher{"hand": {Executor: execute(func(t Turn) { turns <- t })}}})
	if err != nil {
		t.Fatal(err)
	}
	ran := false
	mustSpawn(t, s, "a", Stateless(func(Context[int], int) error { return nil }), Props{Dispatcher: "hand"})
	ctx, cancel := contextWithTimeout(t, time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); err == nil {
		t.Error("got no error of Shutdown, want one: nobody runs the turns")
	}
	turn := recv(t, turns)
	if turn.Actor().Path() != "/user/a" {
		t.Errorf("got the turn of %s, want /user/a", turn.Actor())
	}
	turn.Run()
	recv(t, s.dispatchers["hand"].ended)
	if ran {
		t.Error("got a turn after the end")
	}
}

type execute func(Turn)

func (f execute) Execute(t Turn) { f(t) }

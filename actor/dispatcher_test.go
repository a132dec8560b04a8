package actor

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

func TestDispatchStateTransitions(t *testing.T) {
	all := []phase{idle, scheduled, processing, closed}
	tests := []struct {
		name     string
		do       func(*phase)
		from, to phase
	}{
		{"begin", (*phase).begin, scheduled, processing},
		{"yield", (*phase).yield, processing, scheduled},
		{"rest", (*phase).rest, processing, idle},
		{"close", (*phase).close, processing, closed},
	}
	for _, tt := range tests {
		for _, from := range all {
			p := from
			panicked := func() (yes bool) {
				defer func() { yes = recover() != nil }()
				tt.do(&p)
				return false
			}()
			if from == tt.from && (panicked || p != tt.to) || from != tt.from && (!panicked || p != from) {
				t.Errorf("%s from %v: got %v, panicked %v", tt.name, from, p, panicked)
			}
		}
	}
	for _, from := range all {
		p := from
		if got, want := p.schedule(), from == idle; got != want || got && p != scheduled || !got && p != from {
			t.Errorf("schedule from %v: got %v and %v, want %v", from, got, p, want)
		}
	}
}

// The budget of an idle actor rests on the cell's size class.
func TestCellSize(t *testing.T) {
	if got, want := unsafe.Sizeof(cell{}), uintptr(112); got > want {
		t.Errorf("got %d bytes, want %d at most", got, want)
	}
	if got, want := unsafe.Sizeof(chunk{}), uintptr(128); got != want {
		t.Errorf("got chunk of %d bytes, want %d", got, want)
	}
}

func TestIdleActorsHaveNoGoroutineAndLittleMemory(t *testing.T) {
	const n = 100_000
	s := newSystem(t, Config{})
	var started sync.WaitGroup
	started.Add(n)
	setup := Setup[int](func(Context[int]) (Behavior[int], error) {
		started.Done()
		return &counting{}, nil
	})
	goroutines, mem := runtime.NumGoroutine(), inUse()
	for i := range n {
		mustSpawn(t, s, "actor-"+strconv.Itoa(i), setup)
	}
	started.Wait()
	perActor := (inUse() - mem) / n
	if got := runtime.NumGoroutine(); got > goroutines {
		t.Errorf("got %d goroutines with %d actors, want the %d of none", got, n, goroutines)
	}
	if perActor > 300 {
		t.Errorf("got %d bytes an actor, want 300 at most", perActor)
	}
	if got := s.Stats().Actors; got != n {
		t.Errorf("got %d actors, want %d", got, n)
	}
}

// A handler that put an actor on its own worker's queue and then holds the
// worker does not keep that actor waiting.
func TestBlockedHandlerReleasesItsQueue(t *testing.T) {
	s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{DefaultDispatcher: {Workers: 2}}})
	handled := make(chan struct{})
	b := mustSpawn(t, s, "b", Stateless(func(Context[int], int) error { close(handled); return nil }))
	a := mustSpawn(t, s, "a", Stateless(func(x Context[int], _ int) error {
		err := Tell(x, b, 1)
		recv(t, handled)
		return err
	}))
	waitFor(t, func() bool { return s.dispatchers[DefaultDispatcher].parked.Load() == 2 })
	if err := a.Tell(1); err != nil {
		t.Fatal(err)
	}
	recv(t, handled)
}

// Nor if the other worker is never parked, since a third actor keeps it busy.
func TestBusyWorkerStillSteals(t *testing.T) {
	s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{DefaultDispatcher: {Workers: 2}}})
	handled := make(chan struct{})
	b := mustSpawn(t, s, "b", Stateless(func(Context[int], int) error { close(handled); return nil }))
	busy := mustSpawn(t, s, "busy", Stateless(func(x Context[int], _ int) error { return Tell(x, x.Self(), 1) }))
	a := mustSpawn(t, s, "a", Stateless(func(x Context[int], _ int) error {
		err := Tell(x, b, 1)
		recv(t, handled)
		return err
	}))
	for _, r := range []Ref[int]{busy, a} {
		if err := r.Tell(1); err != nil {
			t.Fatal(err)
		}
	}
	recv(t, handled)
}

// With one worker held, messages from outside to any actor are handled by the
// other, whichever worker is their home.
func TestBlockedHandlerHoldsOneWorkerOnly(t *testing.T) {
	s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{DefaultDispatcher: {Workers: 2}}})
	release, entered := make(chan struct{}), make(chan struct{})
	blocked := mustSpawn(t, s, "blocked", Stateless(func(Context[int], int) error {
		close(entered)
		recv(t, release)
		return nil
	}))
	_ = blocked.Tell(1)
	recv(t, entered)
	var wg sync.WaitGroup
	wg.Add(20)
	for range 20 {
		_ = mustSpawn(t, s, "", Stateless(func(Context[int], int) error { wg.Done(); return nil })).Tell(1)
	}
	all := make(chan struct{})
	go func() { wg.Wait(); close(all) }()
	recv(t, all)
	close(release)
}

// One pool's blocked handlers do not delay another pool.
func TestDispatchersAreSeparate(t *testing.T) {
	s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{"control": {Workers: 1}, "close": {Workers: 1}}})
	handled := make(chan struct{})
	closer := mustSpawn(t, s, "closer", Stateless(func(Context[int], int) error { close(handled); return nil }), Props{Dispatcher: "close"})
	control := mustSpawn(t, s, "control", Stateless(func(x Context[int], _ int) error {
		err := Tell(x, closer, 1)
		recv(t, handled)
		return err
	}), Props{Dispatcher: "control"})
	_ = control.Tell(1)
	recv(t, handled)
}

// order returns in which order one worker handles 10 messages of a and one of b
// that comes when a has begun its first.
func order(t *testing.T, d Dispatcher, each time.Duration) (aBeforeB int) {
	d.Workers = 1
	s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{DefaultDispatcher: d}})
	gate, entered := make(chan struct{}), make(chan struct{}, 1)
	hold := mustSpawn(t, s, "hold", Stateless(func(Context[int], int) error { entered <- struct{}{}; <-gate; return nil }))
	n := 0
	a := mustSpawn(t, s, "a", Stateless(func(Context[int], int) error {
		n++
		if each > 0 {
			<-time.After(each)
		}
		return nil
	}))
	at := make(chan int, 1)
	b := mustSpawn(t, s, "b", Stateless(func(Context[int], int) error { at <- n; return nil }))
	_ = hold.Tell(1)
	<-entered
	for range 10 {
		_ = a.Tell(1)
	}
	_ = b.Tell(1)
	close(gate)
	return <-at
}

func TestTurnIsBounded(t *testing.T) {
	tests := []struct {
		name string
		d    Dispatcher
		each time.Duration
		want int
	}{
		{"throughput 1", Dispatcher{Throughput: 1}, 0, 1},
		{"throughput default", Dispatcher{}, 0, 5},
		{"throughput 8", Dispatcher{Throughput: 8}, 0, 8},
		{"deadline", Dispatcher{Throughput: 100, TurnDeadline: 5 * time.Millisecond}, 2 * time.Millisecond, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := order(t, tt.d, tt.each); got != tt.want {
					t.Errorf("got %d messages of a before b, want %d", got, tt.want)
				}
			})
		})
	}
}

// A handler that ends its goroutine is a failure; the worker is replaced.
func TestGoexitIsAFailure(t *testing.T) {
	s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{DefaultDispatcher: {Workers: 1}}})
	failed := Subscribe[ActorFailed](s, 8)
	var starts atomic.Int32
	type m struct{ to Reply[int32] }
	ref := mustSpawn(t, s, "a", func(Context[m]) (Behavior[m], error) {
		starts.Add(1)
		return Func[m](func(_ Context[m], m m) error {
			if starts.Load() == 1 {
				runtime.Goexit()
			}
			m.to.Send(starts.Load())
			return nil
		}), nil
	}, Props{Supervision: Supervision{Backoff: quickly}})
	ask := func(to Reply[int32]) m { return m{to} }
	if _, err := Ask(testContext(t), ref, ask); !isErr(err, ErrGoexit) {
		t.Errorf("got %v, want %v", err, ErrGoexit)
	}
	if got := recv(t, failed.C()).Failure; !isErr(got, ErrGoexit) || got.Path != "/user/a" {
		t.Errorf("got %v, want %v of /user/a", got, ErrGoexit)
	}
	if got, err := Ask(testContext(t), ref, ask); got != 2 || err != nil {
		t.Errorf("got %d, %v, want an answer of the second behavior", got, err)
	}
}

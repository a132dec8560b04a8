package actor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// stressed is the behavior of an actor that does a bit of everything.
func stressed(handled, told *atomic.Int64) Setup[int] {
	var setup Setup[int]
	tell := func(x Context[int], to Ref[int], m int) {
		told.Add(1)
		_ = Tell(x, to, m)
	}
	handle := func(x Context[int], m int) error {
		if m < 0 { // a timer's message, not counted
			return nil
		}
		switch m % 40 {
		case 1:
			handled.Add(1)
			return errBoom
		case 2:
			handled.Add(1)
			panic("kaboom")
		case 3:
			x.Stop()
		case 4:
			x.Passivate()
		case 5:
			if x.Stash() == nil {
				return nil // counted when it comes back, or when it is lost
			}
		case 6:
			x.Unstash()
		case 7, 8:
			if kid, err := Spawn(x, "", setup, stressProps(m)); err == nil {
				x.Watch(kid)
				tell(x, kid, m/2)
			}
		case 9:
			x.ReceiveTimeout(time.Duration(m)*time.Microsecond, -1)
		case 10:
			x.Every(time.Duration(1+m)*time.Microsecond, -1)
		case 11, 12, 13:
			if peer, err := Lookup[int](x.System(), fmt.Sprintf("/user/%d", m%7)); err == nil {
				x.Watch(peer)
				tell(x, peer, m+1)
			}
		case 14:
			told.Add(1)
			if PipeToSelf(x, func(context.Context) (int, error) { return m, nil }, func(n int, _ error) int { return n + 1 }) != nil {
				told.Add(-1)
			}
		}
		handled.Add(1)
		return nil
	}
	setup = handler[int]{msg: handle}.setup
	return setup
}

func stressProps(n int) Props {
	return Props{
		Dispatcher: []string{"", "two", "io", "pinned", "custom"}[n%5],
		Mailbox:    Mailbox{Capacity: 8, Overflow: []Overflow{Block, Reject, DropOldest, DropNewest}[n%4], Order: []Order{FIFO, ByPriority, ControlFirst}[n%3]},
		Supervision: Supervision{
			OnPanic: []Directive{Restart, Escalate, Stop, Resume}[n%4], Backoff: quickly,
			Scope: []Scope{OneForOne, AllForOne}[n%2],
		},
		Stash: 4,
	}
}

// 100 systems are spawned into, told, watched, failed, stopped and shut down from
// many goroutines at once: none hangs, leaks, or loses a message.
func TestStressRounds(t *testing.T) {
	seed := rand.Uint64()
	before := goleak.IgnoreCurrent()
	for round := range 100 {
		s, err := New(Config{Dispatchers: map[string]Dispatcher{
			DefaultDispatcher: {Workers: 2}, "two": {Workers: 2, Throughput: 1},
			"io": {Kind: Elastic, Workers: 3}, "pinned": {Kind: Pinned, Workers: 8}, "custom": {Executor: spawning{}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		var handled, told atomic.Int64
		setup := stressed(&handled, &told)
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(round*10+g)))
				for range 60 {
					name := fmt.Sprint(r.IntN(7))
					ref, err := Lookup[int](s, "/user/"+name)
					if err != nil {
						if ref, err = Spawn(s, name, setup, stressProps(r.IntN(60))); err != nil {
							continue // taken by another goroutine, no pinned goroutine left, or shut down
						}
					}
					if r.IntN(30) == 0 {
						ref.Stop()
					}
					told.Add(1)
					_ = ref.Tell(r.IntN(400))
				}
			})
		}
		if round%2 == 0 {
			wg.Wait()
		}
		if err := s.Shutdown(testContext(t)); err != nil {
			t.Fatalf("seed %d round %d: %v", seed, round, err)
		}
		wg.Wait()
		st := s.Stats()
		lost := int64(0)
		for _, n := range st.DeadLetters {
			lost += int64(n)
		}
		if got, want := handled.Load()+lost, told.Load(); got < want || st.Actors != 0 || st.Timers != 0 || st.Suspended != 0 {
			t.Fatalf("seed %d round %d: got %d handled + %d lost of %d told, %+v", seed, round, handled.Load(), lost, want, st)
		}
		if err := goleak.Find(before); err != nil {
			t.Fatalf("seed %d round %d: %v", seed, round, err)
		}
	}
}

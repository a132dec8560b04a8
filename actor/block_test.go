package actor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func contextWithTimeout(t testing.TB, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

// oneWorker is a system whose default dispatcher has one worker.
func oneWorker() Config {
	return Config{Dispatchers: map[string]Dispatcher{DefaultDispatcher: {Workers: 1}}}
}

func blocking2() Props { return Props{Mailbox: Mailbox{Capacity: 2, Overflow: Block}} }

// A producer and a slow consumer with a mailbox of 2 share one worker. The
// producer is suspended again and again, the worker never: all arrives, in order,
// nothing is refused. If a send in a turn held its worker, this would hang.
func TestBlockSuspendsTheActorNotItsWorker(t *testing.T) {
	tells := map[string]func(Context[int], Ref[int], int) error{
		"Tell":     Tell[int, int],
		"Ref.Tell": func(_ Context[int], to Ref[int], m int) error { return to.Tell(m) },
	}
	for name, tell := range tells {
		for kind, d := range map[string]Dispatcher{"shared": {Workers: 1}, "elastic": {Kind: Elastic, Workers: 1}, "calling": {Kind: Calling}} {
			t.Run(name+" "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const n = 100
					s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{DefaultDispatcher: d}})
					var got []int
					most := 0
					all := make(chan struct{})
					var consumer Ref[int]
					consumer = mustSpawn(t, s, "consumer", Stateless(func(x Context[int], m int) error {
						c := consumer.to.(*cell)
						c.mu.Lock()
						most = max(most, int(c.waiting))
						c.mu.Unlock()
						if got = append(got, m); len(got) == n {
							close(all)
						}
						return nil
					}), blocking2())
					producer := mustSpawn(t, s, "producer", Stateless(func(x Context[int], m int) error {
						return tell(x, consumer, m)
					}), Props{Mailbox: Mailbox{Capacity: Unbounded}})
					for i := range n {
						_ = producer.Tell(i)
					}
					<-all
					if !slices.IsSorted(got) || most > 4 {
						t.Errorf("got %v with %d waiting at most, want order and 4 at most", got, most)
					}
					synctest.Wait()
					if st := s.Stats(); st.DeadLetters[ReasonOverflow] != 0 || st.Suspended != 0 || st.Timers != 0 || st.Failures != 0 {
						t.Errorf("got %+v, want nothing lost, suspended, or armed", st)
					}
				})
			})
		}
	}
}

// While suspended the sender handles nothing, and Stats says so.
func TestSuspendedSenderWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{"other": {}}})
		gate, handled := make(chan struct{}), 0
		receiver := mustSpawn(t, s, "receiver", Stateless(func(Context[int], int) error { <-gate; return nil }), blocking2())
		sender := mustSpawn(t, s, "sender", Stateless(func(x Context[int], m int) error {
			handled++
			return Tell(x, receiver, m)
		}), Props{Dispatcher: "other"})
		for i := range 10 {
			_ = sender.Tell(i)
			synctest.Wait() // the receiver takes one message at a time
		}
		// One is being handled, two wait, the fourth is beyond the bound.
		if tree, err := s.Tree("/user/sender", 0); handled != 4 || s.Stats().Suspended != 1 || err != nil || tree.State != "suspended" {
			t.Errorf("got %d handled and %+v, want 4 and a suspended sender", handled, tree)
		}
		for i := 5; i <= 9; i++ {
			gate <- struct{}{}
			synctest.Wait()
		}
		if handled < 7 {
			t.Errorf("got %d handled after the receiver went on, want more", handled)
		}
		close(gate)
		synctest.Wait()
		if handled != 10 || s.Stats().Suspended != 0 {
			t.Errorf("got %d handled, %d suspended, want 10 and none", handled, s.Stats().Suspended)
		}
	})
}

// Goroutines wait their turn; room, a deadline, ctx and the receiver's end each
// end the wait.
func TestBlockMakesGoroutinesWait(t *testing.T) {
	type end struct {
		err error
		at  time.Duration
	}
	tests := []struct {
		name string
		tell func(context.Context, Ref[int]) error
		then func(Ref[int], chan<- struct{})
		want end
	}{
		{"room", func(_ context.Context, r Ref[int]) error { return r.Tell(9) },
			func(_ Ref[int], gate chan<- struct{}) { gate <- struct{}{} }, end{nil, time.Second}},
		{"room with ctx", func(ctx context.Context, r Ref[int]) error { return r.TellContext(ctx, 9) },
			func(_ Ref[int], gate chan<- struct{}) { gate <- struct{}{} }, end{nil, time.Second}},
		{"limit", func(_ context.Context, r Ref[int]) error { return r.Tell(9) },
			func(Ref[int], chan<- struct{}) {}, end{ErrMailboxFull, 30 * time.Second}},
		{"ctx", func(ctx context.Context, r Ref[int]) error { return r.TellContext(ctx, 9) },
			func(Ref[int], chan<- struct{}) {}, end{context.DeadlineExceeded, 5 * time.Second}},
		{"stop", func(_ context.Context, r Ref[int]) error { return r.Tell(9) },
			func(r Ref[int], gate chan<- struct{}) { r.Stop(); gate <- struct{}{} }, end{ErrStopped, time.Second}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSystem(t, Config{})
				gate, begin := make(chan struct{}), time.Now()
				ref := mustSpawn(t, s, "a", Stateless(func(Context[int], int) error { <-gate; return nil }), blocking2())
				for i := range 3 {
					_ = ref.Tell(i)
					synctest.Wait()
				}
				ctx, cancel := contextWithTimeout(t, 5*time.Second)
				defer cancel()
				ended := make(chan end, 1)
				go func() {
					err := tt.tell(ctx, ref)
					ended <- end{err, time.Since(begin)}
				}()
				<-time.After(time.Second)
				tt.then(ref, gate)
				got := <-ended
				if !errors.Is(got.err, tt.want.err) || got.at != tt.want.at {
					t.Errorf("got %v at %v, want %v at %v", got.err, got.at, tt.want.err, tt.want.at)
				}
				close(gate)
				synctest.Wait()
				c := ref.to.(*cell)
				c.mu.Lock()
				if c.waiting != 0 || c.links != nil && len(c.links.line) > 0 {
					t.Errorf("got %d counted and %+v in line, want none", c.waiting, c.links)
				}
				c.mu.Unlock()
				if got, want := s.Stats().DeadLetters, got.err != nil; (got[ReasonOverflow]+got[ReasonStopped] > 0) != want {
					t.Errorf("got dead letters %v, want some: %v", got, want)
				}
			})
		})
	}
}

func TestAskOfABlockingMailboxEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		gate := make(chan struct{})
		defer close(gate)
		ref := mustSpawn(t, s, "a", Stateless(func(Context[Reply[int]], Reply[int]) error { <-gate; return nil }), blocking2())
		for range 3 {
			_ = ref.Tell(Reply[int]{})
			synctest.Wait()
		}
		ctx, cancel := contextWithTimeout(t, time.Second)
		defer cancel()
		begin := time.Now()
		_, err := Ask(ctx, ref, func(to Reply[int]) Reply[int] { return to })
		if !isErr(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("got %v after %v, want the deadline after 1s", err, time.Since(begin))
		}
	})
}

// An actor that tells itself, and one that sends without measure in one handler,
// are refused instead of waiting for ever or growing without bound.
func TestBlockRefusesWhatCannotWait(t *testing.T) {
	s := newSystem(t, oneWorker())
	got := make(chan []error, 1)
	var self Ref[int]
	self = mustSpawn(t, s, "self", Stateless(func(x Context[int], m int) error {
		if m == 0 {
			var errs []error
			for range 4 {
				errs = append(errs, Tell(x, self, 1))
			}
			got <- errs
		}
		return nil
	}), blocking2())
	_ = self.Tell(0)
	if errs := recv(t, got); errs[0] != nil || errs[1] != nil || errs[2] != ErrMailboxFull || errs[3] != ErrMailboxFull {
		t.Errorf("got %v of itself, want 2 taken", errs)
	}
	idle := mustSpawn(t, s, "idle", Stateless(func(Context[int], int) error { return nil }), blocking2())
	flood := mustSpawn(t, s, "flood", Stateless(func(x Context[int], _ int) error {
		var errs []error
		for range 6 {
			errs = append(errs, Tell(x, idle, 1))
		}
		got <- errs
		return nil
	}))
	_ = flood.Tell(1)
	if errs := recv(t, got); errs[3] != nil || errs[4] != ErrMailboxFull || errs[5] != ErrMailboxFull {
		t.Errorf("got %v, want the capacity of 2 and 2 beyond it", errs)
	}
}

// Two actors that wait for each other go on after MaxBlock.
func TestMutualBlockEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, oneWorker())
		props := Props{Mailbox: Mailbox{Capacity: 1, Overflow: Block, MaxBlock: time.Second}}
		var refs [2]Ref[int]
		var handled [2]int
		for i := range refs {
			refs[i] = mustSpawn(t, s, fmt.Sprint(i), Stateless(func(x Context[int], m int) error {
				handled[i]++
				if m == 0 {
					return nil
				}
				_ = Tell(x, refs[1-i], m-1)
				return Tell(x, refs[1-i], m-1)
			}), props)
		}
		begin := time.Now()
		_ = refs[0].Tell(6)
		<-time.After(10 * time.Minute)
		if got, lost := handled[0]+handled[1], int(s.Stats().DeadLetters[ReasonOverflow]); got+lost == 0 || s.Stats().Suspended != 0 {
			t.Errorf("got %d handled, %d lost, %d suspended %v after the start", got, lost, s.Stats().Suspended, time.Since(begin))
		}
		if tree, err := s.Tree("/user", 0); err != nil || tree.Children[0].Waiting+tree.Children[1].Waiting != 0 {
			t.Errorf("got\n%vwant nothing waiting", tree)
		}
	})
}

// A suspended sender that is stopped stops; a receiver that stops frees its
// senders.
func TestSuspensionEndsWithEitherSide(t *testing.T) {
	for _, side := range []string{"sender", "receiver"} {
		t.Run(side, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{"other": {}}})
				gate := make(chan struct{})
				receiver := mustSpawn(t, s, "receiver", Stateless(func(Context[int], int) error { <-gate; return nil }), blocking2())
				handled := 0
				sender := mustSpawn(t, s, "sender", Stateless(func(x Context[int], m int) error {
					handled++
					_ = Tell(x, receiver, m)
					return nil
				}), Props{Dispatcher: "other"})
				for i := range 6 {
					_ = sender.Tell(i)
					synctest.Wait()
				}
				if s.Stats().Suspended != 1 {
					t.Fatalf("got %d suspended, want the sender", s.Stats().Suspended)
				}
				if side == "sender" {
					sender.Stop()
					if err := sender.Await(testContext(t)); err != nil {
						t.Error(err)
					}
				} else {
					receiver.Stop()
				}
				close(gate)
				synctest.Wait()
				if want := map[string]int{"sender": 4, "receiver": 6}[side]; handled != want || s.Stats().Suspended != 0 || s.Stats().Timers != 0 {
					t.Errorf("got %d handled and %+v, want %d and nothing suspended", handled, s.Stats(), want)
				}
			})
		})
	}
}

// Many goroutines and actors send to one blocking mailbox: all arrives.
func TestBlockRace(t *testing.T) {
	s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{DefaultDispatcher: {Workers: 2}}})
	const senders, each = 8, 300
	var wg sync.WaitGroup
	wg.Add(2 * senders * each)
	sink := mustSpawn(t, s, "sink", Stateless(func(Context[int], int) error { wg.Done(); return nil }),
		Props{Mailbox: Mailbox{Capacity: 3, Overflow: Block}})
	for range senders {
		a := mustSpawn(t, s, "", Stateless(func(x Context[int], m int) error { return Tell(x, sink, m) }),
			Props{Mailbox: Mailbox{Capacity: 2, Overflow: Block}})
		for _, to := range []Ref[int]{a, sink} {
			go func() {
				for i := range each {
					if err := to.Tell(i); err != nil {
						t.Error(err)
					}
				}
			}()
		}
	}
	wg.Wait()
	if got := s.Stats().DeadLetters[ReasonOverflow]; got != 0 {
		t.Errorf("got %d lost", got)
	}
}

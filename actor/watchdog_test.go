package actor

import (
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// An actor that holds its worker is named once the limit has passed, again when
// that has doubled, and not when it holds it for less.
func TestWatchdogNamesHolders(t *testing.T) {
	for kind, d := range map[string]Dispatcher{
		"shared": {Workers: 2}, "elastic": {Kind: Elastic}, "pinned": {Kind: Pinned},
		"custom": {Executor: spawning{}},
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d.HoldLimit = time.Second
				s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{DefaultDispatcher: d}})
				held := Subscribe[WorkerHeld](s, 8)
				hold := Stateless(func(_ Context[time.Duration], d time.Duration) error { <-time.After(d); return nil })
				long, short := mustSpawn(t, s, "long", hold), mustSpawn(t, s, "short", hold)
				_ = long.Tell(5 * time.Second)
				for range 10 {
					_ = short.Tell(900 * time.Millisecond)
				}
				<-time.After(time.Minute)
				for _, want := range []time.Duration{1, 2, 4} {
					want *= time.Second
					if got := <-held.C(); got.Path != "/user/long" || got.Dispatcher != DefaultDispatcher || got.For < want || got.For > want+2*dogTick {
						t.Errorf("got %+v, want /user/long for %v", got, want)
					}
				}
				if n := len(held.C()); n != 0 {
					t.Errorf("got %d events more, first %+v", n, <-held.C())
				}
			})
		})
	}
}

func TestWatchdogCanBeSilenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{DefaultDispatcher: {HoldLimit: -1}}})
		held := Subscribe[WorkerHeld](s, 8)
		_ = mustSpawn(t, s, "a", Stateless(func(Context[int], int) error { <-time.After(time.Hour); return nil })).Tell(1)
		<-time.After(2 * time.Hour)
		if n := len(held.C()); n != 0 {
			t.Errorf("got %d events, want none", n)
		}
	})
}

// Loads are arrival rate × service time: 0.6 of a second each second is 0.6.
func TestHottestAndUtilisation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{DefaultDispatcher: {Workers: 2}}})
		busy := func(name string, share time.Duration) {
			mustSpawn(t, s, name, handler[int]{
				msg: func(Context[int], int) error { <-time.After(share); return nil },
				sig: func(x Context[int], sig Signal) error {
					if sig == (Started{}) {
						x.Every(time.Second, 1)
					}
					return nil
				},
			}.setup)
		}
		busy("warm", 200*time.Millisecond)
		busy("hot", 600*time.Millisecond)
		before := s.Dispatchers()[0]
		<-time.After(60 * time.Second)
		got := s.Hottest(5)
		for i, want := range []ActorLoad{{Path: "/user/hot", Load: 0.6}, {Path: "/user/warm", Load: 0.2}} {
			if got[i].Path != want.Path || math.Abs(got[i].Load-want.Load) > 0.08 || got[i].Dispatcher != DefaultDispatcher {
				t.Errorf("got %+v, want %+v", got[i], want)
			}
		}
		d := s.Dispatchers()[0].Since(before)
		if u := d.Utilisation(); math.Abs(u-0.4) > 0.06 {
			t.Errorf("got utilisation %.2f, want (0.6 + 0.2) / 2", u)
		}
		if d.Messages < 2*59-8 || d.Messages > 2*60 {
			t.Errorf("got %d messages, want about 120", d.Messages)
		}
	})
}

// One worker is held for 3 s: the actors behind it show as queued, waiting, and
// afterwards as the longest wait; the turn shows as the longest turn.
func TestDispatcherStatsOfAHeldWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, oneWorker())
		stats := func() DispatcherStats { return s.Dispatchers()[0] }
		a := mustSpawn(t, s, "a", Stateless(func(Context[int], int) error { <-time.After(3 * time.Second); return nil }))
		synctest.Wait()
		_ = a.Tell(1)
		synctest.Wait()
		for i := range 4 {
			mustSpawn(t, s, strconv.Itoa(i), Stateless(func(Context[int], int) error { return nil }))
		}
		<-time.After(2 * time.Second)
		if st := stats(); st.Busy != 1 || st.Queued != 4 || st.WaitNow < 1900*time.Millisecond || st.Workers != 1 || st.Name != DefaultDispatcher {
			t.Errorf("got %+v, want 1 busy, 4 queued for about 2s", st)
		}
		<-time.After(2 * time.Second)
		st := stats()
		if st.Busy != 0 || st.Queued != 0 || st.WaitNow != 0 || st.MaxWait < 2900*time.Millisecond || st.MaxTurn < 1900*time.Millisecond {
			t.Errorf("got %+v, want idle, a wait of about 3s and a turn of 2s and more", st)
		}
		if st.Turns != 6 || st.Messages != 1 {
			t.Errorf("got %d turns of %d messages, want 6 of 1", st.Turns, st.Messages)
		}
		<-time.After(time.Minute)
		if st := stats(); st.MaxWait != 0 || st.MaxTurn != 0 {
			t.Errorf("got %+v, want the peaks forgotten", st)
		}
	})
}

// A scheduled actor does not wait behind a long handler while a worker is parked,
// also when that handler made it runnable: fake time shows how long it waited.
func TestHandOffBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{Dispatchers: map[string]Dispatcher{DefaultDispatcher: {Workers: 2}}})
		waited := make(chan time.Duration, 1)
		var sent time.Time
		b := mustSpawn(t, s, "b", Stateless(func(Context[int], int) error { waited <- time.Since(sent); return nil }))
		a := mustSpawn(t, s, "a", Stateless(func(x Context[int], _ int) error {
			sent = time.Now()
			err := Tell(x, b, 1)
			<-time.After(10 * time.Second)
			return err
		}))
		synctest.Wait()
		_ = a.Tell(1)
		if got := <-waited; got > 2*watchTick {
			t.Errorf("got a wait of %v behind the handler, want %v at most", got, 2*watchTick)
		}
	})
}

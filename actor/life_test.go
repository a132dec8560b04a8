package actor

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnel-dev/runnel/retry"
)

// quickly restarts at once, without limit.
var quickly = retry.Policy{Multiplier: 1}

func isErr(err, want error) bool { return errors.Is(err, want) }

// waitFor polls a condition that has no channel.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("condition did not come true within 30 s")
		}
	}
}

// trace collects what happened, in order.
type trace struct {
	mu  sync.Mutex
	all []string
}

func (tr *trace) add(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.all = append(tr.all, fmt.Sprintf(format, args...))
}

func (tr *trace) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return strings.Join(tr.all, "\n")
}

// traced is a handler that traces signals.
func traced[M any](tr *trace, msg func(Context[M], M) error) handler[M] {
	return handler[M]{msg, func(x Context[M], s Signal) error {
		switch s := s.(type) {
		case Terminated:
			tr.add("%s: terminated %s cause %v", x.Path(), s.Addr, s.Cause)
		case Stopped:
			tr.add("%s: stopped cause %v", x.Path(), s.Cause)
		case Restarting:
			tr.add("%s: restarting %v", x.Path(), s.Cause)
		default:
			tr.add("%s: started", x.Path())
		}
		return nil
	}}
}

var errBoom = errors.New("boom")

func TestRestartWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		begin := time.Now()
		var setups []time.Duration
		got := make(chan int, 4)
		ref := mustSpawn(t, s, "a", func(Context[int]) (Behavior[int], error) {
			setups = append(setups, time.Since(begin))
			if len(setups) == 3 {
				return nil, errBoom // a failed Setup counts like a failed handler
			}
			return Func[int](func(_ Context[int], m int) error {
				if m < 0 {
					return errBoom
				}
				got <- m
				return nil
			}), nil
		}, Props{Supervision: Supervision{Backoff: retry.Policy{Initial: time.Second, Multiplier: 2}, ResetAfter: time.Minute}})
		for _, m := range []int{-1, -2, 1} {
			_ = ref.Tell(m)
		}
		if m := <-got; m != 1 {
			t.Errorf("got %d, want 1: the mailbox is kept", m)
		}
		// After a minute without failure the count begins anew.
		<-time.After(time.Minute)
		_ = ref.Tell(-3)
		_ = ref.Tell(2)
		<-got
		want := []time.Duration{0, 1 * time.Second, 3 * time.Second, 7 * time.Second, 68 * time.Second}
		if !slices.Equal(setups, want) {
			t.Errorf("got setups at %v, want %v", setups, want)
		}
	})
}

func TestRestartBudgetExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		failed := Subscribe[ActorFailed](s, 16)
		var tr trace
		done := make(chan Terminated, 1)
		failing := traced(&tr, func(Context[int], int) error { return errBoom })
		mustSpawn(t, s, "parent", handler[int]{
			sig: func(x Context[int], sig Signal) error {
				switch sig := sig.(type) {
				case Started:
					kid, err := Spawn(x, "kid", failing.setup, Props{Supervision: Supervision{
						Backoff: retry.Policy{Initial: time.Second, MaxAttempts: 2}}})
					x.Watch(kid)
					for range 5 {
						_ = Tell(x, kid, 1)
					}
					return err
				case Terminated:
					done <- sig
				}
				return nil
			},
		}.setup)
		sig := <-done
		if sig.Addr.Path() != "/user/parent/kid" || !isErr(sig.Cause, ErrRestartsExhausted) || !isErr(sig.Cause, errBoom) {
			t.Errorf("got %+v, want /user/parent/kid out of restarts by boom", sig)
		}
		want := `/user/parent/kid: started
/user/parent/kid: restarting actor /user/parent/kid: boom
/user/parent/kid: started
/user/parent/kid: restarting actor /user/parent/kid: boom
/user/parent/kid: started
/user/parent/kid: stopped cause restart budget exhausted (2 restarts): actor /user/parent/kid: boom`
		if got := tr.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		for i, want := range []Directive{Restart, Restart, Stop} {
			if e := <-failed.C(); e.Directive != want || want == Restart && e.Attempt != i+1 {
				t.Errorf("got %v attempt %d, want %v attempt %d", e.Directive, e.Attempt, want, i+1)
			}
		}
		if got := s.Stats().DeadLetters[ReasonStopped]; got != 2 {
			t.Errorf("got %d dead letters, want the 2 unhandled messages", got)
		}
	})
}

func TestDirectives(t *testing.T) {
	boomPanic := func() error { panic("kaboom") }
	tests := []struct {
		name string
		sup  Supervision
		fail func() error
		want Directive
	}{
		{"error resumes", Supervision{OnError: Resume}, func() error { return errBoom }, Resume},
		{"error stops", Supervision{OnError: Stop}, func() error { return errBoom }, Stop},
		{"error restarts by default", Supervision{}, func() error { return errBoom }, Restart},
		{"panic resumes", Supervision{OnPanic: Resume}, boomPanic, Resume},
		{"panic restarts by default", Supervision{}, boomPanic, Restart},
		{"permanent stops by default", Supervision{}, func() error { return retry.Permanent(errBoom) }, Stop},
		{"permanent restarts", Supervision{OnPermanent: Restart}, func() error { return retry.Permanent(errBoom) }, Restart},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t, Config{})
			failed := Subscribe[ActorFailed](s, 4)
			starts := 0
			tt.sup.Backoff = quickly
			type m struct{ to Reply[int] }
			ref := mustSpawn(t, s, "a", func(Context[m]) (Behavior[m], error) {
				starts++
				return Func[m](func(_ Context[m], m m) error {
					if m.to == (Reply[int]{}) {
						return tt.fail()
					}
					m.to.Send(starts)
					return nil
				}), nil
			}, Props{Supervision: tt.sup})
			_ = ref.Tell(m{})
			e := recv(t, failed.C())
			if e.Directive != tt.want || e.Failure.Path != "/user/a" {
				t.Errorf("got %v of %s, want %v of /user/a", e.Directive, e.Failure.Path, tt.want)
			}
			if isPanic := e.Failure.Panic != nil; isPanic != strings.Contains(tt.name, "panic") ||
				isPanic && !strings.Contains(string(e.Failure.Stack), "TestDirectives") {
				t.Errorf("got panic %v with stack\n%s", e.Failure.Panic, e.Failure.Stack)
			}
			got, err := Ask(testContext(t), ref, func(to Reply[int]) m { return m{to} })
			want := map[Directive]int{Resume: 1, Restart: 2}[tt.want]
			if got != want || (tt.want == Stop) != isErr(err, ErrStopped) {
				t.Errorf("got behavior %d and %v, want %d", got, err, want)
			}
		})
	}
}

// Children end before their parents, each signal in its place.
func TestStopOrder(t *testing.T) {
	s := newSystem(t, Config{})
	var tr trace
	leaf := traced(&tr, func(Context[int], int) error { return nil })
	mid := leaf
	mid.sig = func(x Context[int], sig Signal) error {
		if _, ok := sig.(Started); ok {
			_, err := Spawn(x, "leaf", leaf.setup)
			return err
		}
		return leaf.sig(x, sig)
	}
	top := mid
	top.sig = func(x Context[int], sig Signal) error {
		if _, ok := sig.(Started); ok {
			_, err := Spawn(x, "mid", mid.setup)
			return err
		}
		return leaf.sig(x, sig)
	}
	ref := mustSpawn(t, s, "top", top.setup)
	waitFor(t, func() bool { return strings.Contains(tr.String(), "started") })
	ref.Stop()
	if err := ref.Await(testContext(t)); err != nil {
		t.Fatal(err)
	}
	want := `/user/top/mid/leaf: started
/user/top/mid/leaf: stopped cause <nil>
/user/top/mid: stopped cause <nil>
/user/top: stopped cause <nil>`
	if got := tr.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	mustSpawn(t, s, "top", leaf.setup) // the name is free again
}

// A restart stops the children before the next Setup, so their names are free.
func TestRestartStopsChildren(t *testing.T) {
	s := newSystem(t, Config{})
	kidStopped, setups := 0, make(chan int, 4)
	kid := handler[int]{
		msg: func(Context[int], int) error { return nil },
		sig: func(_ Context[int], sig Signal) error {
			if _, ok := sig.(Stopped); ok {
				kidStopped++
			}
			return nil
		},
	}
	var first Ref[int]
	ref := mustSpawn(t, s, "a", func(x Context[int]) (Behavior[int], error) {
		setups <- kidStopped
		r, err := Spawn(x, "kid", kid.setup)
		if first.IsZero() {
			first = r
		}
		x.Watch(first) // the earlier incarnation's watch must not signal the later one
		return handler[int]{
			msg: func(Context[int], int) error { return errBoom },
			sig: func(_ Context[int], sig Signal) error {
				if tm, ok := sig.(Terminated); ok && tm.Addr != first.Addr() {
					t.Errorf("got %+v, want the first kid", tm)
				}
				return nil
			},
		}, err
	}, Props{Supervision: Supervision{Backoff: quickly}})
	_ = ref.Tell(1)
	for want := range 2 {
		if got := recv(t, setups); got != want {
			t.Errorf("setup %d: got %d children stopped, want %d", want+1, got, want)
		}
	}
}

// Terminated comes behind the messages of the one that terminated, once, and at
// once if it had already stopped.
func TestWatch(t *testing.T) {
	s := newSystem(t, Config{})
	got := make(chan string, 8)
	var target Ref[Ref[string]]
	boss := mustSpawn(t, s, "boss", handler[string]{
		msg: func(x Context[string], m string) error {
			switch m {
			case "watch":
				x.Watch(target)
				x.Watch(target)
			case "unwatch":
				x.Unwatch(target)
			}
			got <- m
			return nil
		},
		sig: func(_ Context[string], sig Signal) error {
			if sig, ok := sig.(Terminated); ok {
				got <- "terminated " + sig.Addr.Path()
			}
			return nil
		},
	}.setup)
	expect := func(want ...string) {
		t.Helper()
		for _, w := range want {
			if g := recv(t, got); g != w {
				t.Errorf("got %q, want %q", g, w)
			}
		}
	}
	talker := Stateless(func(x Context[Ref[string]], to Ref[string]) error {
		for i := range 3 {
			if err := Tell(x, to, fmt.Sprint(i)); err != nil {
				return err
			}
		}
		x.Stop()
		return nil
	})
	target = mustSpawn(t, s, "one", talker)
	_ = boss.Tell("watch")
	expect("watch")
	_ = target.Tell(boss)
	expect("0", "1", "2", "terminated /user/one")
	_ = boss.Tell("watch")
	expect("watch", "terminated /user/one") // dead already

	if err := target.Await(testContext(t)); err != nil {
		t.Fatal(err)
	}
	target = mustSpawn(t, s, "one", talker)
	_ = boss.Tell("watch")
	_ = boss.Tell("unwatch")
	expect("watch", "unwatch")
	_ = target.Tell(boss)
	expect("0", "1", "2")
	if err := target.Await(testContext(t)); err != nil {
		t.Fatal(err)
	}
	_ = boss.Tell("end")
	expect("end")
}

// An actor that watches others leaves nothing with them when it ends or
// restarts; several watchers are all told.
func TestWatchersComeAndGo(t *testing.T) {
	s := newSystem(t, Config{})
	told := make(chan string, 8)
	target := mustSpawn(t, s, "target", Stateless(func(Context[int], int) error { return nil }))
	watching := make(chan struct{}, 8)
	setup := handler[error]{
		msg: func(_ Context[error], m error) error { return m },
		sig: func(x Context[error], sig Signal) error {
			switch sig.(type) {
			case Started:
				x.Watch(target)
				watching <- struct{}{}
			case Terminated:
				told <- x.Path()
			}
			return nil
		},
	}.setup
	var refs []Ref[error]
	for i := range 6 {
		refs = append(refs, mustSpawn(t, s, fmt.Sprint(i), setup, Props{Supervision: Supervision{Backoff: quickly}}))
		recv(t, watching)
	}
	for _, r := range refs[:3] {
		r.Stop()
		if err := r.Await(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	_ = refs[3].Tell(errBoom) // restarts and watches again
	recv(t, watching)
	c := target.to.(*cell)
	c.mu.Lock()
	got := len(c.links.more)
	if c.links.watcher != (watcher{}) {
		got++
	}
	c.mu.Unlock()
	if got != 3 {
		t.Errorf("got %d watchers kept, want 3", got)
	}
	target.Stop()
	paths := []string{recv(t, told), recv(t, told), recv(t, told)}
	slices.Sort(paths)
	if want := []string{"/user/3", "/user/4", "/user/5"}; !slices.Equal(paths, want) {
		t.Errorf("got %v told, want %v", paths, want)
	}
}

func TestBecome(t *testing.T) {
	s := newSystem(t, Config{})
	type m struct{ to Reply[string] }
	second := Func[m](func(_ Context[m], m m) error { m.to.Send("second"); return nil })
	ref := mustSpawn(t, s, "a", Stateless(func(x Context[m], m m) error {
		x.Become(second)
		m.to.Send("first")
		return nil
	}))
	for _, want := range []string{"first", "second", "second"} {
		if got, err := Ask(testContext(t), ref, func(to Reply[string]) m { return m{to} }); got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

func TestNamesAndLookup(t *testing.T) {
	s := newSystem(t, Config{})
	nothing := Stateless(func(Context[int], int) error { return nil })
	ref := mustSpawn(t, s, "orders.2026 €", nothing)
	for name, want := range map[string]error{
		"orders.2026 €": ErrNameTaken, "a/b": ErrBadName, "a*": ErrBadName, "$1": ErrBadName, "a\n": ErrBadName,
		"\xff": ErrBadName, strings.Repeat("x", 256): ErrBadName,
	} {
		if _, err := Spawn(s, name, nothing); !isErr(err, want) {
			t.Errorf("%.20q: got %v, want %v", name, err, want)
		}
	}
	if _, err := Spawn(s, "x", nothing, Props{Dispatcher: "none"}); err == nil || !strings.Contains(err.Error(), "Config.Dispatchers") {
		t.Errorf("got %v, want an unknown dispatcher with its remedy", err)
	}
	if got, err := Lookup[int](s, "/user/orders.2026 €"); got != ref || err != nil {
		t.Errorf("got %v, %v, want %v", got, err, ref)
	}
	if _, err := Lookup[string](s, "/user/orders.2026 €"); err == nil {
		t.Error("got a Ref[string] of an actor of ints")
	}
	for _, path := range []string{"", "/", "/user/none", "user/orders.2026 €", "/user/orders.2026 €/x"} {
		if _, err := Lookup[int](s, path); !isErr(err, ErrNotFound) {
			t.Errorf("%q: got %v, want %v", path, err, ErrNotFound)
		}
	}
	in := mustSpawn(t, s.Internal(), "watch", nothing)
	if got, want := in.Path(), "/system/watch"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestConfigFaultsAreReportedTogether(t *testing.T) {
	_, err := New(Config{
		Dispatchers: map[string]Dispatcher{"a": {Workers: -1, Throughput: 1 << 20, TurnDeadline: -1}},
		Blocking:    Blocking{Workers: -1, Queue: -1},
		Mailbox:     Mailbox{Capacity: -2, Overflow: 9},
		Supervision: Supervision{OnError: 9, ResetAfter: -1, Backoff: retry.Policy{Jitter: 2}},
	})
	for _, want := range []string{"Workers is -1", "Throughput", "TurnDeadline", "Blocking.Workers", "Blocking.Queue",
		"Capacity", "Overflow", "OnError", "ResetAfter", "Jitter"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %s", err, want)
		}
	}
}

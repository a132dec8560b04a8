package actortest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/runnel-dev/runnel/actor"
	"github.com/runnel-dev/runnel/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a test that notes its failure instead of failing.
type fake struct {
	testing.TB
	failure string
}

func (f *fake) Helper() {}

// Fatalf ends as FailNow does: by leaving the function that caught it.
func (f *fake) Fatalf(format string, a ...any) {
	f.failure = fmt.Sprintf(format, a...)
	panic(f)
}

// failing runs do with a test whose failure it returns.
func failing(t *testing.T, do func(testing.TB)) string {
	f := &fake{TB: t}
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(f) {
				panic(p)
			}
		}()
		do(f)
	}()
	return f.failure
}

func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := New(t, actor.Config{})
		p := NewProbe[string](t, sys)
		for _, m := range []string{"a", "b", "noise", "c", "d", "e"} {
			_ = p.Ref().Tell(m)
		}
		p.Expect("a")
		if got := p.Receive(); got != "b" {
			t.Errorf("got %q, want b", got)
		}
		if got := p.Fish(func(m string) bool { return m == "c" }); got != "c" {
			t.Errorf("got %q, want c", got)
		}
		synctest.Wait()
		if got := p.Drain(); !slices.Equal(got, []string{"d", "e"}) {
			t.Errorf("got %q, want d and e", got)
		}
		begin := time.Now()
		p.ExpectNone(time.Hour)
		if got := time.Since(begin); got != time.Hour {
			t.Errorf("got silence for %v, want an hour", got)
		}
		for name, do := range map[string]func(){
			"got message x, want y": func() { _ = p.Ref().Tell("x"); p.Expect("y") },
			"got no message within": func() { p.Receive() },
			"want none within 1s":   func() { _ = p.Ref().Tell("x"); p.ExpectNone(time.Second) },
			"1 others: x":           func() { _ = p.Ref().Tell("x"); p.Fish(func(string) bool { return false }) },
		} {
			got := failing(t, func(tb testing.TB) { p.t = tb; do(); p.t = t })
			p.t = t
			if !strings.Contains(got, name) {
				t.Errorf("got failure %q, want %q in it", got, name)
			}
		}
	})
}

func TestEventsAndFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Faults
		sys := New(t, actor.Config{Before: f.Before, Supervision: actor.Supervision{Backoff: retry.Policy{Multiplier: 1}}})
		failed, letters := Events[actor.ActorFailed](t, sys), Events[actor.DeadLetter](t, sys)
		p := NewProbe[int](t, sys)
		boom := errors.New("boom")
		f.FailSetup("/user/a", 1, boom)
		ref := Spawn(t, sys, "a", actor.Stateless(func(x actor.Context[int], m int) error { return actor.Tell(x, p.Ref(), m) }))
		if e := failed.Receive(); !errors.Is(e.Failure, boom) || e.Failure.Path != "/user/a" {
			t.Errorf("got %v, want boom of the setup", e.Failure)
		}
		f.Fail("/user/a", 1, boom)
		f.Panic("/user/a", 1, "kaboom")
		f.Drop("/user/a", 1)
		for m := range 4 {
			_ = ref.Tell(m)
		}
		p.Expect(3)
		if e := failed.Receive(); !errors.Is(e.Failure, boom) {
			t.Errorf("got %v, want boom", e.Failure)
		}
		if e := failed.Receive(); e.Failure.Panic != "kaboom" || len(e.Failure.Stack) == 0 {
			t.Errorf("got %v, want the panic with its stack", e.Failure)
		}
		letters.Expect(actor.DeadLetter{Path: "/user/a", Message: 2, Reason: actor.ReasonDropped})
		entered, release := f.Hold("/user/a")
		_ = ref.Tell(5)
		<-entered
		p.ExpectNone(time.Second)
		release()
		p.Expect(5)
		f.Add(Rule{Path: "/user/a", Skip: 2, Count: 2, Do: func(any) error { return actor.ErrDropped }})
		for m := range 6 {
			_ = ref.Tell(m)
		}
		for _, want := range []int{0, 1, 4, 5} {
			p.Expect(want)
		}
		ref.Stop()
		ExpectStop(t, ref)
	})
}

// Turns run when the test says so, and in the order that it says.
func TestStepper(t *testing.T) {
	st := NewStepper()
	sys := New(t, actor.Config{Dispatchers: map[string]actor.Dispatcher{"steps": {Executor: st, Throughput: 1}}})
	var got []string
	setup := actor.Stateless(func(x actor.Context[int], m int) error {
		got = append(got, fmt.Sprint(x.Path()[len("/user/"):], m))
		return nil
	})
	a := Spawn(t, sys, "a", setup, actor.Props{Dispatcher: "steps"})
	b := Spawn(t, sys, "b", setup, actor.Props{Dispatcher: "steps"})
	if n := st.Run(10); n != 2 {
		t.Errorf("got %d steps, want the two setups", n)
	}
	for m := range 2 {
		_ = a.Tell(m)
		_ = b.Tell(m)
	}
	if want := []string{"/user/a", "/user/b"}; !slices.Equal(st.Pending(), want) {
		t.Errorf("got %q pending, want %q", st.Pending(), want)
	}
	if !st.StepOf(b) || !st.StepOf(b) || st.StepOf(b) || !st.Step() || !st.StepAny(rand.New(rand.NewPCG(1, 2))) || st.Step() {
		t.Error("got a step wrong, want two of b, two of a, and no more")
	}
	if want := []string{"b0", "b1", "a0", "a1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := New(t, actor.Config{})
		p := NewProbe[string](t, sys)
		Spawn(t, sys, "a", func(x actor.Context[string]) (actor.Behavior[string], error) {
			x.After(time.Minute, "due")
			return actor.Func[string](func(x actor.Context[string], m string) error { return actor.Tell(x, p.Ref(), m) }), nil
		})
		Advance(59 * time.Second)
		if got := p.Drain(); len(got) != 0 {
			t.Errorf("got %q before its time", got)
		}
		Advance(time.Second)
		if got := p.Drain(); !slices.Equal(got, []string{"due"}) {
			t.Errorf("got %q, want due", got)
		}
	})
}

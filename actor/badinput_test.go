package actor

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/runnel-dev/runnel/retry"
)

// A nil of an interface type is refused by Tell and by Ask; a nil pointer is a
// value like any other.
func TestNilMessage(t *testing.T) {
	s := newSystem(t, Config{})
	letters := Subscribe[DeadLetter](s, 8)
	got := make(chan any, 4)
	ref := mustSpawn(t, s, "a", Stateless(func(_ Context[any], m any) error { got <- m; return nil }))
	if err := ref.Tell(nil); !isErr(err, ErrNilMessage) {
		t.Errorf("got %v, want %v", err, ErrNilMessage)
	}
	if _, err := Ask(testContext(t), ref, func(Reply[int]) any { return nil }); !isErr(err, ErrNilMessage) {
		t.Errorf("got %v, want %v", err, ErrNilMessage)
	}
	for range 2 {
		if l := recv(t, letters.C()); l != (DeadLetter{"/user/a", nil, ReasonInvalid}) {
			t.Errorf("got %+v, want a nil message", l)
		}
	}
	if err := ref.Tell((*int)(nil)); err != nil || recv(t, got) != any((*int)(nil)) {
		t.Errorf("got %v, want the nil pointer handled", err)
	}
}

// A Setup that panics, fails, or returns nothing is a failure like another; what
// was told meanwhile waits, and becomes dead letters if the actor gives up.
func TestBadSetup(t *testing.T) {
	setups := map[string]Setup[int]{
		"kaboom":               func(Context[int]) (Behavior[int], error) { panic("kaboom") },
		"boom":                 func(Context[int]) (Behavior[int], error) { return nil, errBoom },
		"returned no behavior": func(Context[int]) (Behavior[int], error) { return nil, nil },
	}
	for want, setup := range setups {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSystem(t, Config{Supervision: Supervision{Backoff: retry.Policy{Initial: 1, MaxAttempts: 10}}})
				failed := Subscribe[ActorFailed](s, 16)
				ref := mustSpawn(t, s, "a", setup)
				_ = ref.Tell(1)
				_, err := Ask(testContext(t), ref, func(Reply[int]) int { return 2 })
				if !errors.Is(err, ErrStopped) {
					t.Errorf("got %v, want %v once the restarts are used up", err, ErrStopped)
				}
				if err := ref.Await(testContext(t)); err != nil {
					t.Error(err)
				}
				n := len(failed.C())
				e := <-failed.C()
				if n != 11 || !strings.Contains(e.Failure.Error(), want) || (want == "kaboom") != (len(e.Failure.Stack) > 0) {
					t.Errorf("got %d failures, first %v, want 11 of %s", n, e.Failure, want)
				}
				if got := s.Stats().DeadLetters[ReasonStopped]; got != 2 {
					t.Errorf("got %d dead letters, want the 2 messages", got)
				}
			})
		})
	}
}

// Faults of the Props and of the new parts of the Config are refused with their
// remedy, all at once.
func TestBadConfig(t *testing.T) {
	_, err := New(Config{
		Dispatchers: map[string]Dispatcher{"a": {Kind: 9}, "b": {Kind: Elastic, Workers: -1}},
		Phases:      []Phase{{Name: "x"}, {Name: "x"}},
		Mailbox:     Mailbox{Order: 9, Overflow: 9, MaxBlock: -1},
		Supervision: Supervision{Scope: 9, OnError: 9},
	})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"dispatcher a: Kind", "dispatcher b: Workers", `phase "x"`, `Phases lack "stop"`, "Order", "Overflow", "MaxBlock", "Scope", "OnError"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	s := newSystem(t, Config{})
	nothing := Stateless(func(Context[int], int) error { return nil })
	if _, err := Spawn(s, "a", nothing, Props{Stash: -1, Dispatcher: "none"}); err == nil ||
		!strings.Contains(err.Error(), "Stash") || !strings.Contains(err.Error(), `"none" is unknown`) {
		t.Errorf("got %v, want both faults", err)
	}
}

package actor

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestAskTimeoutAndLateReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		letters := Subscribe[DeadLetter](s, 4)
		late := make(chan bool, 1)
		ref := mustSpawn(t, s, "slow", Stateless(func(_ Context[Reply[int]], to Reply[int]) error {
			<-time.After(2 * time.Second)
			late <- to.Send(5)
			return nil
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Ask(ctx, ref, func(to Reply[int]) Reply[int] { return to })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
		if <-late {
			t.Error("got true from a late Send")
		}
		if l := <-letters.C(); l.Message != 5 || l.Reason != ReasonLateReply {
			t.Errorf("got %+v, want 5 as a late reply", l)
		}
	})
}

// A Reply kept from an earlier Ask never answers a later one, though the two may
// share a future; nor does a second answer.
func TestOldReplyDoesNotAnswerLaterAsk(t *testing.T) {
	s := newSystem(t, Config{})
	var old []Reply[int]
	n := 0
	ref := mustSpawn(t, s, "a", Stateless(func(_ Context[Reply[int]], to Reply[int]) error {
		for _, o := range old {
			if o.Send(-1) {
				t.Error("got true from a used Reply")
			}
		}
		n++
		to.Send(n)
		if to.Send(-2) {
			t.Error("got true from a second answer")
		}
		old = append(old, to)
		return nil
	}))
	for want := 1; want <= 50; want++ {
		got, err := Ask(testContext(t), ref, func(to Reply[int]) Reply[int] { return to })
		if got != want || err != nil {
			t.Fatalf("got %d, %v, want %d", got, err, want)
		}
	}
}

func TestAskEndsWithItsMessage(t *testing.T) {
	s := newSystem(t, Config{})
	type m struct {
		do string
		to Reply[int]
	}
	entered, release := make(chan struct{}), make(chan struct{})
	ref := mustSpawn(t, s, "a", Stateless(func(x Context[m], m m) error {
		switch m.do {
		case "fail":
			return errBoom
		case "panic":
			panic("kaboom")
		case "refuse":
			m.to.Fail(errBoom)
		case "hold":
			close(entered)
			<-release
			x.Stop()
		}
		return nil
	}), Props{Supervision: Supervision{OnError: Resume, OnPanic: Resume}})
	ask := func(do string) error {
		_, err := Ask(testContext(t), ref, func(to Reply[int]) m { return m{do, to} })
		return err
	}
	for do, isFailure := range map[string]bool{"fail": true, "panic": true, "refuse": false} {
		err := ask(do)
		var f *Failure
		if errors.As(err, &f) != isFailure || do != "panic" && !errors.Is(err, errBoom) {
			t.Errorf("%s: got %v", do, err)
		}
	}
	_ = ref.Tell(m{do: "hold"})
	recv(t, entered)
	waiting := make(chan error, 1)
	go func() { waiting <- ask("never handled") }()
	waitFor(t, func() bool { // the ask waits in the mailbox
		c := ref.to.(*cell)
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.waiting == 1
	})
	close(release)
	if err := recv(t, waiting); !errors.Is(err, ErrStopped) {
		t.Errorf("got %v, want %v", err, ErrStopped)
	}
	if err := ask("stopped"); !errors.Is(err, ErrStopped) {
		t.Errorf("got %v, want %v", err, ErrStopped)
	}
}

// Many askers, many of which give up: each gets its own answer or its own timeout.
func TestAskRace(t *testing.T) {
	s := newSystem(t, Config{Mailbox: Mailbox{Capacity: Unbounded}})
	type m struct {
		n  int
		to Reply[int]
	}
	ref := mustSpawn(t, s, "a", Stateless(func(_ Context[m], m m) error {
		m.to.Send(m.n)
		return nil
	}))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				if i%3 == 0 {
					go cancel()
				}
				want := g*1000 + i
				got, err := Ask(ctx, ref, func(to Reply[int]) m { return m{want, to} })
				if err == nil && got != want || err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("got %d, %v, want %d", got, err, want)
				}
				cancel()
			}
		})
	}
	wg.Wait()
}

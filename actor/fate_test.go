package actor

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnel-dev/runnel/retry"
)

// family is a parent with children that fail when told so, all traced.
func family(t *testing.T, s *System, tr *trace, parent, kid Supervision, kids ...string) {
	mustSpawn(t, s, "p", handler[string]{
		msg: func(x Context[string], m string) error { return nil },
		sig: func(x Context[string], sig Signal) error {
			tr.add("%s: %s", x.Path(), strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", sig), "actor.")))
			if sig != (Started{}) {
				return nil
			}
			for _, name := range kids {
				sup := kid
				if strings.HasPrefix(name, "lone") {
					sup.Scope = OneForOne
				}
				h := traced(tr, func(_ Context[string], m string) error {
					switch m {
					case "fail":
						return errBoom
					case "panic":
						panic("kaboom")
					}
					return nil
				})
				if _, err := Spawn(x, name, h.setup, Props{Supervision: sup}); err != nil {
					return err
				}
			}
			return nil
		},
	}.setup, Props{Supervision: parent})
	synctest.Wait()
	tr.mu.Lock()
	tr.all = nil
	tr.mu.Unlock()
}

func tellPath(t *testing.T, s *System, path, m string) {
	ref, err := Lookup[string](s, path)
	if err != nil {
		t.Fatal(err)
	}
	_ = ref.Tell(m)
}

// An escalated failure stops the child and fails the parent, which restarts with
// a new child; the event stream tells both with the panic's stack.
func TestEscalate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		failed := Subscribe[ActorFailed](s, 8)
		var tr trace
		family(t, s, &tr, Supervision{OnPanic: Restart, Backoff: quickly}, Supervision{OnPanic: Escalate}, "k")
		tellPath(t, s, "/user/p/k", "panic")
		synctest.Wait()
		got := tr.String()
		for _, want := range []string{"/user/p: restarting", "/user/p/k: stopped cause actor /user/p/k: panic: kaboom", "/user/p: started", "/user/p/k: started"} {
			if !strings.Contains(got, want) {
				t.Errorf("got\n%s\nwant %s in it", got, want)
			}
		}
		for _, want := range []struct {
			path string
			d    Directive
		}{{"/user/p/k", Escalate}, {"/user/p", Restart}} {
			e := <-failed.C()
			if e.Failure.Path != want.path || e.Directive != want.d || e.Failure.Panic != "kaboom" || !strings.Contains(string(e.Failure.Stack), "family") {
				t.Errorf("got %v of %s, panic %v, want %v of %s", e.Directive, e.Failure.Path, e.Failure.Panic, want.d, want.path)
			}
		}
		if st := s.Stats(); st.Actors != 2 || st.Failures != 2 {
			t.Errorf("got %+v, want 2 actors and 2 failures", st)
		}
	})
}

// At a guardian an escalation ends: the actor has stopped, the others live on.
func TestEscalateToAGuardian(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		a := mustSpawn(t, s, "a", Stateless(func(Context[int], int) error { return errBoom }), Props{Supervision: Supervision{OnError: Escalate}})
		b := mustSpawn(t, s, "b", Stateless(func(_ Context[Reply[int]], to Reply[int]) error { to.Send(1); return nil }))
		_ = a.Tell(1)
		if err := a.Await(testContext(t)); err != nil {
			t.Error(err)
		}
		if got, err := Ask(testContext(t), b, func(to Reply[int]) Reply[int] { return to }); got != 1 || err != nil {
			t.Errorf("got %d, %v of the sibling, want 1", got, err)
		}
	})
}

// One for all: siblings of the group restart with the one that failed, those
// outside it do not.
func TestAllForOneRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{})
		var tr trace
		all := Supervision{Scope: AllForOne, Backoff: retry.Policy{Initial: time.Second, Multiplier: 1}}
		family(t, s, &tr, Supervision{}, all, "a", "b", "lone")
		tellPath(t, s, "/user/p/a", "fail")
		synctest.Wait()
		got := tr.String()
		if strings.Count(got, "restarting actor /user/p/a: boom") != 2 || strings.Contains(got, "lone") || strings.Contains(got, "started") {
			t.Errorf("got\n%s\nwant a and b restarting because of a, nobody else", got)
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if got := tr.String(); !strings.Contains(got, "/user/p/a: started") || !strings.Contains(got, "/user/p/b: started") {
			t.Errorf("got\n%s\nwant a and b started after the backoff", got)
		}
		if got := s.Stats().Failures; got != 1 {
			t.Errorf("got %d failures, want the one", got)
		}
	})
}

// When the one that failed stops, by directive or for want of budget, so do they.
func TestAllForOneStop(t *testing.T) {
	sups := map[string]Supervision{
		"directive": {Scope: AllForOne, OnError: Stop},
		"budget":    {Scope: AllForOne, Backoff: retry.Policy{Multiplier: 1, MaxAttempts: 1}},
	}
	for name, sup := range sups {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSystem(t, Config{})
				var tr trace
				family(t, s, &tr, Supervision{}, sup, "a", "b", "lone")
				tellPath(t, s, "/user/p/a", "fail")
				synctest.Wait()
				if name == "budget" {
					tellPath(t, s, "/user/p/a", "fail")
					synctest.Wait()
				}
				if got := tr.String(); !strings.Contains(got, "/user/p/a: stopped") || !strings.Contains(got, "/user/p/b: stopped") {
					t.Errorf("got\n%s\nwant a and b stopped", got)
				}
				if refs, err := Select[string](s, "/user/p/*"); err != nil || len(refs) != 1 || refs[0].Path() != "/user/p/lone" {
					t.Errorf("got %v left, %v, want the lone one", refs, err)
				}
			})
		})
	}
}

// A watch outlasts restarts of the watched actor and ends with its stop.
func TestWatchAcrossRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, Config{Supervision: Supervision{Backoff: quickly}})
		var tr trace
		a := mustSpawn(t, s, "a", traced(&tr, func(_ Context[int], m int) error { return errBoom }).setup)
		w := handler[int]{msg: func(Context[int], int) error { return nil }, sig: func(x Context[int], sig Signal) error {
			switch sig := sig.(type) {
			case Started:
				x.Watch(a)
			case Terminated:
				tr.add("terminated %s", sig.Addr)
			}
			return nil
		}}
		mustSpawn(t, s, "w", w.setup)
		synctest.Wait()
		for range 3 {
			_ = a.Tell(1)
		}
		synctest.Wait()
		if got := tr.String(); strings.Contains(got, "terminated") || strings.Count(got, "started") != 4 {
			t.Errorf("got\n%s\nwant three restarts and no Terminated", got)
		}
		a.Stop()
		synctest.Wait()
		if got := tr.String(); !strings.HasSuffix(got, "terminated /user/a") {
			t.Errorf("got\n%s\nwant Terminated at the end", got)
		}
	})
}

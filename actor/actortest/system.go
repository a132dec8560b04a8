package actortest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnel-dev/runnel/actor"
)

// patience is how long this package waits for anything that must come.
const patience = 30 * time.Second

// New makes a System. The end of the test frees the Steppers among its
// dispatchers, shuts it down and fails if it does not end within 30 s.
func New(t testing.TB, c actor.Config) *actor.System {
	t.Helper()
	s, err := actor.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, d := range c.Dispatchers {
			if st, ok := d.Executor.(*Stepper); ok {
				st.Free()
			}
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Spawn is actor.Spawn that fails the test on an error.
func Spawn[M any](t testing.TB, at actor.Spawner, name string, setup actor.Setup[M], p ...actor.Props) actor.Ref[M] {
	t.Helper()
	ref, err := actor.Spawn(at, name, setup, p...)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// ExpectStop waits until the actor and all below it have stopped. It does not
// stop it.
func ExpectStop(t testing.TB, a actor.Addressable) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := a.Addr().Await(ctx); err != nil {
		t.Fatal(err)
	}
}

// Advance lets d pass in a synctest bubble and returns once everything that
// happens until then has happened and all goroutines wait.
func Advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

package benchactors

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Both experiments of the runtime's promises; the 300 ms in which the third actor
// must not run pass by fake time.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := Run(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if faults := r.Faults(); len(faults) > 0 {
			t.Errorf("got %+v: %s", r, strings.Join(faults, "; "))
		}
		if r.Sharing.Handled != 40_000 || r.Sharing.Actors != 10_000 || r.Sharing.Goroutines < 1 || r.Sharing.Added > 0 {
			t.Errorf("got %+v, want 40,000 messages of 10,000 actors and no goroutine of theirs", r.Sharing)
		}
	})
}

// A result that shows something else is reported.
func TestFaults(t *testing.T) {
	bad := Result{
		Sharing:  SharingResult{Messages: 2, Handled: 3, Workers: 1, Goroutines: 2, Overlaps: 1, OrderErrors: 1, IdleHandlers: 1},
		Starving: StarvingResult{ThirdWhileBlocked: true},
	}
	if got := bad.Faults(); len(got) != 10 {
		t.Errorf("got %d faults %q, want all 10", len(got), got)
	}
}

// A context that is over ends an experiment with its cause.
func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Starving(ctx, StarvingOptions{}); err == nil {
		t.Error("got no error of a cancelled context")
	}
}

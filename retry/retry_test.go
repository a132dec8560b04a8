package retry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

func TestDelayTable(t *testing.T) {
	p := Policy{Initial: 100 * time.Millisecond, Max: time.Second, Multiplier: 2}
	tests := []struct {
		name    string
		p       Policy
		attempt int
		rnd     float64
		want    time.Duration
	}{
		{"first", p, 1, 0.9, 100 * time.Millisecond},
		{"zero attempt counts as first", p, 0, 0, 100 * time.Millisecond},
		{"third", p, 3, 0, 400 * time.Millisecond},
		{"capped", p, 5, 0, time.Second},
		{"huge attempt", p, math.MaxInt, 0, time.Second},
		{"zero policy", Policy{}, 9, 0.5, 0},
		{"multiplier 0 means 2", Policy{Initial: time.Second}, 2, 0, 2 * time.Second},
		{"multiplier below 1 means 1", Policy{Initial: time.Second, Multiplier: 0.5}, 4, 0, time.Second},
		{"NaN multiplier means 1", Policy{Initial: time.Second, Multiplier: math.NaN()}, 4, 0, time.Second},
		{"no max saturates", Policy{Initial: time.Second, Multiplier: 10}, 400, 0, math.MaxInt64},
		{"initial above max", Policy{Initial: time.Minute, Max: time.Second}, 1, 0, time.Second},
		{"half jitter", Policy{Initial: time.Second, Jitter: 0.5}, 1, 0.5, 750 * time.Millisecond},
		{"full jitter", Policy{Initial: time.Second, Jitter: 1}, 1, 0.25, 750 * time.Millisecond},
		{"random number out of range", Policy{Initial: time.Second, Jitter: 1}, 1, 7, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.p.Delay(tt.attempt, tt.rnd); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// Any policy and attempt: within [base(1-Jitter), base], base never shrinks
// with the attempt, nothing is negative or above Max.
func TestDelayProperties(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 20_000 {
		p := Policy{
			Initial:    time.Duration(r.Int64N(math.MaxInt64) >> r.IntN(63)),
			Max:        time.Duration(r.Int64N(math.MaxInt64) >> r.IntN(63)),
			Multiplier: 1 + r.ExpFloat64()*4,
			Jitter:     r.Float64(),
		}
		attempt := 1 + r.IntN(1<<(1+r.IntN(20)))
		got, base, next := p.Delay(attempt, r.Float64()), p.Delay(attempt, 0), p.Delay(attempt+1, 0)
		low := float64(base)*(1-p.Jitter)*(1-1e-9) - 1
		if got < 0 || got > base || float64(got) < low || next < base || p.Max > 0 && base > p.Max {
			t.Fatalf("seed %d: %+v attempt %d: got %v, base %v, next base %v", seed, p, attempt, got, base, next)
		}
	}
}

func TestPermanent(t *testing.T) {
	cause := errors.New("no such table")
	err := fmt.Errorf("copy shop.orders: %w", Permanent(cause))
	if !IsPermanent(err) || !errors.Is(err, cause) {
		t.Errorf("got permanent=%v cause=%v, want both true", IsPermanent(err), errors.Is(err, cause))
	}
	if got, want := Permanent(cause).Error(), cause.Error(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if IsPermanent(cause) || IsPermanent(nil) || Permanent(nil) != nil {
		t.Error("got a permanent error from an unmarked one")
	}
}

func TestDoWaitsBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		err := Do(t.Context(), Policy{Initial: time.Second, Multiplier: 3}, func(context.Context) error {
			if at = append(at, time.Since(start)); len(at) < 4 {
				return errors.New("again")
			}
			return nil
		})
		want := []time.Duration{0, time.Second, 4 * time.Second, 13 * time.Second}
		if err != nil || fmt.Sprint(at) != fmt.Sprint(want) {
			t.Errorf("got %v and %v, want %v and nil", at, err, want)
		}
	})
}

func TestDoEnds(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		name  string
		p     Policy
		err   error
		calls int
		is    error
	}{
		{"attempts", Policy{Initial: time.Second, MaxAttempts: 3}, boom, 3, ErrExhausted},
		{"elapsed", Policy{Initial: time.Second, Multiplier: 1, MaxElapsed: 2500 * time.Millisecond}, boom, 3, ErrExhausted},
		{"permanent", Policy{Initial: time.Second}, Permanent(boom), 1, boom},
		{"context", Policy{Initial: 4 * time.Second, Multiplier: 1}, boom, 3, context.DeadlineExceeded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				calls := 0
				err := Do(ctx, tt.p, func(context.Context) error { calls++; return tt.err })
				if calls != tt.calls || !errors.Is(err, tt.is) || !errors.Is(err, boom) {
					t.Errorf("got %d calls and %v, want %d calls and %v", calls, err, tt.calls, tt.is)
				}
			})
		})
	}
}

func TestDoDoneContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("node drains")
	cancel(why)
	err := Do(ctx, Policy{}, func(context.Context) error { t.Error("called"); return nil })
	if !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
}

func TestValidate(t *testing.T) {
	if err := (Policy{}).Validate(); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	bad := Policy{Initial: -1, Max: -1, Multiplier: 0.5, Jitter: math.NaN(), MaxAttempts: -1, MaxElapsed: -1}
	err := bad.Validate()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 6 {
		t.Errorf("got %v, want 6 faults", err)
	}
}

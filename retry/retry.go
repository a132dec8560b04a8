package retry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// ErrExhausted is in the chain of Do's error when MaxAttempts or MaxElapsed
// ended the attempts, beside the last attempt's own error.
var ErrExhausted = errors.New("retry limit reached")

// Policy says how long to wait between attempts and when to give up. The zero
// Policy retries at once and without limit.
type Policy struct {
	Initial    time.Duration // delay after attempt 1; 0 or less waits not at all
	Max        time.Duration // upper bound of every delay; 0 or less sets none
	Multiplier float64       // growth per attempt; 0 means 2, anything else below 1 means 1
	Jitter     float64       // share of the delay that is random, 0..1; 1 is full jitter

	MaxAttempts int           // attempts in all, the first included; 0 or less sets no limit
	MaxElapsed  time.Duration // no attempt starts later than this after the first; 0 or less sets no limit
}

// Delay returns the wait after the given failed attempt, counted from 1; a
// smaller attempt counts as 1. rnd is uniform in [0,1) and is clamped to it.
// With base = min(Max, Initial × Multiplier^(attempt−1)) the result lies in
// [base×(1−Jitter), base]. It never overflows and never is negative.
func (p Policy) Delay(attempt int, rnd float64) time.Duration {
	if p.Initial <= 0 {
		return 0
	}
	base := p.base(attempt)
	j := unit(p.Jitter) * unit(rnd)
	if j == 0 {
		return base
	}
	return base - time.Duration(float64(base)*j)
}

// base is the delay before jitter.
func (p Policy) base(attempt int) time.Duration {
	limit := time.Duration(math.MaxInt64)
	if p.Max > 0 {
		limit = p.Max
	}
	m := p.Multiplier
	switch {
	case m == 0:
		m = 2
	case !(m >= 1): // NaN included
		m = 1
	}
	f := float64(p.Initial) * math.Pow(m, float64(max(attempt, 1)-1))
	// float64(MaxInt64) rounds up to 2^63, so >= keeps the conversion in range.
	if f >= float64(limit) || math.IsNaN(f) {
		return limit
	}
	return time.Duration(f)
}

// unit clamps to [0,1]; NaN becomes 0.
func unit(f float64) float64 {
	if !(f > 0) {
		return 0
	}
	return min(f, 1)
}

// Exhausted reports whether the policy allows no further attempt after the
// given one, when elapsed has passed since the first attempt began and the next
// would begin after delay.
func (p Policy) Exhausted(attempt int, elapsed, delay time.Duration) bool {
	if p.MaxAttempts > 0 && attempt >= p.MaxAttempts {
		return true
	}
	// Subtracting instead of adding keeps a huge delay from overflowing.
	return p.MaxElapsed > 0 && delay > p.MaxElapsed-elapsed
}

// Validate reports every field that is out of range, joined.
func (p Policy) Validate() error {
	var errs []error
	bad := func(name string, got any, want string) {
		errs = append(errs, fmt.Errorf("retry policy: %s is %v, set %s", name, got, want))
	}
	if p.Initial < 0 {
		bad("Initial", p.Initial, "0 or more")
	}
	if p.Max < 0 {
		bad("Max", p.Max, "0 (no bound) or more")
	}
	if p.Multiplier != 0 && !(p.Multiplier >= 1) || math.IsInf(p.Multiplier, 1) {
		bad("Multiplier", p.Multiplier, "0 (meaning 2) or a finite number from 1")
	}
	if !(p.Jitter >= 0 && p.Jitter <= 1) {
		bad("Jitter", p.Jitter, "a number from 0 to 1")
	}
	if p.MaxAttempts < 0 {
		bad("MaxAttempts", p.MaxAttempts, "0 (no limit) or more")
	}
	if p.MaxElapsed < 0 {
		bad("MaxElapsed", p.MaxElapsed, "0 (no limit) or more")
	}
	return errors.Join(errs...)
}

// Permanent marks err as one that repeating cannot cure. Permanent(nil) is nil.
// The mark survives wrapping with %w; the message is err's own.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether err or anything it wraps was marked by Permanent.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Do calls fn until it returns nil, a permanent error, the policy's limits are
// used up, or ctx is done. It blocks for the delays in between. The error it
// returns wraps fn's last error; it also wraps ctx's cause if ctx ended it, or
// ErrExhausted if a limit did. fn is not called when ctx is already done.
func Do(ctx context.Context, p Policy, fn func(context.Context) error) error {
	start := time.Now()
	for attempt := 1; ; attempt++ {
		if ctx.Err() != nil {
			return fmt.Errorf("start attempt %d: %w", attempt, context.Cause(ctx))
		}
		err := fn(ctx)
		if err == nil {
			return nil
		}
		if IsPermanent(err) {
			return fmt.Errorf("attempt %d: %w", attempt, err)
		}
		delay := p.Delay(attempt, rand.Float64())
		if p.Exhausted(attempt, time.Since(start), delay) {
			return fmt.Errorf("attempt %d: %w: %w", attempt, ErrExhausted, err)
		}
		if werr := wait(ctx, delay); werr != nil {
			return fmt.Errorf("wait after attempt %d: %w: %w", attempt, werr, err)
		}
	}
}

// wait sleeps for d or until ctx is done, whose cause it then returns.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

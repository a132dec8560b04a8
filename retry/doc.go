// Package retry computes when to try again and which errors make that
// pointless.
//
// What: [Policy] is exponential backoff with jitter as a pure function of the
// attempt number and a random number, so that callers with their own clock or
// timer (actors, lanes, state machines) use it without a goroutine. [Do] is the
// thin shell for callers that may block. [Permanent] marks an error that
// repeating cannot cure.
//
// Usage:
//
//	p := retry.Policy{Initial: 100 * time.Millisecond, Max: 30 * time.Second, Multiplier: 2, Jitter: 0.2}
//	err := retry.Do(ctx, p, func(ctx context.Context) error { return sink.Open(ctx) })
//
// Concurrency: a Policy is a value without state; every function may be called
// from any goroutine. Do runs its function on the calling goroutine.
//
// Ordering: attempts of one Do never overlap and count up from 1.
//
// Failure: Do ends with the last error wrapped, and [ErrExhausted] in the chain
// if a limit ended it. A done context ends a wait at once.
//
// Testing: pass a fixed random number to Delay; run Do inside testing/synctest.
package retry

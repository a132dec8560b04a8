package retry

import (
	"context"
	"math/rand/v2"
)

// Sleep waits for the policy's delay after the given attempt, or until ctx is
// done, whose cause it then returns.
func Sleep(ctx context.Context, p Policy, attempt int) error {
	return wait(ctx, p.Delay(attempt, rand.Float64()))
}

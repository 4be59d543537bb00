package txn

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A time limit ends its own request, also if it passes at the moment at which the one before ends.
func TestTimeLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ls timeLimits
		for range 200 {
			_, end := context.WithCancelCause(t.Context())
			before := ls.begin(time.Second, end)
			time.Sleep(time.Second)
			before.end(&ls)

			ctx, cancel := context.WithCancelCause(t.Context())
			limit := ls.begin(2*time.Second, cancel)
			time.Sleep(time.Second)
			synctest.Wait()
			if ctx.Err() != nil {
				t.Fatal("ended by the limit of another request")
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if cause := context.Cause(ctx); cause != ErrNoAnswer { //nolint:errorlint // this one
				t.Fatal("not ended by its own limit:", cause)
			}
			limit.end(&ls)
			end(nil)
		}
	})
}

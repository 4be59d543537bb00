package attach_test

import (
	"context"
	"errors"
	"testing"

	"github.com/etcdclaims/claims/internal/attach"
)

// What is no client, such as one that a caller has wrapped, keeps nothing, and does no harm.
func TestOfNoClient(t *testing.T) {
	t.Parallel()
	for _, claims := range []any{nil, struct{}{}, (*int)(nil)} {
		c := attach.Of(claims)
		c.Warn("event", errors.New("x"), "key", "k")
		if err := c.Explain(context.Canceled); err != context.Canceled {
			t.Error(err)
		}
		c.Await("k")()
		c.OnClose(func(context.Context) { t.Error("was called") })()
		if got := attach.Logger(claims, func() string { return "none" }); got != "none" {
			t.Errorf("the logger of %v is %q", claims, got)
		}
	}
}

package attach_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/attach"
)

// What is no client, such as one that a caller has wrapped, keeps nothing, and does no harm.
func TestOfNoClient(t *testing.T) {
	t.Parallel()
	for _, claims := range []any{nil, struct{}{}, (*int)(nil)} {
		c := attach.Of(claims)
		c.Warn("event", errors.New("x"), "key", "k")
		if err := c.Explain(context.Canceled); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		c.Await("k")()
		c.OnClose(func(context.Context) { t.Error("was called") })()
		if got := attach.Logger(claims, func() string { return "none" }); got != "none" {
			t.Errorf("the logger of %v is %q", claims, got)
		}
	}
}

// Each of five needs ten seconds to end. While the context of Close lives they end one by one, the
// newest first. Once it has ended none waits for another.
func TestCloseEndsTheRestSideBySide(t *testing.T) {
	t.Parallel()
	const sec = time.Second
	for patience, want := range map[time.Duration][]time.Duration{
		time.Hour: {40 * sec, 30 * sec, 20 * sec, 10 * sec, 0},
		15 * sec:  {15 * sec, 15 * sec, 15 * sec, 10 * sec, 0},
		0:         {0, 0, 0, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t0, began := time.Now(), make([]time.Duration, len(want))
			for i := range began {
				attach.Of(c).OnClose(func(context.Context) {
					began[i] = time.Since(t0)
					time.Sleep(10 * sec)
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_ = c.Close(ctx)
			if took := time.Since(t0); took != want[0]+10*sec || !slices.Equal(began, want) {
				t.Errorf("with %v: Close took %v; they began to end after %v, want %v", patience, took, began, want)
			}
			over := false
			attach.Of(c).OnClose(func(ctx context.Context) { over = ctx.Err() != nil })()
			if !over {
				t.Error("what is made after Close stays open, or may take time")
			}
		})
	}
}

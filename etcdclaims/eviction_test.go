package etcdclaims_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
)

// A claim that is taken away before the reply of its acquisition arrives is lost when the
// call returns, or the call fails.
func TestTakenBeforeTheReply(t *testing.T) {
	t.Parallel()
	for name, acquire := range map[string]func(ctx context.Context, c *etcdclaims.Client) (*etcdclaims.Claim, error){
		"TryAcquire": func(ctx context.Context, c *etcdclaims.Client) (*etcdclaims.Claim, error) {
			return c.TryAcquire(ctx, "k")
		},
		"Acquire": func(ctx context.Context, c *etcdclaims.Client) (*etcdclaims.Claim, error) {
			return c.Acquire(ctx, "k")
		},
		"TryBegin": func(ctx context.Context, c *etcdclaims.Client) (*etcdclaims.Claim, error) {
			w, err := works(c).TryBegin(ctx, "k")
			if err != nil {
				return nil, err
			}
			return w.Claim, nil
		},
		"all": func(ctx context.Context, c *etcdclaims.Client) (*etcdclaims.Claim, error) {
			cls, err := c.TryAcquireAll(ctx, []string{"k2", "k"})
			if err != nil {
				return nil, err
			}
			return cls[1], nil
		},
		"each": func(ctx context.Context, c *etcdclaims.Client) (*etcdclaims.Claim, error) {
			cls, errs := c.TryAcquireEach(ctx, []string{"k2", "k"})
			return cls[1], errs[1]
		},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			ctx := context.Background()
			a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			b := w.peer()
			tryClaim(t, a, "other")
			host.Inject(claimtest.Fault{On: steps.Take, DelayReply: 300 * ms})
			got := make(chan claimed, 1)
			go func() {
				cl, err := acquire(ctx, a)
				got <- claimed{cl, err, time.Now()}
			}()
			time.Sleep(100 * ms)
			noErr(t, admin.ForceRelease(ctx, b, "k", "why"))
			tryClaim(t, b, "k")
			r := <-got
			if r.err == nil {
				r.err = r.cl.Check()
			}
			lossOf(t, r.err, etcdclaims.ReasonDeleted)
			noErr(t, admin.ForceRelease(ctx, b, "k", "again"))
			time.Sleep(sec)            // what it had beside that is given up in the background
			cl, err := acquire(ctx, a) // the client can claim the key again
			noErr(t, err)
			noErr(t, cl.Check())
		})
	}
}

// A claim that is taken by a suspicion before the reply of its acquisition arrives is not
// believed in.
func TestSuspectedBeforeTheReply(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		b := w.peer()
		tryClaim(t, a, "other")
		host.Inject(claimtest.Fault{On: steps.Answer, Times: -1, LoseRequest: true})
		host.Inject(claimtest.Fault{On: steps.Take, Key: "k", DelayReply: 2 * sec})
		got := make(chan error, 1)
		go func() {
			_, err := a.TryAcquire(ctx, "k", etcdclaims.Suspectable())
			got <- err
		}()
		time.Sleep(10 * ms)
		next := <-acquiring(ctx, b, "k", etcdclaims.Suspectable())
		noErr(t, next.err)
		if err := <-got; !errors.Is(err, etcdclaims.ErrSuspected) {
			t.Error(err)
		}
		noErr(t, next.cl.Check())
	})
}

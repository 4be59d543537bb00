package etcdclaims_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
)

// A call whose first request was carried out, and whose later ones fail otherwise, returns
// ErrUnknown.
func TestUnknownAfterLostReply(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, tt := range map[string]struct {
		on   claimtest.Kind
		opts []etcdclaims.AcquireOption
		call func(c *etcdclaims.Client, of, own *etcdclaims.Claim) error
	}{
		"Resize": {steps.Take, nil, func(c *etcdclaims.Client, _, _ *etcdclaims.Claim) error {
			return admin.Resize(ctx, c, "slots", 3)
		}},
		"ForceRelease": {steps.Notify, nil, func(c *etcdclaims.Client, _, _ *etcdclaims.Claim) error {
			return admin.ForceRelease(ctx, c, "k", "why")
		}},
		"ForceReleaseTerm": {steps.Notify, nil, func(c *etcdclaims.Client, of, _ *etcdclaims.Claim) error {
			return admin.ForceReleaseTerm(ctx, c, of.Token(), "why")
		}},
		"ForceRelease of a shared key": {steps.Free, []etcdclaims.AcquireOption{etcdclaims.Shared()}, func(c *etcdclaims.Client, _, _ *etcdclaims.Claim) error {
			return admin.ForceRelease(ctx, c, "k", "why")
		}},
		"ForceRelease of one who shares": {steps.Notify, []etcdclaims.AcquireOption{etcdclaims.Shared()}, func(c *etcdclaims.Client, _, _ *etcdclaims.Claim) error {
			return admin.ForceRelease(ctx, c, "k", "why")
		}},
		"Note": {steps.Note, nil, func(_ *etcdclaims.Client, _, own *etcdclaims.Claim) error {
			ctx, cancel := context.WithTimeout(ctx, 5*sec)
			defer cancel()
			return own.Note(ctx, []byte("x"))
		}},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			of := tryClaim(t, w.peer(), "k", tt.opts...)
			a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			own := tryClaim(t, a, "own")
			f := host.Inject(claimtest.Fault{On: tt.on, LoseReply: true})
			go func() {
				time.Sleep(100 * ms)
				host.Kill()
			}()
			wantIs(t, tt.call(a, of, own), etcdclaims.ErrUnknown)
			if f.Hits() != 1 {
				t.Errorf("%d replies lost", f.Hits())
			}
		})
	}
}

// plainContext is a context that cannot be compared.
type plainContext struct {
	context.Context
	_ []int
}

// A caller's context may be of any type.
func TestLostReplyUnderAContextThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	virtualCase(t, "a struct", func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		f := host.Inject(claimtest.Fault{On: steps.Take, LoseReply: true, Times: 1})
		cl, err := a.TryAcquire(plainContext{Context: context.Background()}, "k")
		if err != nil || f.Hits() != 1 {
			t.Fatalf("%v, %d replies lost", err, f.Hits())
		}
		if err := cl.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

package etcdclaims_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// If the operations of Then were carried out while the client was closed, the error says so of
// the client and is no plain failure.
func TestThenBesideClose(t *testing.T) {
	t.Parallel()
	then := etcdclaims.Then(clientv3.OpPut("/effect", "x"))
	bg := context.Background()
	for name, acquire := range map[string]func(c *etcdclaims.Client) error{
		"TryAcquire":    func(c *etcdclaims.Client) error { _, err := c.TryAcquire(bg, "k", then); return err },
		"Acquire":       func(c *etcdclaims.Client) error { _, err := c.Acquire(bg, "k", then); return err },
		"TryBegin":      func(c *etcdclaims.Client) error { _, err := works(c).TryBegin(bg, "k", then); return err },
		"TryAcquireAll": func(c *etcdclaims.Client) error { _, err := c.TryAcquireAll(bg, []string{"k", "l"}, then); return err },
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			release(t, tryClaim(t, a, "warm"))
			host.Inject(claimtest.Fault{On: steps.Take, DelayReply: 100 * ms})
			host.Inject(claimtest.Fault{On: steps.Enqueue, DelayReply: 100 * ms})
			got := make(chan error, 1)
			go func() { got <- acquire(a) }()
			time.Sleep(50 * ms)
			noErr(t, a.Close(bg))
			err := <-got
			if !errors.Is(err, etcdclaims.ErrClosed) {
				t.Error(err)
			}
			resp, getErr := w.Raw.Get(bg, "/effect")
			noErr(t, getErr)
			if done := resp.Count == 1; !done || !errors.Is(err, etcdclaims.ErrUnknown) {
				t.Errorf("carried out %v: %v", done, err)
			}
		})
	}
}

// If the operations of Then were carried out, and the session is not renewed before ctx
// ends, the error is no plain failure.
func TestThenWithoutRenewal(t *testing.T) {
	t.Parallel()
	for name, acquire := range map[string]func(ctx context.Context, c *etcdclaims.Client, then etcdclaims.TxnOption) error{
		"TryAcquire": func(ctx context.Context, c *etcdclaims.Client, then etcdclaims.TxnOption) error {
			_, err := c.TryAcquire(ctx, "k", then)
			return err
		},
		"TryAcquireAll": func(ctx context.Context, c *etcdclaims.Client, then etcdclaims.TxnOption) error {
			_, err := c.TryAcquireAll(ctx, []string{"k", "k2"}, then)
			return err
		},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			tryClaim(t, a, "other")
			host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, Code: codes.Unavailable})
			time.Sleep(9 * sec)
			host.Inject(claimtest.Fault{On: steps.Take, Times: -1, DelayReply: 2 * sec})
			ctx, cancel := context.WithTimeout(context.Background(), 2500*ms)
			defer cancel()
			err := acquire(ctx, a, etcdclaims.Then(clientv3.OpPut("/effect", "x")))
			if !errors.Is(err, etcdclaims.ErrUnknown) {
				t.Error(err)
			}
			resp, err := w.Raw.Get(context.Background(), "/effect")
			noErr(t, err)
			if resp.Count != 1 {
				t.Error("not carried out")
			}
		})
	}
}

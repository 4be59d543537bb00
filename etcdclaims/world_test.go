package etcdclaims_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const sec = time.Second

// inBubble runs the test on a server in virtual time.
func inBubble(t *testing.T, f func(t *testing.T, server *claimtest.Server), opts ...claimtest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, claimtest.Start(t, opts...)) })
}

// world is one etcd in virtual time, whose clients share a prefix.
type world struct{ *testclaims.World }

// virtually runs the test in a world of its own.
func virtually(t *testing.T, f func(t *testing.T, w *world), opts ...claimtest.Option) {
	t.Helper()
	testclaims.Virtually(t, func(t *testing.T, w *testclaims.World) { f(t, &world{w}) }, opts...)
}

// virtualCase runs a subtest in a world of its own, beside the others.
func virtualCase(t *testing.T, name string, f func(t *testing.T, w *world), opts ...claimtest.Option) {
	t.Helper()
	testclaims.Case(t, name, func(t *testing.T, w *testclaims.World) { f(t, &world{w}) }, opts...)
}

// client returns a client on a machine of its own, to which things can happen.
func (w *world) client(cfg etcdclaims.Config) (*etcdclaims.Client, *claimtest.Host) {
	w.Helper()
	if cfg.Prefix == "" {
		cfg.Prefix = w.Prefix
	}
	host := w.Server.Host(w.T)
	c := newClient(w.T, host.Etcd(w.T), cfg)
	w.Cleanup(func() { host.RemoveFaults(); host.Heal() }) // so that it can be closed
	return c, host
}

// peer returns a client, with a TTL of 15 s, that nothing happens to.
func (w *world) peer() *etcdclaims.Client {
	w.Helper()
	c, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
	return c
}

func (w *world) get(key string) string {
	w.Helper()
	return w.All()[w.Prefix+key]
}

// deletion returns a channel that yields when the server deleted the key.
func (w *world) deletion(etcdKey string) <-chan time.Time {
	ch := make(chan time.Time, 1)
	ctx, cancel := context.WithCancel(context.Background())
	w.Cleanup(cancel)
	news := w.Raw.Watch(ctx, etcdKey)
	go func() {
		for resp := range news {
			for _, ev := range resp.Events {
				if ev.Type == clientv3.EventTypeDelete {
					ch <- time.Now()
					cancel()
					return
				}
			}
		}
	}()
	return ch
}

// ending says when contexts and claims ended.
type ending struct{ soft, done chan time.Time }

func follow(cl *etcdclaims.Claim) ending {
	e := ending{make(chan time.Time, 1), make(chan time.Time, 1)}
	go func() { <-cl.Context().Done(); e.soft <- time.Now() }()
	go func() { <-cl.Done(); e.done <- time.Now() }()
	return e
}

func near(got, want, tolerance time.Duration) bool { return max(got-want, want-got) <= tolerance }

// timing is the deadline rule, written down a second time.
func timing(ttl time.Duration) (soft, hard time.Duration) {
	hard = ttl*99/100 - max(500*time.Millisecond, ttl/10)
	return hard - ttl/5, hard
}

package work_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const sec = time.Second

// inBubble runs the test on a server in virtual time.
func inBubble(t *testing.T, f func(t *testing.T, server *claimtest.Server), opts ...claimtest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, claimtest.Start(t, opts...)) })
}

// world is one etcd in virtual time, whose clients share a prefix.
type world struct {
	*testing.T
	server *claimtest.Server
	raw    *clientv3.Client // nothing happens to its requests
	prefix string
}

// virtually runs the test in a world of its own.
func virtually(t *testing.T, f func(t *testing.T, w *world), opts ...claimtest.Option) {
	t.Helper()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		f(t, &world{T: t, server: server, raw: server.Admin(), prefix: "/p/"})
	}, opts...)
}

// virtualCase runs a subtest in a world of its own, beside the others.
func virtualCase(t *testing.T, name string, f func(t *testing.T, w *world), opts ...claimtest.Option) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		testetcd.Sample(t)
		virtually(t, f, opts...)
	})
}

// client returns a client on a machine of its own, to which things can happen.
func (w *world) client(cfg config) (*client, *claimtest.Host) {
	w.Helper()
	if cfg.Prefix == "" {
		cfg.Prefix = w.prefix
	}
	host := w.server.Host(w.T)
	c := newClient(w.T, host.Etcd(w.T), cfg)
	w.Cleanup(func() { host.RemoveFaults(); host.Heal() }) // so that it can be closed
	return c, host
}

// peer returns a client, with a TTL of 15 s, that nothing happens to.
func (w *world) peer() *client {
	w.Helper()
	c, _ := w.client(config{TTL: 15 * sec})
	return c
}

// all returns every key under the prefix.
func (w *world) all() map[string]string {
	w.Helper()
	resp, err := w.raw.Get(context.Background(), w.prefix, clientv3.WithPrefix())
	if err != nil {
		w.Fatal(err)
	}
	out := map[string]string{}
	for _, kv := range resp.Kvs {
		out[string(kv.Key)] = string(kv.Value)
	}
	return out
}

// own is the key in etcd of the claim on key.
func (w *world) own(key string) string { return claimtest.Key(w.prefix, key) }

// nothingLeft fails if anything but work records and the epoch is there.
func (w *world) nothingLeft() {
	w.Helper()
	for k, v := range w.all() {
		if !strings.HasPrefix(k, w.prefix+"work/") && k != w.prefix+"epoch" {
			w.Errorf("left over in etcd: %s = %s", k, v)
		}
	}
}

// noLeases fails if leases are left, apart from those of done work.
func (w *world) noLeases() {
	w.Helper()
	resp, err := w.raw.Leases(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	for _, l := range resp.Leases {
		ttl, err := w.raw.TimeToLive(context.Background(), l.ID, clientv3.WithAttachedKeys())
		if err != nil {
			w.Fatal(err)
		}
		kept := ttl.TTL <= 0
		for _, k := range ttl.Keys {
			kept = kept || strings.HasPrefix(string(k), w.prefix+"work/")
		}
		if !kept {
			w.Errorf("left over in etcd: lease %x of %d s with %q", l.ID, ttl.GrantedTTL, ttl.Keys)
		}
	}
}

// closeClean closes the clients, and checks that nothing is left.
func (w *world) closeClean(cs ...*client) {
	w.Helper()
	for _, c := range cs {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := c.Close(ctx); err != nil {
			w.Errorf("closing: %v", err)
		}
		cancel()
	}
	w.nothingLeft()
}

// release gives up what must be released without an error.
func release(tb testing.TB, cl interface {
	Key() string
	Release(ctx context.Context) error
},
) {
	tb.Helper()
	if err := cl.Release(context.Background()); err != nil {
		tb.Errorf("releasing %s: %v", cl.Key(), err)
	}
}

// lossOf checks that an error is a loss for the reason.
func lossOf(tb testing.TB, err error, want etcdclaims.Reason) {
	tb.Helper()
	var l *etcdclaims.LostError
	if !errors.As(err, &l) || l.Reason != want || !errors.Is(err, etcdclaims.ErrLost) || !errors.Is(err, context.Canceled) {
		tb.Errorf("got %v, want a loss for %q", err, want)
	}
}

// Package testclaims is what the tests of packages that are built on claims have in common: an etcd
// in virtual time whose clients share a prefix, and what is looked for in it. Tests only.
package testclaims

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

// World is one etcd in virtual time, whose clients share a prefix.
type World struct {
	*testing.T
	Server *claimtest.Server
	Raw    *clientv3.Client // nothing happens to its requests
	Prefix string
}

// Virtually runs the test in a world of its own.
func Virtually(t *testing.T, f func(t *testing.T, w *World), opts ...claimtest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t, opts...)
		f(t, &World{T: t, Server: server, Raw: server.Admin(), Prefix: "/p/"})
	})
}

// Case runs a subtest in a world of its own, beside the others.
func Case(t *testing.T, name string, f func(t *testing.T, w *World), opts ...claimtest.Option) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		testetcd.Sample(t)
		Virtually(t, f, opts...)
	})
}

// Client returns a client on a machine of its own, to which things can happen.
func (w *World) Client(cfg etcdclaims.Config) (*etcdclaims.Client, *claimtest.Host) {
	w.Helper()
	if cfg.Prefix == "" {
		cfg.Prefix = w.Prefix
	}
	host := w.Server.Host(w.T)
	c := claimtest.NewClient(w.T, host, cfg)
	w.Cleanup(host.RemoveFaults) // so that it can be closed
	return c, host
}

// Peer returns a client, with a TTL of 15 s, that nothing happens to.
func (w *World) Peer() *etcdclaims.Client {
	w.Helper()
	c, _ := w.Client(etcdclaims.Config{TTL: 15 * time.Second})
	return c
}

// All returns every key under the prefix.
func (w *World) All() map[string]string {
	w.Helper()
	resp, err := w.Raw.Get(context.Background(), w.Prefix, clientv3.WithPrefix())
	if err != nil {
		w.Fatal(err)
	}
	out := map[string]string{}
	for _, kv := range resp.Kvs {
		out[string(kv.Key)] = string(kv.Value)
	}
	return out
}

// Count returns how many keys contain the part.
func (w *World) Count(part string) int {
	w.Helper()
	n := 0
	for k := range w.All() {
		if strings.Contains(k, part) {
			n++
		}
	}
	return n
}

// Own is the key in etcd of the claim on key.
func (w *World) Own(key string) string { return Key(w.Prefix, key) }

// NothingLeft fails if anything but work records, records of operators and the epoch is there.
func (w *World) NothingLeft() {
	w.Helper()
	for k, v := range w.All() {
		if !strings.HasPrefix(k, w.Prefix+"work/") && !strings.HasPrefix(k, w.Prefix+"audit/") && k != w.Prefix+"epoch" {
			w.Errorf("left over in etcd: %s = %s", k, v)
		}
	}
}

// NoLeases fails if leases are left, apart from those of done work.
func (w *World) NoLeases() {
	w.Helper()
	resp, err := w.Raw.Leases(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	for _, l := range resp.Leases {
		ttl, err := w.Raw.TimeToLive(context.Background(), l.ID, clientv3.WithAttachedKeys())
		if err != nil {
			w.Fatal(err)
		}
		kept := ttl.TTL <= 0
		for _, k := range ttl.Keys {
			kept = kept || strings.HasPrefix(string(k), w.Prefix+"work/")
		}
		if !kept {
			w.Errorf("left over in etcd: lease %x of %d s with %q", l.ID, ttl.GrantedTTL, ttl.Keys)
		}
	}
}

// CloseClean closes the clients, and checks that nothing is left.
func (w *World) CloseClean(cs ...*etcdclaims.Client) {
	w.Helper()
	for _, c := range cs {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := c.Close(ctx); err != nil {
			w.Errorf("closing: %v", err)
		}
		cancel()
	}
	w.NothingLeft()
}

// Joined makes the client one that had to wait for the key before, so that it
// joins the line at once when it acquires it again.
func (w *World) Joined(c *etcdclaims.Client, key string) {
	w.Helper()
	other := w.Peer()
	held := TryClaim(w.T, other, key)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := c.Acquire(ctx, key); !errors.Is(err, context.DeadlineExceeded) {
		w.Fatal(err)
	}
	time.Sleep(time.Second) // its place is left in the background, and would be handed the key
	Release(w, held)
	if err := other.Close(context.Background()); err != nil {
		w.Fatal(err)
	}
}

// Ours checks that the claim is what etcd has.
func (w *World) Ours(cl *etcdclaims.Claim) {
	w.Helper()
	resp, err := w.Raw.Get(context.Background(), w.Own(cl.Key()))
	if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].ModRevision != cl.Fence()&(1<<47-1) {
		w.Errorf("fence %d: etcd has %v, %v", cl.Fence(), resp, err)
	}
	if err := cl.Check(); err != nil {
		w.Error(err)
	}
}

// Available checks that the key can be had by another at once.
func (w *World) Available(key string, other *etcdclaims.Client) {
	w.Helper()
	cl, err := other.TryAcquire(context.Background(), key)
	if err != nil {
		w.Errorf("the key is not free: %v", err)
		return
	}
	Release(w, cl)
}

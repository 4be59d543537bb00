package work_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testclaims"
)

const sec = time.Second

// inBubble runs the test on a server in virtual time.
func inBubble(t *testing.T, f func(t *testing.T, server *claimtest.Server), opts ...claimtest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, claimtest.Start(t, opts...)) })
}

// world is one etcd in virtual time, whose clients have runners, and share a prefix.
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
func (w *world) client(cfg config) (*client, *claimtest.Host) {
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
func (w *world) peer() *client {
	w.Helper()
	c, _ := w.client(config{TTL: 15 * sec})
	return c
}

// closeClean closes the clients, and checks that nothing is left.
func (w *world) closeClean(cs ...*client) {
	w.Helper()
	claims := make([]*etcdclaims.Client, len(cs))
	for i, c := range cs {
		claims[i] = c.Client
	}
	w.CloseClean(claims...)
}

const (
	ms  = time.Millisecond
	rtt = 20 * ms
)

package claimtest

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// NewClient returns a client of claims. Each client counts as a process of its own.
// When the test ends, the network of its host is healed and the client is closed.
func NewClient(tb testing.TB, etcd Etcd, cfg etcdclaims.Config) *etcdclaims.Client {
	tb.Helper()
	c, err := etcdclaims.New(etcd.Etcd(tb), cfg)
	if err != nil {
		tb.Fatalf("claimtest: new client: %v", err)
	}
	tb.Cleanup(func() {
		if h, ok := etcd.(*Host); ok {
			h.restore()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = c.Close(ctx) // what it could not release ends with its lease
	})
	return c
}

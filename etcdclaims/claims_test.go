package etcdclaims_test

import (
	"context"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What tests of other packages need, too.
var (
	noErr      = testclaims.NoErr
	wantIs     = testclaims.WantIs
	tryClaim   = testclaims.TryClaim
	lookUp     = testclaims.LookUp
	eventually = testclaims.Eventually
	rawKV      = testclaims.RawKV
	vanish     = testclaims.Vanish
	release    = testclaims.Release
	lossOf     = testclaims.LossOf
	atOnce     = testclaims.AtOnce

	works   = testwork.Of // the runner of a client, for tests that have work beside claims
	failing = testwork.Fail
)

// worksWith gives clients runners with a configuration.
func worksWith(cfg work.Config, clients ...*etcdclaims.Client) {
	for _, c := range clients {
		testwork.With(c, cfg)
	}
}

func tryBegin(tb testing.TB, c *etcdclaims.Client, key string, opts ...work.Option) *work.Work {
	tb.Helper()
	w, err := works(c).TryBegin(tb.Context(), key, opts...)
	noErr(tb, err)
	return w
}

// orphansOf returns up to limit orphans, 0 for all.
func orphansOf(ctx context.Context, c *etcdclaims.Client, limit int) ([]work.Record, error) {
	return testwork.Orphans(ctx, works(c), limit)
}

// twoOwners returns two claims clients with owners a and b on one prefix.
func twoOwners(tb testing.TB, etcd *clientv3.Client, cfg etcdclaims.Config) (a, b *etcdclaims.Client, prefix string) {
	tb.Helper()
	if cfg.Prefix == "" {
		cfg.Prefix = testetcd.Prefix(tb)
	}
	cfg.Owner = "a"
	a = newClient(tb, etcd, cfg)
	cfg.Owner = "b"
	return a, newClient(tb, etcd, cfg), cfg.Prefix
}

package testclaims

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
)

// Pair is one etcd in virtual time, and two processes, each on its machine.
type Pair struct {
	Server        *claimtest.Server
	Host, Near    *claimtest.Host // of Claims, and of Other
	Claims, Other *etcdclaims.Client
}

// PairCase runs a subtest with a pair of its own, beside the others.
func PairCase(t *testing.T, name string, f func(t *testing.T, w *Pair)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			server := claimtest.Start(t)
			w := &Pair{Server: server, Host: server.Host(t), Near: server.Host(t)}
			w.Claims = claimtest.NewClient(t, w.Host, etcdclaims.Config{Owner: "here"})
			w.Other = claimtest.NewClient(t, w.Near, etcdclaims.Config{Owner: "there"})
			f(t, w)
		})
	})
}

// Revoke takes the key away from its holder, as an operator might.
func (w *Pair) Revoke(t *testing.T, key string) {
	t.Helper()
	w.Server.Revoke(t, Key("", key))
}

// Free fails unless the key is held by nobody.
func (w *Pair) Free(t *testing.T, key string) {
	t.Helper()
	info, err := w.Other.Lookup(context.Background(), key)
	if err != nil || info.Held {
		t.Errorf("%s is not free: %+v, %v", key, info, err)
	}
}

// Losses are the ways in which a claim of Claims on "k" ends behind a handler's back. For
// "max hold" the claim needs a MaxHold below a minute.
var Losses = map[string]func(t *testing.T, w *Pair){
	"revoked": func(t *testing.T, w *Pair) { t.Helper(); w.Revoke(t, "k") },
	"forced": func(t *testing.T, w *Pair) {
		t.Helper()
		if err := admin.ForceRelease(context.Background(), w.Other, "k", "test"); err != nil {
			t.Error(err)
		}
	},
	"cut":      func(_ *testing.T, w *Pair) { w.Host.Cut(); time.Sleep(time.Minute) },
	"asleep":   func(_ *testing.T, w *Pair) { w.Host.Suspend(time.Minute) },
	"killed":   func(_ *testing.T, w *Pair) { w.Host.Kill(); time.Sleep(time.Minute) },
	"max hold": func(*testing.T, *Pair) { time.Sleep(time.Minute) },
}

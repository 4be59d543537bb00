package grpcmw_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testclaims"
)

const sec = time.Second

// world is one etcd in virtual time, and two processes, each on its machine.
type world struct {
	server     *claimtest.Server
	host, near *claimtest.Host
	claims     *etcdclaims.Client // on host
	other      *etcdclaims.Client // on near
}

// inWorld runs a subtest in a world of its own, beside the others.
func inWorld(t *testing.T, name string, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			server := claimtest.Start(t)
			w := &world{server: server, host: server.Host(t), near: server.Host(t)}
			w.claims = claimtest.NewClient(t, w.host, etcdclaims.Config{Owner: "here"})
			w.other = claimtest.NewClient(t, w.near, etcdclaims.Config{Owner: "there"})
			f(t, w)
		})
	})
}

// revoke takes the key away from whoever holds it, as an operator might.
func (w *world) revoke(t *testing.T, key string) {
	t.Helper()
	w.server.Revoke(t, testclaims.Key("", key))
}

// free fails unless the key is held by nobody.
func (w *world) free(t *testing.T, key string) {
	t.Helper()
	info, err := w.other.Lookup(context.Background(), key)
	if err != nil || info.Held {
		t.Errorf("%s is not free: %+v, %v", key, info, err)
	}
}

// losses are the ways in which a claim on "k" ends behind a handler's back.
var losses = map[string]func(t *testing.T, w *world){
	"revoked": func(t *testing.T, w *world) { t.Helper(); w.revoke(t, "k") },
	"forced": func(t *testing.T, w *world) {
		t.Helper()
		if err := admin.ForceRelease(context.Background(), w.other, "k", "test"); err != nil {
			t.Error(err)
		}
	},
	"cut":      func(_ *testing.T, w *world) { w.host.Cut(); time.Sleep(time.Minute) },
	"asleep":   func(_ *testing.T, w *world) { w.host.Suspend(time.Minute) },
	"killed":   func(_ *testing.T, w *world) { w.host.Kill(); time.Sleep(time.Minute) },
	"max hold": func(*testing.T, *world) { time.Sleep(time.Minute) },
}

// limit are the options that the loss of this name needs.
func limit(name string) []etcdclaims.AcquireOption {
	if name == "max hold" {
		return []etcdclaims.AcquireOption{etcdclaims.MaxHold(20 * sec)}
	}
	return nil
}

package jobs_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testclaims"
)

const sec = time.Second

// without is a client without etcd.
var without = func() *etcdclaims.Client {
	c, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
	if err != nil {
		panic(err)
	}
	return c
}()

// world is one etcd in virtual time, and two processes, each on its machine.
type world struct {
	server        *claimtest.Server
	host, near    *claimtest.Host // of claims, and of other
	claims, other *etcdclaims.Client
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

// hold lets the other process have the key.
func (w *world) hold(t *testing.T, key string) *etcdclaims.Claim {
	t.Helper()
	claim, err := w.other.TryAcquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// free fails unless the key is held by nobody.
func (w *world) free(t *testing.T, key string) {
	t.Helper()
	info, err := w.other.Lookup(context.Background(), key)
	if err != nil || info.Held {
		t.Errorf("%s is not free: %+v, %v", key, info, err)
	}
}

// losses take the claim on a key away from a process while its job runs, in every
// way there is but for its own doing.
var losses = map[string]func(t *testing.T, w *world, key string){
	"cut off":       func(_ *testing.T, w *world, _ string) { w.host.Cut(); time.Sleep(time.Minute); w.host.Heal() },
	"stopped":       func(_ *testing.T, w *world, _ string) { w.host.Suspend(time.Minute); time.Sleep(2 * sec) },
	"lease revoked": func(t *testing.T, w *world, key string) { w.server.Revoke(t, testclaims.Key("", key)); time.Sleep(sec) },
	"key deleted": func(t *testing.T, w *world, key string) {
		w.server.Delete(t, testclaims.Key("", key))
		time.Sleep(10 * sec)
	},
	"forced": func(t *testing.T, w *world, key string) {
		if err := admin.ForceRelease(context.Background(), w.other, key, "test"); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * sec)
	},
}

// leaving are the ways to leave a function without returning.
var leaving = map[string]func(){"panic": func() { panic("own") }, "Goexit": runtime.Goexit}

// left runs f in a goroutine, and returns what it panicked with.
func left(f func()) any {
	ended := make(chan any)
	go func() {
		defer func() { ended <- recover() }()
		f()
	}()
	return <-ended
}

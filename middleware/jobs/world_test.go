package jobs_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
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

type world = testclaims.Pair

// inWorld runs a subtest in a world of its own, beside the others.
var inWorld = testclaims.PairCase

// hold lets the other process have the key.
func hold(t *testing.T, w *world, key string) *etcdclaims.Claim {
	t.Helper()
	claim, err := w.Other.TryAcquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// losses take the claim on a key away from a process while its job runs, in every
// way there is but for its own doing.
var losses = map[string]func(t *testing.T, w *world, key string){
	"cut off":       func(_ *testing.T, w *world, _ string) { w.Host.Cut(); time.Sleep(time.Minute); w.Host.Heal() },
	"stopped":       func(_ *testing.T, w *world, _ string) { w.Host.Suspend(time.Minute); time.Sleep(2 * sec) },
	"lease revoked": func(t *testing.T, w *world, key string) { w.Server.Revoke(t, testclaims.Key("", key)); time.Sleep(sec) },
	"key deleted": func(t *testing.T, w *world, key string) {
		w.Server.Delete(t, testclaims.Key("", key))
		time.Sleep(10 * sec)
	},
	"forced": func(t *testing.T, w *world, key string) {
		if err := admin.ForceRelease(context.Background(), w.Other, key, "test"); err != nil {
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

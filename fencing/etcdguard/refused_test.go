package etcdguard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The outcome of a write that etcd has refused in a shared request is known, also if the
// caller leaves before the newest fence was read.
func TestSharedRequestRefusedAsTheCallerLeaves(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		cl := claim(t, w.claims, "k")
		w.host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, LoseReply: true})
		kv := etcdguard.NewKV(w.etcd, etcdguard.Bearer("", cl.Token()))
		for i, err := range w.crowd(kv, 5, func(i int) error {
			if i == 0 {
				w.server.Revoke(t, testclaims.Key("", "k"))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond) // the request is sent after a second
			defer cancel()
			_, err := kv.Put(ctx, key(i), "v")
			return err
		}) {
			if !errors.Is(err, fencing.ErrStale) || errors.Is(err, fencing.ErrUnknown) || w.at(key(i)) != "" {
				t.Errorf("%d: %v, and there is %q", i, err, w.at(key(i)))
			}
		}
		w.host.RemoveFaults()
	})
}

// A call takes no longer than 10 s, also if it is refused and the newest fence cannot
// be read.
func TestRefusedCallsEnd(t *testing.T) {
	t.Parallel()
	for _, took := range []time.Duration{0, 9900 * time.Millisecond} { // the request that is refused
		virtually(t, func(t *testing.T, w *world) {
			cl := claim(t, w.claims, "k")
			w.server.Revoke(t, testclaims.Key("", "k"))
			w.host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, LoseReply: true})
			bearer := etcdguard.NewKV(w.etcd, etcdguard.Bearer("", cl.Token()))
			for name, call := range map[string]func() error{
				"claim":  func() error { _, err := etcdguard.NewKV(w.etcd, cl).Put(t.Context(), "/data", "v"); return err },
				"bearer": func() error { _, err := bearer.Put(t.Context(), "/data", "v"); return err },
				"txn": func() error {
					_, err := bearer.Txn(t.Context()).Then(clientv3.OpPut("/a", ""), clientv3.OpPut("/b", "")).Commit()
					return err
				},
			} {
				slow := w.host.Inject(claimtest.Fault{On: claimtest.Other, DelayReply: took})
				began := time.Now()
				err := call()
				slow.Remove()
				if lasted := time.Since(began); !errors.Is(err, fencing.ErrStale) || lasted > min(took+time.Second, 10*time.Second) {
					t.Errorf("%s, %v: %v after %v", name, took, err, lasted)
				}
			}
			w.host.RemoveFaults()
		})
	}
}

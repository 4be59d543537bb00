package etcdclaims_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/internal/testclaims"
)

// Clients whose prefixes lie within each other, wherever that is allowed (see
// TestConfigRefused), have nothing to do with each other, whatever their callers'
// keys are.
func TestNestedPrefixes(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for _, inner := range []string{"b/", "a/", "wait/", "session/", "void/", "lock/", "epoch/", "sched/", "queue/", "group/"} {
		virtualCase(t, inner, func(t *testing.T, w *world) {
			outer, _ := w.client(etcdclaims.Config{Prefix: "/a/", TTL: 15 * sec})
			within, _ := w.client(etcdclaims.Config{Prefix: "/a/" + inner, TTL: 15 * sec})
			keys := []string{"k", "own/k", "epoch", "/a/own/k", "wait/own/k", "session/own/k", "b/own/k", "work/k", "a/own/k", "lock/own/k"}
			for _, c := range []*etcdclaims.Client{outer, within} {
				for _, key := range keys {
					tryClaim(t, c, key, etcdclaims.Note([]byte("n")))
					noErr(t, tryBegin(t, c, "work-"+key).Complete(bg))
					testclaims.Locked(t, locks.New(c), "lock-"+key, "me", time.Minute, true)
				}
				if _, err := c.Acquire(w.past(), keys[0]); err == nil {
					t.Error("acquired what is held")
				}
			}
			if _, err := admin.RaiseEpoch(bg, w.Raw, "/a/"+inner, 0); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * sec)
			n := 0
			for _, err := range outer.List(bg, "") {
				noErr(t, err)
				n++
			}
			if want := 2 * len(keys); n != want {
				t.Errorf("%d keys listed, not %d", n, want)
			}
			if s := outer.Stats(); s.Held != len(keys) {
				t.Errorf("an epoch of another prefix ended claims: %+v", s)
			}
			if n, err := locks.New(outer).ReleaseAll(bg, "me"); n != len(keys) || err != nil {
				t.Errorf("released %d locks, %v", n, err)
			}
			if n, err := outer.ReleaseAll(bg); n != len(keys) || err != nil {
				t.Errorf("released %d, %v", n, err)
			}
			if s := within.Stats(); s.Lost[etcdclaims.ReasonSuperseded] != int64(len(keys)) {
				t.Errorf("the epoch of the prefix ended other claims than its own: %+v", s)
			}
		})
	}
}

// past returns a context that ends soon.
func (w *world) past() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	w.Cleanup(cancel)
	return ctx
}

package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// effect returns the value of an etcd key, and how often it was put.
func (w *world) effect(key string) (value string, version int64) {
	w.Helper()
	resp, err := w.Raw.Get(context.Background(), key)
	noErr(w, err)
	if len(resp.Kvs) == 0 {
		return "", 0
	}
	return string(resp.Kvs[0].Value), resp.Kvs[0].Version
}

// The operations of ReleaseWith and the release are one request, whatever kind of claim ends.
func TestReleaseWith(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, opts := range map[string][]etcdclaims.AcquireOption{
		"plain": nil, "slot": {etcdclaims.Slots(2)}, "shared": {etcdclaims.Shared()}, "manual": {etcdclaims.Manual()}, "note": {etcdclaims.Note([]byte("n"))},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			c := w.peer()
			cl := tryClaim(t, c, "k", opts...)
			before := c.Stats().Requests
			noErr(t, cl.ReleaseWith(ctx, clientv3.OpPut("/effect", "x")))
			if n := c.Stats().Requests - before; n != 1 {
				t.Errorf("%d requests", n)
			}
			if v, n := w.effect("/effect"); v != "x" || n != 1 {
				t.Errorf("%q was put %d times", v, n)
			}
			wantIs(t, cl.Err(), etcdclaims.ErrReleased)
			wantIs(t, cl.ReleaseWith(ctx, clientv3.OpPut("/effect", "y")), etcdclaims.ErrReleased)
			noErr(t, cl.Release(ctx))
			if s := c.Stats(); s.Released != 1 || s.Held != 0 {
				t.Errorf("%+v", s)
			}
			if name != "slot" { // whose number stays stored
				w.CloseClean(c)
			}
		})
	}
}

// A caller in line is handed the key with the same request, also one of the same client.
func TestReleaseWithHandsOver(t *testing.T) {
	t.Parallel()
	for _, same := range []bool{false, true} {
		virtualCase(t, map[bool]string{false: "another client", true: "the same client"}[same], func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			next := c
			if !same {
				next = w.peer()
			}
			cl := tryClaim(t, c, "k")
			got := acquiring(context.Background(), next, "k")
			time.Sleep(100 * time.Millisecond) // in line, and not watching yet
			noErr(t, cl.ReleaseWith(context.Background(), clientv3.OpPut("/effect", "x")))
			after := w.within(sec, got)
			if v, n := w.effect("/effect"); v != "x" || n != 1 {
				t.Errorf("%q was put %d times", v, n)
			}
			if n := len(host.Sent(steps.HandOver)); !same && n != 1 {
				t.Errorf("%d hand-overs", n)
			}
			release(t, after)
			w.CloseClean(c, next)
		})
	}
}

// Whatever request or reply is lost, the operations are carried out once and with the release, or
// the error matches ErrUnknown.
func TestReleaseWithLost(t *testing.T) {
	t.Parallel()
	put, del := clientv3.OpPut("/effect", "x"), clientv3.OpDelete("/gone")
	for name, tt := range map[string]struct {
		fault   claimtest.Fault
		op      clientv3.Op
		waiter  bool
		unknown bool
	}{
		"request":                 {claimtest.Fault{LoseRequest: true}, put, false, false},
		"reply":                   {claimtest.Fault{LoseReply: true}, put, false, false},
		"replies":                 {claimtest.Fault{LoseReply: true, Times: 3}, put, false, false},
		"reply, nothing put":      {claimtest.Fault{LoseReply: true}, del, false, true},
		"request, with a waiter":  {claimtest.Fault{LoseRequest: true}, put, true, false},
		"reply, with a waiter":    {claimtest.Fault{LoseReply: true}, put, true, false},
		"late, after its resend":  {claimtest.Fault{DelayRequest: 9 * sec}, put, false, false},
		"late, with other waiter": {claimtest.Fault{DelayRequest: 9 * sec}, put, true, false},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			peer := w.peer()
			_, err := w.Raw.Put(context.Background(), "/gone", "")
			noErr(t, err)
			cl := tryClaim(t, c, "k")
			tt.fault.On = steps.Free
			var got <-chan claimed
			if tt.waiter {
				got = acquiring(context.Background(), peer, "k")
				time.Sleep(100 * time.Millisecond)
				tt.fault.On = steps.HandOver
			}
			hit := host.Inject(tt.fault)
			err = cl.ReleaseWith(context.Background(), tt.op)
			if errors.Is(err, etcdclaims.ErrUnknown) != tt.unknown || err != nil && !tt.unknown {
				t.Errorf("got %v, want an unknown outcome: %v", err, tt.unknown)
			}
			if hit.Hits() == 0 {
				t.Error("nothing was lost")
			}
			time.Sleep(20 * sec)
			if _, n := w.effect("/effect"); tt.op.IsPut() && n != 1 {
				t.Errorf("the effect was put %d times", n)
			}
			if _, n := w.effect("/gone"); tt.op.IsDelete() && n != 0 {
				t.Error("nothing was deleted")
			}
			if tt.waiter {
				release(t, w.within(sec, got))
			}
			w.Available("k", peer)
			w.CloseClean(c, peer)
		})
	}
}

// Another's Put of the same value does not prove that the own one was carried out.
func TestReleaseWithProof(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		peer := w.peer()
		cl := tryClaim(t, c, "k")
		host.Inject(claimtest.Fault{On: steps.Free, LoseRequest: true, Saw: func(any) {
			go func() {
				_, _ = w.Raw.Put(context.Background(), "/effect", "x")
				_ = admin.ForceRelease(context.Background(), peer, "k", "test")
			}()
		}})
		wantIs(t, cl.ReleaseWith(context.Background(), clientv3.OpPut("/effect", "x")), etcdclaims.ErrUnknown)
	})
}

// A claim whose record is gone, or is another, is lost: ReleaseWith carries out nothing, and does not
// try again for as long as the claim's key is there.
func TestReleaseWithoutRecord(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]etcdclaims.AcquireOption{"slots": etcdclaims.Slots(2), "shared": etcdclaims.Shared()} {
		for _, replaced := range []bool{false, true} {
			virtualCase(t, fmt.Sprintf("%s, replaced %v", name, replaced), func(t *testing.T, w *world) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				var requests atomic.Int64
				c, _ := w.client(etcdclaims.Config{TTL: 15 * sec, Hooks: etcdclaims.Hooks{Requested: func(etcdclaims.Request) {
					if requests.Add(1) > 100 {
						cancel()
					}
				}}})
				cl := tryClaim(t, c, "k", kind)
				w.Server.Delete(t, w.Own("k"))
				if replaced {
					w.Server.Overwrite(t, w.Own("k"), "{}")
				}
				before, began := c.Stats().Requests, time.Now()
				wantIs(t, cl.ReleaseWith(ctx, clientv3.OpPut("/effect", "x")), etcdclaims.ErrLost)
				if n, took := c.Stats().Requests-before, time.Since(began); n > 20 || took > sec {
					t.Errorf("%d requests in %v", n, took)
				}
				if v, n := w.effect("/effect"); n != 0 {
					t.Errorf("%q was put", v)
				}
			})
		}
	}
}

// A refusal leaves the claim held, and nothing is changed. A claim that is lost changes nothing either.
func TestReleaseWithRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	put := clientv3.OpPut("/effect", "x")
	virtually(t, func(t *testing.T, w *world) {
		c := w.peer()
		cl := tryClaim(t, c, "k")
		handles := []*etcdclaims.Claim{tryClaim(t, c, "r", etcdclaims.Reentrant()), tryClaim(t, c, "r", etcdclaims.Reentrant())}
		rests := tryClaim(t, c, "m", etcdclaims.MinHold(time.Hour))
		before := c.Stats().Requests
		for name, err := range map[string]error{
			"reserved": cl.ReleaseWith(ctx, clientv3.OpPut(w.Prefix+"own/x", "")),
			"handles":  handles[0].ReleaseWith(ctx, put),
			"MinHold":  rests.ReleaseWith(ctx, put),
		} {
			if err == nil || errors.Is(err, etcdclaims.ErrLost) || errors.Is(err, etcdclaims.ErrUnknown) || errors.Is(err, etcdclaims.ErrReleased) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := c.Stats().Requests - before; n != 0 {
			t.Errorf("%d requests", n)
		}
		if err := cl.ReleaseWith(ctx, put, put); err == nil || errors.Is(err, etcdclaims.ErrLost) || errors.Is(err, etcdclaims.ErrUnknown) {
			t.Errorf("one key put twice: %v", err)
		}
		for _, held := range []*etcdclaims.Claim{cl, handles[0], handles[1], rests} {
			noErr(t, held.Check())
		}
		noErr(t, handles[1].Release(ctx))
		noErr(t, handles[0].ReleaseWith(ctx))
		noErr(t, admin.ForceRelease(ctx, w.peer(), "k", "test"))
		wantIs(t, cl.ReleaseWith(ctx, put), etcdclaims.ErrLost)
		if v, n := w.effect("/effect"); n != 0 {
			t.Errorf("%q was put", v)
		}
	})
	p, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
	noErr(t, err)
	cl := tryClaim(t, p, "k")
	wantIs(t, cl.ReleaseWith(ctx, put), etcdclaims.ErrPassthrough)
	noErr(t, cl.Check())
	noErr(t, cl.ReleaseWith(ctx))
	wantIs(t, cl.Check(), etcdclaims.ErrReleased)
}

// In an outage the outcome is unknown, and settled in the background: once, and with the release.
func TestReleaseWithInAnOutage(t *testing.T) {
	t.Parallel()
	for _, carriedOut := range []bool{false, true} {
		virtualCase(t, map[bool]string{false: "not carried out", true: "carried out"}[carriedOut], func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			cl := tryClaim(t, c, "k")
			host.Inject(claimtest.Fault{On: steps.Free, LoseReply: carriedOut, LoseRequest: !carriedOut, Saw: func(any) { host.CutReplies() }})
			ctx, cancel := context.WithTimeout(context.Background(), 5*sec)
			defer cancel()
			wantIs(t, cl.ReleaseWith(ctx, clientv3.OpPut("/effect", "x")), etcdclaims.ErrUnknown)
			wantIs(t, cl.Check(), etcdclaims.ErrReleased)
			host.Heal()
			time.Sleep(20 * sec)
			if _, n := w.effect("/effect"); n != 1 {
				t.Errorf("the effect was put %d times", n)
			}
			peer := w.peer()
			w.Available("k", peer)
			w.CloseClean(c, peer)
		})
	}
}

// A handler may end its claim itself, with the operations that its effect is.
func TestReleaseWithInRun(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c := w.peer()
		cl := tryClaim(t, c, "k")
		noErr(t, cl.Run(context.Background(), func(ctx context.Context) error {
			return cl.ReleaseWith(ctx, clientv3.OpPut("/effect", "x"))
		}))
		if v, n := w.effect("/effect"); v != "x" || n != 1 {
			t.Errorf("%q was put %d times", v, n)
		}
		if s := c.Stats(); s.Released != 1 || s.Zombies != 0 {
			t.Errorf("%+v", s)
		}
		w.Available("k", c)
		w.CloseClean(c)
	})
}

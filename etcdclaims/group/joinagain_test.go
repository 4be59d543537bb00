package group_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/txn"
)

// A Join fails because etcd is slow, and is called again while it is being undone. The
// client is no member, so that Join is not refused, and succeeds once it can.
func TestJoinAgainAfterFailure(t *testing.T) {
	t.Parallel()
	slow := func(on claimtest.Kind, skip int) claimtest.Fault {
		return claimtest.Fault{On: on, Skip: skip, Times: -1, DelayReply: 12 * sec}
	}
	for name, fault := range map[string]claimtest.Fault{
		"claim":   {On: claimtest.Acquire, Times: -1, DelayRequest: 12 * sec},
		"look":    slow(claimtest.Verify, 0),
		"entry":   slow(claimtest.Other, 1),
		"view":    slow(claimtest.Verify, 1),
		"cut off": slow(claimtest.Verify, 1),
		"a while": {On: claimtest.Other, Skip: 1, Times: -1, LoseReply: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				host := w.server.Host(w.T)
				claims := claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl})
				_, err := claims.TryAcquire(w.Context(), "unrelated") // the lease lives on
				w.ok(err)
				injected := host.Inject(fault)
				host.Inject(claimtest.Fault{On: claimtest.Release, Times: 4, DelayRequest: 12 * sec})
				if name == "cut off" { // Join returns before its member has left
					time.AfterFunc(5*sec, host.Cut)
					time.AfterFunc(25*sec, host.Heal)
				}
				ctx, cancel := context.WithTimeout(w.Context(), 6*sec)
				failed, err := group.Join(ctx, claims, config("a", 8), untilEnd)
				cancel()
				if err == nil {
					w.Error("the fault does not hit the Join")
					w.ok(failed.Leave(w.Context()))
				}
				injected.Remove()
				m, err := group.Join(w.Context(), claims, config("a", 8), untilEnd)
				if err != nil {
					w.Fatal(err)
				}
				w.within(5*sec, "it has the partitions", func() bool { return counts(m.View())["a"] == 8 })
				_, err = group.Join(w.Context(), claims, config("b", 8), untilEnd)
				w.wantText(err, "client is a member already")
				w.ok(m.Leave(w.Context()))
				m, err = group.Join(w.Context(), claims, config("a", 8), untilEnd)
				w.ok(err)
				w.ok(m.Leave(w.Context()))
			})
		})
	}
}

// Join waits for the claim of an earlier member of its client, and says so when it stops waiting.
func TestJoinNamesTheEarlierMember(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		claims := claimtest.NewClient(w.T, w.server.Host(w.T), etcdclaims.Config{TTL: ttl})
		left, err := claims.TryAcquire(w.Context(), "group/g/member/"+claims.Instance(), option.OwnKey{})
		w.ok(err)
		began := time.Now()
		_, err = group.Join(w.Context(), claims, config("a", 8), untilEnd)
		if err == nil || !strings.Contains(err.Error(), "earlier member") || !errors.Is(err, etcdclaims.ErrHeld) || errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 20*sec {
			w.Fatalf("after %v: %v", time.Since(began), err)
		}
		w.ok(left.Release(w.Context()))
		m, err := group.Join(w.Context(), claims, config("a", 8), untilEnd)
		w.ok(err)
		w.ok(m.Leave(w.Context()))
	})
}

// Join ends by its own limit, whatever request is not answered. It does not say that its caller's
// context has ended, and it says that the entry may be there.
func TestJoinNamesItsOwnLimit(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]claimtest.Fault{
		"claim": {On: claimtest.Acquire, Times: -1, LoseRequest: true},
		"look":  {On: claimtest.Verify, Times: -1, LoseRequest: true},
		"entry": {On: claimtest.Other, Skip: 1, Times: -1, LoseReply: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				host := w.server.Host(w.T)
				claims := claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl})
				host.Inject(fault)
				began := time.Now()
				_, err := group.Join(w.Context(), claims, config("a", 8), untilEnd)
				w.wantErr(err, txn.ErrNoAnswer)
				if name == "entry" {
					w.wantErr(err, etcdclaims.ErrUnknown)
				}
				if took := time.Since(began); took > 30*sec {
					w.Errorf("it took %v", took)
				}
				host.RemoveFaults()
			})
		})
	}
}

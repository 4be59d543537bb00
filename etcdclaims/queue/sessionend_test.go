package queue_test

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A heartbeat with another duration moves the item to another session. If that session ends
// meanwhile, the lease lives on under its own session, and the item moves to a third one.
func TestHeartbeatToSessionThatEnds(t *testing.T) {
	for name, at := range map[string]func(message any) bool{ // the session's lease is revoked then
		"before the item moves": func(m any) bool {
			r, ok := m.(*pb.TxnRequest)
			return ok && strings.Contains(r.String(), "/taken/") && strings.Contains(r.String(), "/worker/")
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{TTL: 30 * sec})
				w.enqueue(q, "a")
				l := w.claim(q)
				had := w.under("/worker/")
				var revoked atomic.Bool
				revoke := func(message any) {
					if !at(message) {
						return
					}
					for _, key := range w.under("/worker/") {
						if slices.Contains(had, key) || !revoked.CompareAndSwap(false, true) { // what follows has such requests, too
							continue
						}
						resp, err := w.server.Admin().Get(w.Context(), "/etcdclaims/own/queue/q/session/"+path.Base(key))
						w.ok(err)
						_, err = w.server.Admin().Revoke(w.Context(), clientv3.LeaseID(resp.Kvs[0].Lease))
						w.ok(err)
						time.Sleep(sec) // and the process knows
					}
				}
				host.Inject(claimtest.Fault{Times: -1, Saw: revoke, Edit: revoke})
				_, err := l.Heartbeat(w.Context(), time.Minute)
				w.ok(err)
				w.want(revoked.Load(), true)
				w.ok(l.Err())
				w.ok(l.Check())
				w.ok(context.Cause(l.Context()))
				w.ok(l.Complete(w.Context()))
			})
		})
	}
}

// TryClaim does not fail if its session ends under it.
func TestClaimWithSessionThatEnds(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: 30 * sec})
		w.enqueue(q, "a")
		revoked := 0
		host.Inject(claimtest.Fault{Times: -1, Saw: func(message any) {
			if claiming(message) && revoked == 0 {
				revoked++
				resp, err := w.server.Admin().Get(w.Context(), "/etcdclaims/own/queue/q/session/", clientv3.WithPrefix())
				w.ok(err)
				_, err = w.server.Admin().Revoke(w.Context(), clientv3.LeaseID(resp.Kvs[0].Lease))
				w.ok(err)
			}
		}})
		w.want(len(w.tryClaim(q, 1)), 1)
		w.want(revoked, 1)
	})
}

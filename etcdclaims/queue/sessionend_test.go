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
	own := func(key []byte) bool { return strings.Contains(string(key), "/own/queue/q/session/") }
	for name, at := range map[string]func(message any) bool{ // the session's lease is revoked then
		"before its lease is read": func(m any) bool { r, ok := m.(*pb.RangeRequest); return ok && own(r.Key) },
		"after its lease is read":  func(m any) bool { r, ok := m.(*pb.RangeResponse); return ok && len(r.Kvs) == 1 && own(r.Kvs[0].Key) },
		"before the item moves": func(m any) bool {
			r, ok := m.(*pb.TxnRequest)
			return ok && strings.Contains(r.String(), "/taken/") && strings.Contains(r.String(), "/note/")
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{TTL: 30 * sec})
				w.enqueue(q, "a")
				l := w.claim(q)
				w.ok(l.Note(w.Context(), []byte("half")))
				had := w.under("/worker/")
				var revoked atomic.Bool
				revoke := func(message any) {
					if revoked.Load() || !at(message) {
						return
					}
					for _, key := range w.under("/worker/") {
						if slices.Contains(had, key) {
							continue
						}
						resp, err := w.server.Admin().Get(w.Context(), "/etcdclaims/own/queue/q/session/"+path.Base(key))
						w.ok(err)
						_, err = w.server.Admin().Revoke(w.Context(), clientv3.LeaseID(resp.Kvs[0].Lease))
						w.ok(err)
						revoked.Store(true)
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
				w.want(string(w.look(q, "a").Note), "half")
				w.ok(l.Complete(w.Context()))
			})
		})
	}
}

// The note of an adopted lease is on the lease of a session of the process that adopted it. If
// that session ends, the note goes to another one.
func TestNoteOnSessionThatEnds(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{TTL: 30 * sec})
		p, host := w.process(queue.Config{TTL: 30 * sec})
		w.enqueue(q, "a")
		l, err := p.Adopt(w.Context(), w.claim(q).Handle())
		w.ok(err)
		var revoked atomic.Bool
		host.Inject(claimtest.Fault{Times: -1, Saw: func(m any) {
			r, ok := m.(*pb.RangeRequest)
			if !ok || !strings.Contains(string(r.Key), "/own/queue/q/session/") || revoked.Swap(true) {
				return
			}
			resp, err := w.server.Admin().Get(w.Context(), string(r.Key))
			w.ok(err)
			_, err = w.server.Admin().Revoke(w.Context(), clientv3.LeaseID(resp.Kvs[0].Lease))
			w.ok(err)
		}})
		w.ok(l.Note(w.Context(), []byte("half")))
		w.want(revoked.Load(), true)
		w.want(string(w.look(q, "a").Note), "half")
	})
}

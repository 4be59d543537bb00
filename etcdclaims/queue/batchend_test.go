package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A session ends while hundreds of verbs wait for a round trip or are under way. Each verb
// returns, what it returns is true, and no item is lost: others get those that were not
// completed.
func TestSessionEndsWhileVerbsWait(t *testing.T) {
	for name, end := range map[string]func(w *world, q *queue.Queue){
		"closed": func(w *world, q *queue.Queue) { _ = q.Close(w.Context()) },
		"revoked": func(w *world, _ *queue.Queue) {
			resp, err := w.server.Admin().Get(w.Context(), "/etcdclaims/own/", clientv3.WithPrefix())
			w.ok(err)
			for _, kv := range resp.Kvs {
				if strings.Contains(string(kv.Key), "/session/") {
					_, err := w.server.Admin().Revoke(w.Context(), clientv3.LeaseID(kv.Lease))
					w.ok(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				n := testetcd.Fewer(700, 200) // more than one round trip takes
				q, host := w.process(queue.Config{})
				var items []queue.Item
				for i := range n {
					items = append(items, queue.NewItem(nil, queue.ID(fmt.Sprint(i))))
				}
				_, err := q.EnqueueAll(w.Context(), items)
				w.ok(err)
				var leases []*queue.Delivery
				for len(leases) < n {
					leases = append(leases, w.tryClaim(q, n)...)
				}
				host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, DelayRequest: 20 * time.Millisecond, DelayReply: 20 * time.Millisecond})
				errs := make([]error, n)
				var wg sync.WaitGroup
				for i, l := range leases {
					wg.Go(func() {
						time.Sleep(time.Duration(i/2) * 350 * time.Millisecond / time.Duration(n))
						errs[i] = l.Complete(context.Background(), clientv3.OpPut("/effect/"+l.ID(), "1"))
					})
				}
				time.Sleep(100 * time.Millisecond)
				end(w, q)
				wg.Wait()
				effects, unknown, done := map[string]bool{}, 0, 0
				resp, err := w.server.Admin().Get(w.Context(), "/effect/", clientv3.WithPrefix())
				w.ok(err)
				for _, kv := range resp.Kvs {
					effects[strings.TrimPrefix(string(kv.Key), "/effect/")] = true
					w.want(kv.Version, int64(1))
				}
				for i, err := range errs {
					switch id := leases[i].ID(); {
					case errors.Is(err, etcdclaims.ErrUnknown):
						unknown++
					case (err == nil) != effects[id] && !errors.Is(err, etcdclaims.ErrReleased):
						t.Errorf("item %s: completed %v, but the verb returned %v", id, effects[id], err)
					case err == nil:
						done++
					}
				}
				if unknown > 0 { // each request was answered
					t.Errorf("the outcome of %d verbs is unknown", unknown)
				}
				if done == 0 || done == n {
					t.Errorf("%d of %d verbs were carried out: the session ended too early or too late", done, n)
				}
				p := w.queue(queue.Config{})
				rest := map[string]bool{}
				for deadline := time.Now().Add(10 * ttl); len(rest) < n-len(effects) && time.Now().Before(deadline); time.Sleep(sec) {
					for _, l := range w.tryClaim(p, n) {
						if effects[l.ID()] || rest[l.ID()] {
							t.Errorf("item %s was given away again", l.ID())
						}
						rest[l.ID()] = true
						w.ok(l.Complete(w.Context()))
					}
				}
				if len(rest) != n-len(effects) {
					t.Errorf("others got %d items of %d; %d were completed, and of %d verbs the outcome is unknown", len(rest), n, len(effects), unknown)
				}
				t.Logf("%d carried out, %d unknown, %d for others", len(effects), unknown, len(rest))
			})
		})
	}
}

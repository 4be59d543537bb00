package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Near its quota etcd has no room for more items, but for claims and verbs: enqueues are
// refused until items have gone, and nothing else is.
func TestNearQuota(t *testing.T) {
	testetcd.SkipRace(t)
	for name, opts := range map[string][]claimtest.Option{"": nil, "with authentication": {claimtest.Auth()}} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				q, careless := w.queue(queue.Config{Name: "q", SpaceReserve: 10}), w.queue(queue.Config{SpaceReserve: -1})
				n := 0
				for full := false; !full; time.Sleep(11 * sec) { // within which etcd is asked again
					var some []queue.Item
					for range 20 {
						some = append(some, queue.NewItem(make([]byte, 60<<10), queue.ID(fmt.Sprint(n+len(some)))))
					}
					added, err := q.EnqueueAll(w.Context(), some)
					if full = errors.Is(err, queue.ErrFull); !full {
						w.ok(err)
					}
					n += added
				}
				if n < 300 || n > 480 { // 36 MB are 460
					t.Errorf("%d items were enqueued", n)
				}
				w.enqueue(careless, "small")
				held := w.tryClaim(q, 60)
				w.want(len(held), 60)
				_, err := held[0].Fail(w.Context(), errors.New("x"))
				w.ok(err)
				w.ok(held[1].Release(w.Context()))
				_, err = held[2].Snooze(w.Context(), time.Hour)
				w.ok(err)
				for len(held) > 3 {
					for _, l := range held[3:] {
						w.ok(l.Complete(w.Context()))
					}
					held = append(held[:3], w.tryClaim(q, 60)...)
				}
				_, err = q.Enqueue(w.Context(), queue.NewItem(nil))
				w.wantErr(err, queue.ErrFull)
				w.want(strings.Contains(err.Error(), "etcd's database is nearly full"), true)
				resp, err := w.server.Admin().Get(w.Context(), "x")
				w.ok(err)
				_, err = w.server.Admin().Compact(w.Context(), resp.Header.Revision, clientv3.WithCompactPhysical())
				w.ok(err)
				_, _ = q.Enqueue(w.Context(), queue.NewItem(nil)) // etcd is asked again
				time.Sleep(11 * sec)
				_, _ = q.Enqueue(w.Context(), queue.NewItem(nil))
				time.Sleep(sec)
				w.enqueue(q, "again")
			}, append(opts, testclaims.Quota(40<<20))...)
		})
	}
}

package queue_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// counted returns the function that returns how many keys below the part etcd has counted at
// most for one read of the host since it was called last.
func counted(host *claimtest.Host, part string) func() int64 {
	var most atomic.Int64
	host.Inject(claimtest.Fault{Times: -1, Edit: func(reply any) {
		r, ok := reply.(*pb.TxnResponse)
		if !ok {
			return
		}
		for _, op := range r.Responses {
			if g := op.GetResponseRange(); g != nil && len(g.Kvs) > 0 && strings.Contains(string(g.Kvs[0].Key), part) && g.Count > most.Load() {
				most.Store(g.Count)
			}
		}
	}})
	return func() int64 { return most.Swap(0) }
}

// Reads stay short when many items come before those that were read earlier.
func TestHeadBecomesDeeper(t *testing.T) {
	testetcd.SkipRace(t)
	for _, part := range []string{"/index/ready/", "/index/later/"} {
		t.Run(part, func(t *testing.T) {
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{})
				enqueue := func(n int, name string, opts ...queue.ItemOption) {
					var items []queue.Item
					for i := range n {
						items = append(items, queue.NewItem(nil, append(opts, queue.ID(fmt.Sprint(name, i)))...))
					}
					_, err := q.EnqueueAll(w.Context(), items)
					w.ok(err)
				}
				var first, second queue.ItemOption = queue.Priority(1), queue.Priority(0)
				if part == "/index/later/" {
					first, second = queue.Delay(time.Hour), queue.Delay(time.Minute)
				}
				enqueue(200, "first", first)
				_, err := q.TryClaim(w.Context(), 1)
				w.ok(err)
				enqueue(600, "second", second)
				keys := counted(host, part)
				for range 10 {
					for _, l := range w.tryClaim(q, 1) {
						w.want(l.ID()[:6], "second")
					}
				}
				time.Sleep(5 * sec) // the keeper has read, too
				keys()
				for range 50 {
					for _, l := range w.tryClaim(q, 1) {
						w.want(l.ID()[:6], "second")
					}
					time.Sleep(sec / 2)
				}
				if n := keys(); n == 0 || n > 300 {
					t.Errorf("a read counted %d keys", n)
				}
			})
		})
	}
}

// Batch.Next is when the next item vests, also while more items have vested than a read
// returns.
func TestNextBehindManyVested(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{TTL: 30 * sec})
		keeper, host := w.process(queue.Config{TTL: 30 * sec})
		w.tryClaim(keeper, 1)
		time.Sleep(sec)
		begin := time.Now()
		var items []queue.Item
		for i := range 100 {
			items = append(items, queue.NewItem(nil, queue.ID(fmt.Sprint(i)), queue.At(begin.Add(2*sec))))
		}
		_, err := q.EnqueueAll(w.Context(), append(items, queue.NewItem(nil, queue.At(begin.Add(time.Hour)))))
		w.ok(err)
		host.Cut()
		time.Sleep(2*sec + sec/2)
		b, err := q.TryClaim(w.Context(), 1)
		w.ok(err)
		w.want(len(b.Deliveries), 1)
		w.want(b.Next.Sub(begin), time.Hour)
		host.Heal()
	})
}

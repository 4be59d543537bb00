package queue_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// In a deep queue TryClaim reads only as far as the items of an earlier read reach: etcd counts
// all keys of a range that it reads a part of. The order stays exact, whatever is added or claimed by others.
func TestHeadOfADeepQueue(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{Name: "deep"})
		other := w.queue(queue.Config{Name: "deep"})
		items := make([]queue.Item, 300)
		for i := range items {
			items[i] = queue.NewItem(nil, queue.ID(fmt.Sprint(i)), queue.Priority(i/3))
		}
		rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		_, err := q.EnqueueAll(w.Context(), items)
		w.ok(err)

		whole := 0
		host.Inject(claimtest.Fault{Times: -1, Saw: func(req any) {
			r, ok := req.(*pb.TxnRequest)
			if !ok {
				return
			}
			for _, op := range r.Success {
				g := op.GetRequestRange()
				if g != nil && g.Limit > 0 && strings.HasSuffix(string(g.Key), "/index/ready/") &&
					strings.HasSuffix(string(g.RangeEnd), "/index/ready0") {
					whole++
				}
			}
		}})
		last, n, urgent := -1, 0, 0
		for {
			if n%50 == 49 && urgent < 5 {
				urgent++
				w.enqueue(q, fmt.Sprint("urgent", n), queue.Priority(-1))
				got := w.tryClaim(q, 1)
				if len(got) != 1 || got[0].Priority() != -1 {
					w.Fatalf("after %d: %v", n, got)
				}
				w.ok(got[0].Complete(w.Context()))
			}
			if n%20 == 19 {
				for _, l := range w.tryClaim(other, 2) {
					w.ok(l.Complete(w.Context()))
					n++
				}
			}
			got := w.tryClaim(q, 1)
			if len(got) == 0 {
				break
			}
			if p := got[0].Priority(); p < last {
				w.Errorf("%d after %d", p, last)
			} else {
				last = p
			}
			w.ok(got[0].Complete(w.Context()))
			n++
		}
		w.want(n, len(items))
		if whole > 80 { // the last 64 items are read whole each time
			w.Errorf("the whole queue was read %d times", whole)
		}
	})
}

// So it is with items that have not vested, for those who claim and for the keeper: what
// they say of the next one stays exact.
func TestHeadOfManyLaterItems(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{Name: "later"})
		other := w.queue(queue.Config{Name: "later"})
		begin := time.Now()
		var items []queue.Item
		for i := 2; i <= 301; i++ {
			items = append(items, queue.NewItem(nil, queue.ID(fmt.Sprint(i)), queue.At(begin.Add(time.Duration(i)*sec))))
		}
		_, err := q.EnqueueAll(w.Context(), items)
		w.ok(err)

		var whole atomic.Int64
		host.Inject(claimtest.Fault{Times: -1, Saw: func(req any) {
			r, ok := req.(*pb.TxnRequest)
			if !ok {
				return
			}
			for _, op := range r.Success {
				if g := op.GetRequestRange(); g != nil && g.Limit > 1 && strings.HasSuffix(string(g.Key), "/index/later/") && strings.HasSuffix(string(g.RangeEnd), "/index/later0") {
					whole.Add(1)
				}
			}
		}})
		next := func() time.Duration {
			b, err := q.TryClaim(w.Context(), 1)
			w.ok(err)
			for _, l := range b.Deliveries {
				w.ok(l.Complete(w.Context()))
			}
			if b.Next.IsZero() {
				return 0
			}
			return b.Next.Sub(begin)
		}
		for i := 2; i <= 301; i++ {
			w.want(next(), time.Duration(i)*sec)
			switch i % 50 {
			case 10: // one that vests before all others
				_, err := other.Enqueue(w.Context(), queue.NewItem(nil, queue.ID(fmt.Sprint("sooner", i)), queue.At(begin.Add(time.Duration(i)*sec-sec/2))))
				w.ok(err)
				w.want(next(), time.Duration(i)*sec-sec/2)
			case 20: // the next one is gone
				w.ok(other.Cancel(w.Context(), fmt.Sprint(i)))
				if i < 301 {
					w.want(next(), time.Duration(i+1)*sec)
				}
			}
			time.Sleep(time.Until(begin.Add(time.Duration(i)*sec + sec/4)))
			next()
		}
		w.want(next(), time.Duration(0))
		if n := whole.Load(); n == 0 || n > 250 { // the last 63 are read whole each time, by both
			w.Errorf("all later items were read %d times", n)
		}
	})
}

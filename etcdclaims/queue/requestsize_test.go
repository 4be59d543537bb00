package queue_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// Where etcd allows few operations in a transaction (--max-txn-ops), calls for many
// items need more of them: for enqueuing, claiming, completing, recovery, giving back,
// vesting and purging.
func TestFewOperationsPerTransaction(t *testing.T) {
	testetcd.SkipRace(t)
	for _, limit := range []uint{10, 16, 100} {
		for _, slots := range []int{0, 200} {
			if racing && (limit == 100 || (slots == 0) != (limit == 16)) {
				continue
			}
			t.Run(fmt.Sprintf("%d/MaxTaken=%d", limit, slots), func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					cfg := queue.Config{MaxTaken: slots}
					victim, host := w.process(cfg)
					leaver, q := w.queue(cfg), w.queue(cfg)
					const n = 150
					var items []queue.Item
					for i := range n {
						items = append(items, queue.NewItem(nil, queue.ID(fmt.Sprint(i)), queue.Delay(time.Duration(i%3)*sec)))
					}
					added, err := victim.EnqueueAll(w.Context(), items)
					w.ok(err)
					w.want(added, n)
					time.Sleep(10 * sec) // they vest
					w.want(w.claimAll(victim, 40), 40)
					w.want(w.claimAll(leaver, 40), 40)
					w.want(w.claimAll(q, 1), 1) // keeps house from now on
					w.ok(leaver.Close(w.Context()))
					host.Kill()
					time.Sleep(30 * sec)
					var all []*queue.Delivery
					for {
						got := w.tryClaim(q, n)
						if len(got) == 0 {
							break
						}
						all = append(all, got...)
					}
					w.want(len(all), n-1)
					lost := 0
					for _, l := range all {
						lost += len(l.History())
					}
					w.want(lost, 40)
					var wg sync.WaitGroup
					for _, l := range all {
						wg.Go(func() {
							if err := l.Complete(w.Context()); err != nil {
								w.Error(err)
							}
						})
					}
					wg.Wait()
					for i := range n {
						_, err := q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID(fmt.Sprint("dead", i)), queue.MaxAttempts(1)))
						w.ok(err)
					}
					for {
						got := w.tryClaim(q, n)
						if len(got) == 0 {
							break
						}
						for _, l := range got {
							_, err := l.Fail(w.Context(), errors.New("x"))
							w.ok(err)
						}
					}
					purged, err := q.Purge(w.Context(), time.Now().Add(time.Hour))
					w.ok(err)
					w.want(purged, n)
				}, testclaims.MaxTxnOps(limit))
			})
		}
	}
}

// claimAll claims n items by as many calls as that needs, and returns how many it got.
func (w *world) claimAll(q *queue.Queue, n int) (got int) {
	w.Helper()
	for got < n {
		some := w.tryClaim(q, n-got)
		if len(some) == 0 {
			break
		}
		got += len(some)
	}
	return got
}

// The first request of a process may be small, and have too many operations already.
func TestFewOperationsPerTransactionAtFirst(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	for n := 2; n <= 8; n++ {
		virtually(t, func(w *world) {
			var items []queue.Item
			for i := range n {
				items = append(items, queue.NewItem(nil, queue.ID(fmt.Sprint(i)), queue.MaxAttempts(1)))
			}
			added, err := w.queue(queue.Config{}).EnqueueAll(w.Context(), items)
			w.ok(err)
			w.want(added, n)
			taken := w.tryClaim(w.queue(queue.Config{}), n)
			for len(taken) < n {
				some := w.tryClaim(w.queue(queue.Config{}), n)
				w.want(len(some) > 0, true)
				taken = append(taken, some...)
			}
			for _, l := range taken {
				_, err := l.Fail(w.Context(), errors.New("broken"))
				w.ok(err)
			}
			moved, err := w.queue(queue.Config{}).RedriveAll(w.Context())
			w.ok(err)
			w.want(moved, n)
		}, testclaims.MaxTxnOps(10))
	}
}

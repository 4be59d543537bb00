package queue_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// realQueue returns access to a queue on an etcd in real time.
func realQueue(b *testing.B, name string) *queue.Queue {
	b.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		b.Fatal(err)
	}
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/bench-queue/"})
	if err != nil {
		b.Fatal(err)
	}
	q, err := queue.New(claims, queue.Config{Name: name})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = q.Close(context.Background())
		_ = claims.Close(context.Background())
		_ = etcd.Close()
	})
	return q
}

// One process claims and completes items that are there.
func BenchmarkCycle(b *testing.B) {
	for _, workers := range []int{1, 16, 64} {
		for _, batch := range []int{1, 32} {
			b.Run(fmt.Sprintf("workers=%d/batch=%d", workers, batch), func(b *testing.B) {
				q := realQueue(b, fmt.Sprint("cycle-", time.Now().UnixNano()))
				items := make([]queue.Item, b.N)
				for i := range items {
					items[i] = queue.NewItem([]byte("payload"))
				}
				if _, err := q.EnqueueAll(b.Context(), items); err != nil {
					b.Fatal(err)
				}
				b.ResetTimer()
				var wg sync.WaitGroup
				var mu sync.Mutex
				left := b.N
				for range workers {
					wg.Go(func() {
						for {
							mu.Lock()
							n := min(left, batch)
							left -= n
							mu.Unlock()
							if n == 0 {
								return
							}
							got, err := q.Claim(b.Context(), n)
							if err != nil {
								b.Error(err)
								return
							}
							mu.Lock()
							left += n - len(got.Deliveries)
							mu.Unlock()
							var each sync.WaitGroup
							for _, l := range got.Deliveries {
								each.Go(func() {
									if err := l.Complete(b.Context()); err != nil {
										b.Error(err)
									}
								})
							}
							each.Wait()
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
			})
		}
	}
}

// One item is enqueued after the other, while many processes wait for it.
func BenchmarkPickUp(b *testing.B) {
	for _, processes := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("processes=%d", processes), func(b *testing.B) {
			name := fmt.Sprint("pickup-", time.Now().UnixNano())
			p := realQueue(b, name)
			took := make(chan time.Duration, 1)
			ctx, stop := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			for range processes {
				q := realQueue(b, name)
				wg.Go(func() {
					for {
						got, err := q.Claim(ctx, 1)
						if err != nil {
							return
						}
						took <- time.Since(got.Deliveries[0].Enqueued())
						_ = got.Deliveries[0].Complete(ctx)
					}
				})
			}
			time.Sleep(time.Second)
			var all []time.Duration
			for b.Loop() {
				if _, err := p.Enqueue(b.Context(), queue.NewItem([]byte("payload"))); err != nil {
					b.Fatal(err)
				}
				all = append(all, <-took)
				time.Sleep(5 * time.Millisecond)
			}
			stop()
			wg.Wait()
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

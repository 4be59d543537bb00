package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// realQueue returns access to a queue on an etcd in real time.
func realQueue(b *testing.B, name string, opts ...grpc.DialOption) *queue.Queue {
	b.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop(), DialOptions: opts})
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

// Batches of 32 items are completed: by CompleteAll, or by a goroutine for each item.
func BenchmarkComplete(b *testing.B) {
	const batch = 32
	each := func(ctx context.Context, got queue.Batch) error {
		errs := make([]error, len(got.Deliveries))
		var all sync.WaitGroup
		for i, l := range got.Deliveries {
			all.Go(func() { errs[i] = l.Complete(ctx) })
		}
		all.Wait()
		return errors.Join(errs...)
	}
	all := func(ctx context.Context, got queue.Batch) error { return got.CompleteAll(ctx) }
	for _, workers := range []int{1, 16} {
		for name, complete := range map[string]func(context.Context, queue.Batch) error{"each": each, "all": all} {
			b.Run(fmt.Sprintf("%s/workers=%d", name, workers), func(b *testing.B) {
				var sent atomic.Int64
				q := realQueue(b, fmt.Sprint("complete-", time.Now().UnixNano()), grpc.WithChainUnaryInterceptor(
					func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
						sent.Add(1)
						return invoke(ctx, method, req, reply, conn, opts...)
					}))
				batches := make([][]queue.Batch, workers)
				for i := range b.N {
					items := make([]queue.Item, batch)
					for i := range items {
						items[i] = queue.NewItem(nil)
					}
					if _, err := q.EnqueueAll(b.Context(), items); err != nil {
						b.Fatal(err)
					}
					got, err := q.TryClaim(b.Context(), batch)
					if err != nil || len(got.Deliveries) < batch {
						b.Fatal(len(got.Deliveries), err)
					}
					batches[i%workers] = append(batches[i%workers], got)
				}
				before := sent.Load()
				b.ResetTimer()
				var wg sync.WaitGroup
				for _, some := range batches {
					wg.Go(func() {
						for _, got := range some {
							if err := complete(b.Context(), got); err != nil {
								b.Error(err)
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(sent.Load()-before)/float64(b.N), "requests/batch")
				b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "items/s")
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

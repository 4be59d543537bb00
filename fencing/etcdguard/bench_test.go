//go:build unix

package etcdguard_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// BenchmarkPut measures guarded puts against bare ones, and against those before
// which a read checks that the claim is held, which is slower and guards nothing:
// and against what etcd can do at all: a transaction with one condition. In rounds
// that alternate, on an etcd that is a process of its own, with fsync.
// Each goroutine writes to a key of its own.
func BenchmarkPut(b *testing.B) {
	etcd := testetcd.StartProcess(b).Client(b)
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer claims.Close(context.Background())
	cl, err := claims.TryAcquire(b.Context(), "orders")
	if err != nil {
		b.Fatal(err)
	}
	own := etcdclaims.DefaultPrefix + "own/orders"
	guarded, bearer := etcdguard.NewKV(etcd, cl), etcdguard.NewKV(etcd, etcdguard.Bearer("", cl.Token()))
	ways := []struct {
		name string
		put  func(ctx context.Context, key, value string) error
	}{
		{"guarded", func(ctx context.Context, key, value string) error { _, err := guarded.Put(ctx, key, value); return err }},
		{"bearer", func(ctx context.Context, key, value string) error { _, err := bearer.Put(ctx, key, value); return err }},
		{"bare", func(ctx context.Context, key, value string) error { _, err := etcd.Put(ctx, key, value); return err }},
		{"checked", func(ctx context.Context, key, value string) error {
			resp, err := etcd.Get(ctx, own, clientv3.WithKeysOnly())
			if err == nil && (len(resp.Kvs) == 0 || resp.Kvs[0].ModRevision != cl.Fence()) {
				err = fmt.Errorf("not the owner")
			}
			if err == nil {
				_, err = etcd.Put(ctx, key, value)
			}
			return err
		}},
		{"limit", func(ctx context.Context, key, value string) error {
			_, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(own), "=", cl.Fence())).Then(clientv3.OpPut(key, value)).Commit()
			return err
		}},
	}
	const rounds = 9
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", n), func(b *testing.B) {
			rates := make([][]float64, len(ways))
			for range rounds {
				for i, way := range ways {
					rates[i] = append(rates[i], rate(b, n, max(b.N/rounds, n), way.put))
				}
			}
			ratio := func(of, to int) float64 {
				ratios := make([]float64, rounds)
				for i := range ratios {
					ratios[i] = rates[of][i] / rates[to][i]
				}
				slices.Sort(ratios)
				return ratios[rounds/2]
			}
			b.ReportMetric(0, "ns/op") // of all together: it says nothing
			b.ReportMetric(ratio(0, 2), "guarded/bare")
			b.ReportMetric(ratio(0, 3), "guarded/checked")
			b.ReportMetric(ratio(1, 2), "bearer/bare")
			b.ReportMetric(ratio(4, 2), "limit/bare")
			for i, way := range ways {
				slices.Sort(rates[i])
				b.ReportMetric(rates[i][rounds/2], way.name+"/s")
			}
		})
	}
}

// rate shares steps among n goroutines, and returns how many a second there were.
func rate(b *testing.B, n, steps int, put func(ctx context.Context, key, value string) error) float64 {
	b.Helper()
	var wg sync.WaitGroup
	var next atomic.Int64
	start := time.Now()
	for who := range n {
		wg.Go(func() {
			key := fmt.Sprint("/data/", who)
			for next.Add(1) <= int64(steps) {
				if err := put(b.Context(), key, "some forty bytes, as a small record has."); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(steps) / time.Since(start).Seconds()
}

package txn_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// paced has round trips take what next returns.
func (e *etcd) paced(next func() time.Duration) {
	e.refuse = func(int, *pb.TxnRequest) (*clientv3.TxnResponse, error) {
		time.Sleep(next() - took)
		return nil, nil
	}
}

// begin makes a request, and returns how long it takes.
func begin(t *testing.T, b *txn.Batcher, wg *sync.WaitGroup, r txn.Request) (took *time.Duration) {
	t.Helper()
	took = new(time.Duration)
	wg.Go(func() {
		begun := time.Now()
		if _, err := b.Do(t.Context(), r); err != nil {
			t.Error(err)
		}
		*took = time.Since(begun)
	})
	synctest.Wait()
	return took
}

// Behind a round trip that is stuck an urgent request waits for 25 ms after that was sent, and
// another one for twice what is usual, from then on too. A stuck one does not make itself usual.
func TestBehindAStuckRoundTrip(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		pace := time.Millisecond
		e.paced(func() time.Duration { return pace })
		alone := func() {
			if _, err := b.Do(t.Context(), get("usual")); err != nil {
				t.Error(err)
			}
		}
		alone() // etcd is near
		for pace = 60 * time.Millisecond; len(e.trips) < 50; {
			alone()
		}
		for range 2 {
			var wg sync.WaitGroup
			pace = time.Minute
			begin(t, b, &wg, get("stuck"))
			time.Sleep(20 * time.Millisecond)
			pace = time.Millisecond
			urgent := get("urgent")
			urgent.Urgent = true
			first := begin(t, b, &wg, urgent)
			time.Sleep(60 * time.Millisecond)
			other := begin(t, b, &wg, get("other"))
			wg.Wait()
			if *first > 7*time.Millisecond || *other < 2*time.Millisecond || *other > 60*time.Millisecond {
				t.Errorf("after 20 ms an urgent request took %v, after 80 ms another one %v", *first, *other)
			}
		}
	})
}

// Two requests are under way to a distant etcd at once, also after some that were not answered.
func TestToADistantEtcd(t *testing.T) {
	t.Parallel()
	const way = 30 * time.Millisecond
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		e.paced(func() time.Duration { return way })
		for range 3 {
			if _, err := b.Do(t.Context(), get("k")); err != nil {
				t.Error(err)
			}
			gone, leave := context.WithCancel(t.Context())
			leave()
			if _, err := b.Do(gone, get("k")); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller that has gone got %v", err)
			}
		}
		var wg sync.WaitGroup
		first := begin(t, b, &wg, get("a"))
		second := begin(t, b, &wg, get("b"))
		wg.Wait()
		if *first != way || *second != way {
			t.Errorf("took %v and %v", *first, *second)
		}
	})
}

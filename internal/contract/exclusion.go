package contract

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// room is where one may be at a time.
type room struct {
	mu     sync.Mutex
	inside int
	most   int
	fences []int64 // in the order of entering
}

func (r *room) enter(fence int64) {
	r.mu.Lock()
	r.inside++
	r.most = max(r.most, r.inside)
	r.fences = append(r.fences, fence)
	r.mu.Unlock()
	time.Sleep(5 * time.Millisecond) // an invitation to the others
}

func (r *room) leave() {
	r.mu.Lock()
	r.inside--
	r.mu.Unlock()
}

// check wants so many to have been there, one at a time.
func (r *room) check(t *trial, visits int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.most != 1 || len(r.fences) != visits {
		t.Fatalf("%d visits, want %d; at most %d were inside at a time", len(r.fences), visits, r.most)
	}
	t.rises(r.fences...)
}

var exclusionCases = []Case{
	{"two clients exclude each other", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		t.refused(b, "k")
		t.ok(claim.Release(t.ctx))
		claim = t.try(b, "k")
		t.refused(a, "k")
		t.ok(claim.Release(t.ctx))
	}},

	{"goroutines of one client exclude each other", func(t *trial) {
		c := t.client(etcdclaims.Config{})
		claim := t.try(c, "k")
		t.refused(c, "k")
		t.ok(claim.Release(t.ctx))
		t.try(c, "k")
	}},

	{"owners of one name exclude each other", func(t *trial) {
		a, b := t.client(etcdclaims.Config{Owner: "same"}), t.client(etcdclaims.Config{Owner: "same"})
		t.try(a, "k")
		t.refused(b, "k")
	}},

	{"of many who race one wins", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		for round := range 3 {
			var wg sync.WaitGroup
			var won atomic.Int64
			for i := range 16 {
				wg.Go(func() {
					_, err := []*etcdclaims.Client{a, b}[i%2].TryAcquire(t.ctx, fmt.Sprint("k", round))
					if err == nil {
						won.Add(1)
					}
				})
			}
			wg.Wait()
			if won.Load() != 1 {
				t.Fatalf("%d of 16 have acquired the key", won.Load())
			}
		}
	}},

	{"no two are inside at a time", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		var wg sync.WaitGroup
		var room room
		for i := range 6 {
			wg.Go(func() {
				for range 3 {
					claim, err := []*etcdclaims.Client{a, b}[i%2].Acquire(t.ctx, "k")
					if err != nil {
						t.Error(err)
						return
					}
					room.enter(claim.Fence())
					room.leave()
					if err := claim.Release(t.ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		room.check(t, 18)
	}},

	{"who is refused is told by whom", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		info := t.refused(b, "k")
		if info.Key != "k" || !info.Held || info.Fence != claim.Fence() || info.Claim != claim.ID() || info.Owner != "a" ||
			info.Instance != a.Instance() || info.Since.IsZero() || info.Attempt != 0 || info.Kind != "" || info.Lease == 0 {
			t.Errorf("the holder of %v is told as %+v", claim.Token(), info)
		}
	}},

	{"keys are apart", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		for i, key := range []string{"k", "k/", "k/k", "/k", "own/k", "wait/k", "..", "K", "k ", "鍵"} {
			t.try([]*etcdclaims.Client{a, b}[i%2], key)
		}
	}},

	{"prefixes are apart", func(t *trial) {
		a := t.client(etcdclaims.Config{})
		b := t.client(etcdclaims.Config{Prefix: t.data + "claims/"})
		t.try(a, "k")
		t.try(b, "k")
	}},

	{"all keys are acquired or none", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		both := []string{"k1", "k2"}
		claims, err := a.TryAcquireAll(t.ctx, both)
		t.ok(err)
		if len(claims) != 2 || claims[0].Key() != "k1" || claims[1].Key() != "k2" || claims[0].Fence() != claims[1].Fence() {
			t.Fatalf("acquired %v, want both with one fence", claims)
		}
		t.ok(claims[0].Release(t.ctx))
		_, err = b.TryAcquireAll(t.ctx, both)
		if info := t.holder(err); info.Key != "k2" || info.Owner != "a" {
			t.Errorf("held is %+v, want k2", info)
		}
		t.free(b, "k1")
		t.ok(claims[1].Release(t.ctx))
		again, err := b.TryAcquireAll(t.ctx, both)
		t.ok(err)
		t.rises(claims[0].Fence(), again[0].Fence())
	}},

	{"each key is acquired on its own", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		t.try(a, "k2")
		keys := []string{"k1", "k2", "k3", "\n"}
		claims, errs := b.TryAcquireEach(t.ctx, keys)
		if len(claims) != len(keys) || len(errs) != len(keys) {
			t.Fatalf("%d claims and %d errors for %d keys", len(claims), len(errs), len(keys))
		}
		for _, i := range []int{0, 2} {
			t.ok(errs[i])
			t.ok(claims[i].Check())
			t.refused(a, keys[i])
		}
		t.holder(errs[1])
		t.is(errs[3], etcdclaims.ErrInvalidKey)
	}},
}

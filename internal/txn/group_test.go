package txn_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// claim is a request that puts its key if that does not exist, and then reads it so many times;
// else it reads it once.
func claim(key string, reads int) txn.Request {
	return txn.Request{Key: key, In: txn.Of(
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		append([]clientv3.Op{clientv3.OpPut(key, "")}, slices.Repeat([]clientv3.Op{clientv3.OpGet(key)}, reads)...),
		[]clientv3.Op{clientv3.OpGet(key)})}
}

func claims(n int, from int) (requests []txn.Request) {
	for i := range n {
		requests = append(requests, claim(fmt.Sprint("c", from+i), i%3))
	}
	return requests
}

// joint reports whether the round trip has a joint group with a condition on the key.
func (t trip) joint(key string) bool {
	for _, op := range t.in.Success {
		inner := op.GetRequestTxn()
		if inner == nil || len(inner.Compare) < 2 {
			continue
		}
		for _, c := range inner.Compare {
			if string(c.Key) == key {
				return true
			}
		}
	}
	return false
}

// granted carries out claims together, and returns which of them had their key. The reply to
// each must be its own.
func granted(t *testing.T, b *txn.Batcher, requests ...txn.Request) (has []bool) {
	t.Helper()
	var wg sync.WaitGroup
	occupy(t, b, &wg)
	has = make([]bool, len(requests))
	for i, r := range requests {
		wg.Go(func() {
			resp, err := b.Do(t.Context(), r)
			if err != nil {
				t.Error(err)
				return
			}
			ops, replies := r.In.Failure, resp.Responses
			if has[i] = resp.Succeeded; has[i] {
				ops = r.In.Success
			}
			if len(replies) != len(ops) || resp.Header.Revision != 5 {
				t.Errorf("%s: %v", r.Key, resp)
			}
			for j, op := range ops {
				if op.GetRequestRange() != nil && string(replies[j].GetResponseRange().Kvs[0].Key) != r.Key {
					t.Errorf("%s: %v", r.Key, resp)
				}
			}
		})
		synctest.Wait()
	}
	wg.Wait()
	return has
}

// Requests are joined under the conditions of all. If those of one do not hold, all of its group
// are sent again, each under its own, in one round trip.
func TestJointGroups(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		e.exist = []string{"c130"}
		for i, has := range granted(t, b, claims(200, 0)...) {
			if has == (i == 130) {
				t.Errorf("request %d: has its key: %v", i, has)
			}
		}
		if len(e.trips) != 4 {
			t.Fatalf("%d round trips", len(e.trips))
		}
		first, again := e.trips[2], e.trips[3]
		if !first.joint("c0") || !first.joint("c130") {
			t.Error("requests that wait are not joined")
		}
		if again.joint("c130") || again.joint("c129") || len(again.in.Success) >= 100 {
			t.Errorf("sent again: %v", again.in)
		}
	})
}

// After a refusal requests go apart for a while, which is longer after each further one; those
// that give something up are judged by themselves.
func TestRefusedGroupsArePaused(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		apart := 0
		for round := range 200 {
			requests := claims(4, 10*round)
			requests[2].Urgent, requests[3].Urgent = true, true
			e.exist = []string{requests[0].Key} // each time
			before := len(e.trips)
			granted(t, b, requests...)
			if shared := e.trips[before+2]; !shared.joint(requests[2].Key) {
				t.Fatalf("round %d: urgent requests are not joined", round)
			} else if !shared.joint(requests[0].Key) {
				apart++
			}
		}
		if apart < 150 {
			t.Errorf("%d of 200 round trips had no joint group of claims", apart)
		}
		e.exist = nil
		for i := range 64 {
			granted(t, b, claims(4, 10000+10*i)...)
		}
		before := len(e.trips)
		granted(t, b, claims(4, 20000)...)
		if !e.trips[before+2].joint("c20000") {
			t.Error("no joint group although none has been refused for long")
		}
	})
}

// When a refused group is sent again, the calls whose callers have given up are left out.
func TestGivingUpInAJointGroup(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		e.exist = []string{"c0"}
		requests := claims(3, 0)
		requests[1].Until = time.Now().Add(took * 3 / 2) // its group is under way then
		var wg sync.WaitGroup
		occupy(t, b, &wg)
		for i, r := range requests {
			wg.Go(func() {
				if _, err := b.Do(t.Context(), r); (err != nil) != (i == 1) {
					t.Errorf("request %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if last := e.trips[len(e.trips)-1].in; len(last.Success) != 2 {
			t.Errorf("sent again: %v", last)
		}
	})
}

// What does something whether or not its conditions hold is not joined, nor what has transactions
// in it. If most requests cannot be joined, the others are all the same.
func TestWhatIsNotJoined(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		requests := claims(104, 0)
		for i := range requests[4:] {
			r := &requests[4+i]
			switch i % 3 {
			case 0:
				r.Void = &txn.Void{Ticket: "same"}
			case 1:
				r.Nested = true
			case 2:
				r.In.Success = append(r.In.Success, txn.Nest(txn.Then(clientv3.OpPut("in "+r.Key, ""))))
			}
		}
		var wg sync.WaitGroup
		occupy(t, b, &wg)
		for _, r := range requests {
			wg.Go(func() {
				if resp, err := b.Do(t.Context(), r); err != nil || !resp.Succeeded {
					t.Errorf("%s: %v, %v", r.Key, resp, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		shared := e.trips[2]
		if len(e.trips) != 3 || operations(shared.in) > 128 {
			t.Fatalf("%d round trips, %d operations", len(e.trips), operations(shared.in))
		}
		for i, r := range requests {
			if got := shared.joint(r.Key); got != (i < 4) {
				t.Errorf("request %d: joined: %v", i, got)
			}
		}
	})
}

package txn_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
)

// The requests of a crowd share a round trip, when its members come one after the other, too. Who
// leaves is not waited for, and sends what it has to send alone.
func TestCrowd(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		const members = 70
		crowd := txn.NewCrowd(members)
		errs := make([]error, members)
		var all sync.WaitGroup
		for i := range members {
			all.Go(func() {
				m := crowd.Member()
				defer m.Leave()
				r := get(fmt.Sprint(i))
				r.Crowd = m
				switch i {
				case 0:
					return // it makes no request
				case 1:
					r.Key = "" // which shares with no other
				case 2:
					m.Leave()
				case 3:
					time.Sleep(time.Second)
				case 4:
					ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
					defer cancel()
					if _, err := b.Do(ctx, r); err == nil {
						errs[i] = fmt.Errorf("a request was sent before the last member came")
					}
					return
				}
				if _, errs[i] = b.Do(t.Context(), r); i == 5 {
					_, errs[i] = b.Do(t.Context(), r) // the second one waits for nobody
				}
			})
		}
		all.Wait()
		noErrors(t, errs)
		sent := e.sent()
		if len(sent) != 4 || len(sent[2]) != members-4 {
			t.Errorf("round trips: %v", sent)
		}
	})
}

// Requests of goroutines that are ready at the same moment share the first round trip.
func TestGather(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // else another processor may take the first goroutine alone
	trips := func(gather bool) (n int) {
		synctest.Test(t, func(t *testing.T) {
			var e etcd
			io, end := context.WithCancel(t.Context())
			b := txn.NewBatcher(txn.Config{IO: io, Send: e.send, Timeout: timeout, Ops: 128, Bytes: 1 << 20, Gather: gather})
			var all sync.WaitGroup
			for i := range 32 {
				all.Go(func() {
					if _, err := b.Do(t.Context(), get(fmt.Sprint(i))); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			n = len(e.sent())
			end()
			b.Wait()
		})
		return n
	}
	if n := trips(false); n == 1 {
		t.Error("gathered, although nobody asked for that")
	}
	for range 20 { // the race detector has goroutines run in another order at random
		if trips(true) == 1 {
			return
		}
	}
	t.Error("never gathered in one round trip")
}

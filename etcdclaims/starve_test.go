package etcdclaims_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// A stream of callers of one kind, which hold the key without a gap, does not keep out a caller of
// the other kind: it has the key when those that held it before have released it.
func TestSharedNobodyStarves(t *testing.T) {
	t.Parallel()
	for _, crowd := range []string{"shared", "exclusive"} {
		virtualCase(t, crowd, func(t *testing.T, w *world) {
			of := map[string][]etcdclaims.AcquireOption{"shared": {etcdclaims.Shared()}}
			clients := []*etcdclaims.Client{w.peer(), w.peer()}
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			defer func() { cancel(); wg.Wait() }()
			const callers, held = 12, 20 * time.Millisecond
			for i := range callers {
				wg.Go(func() {
					for c := clients[i%2]; ctx.Err() == nil; {
						call := c.Acquire
						if i%3 == 0 {
							call = c.TryAcquire
						}
						cl, err := call(ctx, "k", of[crowd]...)
						time.Sleep(held + time.Duration(i)*time.Millisecond)
						if err == nil {
							release(t, cl)
						}
					}
				})
			}
			time.Sleep(sec)
			other := of[map[string]string{"exclusive": "shared"}[crowd]]
			for i := range 10 {
				began := time.Now()
				cl := w.within(10*sec, acquiring(ctx, clients[i%2], "k", other...))
				if took := time.Since(began); took > callers*2*held {
					t.Errorf("turn %d after %v", i, took)
				}
				time.Sleep(held)
				release(t, cl)
			}
		})
	}
}

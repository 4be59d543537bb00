package etcdclaims_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// A key with as many slots as possible, and many callers of 50 clients for them: each has its turn,
// within about the time that their turns take, and with a bounded number of requests. What operators
// read and watch costs a few requests. With -long there are 1,000 callers.
func TestSlotsManyClients(t *testing.T) {
	t.Parallel()
	testetcd.SkipRace(t)
	virtually(t, func(t *testing.T, w *world) {
		const clients, n, longest = 50, etcdclaims.MaxSlots, 2 * sec
		callers := 400
		if testetcd.Long() {
			callers = 1000
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		all := make([]*etcdclaims.Client, clients)
		for i := range all {
			all[i] = w.peer()
		}
		reader := w.peer()
		watched := make(chan int, 1)
		go func() {
			acquired := 0
			for ev, err := range reader.Watch(ctx, "k") {
				if err == nil && ev.Kind == etcdclaims.Claimed {
					acquired++
				}
			}
			watched <- acquired
		}()
		var mu sync.Mutex
		holders, most := map[string]bool{}, 0
		var wg sync.WaitGroup
		began := time.Now()
		for i := range callers {
			wg.Go(func() {
				cl, err := all[i%clients].Acquire(ctx, "k", etcdclaims.Slots(n))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if holders[cl.Key()] {
					t.Errorf("%s has two holders", cl.Key())
				}
				holders[cl.Key()] = true
				most = max(most, len(holders))
				mu.Unlock()
				time.Sleep(longest - rand.N(sec))
				mu.Lock()
				delete(holders, cl.Key())
				mu.Unlock()
				release(t, cl)
			})
		}
		time.Sleep(900 * time.Millisecond) // before the first release
		if info, err := reader.Lookup(ctx, "k"); err != nil || info.Slots != n || info.Waiting != int64(callers-n) {
			t.Errorf("%+v, %v", info, err)
		}
		before, listed := reader.Stats().Requests, 0
		for _, err := range reader.List(ctx, "k") {
			noErr(t, err)
			listed++
		}
		if sent := reader.Stats().Requests - before; listed != n+1 || sent > 3 {
			t.Errorf("%d listed by %d requests", listed, sent)
		}
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		wg.Wait()
		took, turns := time.Since(began), (callers+n-1)/n
		sent := int64(0)
		for _, c := range all {
			sent += c.Stats().Requests
		}
		t.Logf("%d callers: %v, %.1f requests for each; heap of all, etcd among them, %d MiB while they waited",
			callers, took, float64(sent)/float64(callers), mem.HeapAlloc>>20)
		if took > time.Duration(turns)*longest+5*sec {
			t.Errorf("all had their turns after %v", took)
		}
		if sent > int64(12*callers) {
			t.Errorf("%d requests for %d turns", sent, callers)
		}
		if most != n {
			t.Errorf("%d slots were held at most", most)
		}
		time.Sleep(sec)
		cancel()
		if acquired := <-watched; acquired < callers {
			t.Errorf("%d of %d acquisitions were watched", acquired, callers)
		}
		w.clean(append(all, reader)...)
	})
}

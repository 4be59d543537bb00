package work_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

const (
	ms  = time.Millisecond
	rtt = 20 * ms
)

// joined makes the client one that had to wait for the key before, so that it
// joins the line at once when it acquires it again.
func (w *world) joined(c *client, key string) {
	w.Helper()
	other := w.peer()
	held := tryClaim(w.T, other, key)
	ctx, cancel := context.WithTimeout(context.Background(), sec)
	defer cancel()
	if _, err := c.Acquire(ctx, key); !errors.Is(err, context.DeadlineExceeded) {
		w.Fatal(err)
	}
	time.Sleep(sec) // its place is left in the background, and would be handed the key
	release(w, held)
	if err := other.Close(context.Background()); err != nil {
		w.Fatal(err)
	}
}

// ours checks that the claim is what etcd has.
func (w *world) ours(cl *etcdclaims.Claim) {
	w.Helper()
	resp, err := w.Raw.Get(context.Background(), w.Own(cl.Key()))
	if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].ModRevision != cl.Fence()&(1<<47-1) {
		w.Errorf("fence %d: etcd has %v, %v", cl.Fence(), resp, err)
	}
	if err := cl.Check(); err != nil {
		w.Error(err)
	}
}

// free checks that the key can be had by another at once.
func (w *world) free(key string, other *client) {
	w.Helper()
	cl, err := other.TryAcquire(context.Background(), key)
	if err != nil {
		w.Errorf("the key is not free: %v", err)
		return
	}
	release(w, cl)
}

// atOnce makes n calls at the same moment, and returns their errors and how long
// the last of them took.
func atOnce(n int, call func(i int) error) (errs []error, last time.Duration) {
	errs = make([]error, n)
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = call(i) })
	}
	wg.Wait()
	return errs, time.Since(begin)
}

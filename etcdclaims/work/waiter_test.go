package work_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
)

const (
	ms  = time.Millisecond
	rtt = 20 * ms
)

// claimed is what became of an Acquire on a goroutine of its own.
type claimed struct {
	cl  *etcdclaims.Claim
	err error
	at  time.Time
}

func acquiring(ctx context.Context, c *client, key string, opts ...etcdclaims.AcquireOption) <-chan claimed {
	done := make(chan claimed, 1)
	go func() {
		cl, err := c.Acquire(ctx, key, opts...)
		done <- claimed{cl, err, time.Now()}
	}()
	return done
}

// within returns the claim of an Acquire, which it may take so long for.
func (w *world) within(d time.Duration, done <-chan claimed) *etcdclaims.Claim {
	w.Helper()
	select {
	case r := <-done:
		if r.err != nil {
			w.Fatalf("acquiring: %v; etcd has %v", r.err, w.all())
		}
		return r.cl
	case <-time.After(d):
		w.Fatalf("not acquired within %v; etcd has %v", d, w.all())
		return nil
	}
}

// places counts those in line, for whatever key.
func (w *world) places() int {
	w.Helper()
	return w.count("wait/")
}

// mails counts the words of hand-overs that are kept.
func (w *world) notices() int {
	w.Helper()
	return w.count("/won/")
}

func (w *world) count(part string) int {
	w.Helper()
	n := 0
	for k := range w.all() {
		if strings.Contains(k, part) {
			n++
		}
	}
	return n
}

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
	resp, err := w.raw.Get(context.Background(), w.own(cl.Key()))
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

// far puts the host a round trip away from etcd.
func far(host *claimtest.Host) *claimtest.Injection {
	return host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: rtt})
}

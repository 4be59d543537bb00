package work_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testclaims"
)

const sec = time.Second

// inBubble runs the test on a server in virtual time.
func inBubble(t *testing.T, f func(t *testing.T, server *claimtest.Server), opts ...claimtest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, claimtest.Start(t, opts...)) })
}

// world is one etcd in virtual time, whose clients have runners, and share a prefix.
type world struct{ *testclaims.World }

// virtually runs the test in a world of its own.
func virtually(t *testing.T, f func(t *testing.T, w *world), opts ...claimtest.Option) {
	t.Helper()
	testclaims.Virtually(t, func(t *testing.T, w *testclaims.World) { f(t, &world{w}) }, opts...)
}

// virtualCase runs a subtest in a world of its own, beside the others.
func virtualCase(t *testing.T, name string, f func(t *testing.T, w *world), opts ...claimtest.Option) {
	t.Helper()
	testclaims.Case(t, name, func(t *testing.T, w *testclaims.World) { f(t, &world{w}) }, opts...)
}

// client returns a client on a machine of its own, to which things can happen.
func (w *world) client(cfg config) (*client, *claimtest.Host) {
	w.Helper()
	if cfg.Prefix == "" {
		cfg.Prefix = w.Prefix
	}
	host := w.Server.Host(w.T)
	c := newClient(w.T, host.Etcd(w.T), cfg)
	w.Cleanup(func() { host.RemoveFaults(); host.Heal() }) // so that it can be closed
	return c, host
}

// peer returns a client, with a TTL of 15 s, that nothing happens to.
func (w *world) peer() *client {
	w.Helper()
	c, _ := w.client(config{TTL: 15 * sec})
	return c
}

// closeClean closes the clients, and checks that nothing is left.
func (w *world) closeClean(cs ...*client) {
	w.Helper()
	claims := make([]*etcdclaims.Client, len(cs))
	for i, c := range cs {
		claims[i] = c.Client
	}
	w.CloseClean(claims...)
}

// release gives up what must be released without an error.
func release(tb testing.TB, cl interface {
	Key() string
	Release(ctx context.Context) error
},
) {
	tb.Helper()
	if err := cl.Release(context.Background()); err != nil {
		tb.Errorf("releasing %s: %v", cl.Key(), err)
	}
}

// lossOf checks that an error is a loss for the reason.
func lossOf(tb testing.TB, err error, want etcdclaims.Reason) {
	tb.Helper()
	var l *etcdclaims.LostError
	if !errors.As(err, &l) || l.Reason != want || !errors.Is(err, etcdclaims.ErrLost) || !errors.Is(err, context.Canceled) {
		tb.Errorf("got %v, want a loss for %q", err, want)
	}
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

const (
	ms  = time.Millisecond
	rtt = 20 * ms
)

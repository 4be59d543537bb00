package scenarios_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A variant is an etcd of another version or configuration, or another way to it, as one
// case uses it.
type variant struct {
	testing.TB
	ctx    context.Context
	etcd   func(tb testing.TB) (*clientv3.Client, *claimtest.Host) // for one process; the host may be nil
	raw    *clientv3.Client
	prefix string // of claims
	data   string // of what the case itself stores
	hosts  []*claimtest.Host
}

func newVariant(tb testing.TB, etcd func(tb testing.TB) (*clientv3.Client, *claimtest.Host)) *variant {
	tb.Helper()
	ctx, cancel := context.WithTimeoutCause(tb.Context(), time.Minute, errors.New("the case took too long"))
	tb.Cleanup(cancel)
	root := "/claimtest/" + strings.ToLower(rand.Text()) + "/"
	v := &variant{TB: tb, ctx: ctx, etcd: etcd, prefix: root + "claims/", data: root + "data/"}
	v.raw, _ = etcd(tb)
	return v
}

// client returns a client in a process of its own, with its host if there is one.
func (v *variant) client(cfg etcdclaims.Config) (*etcdclaims.Client, *claimtest.Host) {
	v.Helper()
	cfg.Prefix = v.prefix
	etcd, host := v.etcd(v)
	if host != nil {
		v.hosts = append(v.hosts, host)
	}
	return claimtest.NewClient(v, testclaims.EtcdFunc(func(testing.TB) *clientv3.Client { return etcd }), cfg), host
}

// pair returns two clients, whose owners are a and b.
func (v *variant) pair(cfg etcdclaims.Config) (a, b *etcdclaims.Client) {
	v.Helper()
	cfg.Owner = "a"
	a, _ = v.client(cfg)
	cfg.Owner = "b"
	b, _ = v.client(cfg)
	return a, b
}

// runner returns what begins work for a client, with at most two attempts.
func (v *variant) runner(c *etcdclaims.Client) *work.Runner {
	v.Helper()
	hour := func(int) time.Duration { return time.Hour }
	r, err := work.New(c, work.Config{MaxAttempts: 2, Retention: 2 * time.Second, Backoff: hour})
	noErr(v, err)
	return r
}

// queue opens a queue in a process of its own.
func (v *variant) queue(owner string, cfg queue.Config) *queue.Queue {
	v.Helper()
	cfg.Name = "q"
	c, _ := v.client(etcdclaims.Config{Owner: owner})
	q, err := queue.New(c, cfg)
	noErr(v, err)
	v.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = q.Close(ctx)
	})
	return q
}

// held wants the key to be held, and returns its holder.
func (v *variant) held(c *etcdclaims.Client, key string, opts ...etcdclaims.AcquireOption) etcdclaims.Info {
	v.Helper()
	_, err := c.TryAcquire(v.ctx, key, opts...)
	var held *etcdclaims.HeldError
	if !errors.As(err, &held) {
		v.Fatalf("acquiring %q, which is held: %v", key, err)
	}
	return held.Info
}

// wait waits for the key in the background, and returns when the waiter has the place, or
// was served.
func (v *variant) wait(c *etcdclaims.Client, key string, place int64, opts ...etcdclaims.AcquireOption) <-chan claimed {
	v.Helper()
	return v.waitFor(v.ctx, c, key, place, opts...)
}

func (v *variant) waitFor(
	ctx context.Context, c *etcdclaims.Client, key string, place int64, opts ...etcdclaims.AcquireOption,
) <-chan claimed {
	v.Helper()
	got := make(chan claimed, 1)
	go func() {
		cl, err := c.Acquire(ctx, key, opts...)
		got <- claimed{cl, err}
	}()
	eventually(v, "a place in line", func() bool { return len(got) > 0 || testclaims.LookUp(v, c, key).Waiting == place })
	return got
}

// A claimed is the outcome of waiting in line.
type claimed struct {
	cl  *etcdclaims.Claim
	err error
}

// next returns the claim of a waiter, whose fence must be above the last one.
func (v *variant) next(got <-chan claimed, last int64) *etcdclaims.Claim {
	v.Helper()
	select {
	case c := <-got:
		noErr(v, c.err)
		v.rises(last, c.cl.Fence())
		return c.cl
	case <-v.ctx.Done():
		v.Fatal(context.Cause(v.ctx))
		return nil
	}
}

// rises wants fences to rise.
func (v *variant) rises(fences ...int64) {
	v.Helper()
	for i := range fences {
		if i > 0 && fences[i] <= fences[i-1] {
			v.Fatalf("fences %v do not rise", fences)
		}
	}
}

// put is an operation that stores something.
func (v *variant) put(name, value string) clientv3.Op { return clientv3.OpPut(v.data+name, value) }

// absent is the condition that it is not stored.
func (v *variant) absent(name string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(v.data+name), "=", 0)
}

// stored wants the value to be stored, "" for none.
func (v *variant) stored(name, want string) {
	v.Helper()
	kv := testclaims.RawKV(v, v.raw, v.data+name)
	if got := string(kv.GetValue()); got != want {
		v.Errorf("stored under %s is %q, want %q", name, got, want)
	}
}

// remove deletes the key of a claim. Until its next renewal the holder is as if it had been
// stopped, and woke believing in its claim.
func (v *variant) remove(key string) {
	v.Helper()
	resp, err := v.raw.Delete(v.ctx, testclaims.Key(v.prefix, key))
	noErr(v, err)
	if resp.Deleted != 1 {
		v.Fatalf("%q was held by nobody", key)
	}
}

// lateWrites wants each kind of guarded write to be refused.
func (v *variant) lateWrites(cl *etcdclaims.Claim, want error) {
	v.Helper()
	present := clientv3.Compare(clientv3.Version(v.data+"there"), ">", 0)
	_, err := cl.Txn(v.ctx).Then(v.put("late", "1")).Commit()
	wantIs(v, err, want)
	_, err = cl.Txn(v.ctx).If(present).Else(v.put("late", "1")).Commit()
	wantIs(v, err, want)
	resp, err := v.raw.Txn(v.ctx).If(cl.Guard()...).Then(v.put("late", "1")).Commit()
	noErr(v, err)
	if resp.Succeeded {
		v.Errorf("the guard of %v holds after its end", cl.Token())
	}
	v.stored("late", "")
}

package scenarios_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/contract"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

type broken struct {
	start func(tb testing.TB) claimtest.Etcd
	fails []string
}

// A suite that cannot fail shows nothing, so it is shown what must fail. Each
// entry is an etcd, or a way to it, that breaks something, and names cases of
// those that must notice.
var brokenEtcds = map[string]broken{
	"clients of different namespaces": {
		start: func(tb testing.TB) claimtest.Etcd {
			tb.Helper()
			server, n := claimtest.Start(tb), 0
			return testclaims.EtcdFunc(func(tb testing.TB) *clientv3.Client {
				tb.Helper()
				n++
				return namespaced(server, fmt.Sprintf("/%d/", n)).Etcd(tb)
			})
		},
		fails: []string{
			"two clients exclude each other", "owners of one name exclude each other", "of many who race one wins",
			"all keys are acquired or none", "who waits is served in order", "fences rise over a hand-over",
			"handlers take turns", "work is done once", "work of the dead is taken over", "locks are their owners'",
			"changes of owners are watched", "held keys are listed in order",
		},
	},
	"clients of different servers": {
		start: func(tb testing.TB) claimtest.Etcd {
			tb.Helper()
			n := 0
			return testclaims.EtcdFunc(func(tb testing.TB) *clientv3.Client {
				tb.Helper()
				server := claimtest.Start(tb)
				n++
				for range 50 / n { // so that later clients see lower revisions
					server.Overwrite(tb, "/x", "")
				}
				return server.Etcd(tb)
			})
		},
		fails: []string{
			"two clients exclude each other", "no two are inside at a time", "who waits is served in order",
			"fences rise over releases", "fences rise over a hand-over", "fences rise over a take-over", "fences rise from claims to locks and back",
		},
	},
	"transactions without their conditions": {
		start: func(tb testing.TB) claimtest.Etcd {
			tb.Helper()
			return wrapped(claimtest.Start(tb), func(c *clientv3.Client) { c.KV = unconditional{c.KV} })
		},
		fails: []string{
			"two clients exclude each other", "goroutines of one client exclude each other", "of many who race one wins",
			"conditions of an acquisition decide", "all keys are acquired or none",
			"writes under an outlived fence are refused", "writes under a fence that nobody has are refused",
			"a release under an outlived fence frees nothing", "writes are guarded by conditions of one's own",
			"notes of one who lost the key are refused", "work is not ended under an outlived fence", "work of the dead is taken over",
			"reentrant shares the term", "locks and claims exclude each other",
		},
	},
	"leases that do not end": {
		start: func(tb testing.TB) claimtest.Etcd {
			tb.Helper()
			return wrapped(claimtest.Start(tb), func(c *clientv3.Client) { c.Lease = endless{c.Lease} })
		},
		fails: []string{
			"a manual claim lives by its renewals", "the least hold outlasts a release", "done work is forgotten after the retention",
			"a handler that does not stop loses its fence, not its key", "locks last for their time unless renewed",
		},
	},
	"leases that end early": {
		start: func(tb testing.TB) claimtest.Etcd {
			tb.Helper()
			return wrapped(claimtest.Start(tb), func(c *clientv3.Client) { c.Lease = hasty{c.Lease} })
		},
		fails: []string{"a manual claim lives by its renewals", "a claim is renewed by itself"},
	},
	"watches that tell nothing": {
		start: func(tb testing.TB) claimtest.Etcd {
			tb.Helper()
			return wrapped(claimtest.Start(tb), func(c *clientv3.Client) { c.Watcher = deaf{c.Watcher} })
		},
		// What Client.Watch misses by that it makes up for: see its documentation.
		fails: []string{"a forced release reaches the holder", "a claim whose lease is revoked is lost"},
	},
	"a cache in between": {
		start: func(tb testing.TB) claimtest.Etcd {
			tb.Helper()
			return wrapped(claimtest.Start(tb), func(c *clientv3.Client) { c.KV = &caching{KV: c.KV, known: make(map[string]*clientv3.TxnResponse)} })
		},
		fails: []string{"etcd is asked who owns", "a key is looked up", "records are read"},
	},
}

func TestClaimsCanFail(t *testing.T) {
	t.Parallel()
	mustFail(t, contract.Cases(), brokenEtcds, func(testing.TB) {})
}

// mustFail runs the cases that each broken etcd names. It calls before first in each of
// them.
func mustFail(t *testing.T, cases []contract.Case, etcds map[string]broken, before func(testing.TB)) {
	t.Helper()
	byName := map[string]contract.Case{}
	for _, c := range cases {
		byName[c.Name] = c
	}
	for name, broken := range etcds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, name := range broken.fails {
				c, ok := byName[name]
				if !ok {
					t.Errorf("there is no case %q", name)
					continue
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					before(t)
					// Claimers of a broken queue clash, and then choose by chance.
					verdict := ""
					for try := 0; try < 3 && verdict == ""; try++ {
						synctest.Test(t, func(t *testing.T) { verdict = judge(t, c, broken.start(t)) })
					}
					if t.Log(verdict); verdict == "" {
						t.Error("passed three times")
					}
				})
			}
		})
	}
}

// judge runs a case and returns how it failed, "" if it did not.
func judge(t *testing.T, c contract.Case, etcd claimtest.Etcd) string {
	t.Helper()
	v := &verdict{TB: t}
	done := make(chan struct{})
	go func() { // which a failure ends
		defer close(done)
		c.Run(v, etcd)
	}()
	<-done
	return v.first()
}

// verdict records failures instead of failing.
type verdict struct {
	testing.TB
	mu   sync.Mutex
	said []string
}

func (v *verdict) fail(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.said = append(v.said, text)
}

func (v *verdict) first() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.said) == 0 {
		return ""
	}
	return v.said[0]
}

func (v *verdict) Helper()                   {}
func (v *verdict) Failed() bool              { return v.first() != "" }
func (v *verdict) Error(args ...any)         { v.fail(fmt.Sprint(args...)) }
func (v *verdict) Errorf(f string, a ...any) { v.fail(fmt.Sprintf(f, a...)) }
func (v *verdict) Fail()                     { v.fail("failed") }
func (v *verdict) FailNow()                  { v.Fatal("failed") }
func (v *verdict) Fatalf(f string, a ...any) { v.Fatal(fmt.Sprintf(f, a...)) }
func (v *verdict) Fatal(args ...any) {
	v.fail(fmt.Sprint(args...))
	runtime.Goexit()
}

// wrapped returns clients that something was done to.
func wrapped(etcd claimtest.Etcd, do func(c *clientv3.Client)) claimtest.Etcd {
	return testclaims.EtcdFunc(func(tb testing.TB) *clientv3.Client {
		tb.Helper()
		c := etcd.Etcd(tb)
		do(c)
		return c
	})
}

// unconditional forgets what a transaction depends on.
type unconditional struct{ clientv3.KV }

func (kv unconditional) Txn(ctx context.Context) clientv3.Txn {
	return unconditionalTxn{kv.KV.Txn(ctx)}
}

type unconditionalTxn struct{ clientv3.Txn }

func (txn unconditionalTxn) If(...clientv3.Cmp) clientv3.Txn { return txn }

// endless grants an hour whatever was asked, and says nothing of it.
type endless struct{ clientv3.Lease }

func (l endless) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	resp, err := l.Lease.Grant(ctx, 3600)
	if err == nil {
		resp.TTL = ttl
	}
	return resp, err
}

// hasty revokes each lease a second after it was granted.
type hasty struct{ clientv3.Lease }

func (l hasty) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	resp, err := l.Lease.Grant(ctx, ttl)
	if err == nil {
		time.AfterFunc(time.Second, func() { _, _ = l.Revoke(context.WithoutCancel(ctx), resp.ID) })
	}
	return resp, err
}

// deaf never hears of anything.
type deaf struct{ clientv3.Watcher }

func (deaf) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	never := make(chan clientv3.WatchResponse)
	context.AfterFunc(ctx, func() { close(never) })
	return never
}

// caching answers each read as it did the first time.
type caching struct {
	clientv3.KV
	mu    sync.Mutex
	known map[string]*clientv3.TxnResponse
}

func (kv *caching) Txn(ctx context.Context) clientv3.Txn {
	return &cachingTxn{Txn: kv.KV.Txn(ctx), kv: kv}
}

type cachingTxn struct {
	clientv3.Txn
	kv     *caching
	writes bool
	read   string
}

func (txn *cachingTxn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	txn.Txn, txn.writes = txn.Txn.If(cmps...), txn.writes || len(cmps) > 0
	return txn
}

func (txn *cachingTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	txn.Txn = txn.Txn.Then(ops...)
	for _, op := range ops {
		txn.writes = txn.writes || !op.IsGet()
		txn.read += fmt.Sprintf("%q %q ", op.KeyBytes(), op.RangeBytes())
	}
	return txn
}

func (txn *cachingTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	txn.Txn = txn.Txn.Else(ops...)
	return txn
}

func (txn *cachingTxn) Commit() (*clientv3.TxnResponse, error) {
	if txn.writes {
		return txn.Txn.Commit()
	}
	txn.kv.mu.Lock()
	defer txn.kv.mu.Unlock()
	if resp := txn.kv.known[txn.read]; resp != nil {
		return resp, nil
	}
	resp, err := txn.Txn.Commit()
	if err == nil {
		txn.kv.known[txn.read] = resp
	}
	return resp, err
}

package scenarios_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
)

// A case that cannot fail shows nothing. Each entry is a way to etcd that breaks something
// in the n-th client, and names the cases that must notice.
var brokenVariants = map[string]struct {
	way   func(c *clientv3.Client, n int)
	fails []string
}{
	"namespaces that differ": {
		way: func(c *clientv3.Client, n int) {
			c.KV = namespace.NewKV(c.KV, fmt.Sprintf("/%d/", n))
			c.Watcher = namespace.NewWatcher(c.Watcher, fmt.Sprintf("/%d/", n))
		},
		fails: strings.Fields("Claims Options Several Line Race Suspicion Run Work Locks Watch Queue QueueWorkers QueueLimits"),
	},
	"leases that end early": {
		way:   func(c *clientv3.Client, _ int) { c.Lease = hasty{c.Lease} },
		fails: strings.Fields("Expiry Locks"),
	},
	"leases that do not end": {
		way:   func(c *clientv3.Client, _ int) { c.Lease = endless{c.Lease} },
		fails: strings.Fields("Expiry Run Work Locks"),
	},
	"transactions without conditions": {
		way:   func(c *clientv3.Client, _ int) { c.KV = edited{KV: c.KV} },
		fails: strings.Fields("Claims Options Several Race Lost Work Locks Queue DeadLetters"),
	},
	"deletions without effect": {
		way: func(c *clientv3.Client, _ int) {
			c.KV = edited{c.KV, edit{conditions: true, op: deletesNothing}}
		},
		fails: strings.Fields("LostReply"),
	},
	"a deaf watcher": {
		way:   func(c *clientv3.Client, _ int) { c.Watcher = deaf{c.Watcher} },
		fails: strings.Fields("Line Lost Suspicion"),
	},
}

func TestVariantsCanFail(t *testing.T) {
	t.Parallel()
	named := map[string]bool{}
	for name, broken := range brokenVariants {
		for _, c := range variantCases {
			if !slices.Contains(broken.fails, c.name) {
				continue
			}
			named[c.name] = true
			t.Run(name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					etcd, n, f := hosted(claimtest.Start(t)), 0, &failures{TB: t}
					var ended sync.WaitGroup
					ended.Go(func() { // which a failure ends
						c.run(newVariant(f, func(tb testing.TB) (*clientv3.Client, *claimtest.Host) {
							tb.Helper()
							n++
							client, host := etcd(tb)
							broken.way(client, n)
							return client, host
						}))
					})
					ended.Wait()
					if t.Log(f.first()); !f.Failed() {
						t.Error("the case passed")
					}
				})
			})
		}
	}
	for _, c := range variantCases {
		if !named[c.name] {
			t.Errorf("nothing makes %s fail", c.name)
		}
	}
}

// failures records failures instead of failing.
type failures struct {
	testing.TB
	mu   sync.Mutex
	text []string
}

func (f *failures) add(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text = append(f.text, text)
}

// first returns the first failure, or "" if the case passed.
func (f *failures) first() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.text) == 0 {
		return ""
	}
	return f.text[0]
}

func (f *failures) Failed() bool                 { return f.first() != "" }
func (f *failures) Error(args ...any)            { f.add(fmt.Sprint(args...)) }
func (f *failures) Errorf(text string, a ...any) { f.add(fmt.Sprintf(text, a...)) }
func (f *failures) Fail()                        { f.add("failed") }
func (f *failures) FailNow()                     { f.Fatal("failed") }
func (f *failures) Fatalf(text string, a ...any) { f.Fatal(fmt.Sprintf(text, a...)) }
func (f *failures) Fatal(args ...any) {
	f.add(fmt.Sprint(args...))
	runtime.Goexit()
}

// hasty revokes each lease a second after its grant.
type hasty struct{ clientv3.Lease }

func (l hasty) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	resp, err := l.Lease.Grant(ctx, ttl)
	if err == nil {
		time.AfterFunc(time.Second, func() { _, _ = l.Revoke(context.WithoutCancel(ctx), resp.ID) })
	}
	return resp, err
}

// endless grants an hour whatever is asked, and does not show it.
type endless struct{ clientv3.Lease }

func (l endless) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	resp, err := l.Lease.Grant(ctx, 3600)
	if err == nil {
		resp.TTL = ttl
	}
	return resp, err
}

// edited changes transactions, and those that are nested in them.
type edited struct {
	clientv3.KV
	edit
}

type edit struct {
	conditions bool                             // whether they are kept
	op         func(op clientv3.Op) clientv3.Op // nil to change none
}

func (kv edited) Txn(ctx context.Context) clientv3.Txn { return editedTxn{kv.KV.Txn(ctx), kv.edit} }

type editedTxn struct {
	clientv3.Txn
	edit
}

func (txn editedTxn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	return editedTxn{txn.Txn.If(txn.cmps(cmps)...), txn.edit}
}

func (txn editedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	return editedTxn{txn.Txn.Then(txn.ops(ops)...), txn.edit}
}

func (txn editedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	return editedTxn{txn.Txn.Else(txn.ops(ops)...), txn.edit}
}

func (e edit) cmps(cmps []clientv3.Cmp) []clientv3.Cmp {
	if e.conditions {
		return cmps
	}
	return nil
}

func (e edit) ops(ops []clientv3.Op) []clientv3.Op {
	ops = slices.Clone(ops)
	for i, op := range ops {
		if op.IsTxn() {
			cmps, then, otherwise := op.Txn()
			ops[i] = clientv3.OpTxn(e.cmps(cmps), e.ops(then), e.ops(otherwise))
		} else if e.op != nil {
			ops[i] = e.op(op)
		}
	}
	return ops
}

// deletesNothing makes a deletion one of another key.
func deletesNothing(op clientv3.Op) clientv3.Op {
	if op.IsDelete() {
		return clientv3.OpDelete("nothing")
	}
	return op
}

// deaf hears of nothing.
type deaf struct{ clientv3.Watcher }

func (deaf) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	never := make(chan clientv3.WatchResponse)
	context.AfterFunc(ctx, func() { close(never) })
	return never
}

package scenarios_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/server/v3/embed"
)

// The cases of a variant together send each request of claims, locks, work and queues. What
// these requests mean is tested in the package of each; here it is that another etcd, or
// another way to it, carries them out alike. Where clients have no host, as on the releases
// of etcd, no reply is lost and no claim is taken over by suspicion.
var variantCases = []struct {
	name string
	run  func(v *variant)
}{
	{"Claims", exclusion},
	{"Options", options},
	{"Several", several},
	{"Line", inLine},
	{"Race", racing},
	{"Suspicion", suspicion},
	{"Lost", losses},
	{"LostReply", lostReply},
	{"Expiry", expiry},
	{"Run", running},
	{"Work", working},
	{"Locks", locking},
	{"Watch", ownersWatched},
	{"Queue", queueing},
	{"DeadLetters", deadLetters},
	{"QueueWorkers", queueWorkers},
	{"QueueLimits", queueLimits},
}

// virtualVariants are servers in virtual time, and ways to them.
var virtualVariants = map[string]struct {
	opts []claimtest.Option
	way  func(c *clientv3.Client)
}{
	"Default":   {},
	"FewTxnOps": {opts: []claimtest.Option{testclaims.MaxTxnOps(16)}},
	"Namespace": {way: func(c *clientv3.Client) {
		c.KV = namespace.NewKV(c.KV, "/tenant/")
		c.Watcher = namespace.NewWatcher(c.Watcher, "/tenant/")
		c.Lease = namespace.NewLease(c.Lease, "/tenant/")
	}},
}

func TestVariants(t *testing.T) {
	t.Parallel()
	for name, as := range virtualVariants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent kinds
			t.Cleanup(func() { sent.complete(t) }) // after the cases, which are parallel
			for _, c := range variantCases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						server := claimtest.Start(t, as.opts...)
						v := newVariant(t, func(tb testing.TB) (*clientv3.Client, *claimtest.Host) {
							tb.Helper()
							host := server.Host(tb)
							c := host.Etcd(tb)
							if as.way != nil {
								as.way(c)
							}
							return c, host
						})
						defer func() { sent.add(v.hosts) }()
						c.run(v)
					})
				})
			}
		})
	}
}

// kinds are the kinds of requests that were sent.
type kinds struct {
	mu    sync.Mutex
	cases int
	sent  map[steps.Kind]bool
}

// eachKind is what the cases must send. A request that is carried out twice, which steps.Leave
// follows, is tested in package etcdclaims.
var eachKind = []steps.Kind{
	steps.Take, steps.Enqueue, steps.Advance, steps.TakeOver, steps.Resolve, steps.Undo, steps.Note, steps.Free,
	steps.HandOver, steps.Pass, steps.Ending, steps.Rehome, steps.Notify, steps.Ask, steps.Answer, steps.Unnotify, steps.Grant,
	steps.Sentinel, steps.KeepAlive, steps.Verify, steps.Revoke, steps.Range, steps.Watch, steps.Status, steps.Other,
}

func (k *kinds) add(hosts []*claimtest.Host) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cases++
	if k.sent == nil {
		k.sent = map[steps.Kind]bool{}
	}
	for _, host := range hosts {
		for _, kind := range eachKind {
			k.sent[kind] = k.sent[kind] || len(host.Sent(kind)) > 0
		}
	}
}

// complete fails if a kind of request was not sent, unless only some of the cases were run.
func (k *kinds) complete(t *testing.T) {
	if k.cases < len(variantCases) {
		return
	}
	for _, kind := range eachKind {
		if !k.sent[kind] {
			t.Errorf("no case has sent a request of kind %q", kind)
		}
	}
}

// inRealTime runs the cases on one etcd.
func inRealTime(t *testing.T, etcd func(tb testing.TB) (*clientv3.Client, *claimtest.Host)) {
	t.Helper()
	free := make(chan struct{}, 4) // t.Parallel would run no more than there are processors
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, c := range variantCases {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			t.Run(c.name, func(t *testing.T) { c.run(newVariant(t, etcd)) })
		})
	}
}

type host interface {
	Host(tb testing.TB) *claimtest.Host
}

// hosted returns clients of an etcd, each on a host of its own.
func hosted(etcd host) func(tb testing.TB) (*clientv3.Client, *claimtest.Host) {
	return func(tb testing.TB) (*clientv3.Client, *claimtest.Host) {
		tb.Helper()
		host := etcd.Host(tb)
		return host.Etcd(tb), host
	}
}

// unsynced spares the disk: what is tested is not that.
var unsynced = claimtest.Tweak(func(cfg *embed.Config) { cfg.UnsafeNoFsync = true })

// In real time, since each login costs a hash, and in virtual time each case
// would make users of its own.
func TestVariantsAuth(t *testing.T) {
	testetcd.SkipUnlessLong(t, "waits for leases of five seconds")
	t.Parallel()
	inRealTime(t, hosted(claimtest.Start(t, unsynced, claimtest.Auth())))
}

func TestVariantsCluster(t *testing.T) {
	testetcd.SkipUnlessLong(t, "waits for leases of five seconds")
	t.Parallel()
	inRealTime(t, hosted(claimtest.Cluster(t, 3, unsynced)))
}

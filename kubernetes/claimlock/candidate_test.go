package claimlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/history"
	"github.com/etcdclaims/claims/kubernetes/claimlock"
	"github.com/go-logr/logr"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

const (
	key      = "team-a/controller"
	dataKey  = "/data"
	record   = "/leaderelection/" + key
	duration = 15 * time.Second // those of client-go
	deadline = 10 * time.Second
	retry    = 2 * time.Second
	longest  = retry*22/10 + time.Millisecond // between two tries
	lapse    = duration + time.Second         // of a lease, with etcd's delay
)

// A candidate is a process that runs client-go's elector, again and again, and writes
// while it leads. All is recorded.
type candidate struct {
	t     *testing.T
	h     *history.History
	name  string
	host  *claimtest.Host
	lock  *claimlock.Lock
	begun chan int64 // the fences of its leaderships

	mu      sync.Mutex
	thawed  chan struct{}      // closed unless the process stands still
	cancel  context.CancelFunc // of the present Run
	stop    context.CancelFunc
	running sync.WaitGroup
}

func newCandidate(t *testing.T, h *history.History, server *claimtest.Server, name string) *candidate {
	t.Helper()
	c := &candidate{t: t, h: h, name: name, host: server.Host(t), begun: make(chan int64, 1000), thawed: make(chan struct{})}
	close(c.thawed)
	claims := claimtest.NewClient(t, c.host, etcdclaims.Config{Owner: name, Hooks: etcdclaims.Hooks{
		TermEnded: func(_ context.Context, term etcdclaims.TermInfo) {
			if errors.Is(term.Err, etcdclaims.ErrLost) {
				h.Ended(name, term.Token)
			}
		},
	}})
	lock, err := claimlock.New(claims, claimlock.Config{Key: key, Identity: name})
	if err != nil {
		t.Fatal(err)
	}
	c.lock = lock
	return c
}

// start runs the elector until the candidate is killed or the test ends.
func (c *candidate) start(releaseOnCancel bool) *candidate {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: recorded{c.lock, c}, LeaseDuration: duration, RenewDeadline: deadline, RetryPeriod: retry,
		ReleaseOnCancel: releaseOnCancel, Name: key,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: c.lead, OnStoppedLeading: func() {}},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(klog.NewContext(c.t.Context(), logr.Discard()))
	c.stop = stop
	c.running.Go(func() {
		for ctx.Err() == nil {
			ctx, cancel := context.WithCancel(ctx)
			c.mu.Lock()
			c.cancel = cancel
			c.mu.Unlock()
			elector.Run(ctx)
			cancel()
		}
	})
	c.t.Cleanup(c.end)
	return c
}

func (c *candidate) end() {
	c.thaw()
	c.stop()
	c.running.Wait()
}

// resign cancels the context of the elector, which begins anew.
func (c *candidate) resign() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel()
}

// freeze stops the elector and the worker at their next step until thaw.
func (c *candidate) freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.thawed:
		c.thawed = make(chan struct{})
	default: // it stands still already
	}
}

func (c *candidate) thaw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.thawed:
	default:
		close(c.thawed)
	}
}

// step is where a frozen process stands still.
func (c *candidate) step() {
	c.mu.Lock()
	thawed := c.thawed
	c.mu.Unlock()
	<-thawed
}

// lead is the work of the controller: a write now and then, each under the claim, and
// one that is too late.
func (c *candidate) lead(ctx context.Context) {
	c.running.Add(1)
	defer c.running.Done()
	claim := c.lock.Claim()
	if claim == nil {
		return
	}
	c.begun <- claim.Fence()
	ctx, cancel := c.lock.Bind(ctx)
	defer cancel()
	for ctx.Err() == nil {
		if claim.Check() == nil {
			c.h.Checked(c.name, claim.Token())
		}
		c.step() // between the check and the write, where it does most harm
		c.write(claim)
		select {
		case <-ctx.Done():
		case <-time.After(700 * time.Millisecond):
		}
	}
	c.write(claim)
}

// write writes the fence to etcd, accepted only from the owner.
func (c *candidate) write(claim *etcdclaims.Claim) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	call := c.h.Effect(c.name, claim.Token())
	_, err := claim.Txn(ctx).Then(clientv3.OpPut(dataKey, fmt.Sprint(claim.Fence()))).Commit()
	call.Returned(err)
}

// recorded records the acquisitions and releases of a lock, and stands still when its
// candidate does.
type recorded struct {
	*claimlock.Lock
	c *candidate
}

func (r recorded) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r.c.step()
	return r.Lock.Get(ctx)
}

func (r recorded) Create(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	r.c.step()
	return r.acquire(func() error { return r.Lock.Create(ctx, ler) })
}

func (r recorded) Update(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	r.c.step()
	claim := r.Claim()
	switch {
	case claim == nil:
		return r.acquire(func() error { return r.Lock.Update(ctx, ler) })
	case ler.HolderIdentity == "":
		call := r.c.h.Release(r.c.name, claim.Token())
		err := r.Lock.Update(ctx, ler)
		if err == nil && !errors.Is(claim.Err(), etcdclaims.ErrReleased) {
			call.Lost()
		} else {
			call.Returned(err)
		}
		return err
	default:
		return r.Lock.Update(ctx, ler)
	}
}

func (r recorded) acquire(f func() error) error {
	call := r.c.h.Acquire(r.c.name, key)
	err := f()
	if err == nil {
		call.Granted(r.Claim().Fence())
	} else {
		call.Returned(err)
	}
	return err
}

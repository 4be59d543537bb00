package contract

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// trialTimeout bounds the waiting in one case.
	trialTimeout = time.Minute
	// soon is how long anything may take that ought to happen at once, where
	// the machine or etcd are busy.
	soon = 20 * time.Second
)

// brief leases end while a test waits, and are long enough to be renewed on a
// busy machine: belief in them ends after 4.45 s.
var brief = etcdclaims.Config{TTL: etcdclaims.MinTTL}

// A trial is a case as it is run.
type trial struct {
	testing.TB
	ctx    context.Context // of the case's own calls
	etcd   claimtest.Etcd
	raw    *clientv3.Client // for what is done behind the backs of clients
	prefix string           // of claims
	data   string           // of what the case itself stores

	mu      sync.Mutex
	workers map[*etcdclaims.Client]*work.Runner
}

func newTrial(tb testing.TB, etcd claimtest.Etcd) *trial {
	tb.Helper()
	ctx, cancel := context.WithTimeoutCause(tb.Context(), trialTimeout, errors.New("the case took too long"))
	tb.Cleanup(cancel)
	root := "/claimtest/" + strings.ToLower(rand.Text()) + "/"
	return &trial{
		TB:      tb,
		ctx:     ctx,
		etcd:    etcd,
		raw:     etcd.Etcd(tb),
		prefix:  root + "claims/",
		data:    root + "data/",
		workers: make(map[*etcdclaims.Client]*work.Runner),
	}
}

// client returns a client, which is a process of its own to the others.
func (t *trial) client(cfg etcdclaims.Config) *etcdclaims.Client {
	t.Helper()
	cfg.Prefix = cmp.Or(cfg.Prefix, t.prefix)
	return claimtest.NewClient(t.TB, t.etcd, cfg)
}

// pair returns two clients, whose owners are a and b.
func (t *trial) pair(cfg etcdclaims.Config) (a, b *etcdclaims.Client) {
	t.Helper()
	cfg.Owner = "a"
	a = t.client(cfg)
	cfg.Owner = "b"
	return a, t.client(cfg)
}

// workPair is pair for clients whose runners have a configuration.
func (t *trial) workPair(cfg work.Config) (a, b *etcdclaims.Client) {
	t.Helper()
	a, b = t.pair(etcdclaims.Config{})
	for _, c := range []*etcdclaims.Client{a, b} {
		r, err := work.New(c, cfg)
		t.ok(err)
		t.mu.Lock()
		t.workers[c] = r
		t.mu.Unlock()
	}
	return a, b
}

// works returns the runner of a client.
func (t *trial) works(c *etcdclaims.Client) *work.Runner {
	t.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.workers[c]
	if r == nil {
		var err error
		if r, err = work.New(c, work.Config{}); err != nil {
			t.Error(err) // and a nil runner refuses every call
		}
		t.workers[c] = r
	}
	return r
}

// ok ends the case on an error.
func (t *trial) ok(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// is ends the case on an error that does not match, or none.
func (t *trial) is(err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got %v, want an error that matches %q", err, target)
	}
}

func (t *trial) try(c *etcdclaims.Client, key string, opts ...etcdclaims.AcquireOption) *etcdclaims.Claim {
	t.Helper()
	claim, err := c.TryAcquire(t.ctx, key, opts...)
	t.ok(err)
	return claim
}

func (t *trial) begin(c *etcdclaims.Client, key string, opts ...work.Option) *work.Work {
	t.Helper()
	job, err := t.works(c).TryBegin(t.ctx, key, opts...)
	t.ok(err)
	return job
}

// failing fails work whose outcome does not matter.
func failing(ctx context.Context, job *work.Work, cause error, ops ...clientv3.Op) error {
	_, err := job.Fail(ctx, cause, ops...)
	return err
}

// acquire waits for a key that its holder has to lose.
func (t *trial) acquire(c *etcdclaims.Client, key string) *etcdclaims.Claim {
	t.Helper()
	claim, err := c.Acquire(t.ctx, key)
	t.ok(err)
	return claim
}

// refused wants the key to be held, and returns its holder.
func (t *trial) refused(c *etcdclaims.Client, key string) etcdclaims.Info {
	t.Helper()
	claim, err := c.TryAcquire(t.ctx, key)
	if err == nil {
		t.Fatalf("%q was acquired, with fence %d, though another holds it", key, claim.Fence())
	}
	return t.holder(err)
}

// holder returns the holder that an error names.
func (t *trial) holder(err error) etcdclaims.Info {
	t.Helper()
	t.is(err, etcdclaims.ErrHeld)
	var held *etcdclaims.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("%v does not say who holds the key", err)
	}
	return held.Info
}

// record returns the record in an error of Begin or TryBegin.
func (t *trial) record(err, target error) work.Record {
	t.Helper()
	t.is(err, target)
	var job *work.Error
	if !errors.As(err, &job) {
		t.Fatalf("%v carries no record", err)
	}
	return job.Record
}

func (t *trial) lookup(c *etcdclaims.Client, key string) etcdclaims.Info {
	t.Helper()
	info, err := c.Lookup(t.ctx, key)
	t.ok(err)
	return info
}

// free wants the key to have neither an owner nor a line, soon.
func (t *trial) free(c *etcdclaims.Client, key string) {
	t.Helper()
	t.eventually(fmt.Sprintf("%q is free", key), func() bool {
		info := t.lookup(c, key)
		return !info.Held && info.Waiting == 0
	})
}

// rises wants fences to rise.
func (t *trial) rises(fences ...int64) {
	t.Helper()
	for i, fence := range fences {
		if fence <= 0 || i > 0 && fence <= fences[i-1] {
			t.Fatalf("fences %v do not rise", fences)
		}
	}
}

// lost waits until the claim is lost, and wants it to be for the reason.
func (t *trial) lost(claim *etcdclaims.Claim, want etcdclaims.Reason) {
	t.Helper()
	t.wait(claim.Done(), "the claim is over")
	var lost *etcdclaims.LostError
	switch err := claim.Err(); {
	case !errors.As(err, &lost):
		t.Fatalf("the claim ended with %v, want it lost as %v", err, want)
	case lost.Reason != want || lost.Token != claim.Token():
		t.Errorf("lost %v as %v, want %v as %v", lost.Token, lost.Reason, claim.Token(), want)
	}
	t.is(claim.Check(), etcdclaims.ErrLost)
	t.wait(claim.Context().Done(), "the claim's context is over")
}

func (t *trial) wait(done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(soon):
		t.Fatalf("waited in vain: %s", what)
	}
}

func (t *trial) eventually(what string, ok func() bool) {
	t.Helper()
	pause := 5 * time.Millisecond
	for began := time.Now(); !ok(); time.Sleep(pause) {
		if time.Since(began) > soon {
			t.Fatalf("waited in vain: %s", what)
		}
		pause = min(2*pause, 100*time.Millisecond) // asking takes etcd's time
	}
}

// stored returns what the case has stored, "" if nothing.
func (t *trial) stored(name string) string {
	t.Helper()
	resp, err := t.raw.Get(t.ctx, t.data+name)
	t.ok(err)
	if len(resp.Kvs) == 0 {
		return ""
	}
	return string(resp.Kvs[0].Value)
}

// put is an operation that stores something.
func (t *trial) put(name, value string) clientv3.Op { return clientv3.OpPut(t.data+name, value) }

// absent is the condition that it is not stored.
func (t *trial) absent(name string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(t.data+name), "=", 0)
}

// background runs something beside the case, which ends before its clients are
// closed, however the case ends.
func (t *trial) background(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	t.Cleanup(func() { <-done })
}

// revoke ends the lease of a claim behind its holder's back, as the holder's
// death does in time.
func (t *trial) revoke(c *etcdclaims.Client, key string) {
	t.Helper()
	info := t.lookup(c, key)
	if info.Lease == 0 {
		t.Fatalf("%q is on no lease: %+v", key, info)
	}
	_, err := t.raw.Revoke(t.ctx, info.Lease)
	t.ok(err)
}

// remove deletes the key of a claim behind its holder's back. The holder does not learn
// of that before its next renewal: until then it is as if it had been stopped,
// and woke believing in its claim.
func (t *trial) remove(key string) {
	t.Helper()
	resp, err := t.raw.Delete(t.ctx, testclaims.Key(t.prefix, key))
	t.ok(err)
	if resp.Deleted != 1 {
		t.Fatalf("%q was held by nobody", key)
	}
}

// turn is what came of waiting in line.
type turn struct {
	who   int
	claim *etcdclaims.Claim
	err   error
}

// queue waits in line in the background, and returns when it has the place with that
// number. What comes of it is sent to turns.
func (t *trial) queue(ctx context.Context, c *etcdclaims.Client, key string, place int, turns chan<- turn) {
	t.Helper()
	t.background(func() {
		claim, err := c.Acquire(ctx, key)
		turns <- turn{place, claim, err}
	})
	t.eventually(fmt.Sprintf("%d wait in line", place), func() bool { return t.lookup(c, key).Waiting == int64(place) })
}

// next returns who had a turn.
func (t *trial) next(turns <-chan turn) turn {
	t.Helper()
	select {
	case got := <-turns:
		return got
	case <-time.After(soon):
		t.Fatal("waited in vain: for a turn in line")
		return turn{}
	}
}

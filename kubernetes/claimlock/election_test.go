package claimlock_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/history"
	"github.com/etcdclaims/claims/kubernetes/claimlock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// leader waits until one of the candidates leads.
func leader(t *testing.T, within time.Duration, of ...*candidate) (*candidate, int64) {
	t.Helper()
	for began := time.Now(); time.Since(began) <= within; time.Sleep(time.Millisecond) {
		for _, c := range of {
			select {
			case fence := <-c.begun:
				t.Logf("%s leads after %v, fence %d", c.name, time.Since(began), fence)
				return c, fence
			default:
			}
		}
	}
	t.Fatalf("nobody leads within %v", within)
	return nil, 0
}

// verify checks the history, and that the data in etcd was written by leaders in the
// order of their fences. It returns the number of leaders and of accepted writes.
func verify(t *testing.T, h *history.History, etcd *clientv3.Client) (leaders, writes int) {
	t.Helper()
	// A client that is cut off learns only at its deadline that an operator took its key.
	h.Verify(t, history.Checks{Grace: duration})
	var last int64
	watch := etcd.Watch(t.Context(), dataKey, clientv3.WithRev(1))
	now, err := etcd.Get(t.Context(), dataKey)
	if err != nil || len(now.Kvs) == 0 {
		t.Fatalf("%v, %v", now, err)
	}
	for resp := range watch {
		for _, e := range resp.Events {
			var fence int64
			if _, err := fmt.Sscan(string(e.Kv.Value), &fence); err != nil || fence < last {
				t.Errorf("a write with fence %d was accepted after one with %d (%v)", fence, last, err)
			}
			if fence > last {
				leaders++
			}
			last = fence
			if writes++; e.Kv.ModRevision == now.Kvs[0].ModRevision {
				return leaders, writes
			}
		}
	}
	t.Fatal("the watch ended")
	return
}

// stored returns the record of the election with its fence.
func stored(t *testing.T, etcd *clientv3.Client) (r struct {
	resourcelock.LeaderElectionRecord
	Fence int64
},
) {
	t.Helper()
	got, err := etcd.Get(t.Context(), record)
	if err == nil && len(got.Kvs) == 1 {
		err = json.Unmarshal(got.Kvs[0].Value, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The leader is disturbed in each way; another leads in time, with a greater fence,
// and what the former leader writes later is refused.
func TestFailover(t *testing.T) {
	for _, c := range []struct {
		name    string
		release bool
		disturb func(c *candidate, operator *etcdclaims.Client)
		within  time.Duration
	}{
		{"killed", false, func(c *candidate, _ *etcdclaims.Client) { c.host.Kill() }, lapse + longest},
		{"cut off", false, func(c *candidate, _ *etcdclaims.Client) { c.host.Cut() }, lapse + longest},
		{"replies cut off", false, func(c *candidate, _ *etcdclaims.Client) { c.host.CutReplies() }, retry + deadline + lapse + longest},
		{"paused", false, func(c *candidate, _ *etcdclaims.Client) { c.freeze() }, lapse + longest},
		{"paused and cut off", false, func(c *candidate, _ *etcdclaims.Client) { c.freeze(); c.host.Cut() }, lapse + longest},
		{"stopped", true, func(c *candidate, _ *etcdclaims.Client) { c.stop() }, longest},
		{"resigned, and was not to release", false, func(c *candidate, _ *etcdclaims.Client) { c.resign() }, lapse + longest},
		{"removed by an operator", true, func(c *candidate, o *etcdclaims.Client) {
			take := c.h.Take(key)
			if err := admin.ForceRelease(c.t.Context(), o, key, "test"); err != nil {
				c.t.Error(err)
			}
			take.Done()
		}, longest},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, h := claimtest.Start(t), history.New()
				operator := claimtest.NewClient(t, server.Host(t), etcdclaims.Config{})
				etcd := server.Etcd(t)
				var all []*candidate
				for i := range 3 {
					all = append(all, newCandidate(t, h, server, fmt.Sprint("candidate-", i)).start(c.release))
				}
				first, fence := leader(t, longest, all...)
				time.Sleep(time.Minute)
				before := stored(t, etcd)
				if before.Fence != fence || before.HolderIdentity != first.lock.Identity() || time.Since(before.RenewTime.Time) > 2*retry {
					t.Errorf("the record: %+v", before)
				}
				c.disturb(first, operator)
				second, next := leader(t, c.within, all...)
				if next <= fence {
					t.Errorf("%s leads with fence %d after %s with %d", second.name, next, first.name, fence)
				}
				time.Sleep(2 * time.Second)
				first.thaw() // and writes what it was about to
				first.host.Heal()
				time.Sleep(time.Minute)
				after := stored(t, etcd)
				if after.Fence != next || after.LeaderTransitions != before.LeaderTransitions+1 || after.HolderIdentity != second.lock.Identity() {
					t.Errorf("the record: %+v", after)
				}
				if leaders, writes := verify(t, h, etcd); leaders != 2 || writes < 100 {
					t.Errorf("%d leaders wrote %d times", leaders, writes)
				}
			})
		})
	}
}

// A leader whose claim was taken away does not lead again before its elector has
// stopped, even if it is the only candidate.
func TestLeadershipDoesNotComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, h := claimtest.Start(t), history.New()
		etcd := server.Etcd(t)
		c := newCandidate(t, h, server, "only").start(true)
		_, fence := leader(t, longest, c)
		time.Sleep(3 * time.Second)
		claim := c.lock.Claim()
		h.Taken(key)
		if err := admin.ForceRelease(t.Context(), claimtest.NewClient(t, server.Host(t), etcdclaims.Config{}), key, "test"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // until it has noticed
		if claim.Err() == nil {
			t.Error("the claim is not lost")
		}
		ctx, cancel := c.lock.Bind(t.Context())
		defer cancel()
		<-ctx.Done()
		time.Sleep(deadline - 4*time.Second)
		if again := c.lock.Claim(); again != claim {
			t.Error("the elector leads again without an end")
		}
		if _, next := leader(t, retry+4*time.Second+longest, c); next <= fence {
			t.Errorf("fence %d after %d", next, fence)
		}
		if r := stored(t, etcd); r.LeaderTransitions != 1 {
			t.Errorf("%+v", r)
		}
		verify(t, h, etcd)
	})
}

// Three candidates under faults at random. Whatever happens, writes are accepted in the
// order of fences, each leadership counts once, and when all is quiet one leads.
func TestElectionUnderFaults(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 0))
				server, h := claimtest.Start(t), history.New()
				operator := claimtest.NewClient(t, server.Host(t), etcdclaims.Config{})
				etcd := server.Etcd(t)
				var all []*candidate
				for i := range 3 {
					all = append(all, newCandidate(t, h, server, fmt.Sprint("candidate-", i)).start(rnd.IntN(2) == 0))
				}
				for round := range 60 {
					time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Second))))
					fault(t, rnd, h, server, operator, all, round)
				}
				for _, c := range all {
					c.thaw()
					c.host.RemoveFaults()
					c.host.Heal()
				}
				time.Sleep(lapse + longest)
				r := stored(t, etcd)
				if time.Since(r.RenewTime.Time) > 2*retry {
					t.Errorf("nobody leads: %+v", r)
				}
				leaders, writes := verify(t, h, etcd)
				if leaders < 10 || r.LeaderTransitions+1 < leaders {
					t.Errorf("%d leaders, %d transitions", leaders, r.LeaderTransitions)
				}
				t.Logf("%d leaders wrote %d times, %d transitions", leaders, writes, r.LeaderTransitions)
			})
		})
	}
}

// fault disturbs a candidate, mostly the one that leads.
func fault(t *testing.T, rnd *rand.Rand, h *history.History, server *claimtest.Server, operator *etcdclaims.Client, all []*candidate, round int) {
	t.Helper()
	at := rnd.IntN(len(all))
	for i, c := range all {
		if claim := c.lock.Claim(); rnd.IntN(3) > 0 && claim != nil && claim.Err() == nil {
			at = i
		}
	}
	c := all[at]
	for _, o := range all {
		if rnd.IntN(3) == 0 { // others recover
			o.thaw()
			o.host.Heal()
		}
	}
	switch what := rnd.IntN(8); what {
	case 0:
		h.Logf("%s is cut off", c.name)
		c.host.Cut()
	case 1:
		h.Logf("%s receives no replies", c.name)
		c.host.CutReplies()
	case 2:
		h.Logf("%s stands still", c.name)
		c.freeze()
	case 3:
		h.Logf("%s dies", c.name)
		c.host.Kill()
		c.end()
		h.Died(c.name)
		all[at] = newCandidate(t, h, server, fmt.Sprintf("%s-%d", c.name, round)).start(rnd.IntN(2) == 0)
	case 4:
		h.Logf("%s resigns", c.name)
		c.resign()
	case 5:
		h.Logf("an operator removes the leader")
		take := h.Take(key)
		if err := admin.ForceRelease(t.Context(), operator, key, "test"); err != nil {
			take.Unknown()
			return
		}
		take.Done()
	case 6:
		c.host.Inject(claimtest.Fault{Skip: rnd.IntN(4), LoseReply: true, Code: codes.Unavailable})
		for _, o := range all {
			o.host.Inject(claimtest.Fault{On: claimtest.Acquire, LoseReply: true})
		}
	case 7:
		h.Logf("etcd restarts")
		server.Restart(t)
	}
}

// What the elector relies on, call by call.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, server := t.Context(), claimtest.Start(t)
		a, b := newCandidate(t, history.New(), server, "same").lock, newCandidate(t, history.New(), server, "same").lock
		if a.Identity() == b.Identity() {
			t.Error("two candidates have one identity")
		}
		of := func(l *claimlock.Lock) resourcelock.LeaderElectionRecord {
			return resourcelock.LeaderElectionRecord{HolderIdentity: l.Identity(), LeaseDurationSeconds: 15}
		}
		get := func(l *claimlock.Lock, holder string) []byte {
			t.Helper()
			r, raw, err := l.Get(ctx)
			if err != nil || r.HolderIdentity != holder {
				t.Fatalf("%+v, %v; not %q", r, err, holder)
			}
			return raw
		}
		if _, _, err := a.Get(ctx); !apierrors.IsNotFound(err) {
			t.Errorf("there is no record: %v", err)
		}
		if err := a.Create(ctx, of(a)); err != nil {
			t.Fatal(err)
		}
		if err := b.Create(ctx, of(b)); !apierrors.IsAlreadyExists(err) {
			t.Errorf("created twice: %v", err)
		}
		raw := get(b, a.Identity())
		if err := b.Update(ctx, of(b)); !apierrors.IsConflict(err) {
			t.Errorf("taken over from the leader: %v", err)
		}
		if err := a.Update(ctx, of(a)); err != nil {
			t.Error(err)
		}
		if string(get(b, a.Identity())) == string(raw) {
			t.Error("a renewal is not seen")
		}
		time.Sleep(lapse) // without a renewal, although the process lives
		get(b, "")
		get(a, "")
		if err := b.Update(ctx, of(b)); err != nil {
			t.Errorf("not taken over from the dead: %v", err)
		}
		if err := a.Update(ctx, of(a)); !apierrors.IsConflict(err) {
			t.Errorf("the former leader: %v", err)
		}
		get(a, b.Identity())
		if err := b.Update(ctx, resourcelock.LeaderElectionRecord{}); err != nil {
			t.Errorf("not released: %v", err)
		}
		get(a, "")
		if err := a.Update(ctx, of(a)); !apierrors.IsConflict(err) {
			t.Errorf("leads again without an end: %v", err)
		}
		a.RecordEvent("stopped leading")
		if err := a.Update(ctx, of(a)); err != nil {
			t.Errorf("does not lead after the end: %v", err)
		}
		a.RecordEvent("stopped leading") // without a release
		get(a, a.Identity()+" (ended)")
	})
}

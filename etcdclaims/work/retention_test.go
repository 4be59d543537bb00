package work_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// No record lives for ever: neither of the dead, nor of what failed, was given back
// or has lost its owner. Each lasts for the retention.
func TestDeadRetention(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, c *client, work *work.Work){
		"dead": func(w *world, _ *client, work *work.Work) {
			noErr(w, failing(context.Background(), work, etcdclaims.Permanent(errors.New("x"))))
		},
		"failed": func(w *world, _ *client, work *work.Work) {
			noErr(w, failing(context.Background(), work, errors.New("x")))
		},
		"free": func(w *world, c *client, work *work.Work) {
			noErr(w, failing(context.Background(), work, etcdclaims.RetryAfter(errors.New("x"), 0)))
			noErr(w, tryBegin(w, c, "k").Release(context.Background()))
		},
		"retried": func(w *world, c *client, work *work.Work) {
			noErr(w, failing(context.Background(), work, etcdclaims.Permanent(errors.New("x"))))
			_, err := c.Retry(context.Background(), "k")
			noErr(w, err)
		},
		"buried": func(w *world, c *client, _ *work.Work) {
			w.Server.Revoke(w.T, w.Own("k"))
			_, err := c.TryBegin(context.Background(), "k")
			wantIs(w, err, work.ErrDead)
		},
		"orphaned": func(w *world, _ *client, _ *work.Work) { w.Server.Revoke(w.T, w.Own("k")) },
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			ctx := context.Background()
			cfg := config{TTL: 15 * sec, DeadRetention: time.Hour}
			if name == "buried" {
				cfg.MaxAttempts = 1
			}
			c, _ := w.client(cfg)
			end(w, c, tryBegin(t, c, "k"))
			time.Sleep(59 * time.Minute)
			if r, ok, err := c.Record(ctx, "k"); !ok || err != nil {
				t.Errorf("forgotten before the retention is over: %+v, %v", r, err)
			}
			// A client that goes on, with work of its own, does not keep it.
			for range 10 {
				noErr(t, tryBegin(t, c, "other").Release(ctx))
				time.Sleep(time.Minute)
			}
			if r, ok, err := c.Record(ctx, "k"); ok || err != nil {
				t.Errorf("kept beyond the retention: %+v, %v", r, err)
			}
			if job := tryBegin(t, c, "k"); job.Attempt() != 1 {
				t.Errorf("attempt %d", job.Attempt())
			}
		})
	}
}

// The record of work under way lasts as long as its owner, and a retention longer.
func TestRecordOutlivesItsOwner(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, host := w.client(config{TTL: 15 * sec, DeadRetention: time.Hour})
		b := w.peer()
		job := tryBegin(t, a, "k", work.AtMostOnce(), etcdclaims.Note([]byte("a long job")))
		time.Sleep(2 * time.Hour)
		if r, ok, err := b.Record(ctx, "k"); !ok || err != nil || r.Claim != job.ID() || r.State != work.StateClaimed {
			t.Fatalf("after two hours: %+v, %v, %v", r, ok, err)
		}
		host.Kill()
		time.Sleep(58 * time.Minute)
		o, err := orphansOf(ctx, b, 0)
		if err != nil || len(o) != 1 || o[0].Note != "a long job" || o[0].Claim != job.ID() {
			t.Errorf("orphans %+v, %v", o, err)
		}
		time.Sleep(10 * time.Minute)
		if r, ok, err := b.Record(ctx, "k"); ok || err != nil {
			t.Errorf("an orphan is kept for ever: %+v, %v", r, err)
		}
	})
}

// Work that waits long for its next attempt is not forgotten meanwhile.
func TestLongRetryAfter(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c, _ := w.client(config{TTL: 15 * sec, DeadRetention: time.Hour})
		for _, wait := range []time.Duration{20 * time.Minute, 80 * time.Minute, 3 * time.Hour} {
			key := fmt.Sprint(wait)
			noErr(t, failing(ctx, tryBegin(t, c, key), etcdclaims.RetryAfter(errors.New("later"), wait)))
		}
		var passed time.Duration
		for _, wait := range []time.Duration{20 * time.Minute, 80 * time.Minute, 3 * time.Hour} {
			time.Sleep(wait - passed - time.Minute)
			_, err := c.TryBegin(ctx, fmt.Sprint(wait))
			wantIs(t, err, work.ErrBackoff)
			time.Sleep(25 * time.Minute) // some of the retention is left
			passed = wait + 24*time.Minute
			if job := tryBegin(t, c, fmt.Sprint(wait)); job.Attempt() != 2 {
				t.Errorf("after %v: attempt %d", wait, job.Attempt())
			}
		}
	})
	etcd := testetcd.Shared(t).Client(t)
	a, _, prefix := twoOwners(t, etcd, config{DeadRetention: -1})
	noErr(t, failing(t.Context(), tryBegin(t, a, "k"), errors.New("x")))
	if kv := rawKV(t, etcd, prefix+"work/k"); kv == nil || kv.Lease != 0 {
		t.Errorf("with a negative retention: %v", kv)
	}
	a, _, prefix = twoOwners(t, etcd, config{Prefix: prefix + "b/"})
	noErr(t, failing(t.Context(), tryBegin(t, a, "k"), etcdclaims.RetryAfter(errors.New("x"), 1<<63-1)))
	if kv := rawKV(t, etcd, prefix+"work/k"); kv == nil || kv.Lease != 0 {
		t.Errorf("with the longest wait: %v", kv)
	}
}

// Whoever revokes the leases of records costs records, never a claim or an ending.
func TestRetentionLeaseRevoked(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, config{})
	revoke := func(key string) {
		t.Helper()
		kv := rawKV(t, etcd, prefix+"work/"+key)
		if kv == nil || kv.Lease == 0 {
			t.Fatalf("record of %s: %v", key, kv)
		}
		_, err := etcd.Revoke(ctx, clientv3.LeaseID(kv.Lease))
		noErr(t, err)
	}
	cl := tryClaim(t, a, "claim")
	w := tryBegin(t, a, "k")
	revoke("k")
	next := tryBegin(t, a, "k2")
	revoke("k2")
	if w2, err := a.Begin(ctx, "k3"); err != nil {
		t.Error(err)
	} else if got, err := w2.Fail(ctx, errors.New("x")); err != nil || got.State != work.StateFailed {
		t.Errorf("%+v, %v", got, err)
	}
	revoke("k3")
	noErr(t, failing(ctx, next, etcdclaims.Permanent(errors.New("x"))))
	revoke("k2")
	noErr(t, w.Complete(ctx))
	noErr(t, cl.Check())
	if r, ok, err := b.Record(ctx, "k"); err != nil || !ok || r.State != work.StateDone {
		t.Errorf("record %+v, %v, %v", r, ok, err)
	}
	noErr(t, cl.Release(ctx))
}

// A closed client leaves no lease that nothing is on.
func TestCloseLeavesNoEmptyLease(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c, _ := w.client(config{TTL: 15 * sec, DeadRetention: time.Hour})
		for range 20 {
			noErr(t, tryBegin(t, c, "k").Release(ctx))
			time.Sleep(7 * time.Minute)
		}
		w.closeClean(c)
		w.NoLeases()
	})
}

// The lease of records is neither revoked nor left to end while a request is under way that
// puts the record of work on it: work that is at most once would run twice.
func TestRetentionLeaseIsKeptForRequestsUnderWay(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string][]claimtest.Fault{
		"slow request": {{On: steps.Take, Key: "k", DelayRequest: 300 * time.Millisecond}, {On: steps.TimeToLive, DelayReply: sec}},
		"slow reply":   {{On: steps.Take, Key: "k", DelayReply: sec}},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			const retention = 20 * time.Minute
			ctx := context.Background()
			a, host := w.client(config{TTL: 15 * sec, DeadRetention: retention})
			b := w.peer()
			begun := time.Now()
			noErr(t, tryBegin(t, a, "warm").Complete(ctx))
			tryClaim(t, a, "busy") // the session lives
			time.Sleep(time.Until(begun.Add(retention/10 - 100*time.Millisecond)))
			for _, f := range faults {
				host.Inject(f)
			}
			job := tryBegin(t, a, "k", work.AtMostOnce())
			time.Sleep(2 * retention)
			noErr(t, job.Check())
			host.Kill()
			time.Sleep(time.Minute)
			if r, ok, err := b.Record(ctx, "k"); !ok || err != nil || r.Claim != job.ID() {
				t.Errorf("the record of the orphan is %+v, %v, %v", r, ok, err)
			}
			_, err := b.TryBegin(ctx, "k", work.AtMostOnce())
			wantIs(t, err, work.ErrDead)
		})
	}
}

// Records of retried and of buried work count on their lease, so that no lease gets too many.
func TestRetriedAndBuriedRecordsCount(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, host := w.client(config{TTL: 15 * sec, MaxAttempts: 1})
		c, _ := w.client(config{TTL: 15 * sec, MaxAttempts: 1})
		for _, key := range []string{"dead/1", "dead/2"} {
			noErr(t, failing(ctx, tryBegin(t, a, key), errors.New("x")))
		}
		tryBegin(t, a, "orphan")
		host.Kill()
		time.Sleep(time.Minute)
		for _, key := range []string{"dead/1", "dead/2"} {
			_, err := c.Retry(ctx, key)
			noErr(t, err)
		}
		_, err := c.TryBegin(ctx, "orphan")
		wantIs(t, err, work.ErrDead)
		if n := work.RecordsPut(c.Runner); n != 3 {
			t.Errorf("%d records are counted on the lease, want 3", n)
		}
	})
}

// The first outcome of a client needs a lease for its record. Etcd may refuse to grant one for
// longer than a request may take.
func TestFirstOutcomeWhileNoLeaseIsGranted(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(config{})
		job := tryBegin(t, c, "k")
		refused := host.Inject(claimtest.Fault{On: claimtest.Grant, Times: -1, LoseRequest: true, Code: codes.Unavailable})
		time.AfterFunc(3*sec, refused.Remove)
		noErr(t, job.Complete(context.Background()))
		if n := len(host.Sent(claimtest.Grant)); n < 3 {
			t.Errorf("%d leases were asked for", n)
		}
	})
}

func TestWorkRetention(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		ctx := t.Context()
		etcd := server.Etcd(t)
		a, b, prefix := twoOwners(t, etcd, config{Retention: 10 * time.Minute})
		leaseOf := func(key string) int64 {
			kv := rawKV(t, etcd, prefix+"work/"+key)
			if kv == nil || kv.Lease == 0 {
				t.Fatalf("done work %q: %v", key, kv)
			}
			return kv.Lease
		}
		begin := time.Now()
		for i := range 200 {
			noErr(t, tryBegin(t, a, fmt.Sprint(i)).Complete(ctx))
		}
		if took := time.Since(begin); took > 30*time.Second {
			t.Fatalf("took %v of virtual time", took)
		}
		for i := range 200 {
			if leaseOf(fmt.Sprint(i)) != leaseOf("0") {
				t.Fatalf("work %d is not on the lease of work 0, made moments before", i)
			}
		}
		time.Sleep(2 * time.Minute)
		noErr(t, tryBegin(t, a, "later").Complete(ctx))
		if leaseOf("later") == leaseOf("0") {
			t.Error("work done later is forgotten too early")
		}
		time.Sleep(10*time.Minute - 5*time.Second - time.Since(begin))
		_, err := b.TryBegin(ctx, "0")
		wantIs(t, err, work.ErrDone)
		time.Sleep(time.Minute + 30*time.Second)
		w := tryBegin(t, b, "0")
		if r, ok := w.Previous(); ok || w.Attempt() != 1 {
			t.Errorf("after the retention: attempt %d, previous %+v", w.Attempt(), r)
		}
		_, err = b.TryBegin(ctx, "later")
		wantIs(t, err, work.ErrDone)
		time.Sleep(3 * time.Minute)
		tryBegin(t, b, "later")
	})
}

func TestWorkRetainedForEver(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		etcd := server.Etcd(t)
		a, b, prefix := twoOwners(t, etcd, config{Retention: -1})
		noErr(t, tryBegin(t, a, "k").Complete(t.Context()))
		if kv := rawKV(t, etcd, prefix+"work/k"); kv == nil || kv.Lease != 0 {
			t.Errorf("record %v", kv)
		}
		time.Sleep(30 * time.Minute)
		_, err := b.TryBegin(t.Context(), "k")
		wantIs(t, err, work.ErrDone)
	})
}

func TestWorkRetentionLeaseRevoked(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, config{})
	data := testetcd.Prefix(t)
	noErr(t, tryBegin(t, a, "1").Complete(ctx))
	other := tryClaim(t, a, "other")
	kv := rawKV(t, etcd, prefix+"work/1")
	_, err := etcd.Revoke(ctx, clientv3.LeaseID(kv.Lease))
	noErr(t, err)
	w := tryBegin(t, a, "2")
	noErr(t, w.Complete(ctx, clientv3.OpPut(data+"x", "")))
	if rawKV(t, etcd, data+"x") == nil {
		t.Error("no effect")
	}
	_, err = b.TryBegin(ctx, "2")
	wantIs(t, err, work.ErrDone)
	noErr(t, other.Check())
	if s := a.Stats(); s.Completed != 2 || len(s.Lost) != 0 || s.Held != 1 {
		t.Errorf("stats %+v", s)
	}
}

// Clients with different retentions, as while a fleet gets another one, keep each record
// for that of the client that put it, whatever their clocks show. No lease stays.
func TestRetentionsOfAFleetDiffer(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		long, _ := w.client(config{TTL: 15 * sec, Retention: time.Hour, DeadRetention: time.Hour})
		short, skewed := w.client(config{TTL: 15 * sec, Retention: time.Minute, DeadRetention: time.Minute})
		skewed.StepClock(-48 * time.Hour)
		noErr(t, tryBegin(t, long, "long").Complete(ctx))
		noErr(t, tryBegin(t, short, "short").Complete(ctx))
		_, err := tryBegin(t, long, "moved").Fail(ctx, etcdclaims.RetryAfter(context.Canceled, 0))
		noErr(t, err)
		job := tryBegin(t, short, "moved", work.Again(work.StateFailed))
		skewed.StepClock(96 * time.Hour)
		time.Sleep(10 * time.Minute) // ten retentions of work under way
		noErr(t, job.Check())
		for key, want := range map[string]bool{"long": true, "short": false, "moved": true} {
			if _, ok, err := long.Record(ctx, key); ok != want || err != nil {
				t.Errorf("after 10 min %s has a record: %v, %v", key, ok, err)
			}
		}
		noErr(t, job.Complete(ctx))
		time.Sleep(2 * time.Minute)
		if _, ok, err := long.Record(ctx, "moved"); ok || err != nil {
			t.Errorf("2 min after it was done: %v, %v", ok, err)
		}
		time.Sleep(2 * time.Hour)
		w.closeClean(long, short)
		if all := w.All(); len(all) > 0 {
			t.Errorf("left over: %v", all)
		}
		w.NoLeases()
	})
}

package work_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
)

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

// A claim that supersedes work of its own client, which still runs, keeps the work's
// record and its attempts, whatever becomes of either request.
func TestSupersededWorkChangesNothing(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c, host := w.client(config{TTL: 15 * sec})
		old := tryBegin(t, c, "k")
		host.Cut()
		ending := make(chan error, 1)
		go func() { ending <- old.Complete(ctx) }()
		time.Sleep(10 * time.Millisecond)
		next := make(chan *work.Work, 1)
		go func() {
			wk, err := c.Begin(ctx, "k", etcdclaims.Supersede())
			if err != nil {
				next <- nil
				return
			}
			next <- wk
		}()
		time.Sleep(2 * sec)
		host.Heal()
		wk, err := <-next, <-ending
		r, ok, rerr := c.Record(ctx, "k")
		switch {
		case rerr != nil || !ok:
			t.Errorf("no record: %v", rerr)
		case err == nil && (wk != nil || r.State != work.StateDone):
			t.Errorf("completed, and yet begun again: %+v", r)
		case err != nil && wk == nil && r.State != work.StateDone:
			t.Errorf("neither completed (%v) nor begun: %+v", err, r)
		case wk != nil && wk.Fence() <= old.Fence():
			t.Errorf("fence %d after %d", wk.Fence(), old.Fence())
		}
		if wk != nil {
			wantIs(t, old.Check(), etcdclaims.ErrLost)
			noErr(t, wk.Complete(ctx))
		}
		w.closeClean(c)
	})
}

package lease

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/memetcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A cleanup that fails comes again, and others continue meanwhile. It is over once, when it is done, and logged once.
func TestPostponed(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s, tries := w.open(t, true), 0
		w.Add(&Cleanup{Of: s, What: "slow", Over: func() { w.news.Note("over") }, Do: func(context.Context) error {
			if tries++; tries < 5 {
				return errAway
			}
			w.news.Note("slow")
			return nil
		}})
		s.CleanUp("quick", func(context.Context) error { w.news.Note("quick"); return nil })
		synctest.Wait()
		same(t, "at once", w.news.Take(), "quick")
		if !w.isBusy() || s.pending.Load() != 1 {
			t.Errorf("busy %v, pending %d", w.isBusy(), s.pending.Load())
		}
		pass(5 * time.Second)
		same(t, "later", w.news.Take(), "slow, over")
		if w.isBusy() || s.pending.Load() != 0 || tries != 5 {
			t.Errorf("busy %v, pending %d, tries %d", w.isBusy(), s.pending.Load(), tries)
		}
		same(t, "lines", w.logs.FilterMessage("cleanup failed; retrying").Len(), 1)
	})
}

// So many are worked on at once, and the others begin in their order.
func TestWorkers(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s, done, next := w.open(t, true), make(chan struct{}), make(chan struct{})
		for i := range mostWorkers + 3 {
			s.CleanUp("hanging", func(context.Context) error {
				switch {
				case i == 0:
					<-next
				case i < mostWorkers:
					<-done
				default:
					w.news.Note(fmt.Sprint(i - mostWorkers))
				}
				return nil
			})
		}
		synctest.Wait()
		same(t, "begun", w.news.Take(), "")
		same(t, "workers", w.workers, mostWorkers)
		close(next) // one worker is free
		synctest.Wait()
		same(t, "begun then", w.news.Take(), "0, 1, 2")
		close(done)
		synctest.Wait()
		same(t, "workers in the end", w.workers, 0)
	})
}

// A cleanup is due only while its session lives, unless it outlives that.
func TestDeadSession(t *testing.T) {
	t.Parallel()
	for _, outlives := range []bool{false, true} {
		in(t, func(t *testing.T, w *world) {
			s, tries := w.open(t, true), 0
			w.Add(&Cleanup{Of: s, Outlives: outlives, Over: func() { w.news.Note("over") }, Do: func(context.Context) error {
				if tries++; tries == 1 {
					return errAway
				}
				return nil
			}})
			synctest.Wait()
			s.Die(claimerr.Loss{Reason: claimerr.Expired})
			pass(time.Second)
			want := 1
			if outlives {
				want = 2
			}
			same(t, "tries", tries, want)
			same(t, "over", w.news.Take(), "over")
			same(t, "busy", w.isBusy(), false)
		})
	}
}

// An answer that a lease does not exist ends a cleanup if the lease is the session's, and the session. Of another lease
// it is tried again.
func TestLeaseGone(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		in(t, func(t *testing.T, w *world) {
			s, tries := w.open(t, true), 0
			if gone {
				w.Etcd.EndLease(s.ID())
			}
			s.CleanUp("on two leases", func(context.Context) error {
				if tries++; tries < 3 {
					return rpctypes.ErrLeaseNotFound
				}
				return nil
			})
			pass(time.Second)
			want := 3
			if gone {
				want = 1
			}
			if tries != want || s.Ended() != gone || w.isBusy() {
				t.Errorf("lease gone %v: %d tries, ended %v", gone, tries, s.Ended())
			}
		})
	}
}

// One of a name waits at a time, also for another try. One that runs may be too early for what another was added for.
func TestCleanUpOnce(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s, results := w.open(t, true), make(chan error)
		var runs atomic.Int64
		add := func() {
			s.CleanUpOnce("look", func(context.Context) error { runs.Add(1); return <-results })
			synctest.Wait()
		}
		hold := func(n int) (end chan struct{}) { // so many workers
			end = make(chan struct{})
			for range n {
				s.CleanUp("holding", func(context.Context) error { <-end; return nil })
			}
			synctest.Wait()
			return end
		}
		expect := func(what string, wantRuns int64, pending int32) {
			t.Helper()
			synctest.Wait()
			if runs.Load() != wantRuns || s.pending.Load() != pending {
				t.Errorf("%s: %d runs, %d pending, want %d, %d", what, runs.Load(), s.pending.Load(), wantRuns, pending)
			}
		}
		all := hold(mostWorkers)
		add()
		add()
		expect("yet to begin", 0, mostWorkers+1)
		close(all)
		expect("begun", 1, 1)
		add()
		expect("added while it runs", 2, 2)
		results <- nil
		results <- nil
		expect("done", 2, 0)

		add()
		results <- errAway
		synctest.Wait()
		add()
		expect("added before the next try", 3, 1)
		pass(time.Second)
		expect("tried again", 4, 1)
		others := hold(mostWorkers - 1)
		add()
		expect("added while no worker is free", 4, mostWorkers+1)
		results <- errAway
		expect("failed, and the other is tried for it", 5, mostWorkers)
		results <- nil
		close(others)
		pass(time.Second)
		expect("done", 5, 0)
	})
}

// Once the client has ended nothing begins any more, also not what was postponed.
func TestClosedMeanwhile(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s, tries := w.open(t, true), 0
		s.CleanUp("postponed", func(context.Context) error { tries++; return errAway })
		s.CleanUp("under way", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		synctest.Wait()
		w.Life.End()
		before := tries
		s.CleanUp("added", func(context.Context) error { tries++; return nil })
		pass(5 * time.Second)
		if tries != before || !w.isBusy() || w.workers != 0 {
			t.Errorf("%d more tries, busy %v, workers %d", tries-before, w.isBusy(), w.workers)
		}
		same(t, "lines", w.logs.FilterMessage("cleanup failed; retrying").Len(), 1)
		same(t, "renewals", w.requests(memetcd.KeepAlive), 0)
	})
}

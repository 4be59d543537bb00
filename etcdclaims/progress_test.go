package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// beats reports progress every four seconds, n times.
func beats(t *testing.T, cl *etcdclaims.Claim, n int) (last time.Time) {
	t.Helper()
	for range n {
		time.Sleep(4 * sec)
		noErr(t, cl.Beat())
	}
	return time.Now()
}

// A claim lasts while its handler beats. Of one that has stopped the context ends, and a drain later the claim, however
// it is held. Nobody has its key until the handler can be taken for gone.
func TestProgressStops(t *testing.T) {
	t.Parallel()
	for how, opts := range map[string][]etcdclaims.AcquireOption{
		"alone": nil, "manual": {etcdclaims.Manual(), etcdclaims.TTL(10 * time.Minute)},
		"in a slot": {etcdclaims.Slots(2)}, "shared": {etcdclaims.Shared()},
		"with a MaxHold": {etcdclaims.MaxHold(time.Hour)},
	} {
		virtualCase(t, how, func(t *testing.T, w *world) {
			c, other := w.peer(), w.peer()
			cl := tryClaim(t, c, "k", append(opts, etcdclaims.Progress(5*sec))...)
			neighbour := tryClaim(t, c, "neighbour")
			e, drain := follow(cl), 3*sec
			if how == "manual" {
				drain = 2 * time.Minute
			}
			last := beats(t, cl, 20)
			if d := (<-e.soft).Sub(last); d != 5*sec {
				t.Errorf("told after %v, want 5 s", d)
			}
			lossOf(t, context.Cause(cl.Context()), etcdclaims.ReasonNoProgress)
			lossOf(t, cl.Beat(), etcdclaims.ReasonNoProgress)
			noErr(t, cl.Check()) // its handler has the drain to return
			if d := (<-e.done).Sub(last); d != 5*sec+drain {
				t.Errorf("ended after %v, want 5 s and the drain of %v", d, drain)
			}
			lossOf(t, cl.Err(), etcdclaims.ReasonNoProgress)
			lossOf(t, cl.Check(), etcdclaims.ReasonNoProgress)
			lossOf(t, cl.Beat(), etcdclaims.ReasonNoProgress)
			if n := c.Stats().Lost[etcdclaims.ReasonNoProgress]; n != 1 {
				t.Errorf("%d lost", n)
			}
			synctest.Wait()
			if how == "alone" {
				wantIs(t, second(other.TryAcquire(t.Context(), "k")), etcdclaims.ErrHeld)
			}
			time.Sleep(11 * time.Minute)
			noErr(t, neighbour.Check())
			if how == "in a slot" { // the key stays divided
				release(t, tryClaim(t, other, "k", etcdclaims.Slots(2)))
				return
			}
			w.Available("k", other)
			w.CloseClean(c, other)
			w.NoLeases()
		})
	}
}

// A handler that hangs is a zombie. One that returns in its drain has lost nothing.
func TestProgressOfAHandler(t *testing.T) {
	t.Parallel()
	for _, takes := range []time.Duration{0, 2 * sec, 20 * sec} {
		virtualCase(t, fmt.Sprint("returns after ", takes), func(t *testing.T, w *world) {
			c, other := w.peer(), w.peer()
			cl := tryClaim(t, c, "k", etcdclaims.Progress(5*sec))
			err := cl.Run(t.Context(), func(ctx context.Context) error {
				beats(t, cl, 5)
				<-ctx.Done()
				lossOf(t, context.Cause(ctx), etcdclaims.ReasonNoProgress)
				time.Sleep(takes)
				return nil
			})
			lost := errors.Is(err, etcdclaims.ErrLost)
			if late := takes > 3*sec; lost != late {
				t.Errorf("lost %v: %v", lost, err)
			} else if late {
				lossOf(t, cl.Err(), etcdclaims.ReasonNoProgress)
			} else {
				w.Available("k", other)
			}
			w.CloseClean(c, other)
		})
	}
}

// A process or machine that stood still does not go on as if it had made progress.
func TestProgressCountsSleep(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: time.Hour})
		beaten := tryClaim(t, c, "beaten", etcdclaims.Progress(time.Minute))
		checked := tryClaim(t, c, "checked", etcdclaims.Progress(time.Minute))
		longer := tryClaim(t, c, "longer", etcdclaims.Progress(40*time.Minute))
		host.Suspend(30 * time.Minute)
		lossOf(t, beaten.Beat(), etcdclaims.ReasonNoProgress)
		lossOf(t, checked.Check(), etcdclaims.ReasonNoProgress)
		noErr(t, longer.Beat())
		time.Sleep(30 * time.Minute)
		noErr(t, longer.Check())
	})
}

// Beats and the end of a claim may meet in any way.
func TestBeatsMeetTheEnd(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c := w.peer()
		for range 50 {
			cl := tryClaim(t, c, "k", etcdclaims.Progress(sec))
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for cl.Beat() == nil {
						time.Sleep(sec / 2)
					}
				})
			}
			time.Sleep(2 * sec)
			noErr(t, cl.Release(t.Context()))
			wg.Wait()
			wantIs(t, cl.Beat(), etcdclaims.ErrReleased)
			synctest.Wait()
		}
		if n := c.Stats().Lost[etcdclaims.ReasonNoProgress]; n != 0 {
			t.Errorf("%d lost", n)
		}
		noErr(t, tryClaim(t, c, "without").Beat())
		through, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
		noErr(t, err)
		noErr(t, tryClaim(t, through, "without etcd", etcdclaims.Progress(sec)).Beat())
	})
}

package work_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestRetry(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{MaxAttempts: 2, Backoff: func(int) time.Duration { return time.Hour }})
	_, err := b.Retry(ctx, "nothing")
	wantIs(t, err, work.ErrNoRecord)

	// Dead after its attempts: there are as many again.
	noErr(t, failing(ctx, tryBegin(t, a, "k", etcdclaims.Note([]byte("n"))), etcdclaims.RetryAfter(errors.New("x"), 0)))
	got, err := tryBegin(t, a, "k").Fail(ctx, errors.New("y"))
	if err != nil || got.State != work.StateDead {
		t.Fatalf("%+v, %v", got, err)
	}
	r, err := b.Retry(ctx, "k")
	if err != nil || r.State != work.StateFree || r.Earlier != 2 || r.Error != "y" || r.Note != "n" {
		t.Errorf("retried %+v, %v", r, err)
	}
	if again, err := b.Retry(ctx, "k"); err != nil || again.Earlier != 2 {
		t.Errorf("retried again %+v, %v", again, err)
	}
	w := tryBegin(t, b, "k")
	if p, _ := w.Previous(); w.Attempt() != 3 || p.Error != "y" || p.Note != "n" {
		t.Errorf("attempt %d after %+v", w.Attempt(), p)
	}
	_, err = a.Retry(ctx, "k") // while it is held
	wantIs(t, err, etcdclaims.ErrHeld)
	var held *etcdclaims.HeldError
	if !errors.As(err, &held) || held.Info.Owner != "b" {
		t.Errorf("held: %v", err)
	}
	noErr(t, w.Check())
	if got, err := w.Fail(ctx, errors.New("z")); err != nil || got.State != work.StateFailed {
		t.Errorf("after one more attempt %+v, %v", got, err)
	}
	if _, err := a.Retry(ctx, "k"); err != nil { // it need not wait for the hour
		t.Error(err)
	}
	noErr(t, tryBegin(t, a, "k").Complete(ctx))
	_, err = a.Retry(ctx, "k")
	wantIs(t, err, work.ErrDone)

	// Work that may run once, if an operator says so.
	tryBegin(t, a, "once", work.AtMostOnce())
	vanish(t, etcd, b, "once")
	if r, err := b.Retry(ctx, "once"); err != nil || r.State != work.StateFree || r.Error == "" {
		t.Errorf("retried %+v, %v", r, err)
	}
	if w := tryBegin(t, b, "once"); w.Attempt() != 2 {
		t.Errorf("attempt %d", w.Attempt())
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, config{})
	noErr(t, b.Forget(ctx, "nothing"))
	noErr(t, tryBegin(t, a, "done").Complete(ctx))
	wantIs(t, b.Forget(ctx, "done", work.StateDead), etcdclaims.ErrRefused)
	noErr(t, b.Forget(ctx, "done", work.StateDead, work.StateDone))
	if w := tryBegin(t, b, "done"); w.Attempt() != 1 {
		t.Errorf("attempt %d", w.Attempt())
	}
	wantIs(t, b.Forget(ctx, "done"), etcdclaims.ErrHeld)
	wantIs(t, a.Forget(ctx, "done", work.StateClaimed), etcdclaims.ErrHeld)
	for i, value := range []string{"\xff", `{"v":99}`} {
		key := fmt.Sprint("unreadable", i)
		_, err := etcd.Put(ctx, prefix+"work/"+key, value)
		noErr(t, err)
		if _, err := b.TryBegin(ctx, key); err == nil || !strings.Contains(err.Error(), "Forget") {
			t.Errorf("it was begun, or the error names no remedy: %v", err)
		}
		if _, err := b.Retry(ctx, key); err == nil {
			t.Error("it was retried")
		}
		noErr(t, b.Forget(ctx, key, work.StateUnreadable))
		tryBegin(t, b, key)
	}
	tryBegin(t, a, "orphan")
	vanish(t, etcd, b, "orphan")
	noErr(t, b.Forget(ctx, "orphan", work.StateOrphaned))
	if _, ok, err := b.Record(ctx, "orphan"); ok || err != nil {
		t.Errorf("there is a record: %v", err)
	}
	none := newClient(t, nil, config{})
	wantIs(t, none.Forget(ctx, "k"), etcdclaims.ErrPassthrough)
}

// Whatever becomes of an operator's requests and replies, a live owner is not hit,
// and work is retried once.
func TestInterventionsUnderFaults(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]claimtest.Fault{
		"lost request": {On: claimtest.Other, LoseRequest: true},
		"lost reply":   {On: claimtest.Other, LoseReply: true},
	} {
		for _, act := range []string{"retry", "forget"} {
			virtualCase(t, name+"/"+act, func(t *testing.T, w *world) {
				ctx := context.Background()
				a, _ := w.client(config{TTL: 15 * sec})
				operator, host := w.client(config{TTL: 15 * sec})
				noErr(t, failing(ctx, tryBegin(t, a, "k"), etcdclaims.Permanent(errors.New("x"))))
				tryBegin(t, operator, "other") // so that its leases are there
				host.Inject(fault)
				if act == "retry" {
					r, err := operator.Retry(ctx, "k")
					if err != nil || r.State != work.StateFree || r.Earlier != 1 {
						t.Errorf("%+v, %v", r, err)
					}
				} else {
					noErr(t, operator.Forget(ctx, "k", work.StateDead))
				}
				host.RemoveFaults()
				job := tryBegin(t, a, "k")
				if want := map[string]int{"retry": 2, "forget": 1}[act]; job.Attempt() != want {
					t.Errorf("attempt %d, want %d", job.Attempt(), want)
				}
				noErr(t, job.Complete(ctx))
				if r, ok, err := a.Record(ctx, "k"); err != nil || !ok || r.State != work.StateDone {
					t.Errorf("record %+v, %v, %v", r, ok, err)
				}
				w.closeClean(a, operator)
			})
		}
	}
}

// A thousand interventions and beginnings at once: no owner is hit.
func TestInterventionsRace(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{MaxAttempts: 3})
	data := testetcd.Prefix(t)
	var wg sync.WaitGroup
	done := make(chan struct{})
	defer wg.Wait()
	defer close(done)
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				_, err := b.Retry(ctx, "k")
				if err != nil && !errors.Is(err, etcdclaims.ErrHeld) && !errors.Is(err, work.ErrDone) && !errors.Is(err, work.ErrNoRecord) {
					t.Error(err)
				}
				if err := b.Forget(ctx, "k", work.StateDead, work.StateFailed, work.StateFree); err != nil &&
					!errors.Is(err, etcdclaims.ErrHeld) && !errors.Is(err, etcdclaims.ErrRefused) {
					t.Error(err)
				}
			}
		})
	}
	for i := range 200 {
		w, err := a.Begin(ctx, "k")
		if err != nil {
			if !errors.Is(err, work.ErrBackoff) && !errors.Is(err, work.ErrDead) {
				t.Error(err)
			}
			continue
		}
		if i%3 > 0 {
			noErr(t, failing(ctx, w, etcdclaims.RetryAfter(errors.New("x"), time.Millisecond), clientv3.OpPut(data+"x", "")))
			continue
		}
		if r, ok, err := a.Record(ctx, "k"); err != nil || !ok || r.Claim != w.ID() {
			t.Fatalf("the record of work under way is %+v, %v, %v", r, ok, err)
		}
		noErr(t, w.Release(ctx))
	}
}

package work_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// Work that is done, dead or waiting is begun again by those who ask for that, and
// by nobody else.
func TestAgain(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	boom := errors.New("boom")
	for name, tt := range map[string]struct {
		end   func(w *work.Work) error
		state work.State
		err   error
	}{
		"done":   {func(w *work.Work) error { return w.CompleteWith(ctx, []byte("first")) }, work.StateDone, work.ErrDone},
		"dead":   {func(w *work.Work) error { return failing(ctx, w, etcdclaims.Permanent(boom)) }, work.StateDead, work.ErrDead},
		"failed": {func(w *work.Work) error { return failing(ctx, w, boom) }, work.StateFailed, work.ErrBackoff},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, _ := twoOwners(t, etcd, config{MaxAttempts: 1000, Backoff: func(int) time.Duration { return time.Hour }})
			for i, begin := range []func(context.Context, string, ...work.Option) (*work.Work, error){b.TryBegin, b.Begin} {
				key := []string{"try", "wait"}[i]
				noErr(t, tt.end(tryBegin(t, a, key)))
				for _, other := range []work.State{work.StateDone, work.StateDead, work.StateFailed} {
					if other != tt.state {
						_, err := begin(ctx, key, work.Again(other))
						wantIs(t, err, tt.err)
					}
				}
				w, err := begin(ctx, key, work.Again(tt.state))
				noErr(t, err)
				p, ok := w.Previous()
				if !ok || p.State != tt.state || w.Attempt() != 2 || (p.Result == "first") != (tt.state == work.StateDone) {
					t.Errorf("attempt %d after %+v, %v", w.Attempt(), p, ok)
				}
				r, _, err := a.Record(ctx, key)
				if want := map[work.State]int{work.StateFailed: 0}[tt.state]; err != nil || tt.state != work.StateFailed && r.Earlier != 1 || tt.state == work.StateFailed && r.Earlier != want {
					t.Errorf("recorded %+v, %v", r, err)
				}
				noErr(t, w.CompleteWith(ctx, []byte("second")))
				if r, _, err := a.Record(ctx, key); err != nil || r.Result != "second" || r.State != work.StateDone {
					t.Errorf("recorded %+v, %v", r, err)
				}
				w, err = begin(ctx, key, work.Again()) // whatever it is
				noErr(t, err)
				noErr(t, w.Release(ctx))
			}
		})
	}
}

// Orphans that may not run again do so with Again(StateDead), without being buried
// first.
func TestAgainOrphan(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{MaxAttempts: 1})
	tryBegin(t, a, "once", work.AtMostOnce())
	vanish(t, etcd, b, "once")
	w := tryBegin(t, b, "once", work.Again(work.StateDead))
	if p, _ := w.Previous(); p.State != work.StateOrphaned || w.Attempt() != 2 {
		t.Errorf("attempt %d after %+v", w.Attempt(), p)
	}
	// Its attempts count from there: one more is one too many.
	vanish(t, etcd, b, "once")
	_, err := a.TryBegin(ctx, "once")
	if r := recordOf(t, err, work.ErrDead); r.Attempt != 2 || r.Earlier != 1 {
		t.Errorf("record %+v", r)
	}
}

// Supersede begins work whether it is free, this client's own, or an orphan, in one
// call; another client's stays that client's.
func TestSupersedeWork(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{MaxAttempts: 3})
	for name, begin := range map[string]func(context.Context, string, ...work.Option) (*work.Work, error){"try": a.TryBegin, "wait": a.Begin} {
		first, err := begin(ctx, name, etcdclaims.Supersede(), etcdclaims.Note([]byte("n")))
		noErr(t, err)
		second, err := begin(ctx, name, etcdclaims.Supersede())
		noErr(t, err)
		if p, ok := second.Previous(); !ok || p.State != work.StateClaimed || p.Claim != first.ID() || second.Attempt() != 2 || second.Fence() <= first.Fence() || p.Note != "n" {
			t.Errorf("attempt %d after %+v, %v", second.Attempt(), p, ok)
		}
		lossOf(t, first.Err(), etcdclaims.ReasonSuperseded)
		wantIs(t, first.Complete(ctx), etcdclaims.ErrLost)
		wantIs(t, first.Release(ctx), etcdclaims.ErrLost)
		_, err = b.TryBegin(ctx, name, etcdclaims.Supersede())
		wantIs(t, err, etcdclaims.ErrHeld)
		noErr(t, second.Check())
		vanish(t, etcd, b, name)
		third, err := b.TryBegin(ctx, name, etcdclaims.Supersede())
		noErr(t, err)
		if p, _ := third.Previous(); p.State != work.StateOrphaned || third.Attempt() != 3 {
			t.Errorf("attempt %d after %+v", third.Attempt(), p)
		}
		noErr(t, third.Complete(ctx))
	}
	if s := a.Stats(); s.TookOver != 0 {
		t.Errorf("who supersedes itself took over: %+v", s)
	}
	once := tryBegin(t, a, "once", work.AtMostOnce())
	_, err := a.TryBegin(ctx, "once", etcdclaims.Supersede())
	wantIs(t, err, etcdclaims.ErrHeld)
	noErr(t, once.Check())
}

// A superseding attempt whose reply is lost is found, and leaves one owner.
func TestSupersedeWorkLostReply(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c, host := w.client(config{TTL: 15 * sec})
		first := tryBegin(t, c, "k")
		host.Inject(claimtest.Fault{On: claimtest.Acquire, Key: "k", Skip: 1, LoseReply: true}) // the first learns of the record
		second, err := c.TryBegin(ctx, "k", etcdclaims.Supersede())
		noErr(t, err)
		wantIs(t, first.Check(), etcdclaims.ErrLost)
		noErr(t, second.Complete(ctx))
		w.closeClean(c)
	})
}

// An orphan says what it was.
func TestNoteInTheRecord(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{})
	for key, note := range map[string]string{"text": "invoice 42 of ACME", "bytes": "\xff\x00"} {
		tryBegin(t, a, key, etcdclaims.Note([]byte(note)))
		vanish(t, etcd, b, key)
		if o, err := orphansOf(ctx, b, 0); err != nil || len(o) != 1 || o[0].Note != note {
			t.Errorf("orphans %+v, %v", o, err)
		}
		w := tryBegin(t, b, key) // without a note of its own
		if p, _ := w.Previous(); p.Note != note {
			t.Errorf("previous %+v", p)
		}
		noErr(t, w.Complete(ctx))
		if r, _, err := a.Record(ctx, key); err != nil || r.Note != note {
			t.Errorf("recorded %+v, %v", r, err)
		}
	}
	noErr(t, tryBegin(t, a, "text", work.Again(), etcdclaims.Note([]byte("other"))).Complete(ctx))
	if r, _, err := a.Record(ctx, "text"); err != nil || r.Note != "other" {
		t.Errorf("recorded %+v, %v", r, err)
	}
}

// A call with Supersede that finds the client's own earlier claim still being released waits
// for that, and one that finds a newer claim of the client supersedes that one.
func TestSupersedeWhatIsBeingReleased(t *testing.T) {
	t.Parallel()
	type held interface {
		Fence() int64
		Release(ctx context.Context) error
	}
	claim := func(c *client) (held, error) {
		return c.TryAcquire(context.Background(), "k", etcdclaims.Supersede())
	}
	for name, acquire := range map[string]func(c *client) (held, error){
		"claim": claim,
		"work": func(c *client) (held, error) {
			return c.TryBegin(context.Background(), "k", etcdclaims.Supersede())
		},
	} {
		virtualCase(t, "slow release of a "+name, func(t *testing.T, w *world) {
			const slow = 2 * sec
			c, host := w.client(config{TTL: 15 * sec})
			old, err := acquire(c)
			noErr(t, err)
			for _, kind := range []claimtest.Kind{claimtest.Release, claimtest.Ending} {
				host.Inject(claimtest.Fault{On: kind, Times: -1, DelayRequest: slow})
			}
			ctx, cancel := context.WithTimeout(context.Background(), 100*ms)
			defer cancel()
			wantIs(t, old.Release(ctx), etcdclaims.ErrUnknown) // it goes on in the background
			begun := time.Now()
			now, err := acquire(c)
			noErr(t, err)
			if took := time.Since(begun); took < slow/2 || took > 2*slow {
				t.Errorf("acquired after %v", took)
			}
			if now.Fence() <= old.Fence() {
				t.Errorf("fence %d after %d", now.Fence(), old.Fence())
			}
			host.RemoveFaults()
			noErr(t, now.Release(context.Background()))
			w.free("k", w.peer())
		})
	}
	virtualCase(t, "newer claim", func(t *testing.T, w *world) {
		c, host := w.client(config{TTL: 15 * sec})
		old := tryClaim(t, c, "k")
		host.Inject(claimtest.Fault{On: claimtest.Acquire, DelayRequest: sec})
		type result struct {
			held
			err error
		}
		done := make(chan result)
		go func() {
			cl, err := claim(c)
			done <- result{cl, err}
		}()
		time.Sleep(100 * ms)
		release(t, old)
		newer := tryClaim(t, c, "k")
		now := <-done
		noErr(t, now.err)
		if now.Fence() <= newer.Fence() {
			t.Errorf("fence %d after %d", now.Fence(), newer.Fence())
		}
		lossOf(t, newer.Err(), etcdclaims.ReasonSuperseded)
		noErr(t, now.Release(context.Background()))
	})
	virtualCase(t, "released for too long", func(t *testing.T, w *world) {
		c, host := w.client(config{TTL: 30 * sec})
		old := tryClaim(t, c, "k")
		host.Inject(claimtest.Fault{On: claimtest.Release, Times: -1, LoseRequest: true})
		ctx, cancel := context.WithTimeout(context.Background(), 100*ms)
		defer cancel()
		wantIs(t, old.Release(ctx), etcdclaims.ErrUnknown)
		ctx, cancel = context.WithTimeout(context.Background(), sec)
		defer cancel()
		begun := time.Now()
		_, err := c.TryAcquire(ctx, "k", etcdclaims.Supersede())
		wantIs(t, err, etcdclaims.ErrHeld)
		wantIs(t, err, context.DeadlineExceeded)
		if took := time.Since(begun); took != sec {
			t.Errorf("returned after %v", took)
		}
	})
}

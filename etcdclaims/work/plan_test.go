package work_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
)

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
			w.Available("k", w.peer().Client)
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

// The record of an orphan has the fence of its owner, also after a call that gave up has put
// it back.
func TestOrphanKeepsItsFence(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, ahost := w.client(config{TTL: 15 * sec})
		b, bhost := w.client(config{TTL: 15 * sec})
		job := tryBegin(t, a, "k")
		ahost.Kill()
		time.Sleep(time.Minute)
		for range 2 {
			bhost.Inject(claimtest.Fault{On: claimtest.Acquire, Key: "k", Skip: 1, DelayReply: 2 * sec})
			short, cancel := context.WithTimeout(ctx, sec)
			_, err := b.TryBegin(short, "k")
			cancel()
			wantIs(t, err, etcdclaims.ErrUnknown)
			time.Sleep(10 * sec)
			bhost.RemoveFaults()
			if r, ok, err := b.Record(ctx, "k"); !ok || err != nil || r.Claim != job.ID() || r.Fence != job.Fence() {
				t.Errorf("%+v, %v, %v; want the fence %d", r, ok, err, job.Fence())
			}
		}
		next := tryBegin(t, b, "k")
		if p, _ := next.Previous(); p.Fence != job.Fence() {
			t.Errorf("the previous owner had the fence %d, it says %d", job.Fence(), p.Fence)
		}
		if r, _, err := b.Record(ctx, "k"); err != nil || r.Fence != next.Fence() {
			t.Errorf("the record of the next owner is %+v, %v; want the fence %d", r, err, next.Fence())
		}
	})
}

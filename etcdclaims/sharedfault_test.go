package etcdclaims_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
	"google.golang.org/grpc/codes"
)

// twins returns two shared claims of "k" that were put in one round trip. Nobody else shares
// the key.
func (w *world) twins() (one, two *etcdclaims.Claim) {
	w.Helper()
	c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
	first := tryClaim(w, c, "k", etcdclaims.Shared())
	met := host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 5 * time.Millisecond})
	claims := make([]*etcdclaims.Claim, 20)
	var wg sync.WaitGroup
	for i := range claims {
		wg.Go(func() {
			var err error
			claims[i], err = c.TryAcquire(context.Background(), "k", etcdclaims.Shared())
			noErr(w, err)
		})
	}
	wg.Wait()
	met.Remove()
	by := map[int64][]*etcdclaims.Claim{}
	for _, cl := range claims {
		by[cl.Revision()] = append(by[cl.Revision()], cl)
	}
	release(w, first)
	for _, same := range by {
		if one == nil && len(same) > 1 {
			one, two, same = same[0], same[1], same[2:]
		}
		for _, cl := range same {
			release(w, cl)
		}
	}
	if one == nil {
		w.Fatal("no two in one round trip")
	}
	return one, two
}

// One of two holders whose claims have the same revision leaves the other its record.
func TestSharedTwinsRelease(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		one, two := w.twins()
		release(t, one)
		b := w.peer()
		writer, err := b.TryAcquire(context.Background(), "k")
		if !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("writer beside a reader: %v; the reader's Check: %v", err, two.Check())
		}
		if writer != nil {
			release(t, writer)
		}
		if owns, err := two.Owns(context.Background()); !owns || err != nil {
			t.Errorf("the reader owns %v, %v, %v", owns, err, two.Err())
		}
	})
}

// A holder that has lost its claim with the record does not keep the key shared.
func TestSharedLostWithTheRecord(t *testing.T) {
	t.Parallel()
	testetcd.SkipRace(t)
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		tryClaim(t, a, "busy")
		one := tryClaim(t, a, "k", etcdclaims.Shared())
		_, err := w.Raw.Delete(ctx, w.Own("k"))
		noErr(t, err)
		time.Sleep(6 * sec)
		lossOf(t, one.Err(), etcdclaims.ReasonDeleted)
		_ = one.Release(ctx)
		release(t, tryClaim(t, b, "k", etcdclaims.Shared()))
		time.Sleep(time.Hour)
		w.Available("k", b)
	})
}

// What a client knows of a record is not used again once it was refused.
func TestSharedEarlierRecord(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a := w.peer()
		_, err := a.TryAcquire(ctx, "k", etcdclaims.Shared(), etcdclaims.Manual(), etcdclaims.TTL(5*time.Minute))
		noErr(t, err)
		_, err = w.Raw.Delete(ctx, w.Own("k"))
		noErr(t, err)
		before := a.Stats().Requests
		_, err = a.TryAcquire(ctx, "k", etcdclaims.Shared())
		if n := a.Stats().Requests - before; err != nil || n > 6 {
			t.Errorf("a free key: %v after %d requests", err, n)
		}
	})
}

// A forced release whose reply is lost ends all shared claims, and their holders are
// notified.
func TestLossyForceShared(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Unavailable} {
		t.Run(code.String(), func(t *testing.T) {
			virtually(t, func(t *testing.T, w *world) {
				ctx := context.Background()
				a, c := w.peer(), w.peer()
				b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				tryClaim(t, a, "busy")
				release(t, tryClaim(t, b, "warm"))
				one := tryClaim(t, a, "k", etcdclaims.Shared())
				host.Inject(claimtest.Fault{On: claimtest.Every, Skip: 1, LoseReply: true, Code: code})
				noErr(t, admin.ForceRelease(ctx, b, "k", "test"))
				time.Sleep(sec)
				if one.Err() == nil {
					t.Errorf("the holder was not notified")
				}
				time.Sleep(10 * sec)
				release(t, tryClaim(t, c, "k", etcdclaims.Shared()))
				time.Sleep(10 * time.Minute)
				w.Available("k", c)
			})
		})
	}
}

// A client that has not heard of a raised epoch does not join the record of the one before.
func TestSharedEpochUnheard(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		release(t, tryClaim(t, b, "warm"))
		tryClaim(t, a, "k", etcdclaims.Shared())
		w.Server.RaiseEpoch(t, w.Prefix)
		_, err := b.TryAcquire(ctx, "k", etcdclaims.Shared())
		if !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("joined the record of the old epoch: %v", err)
		}
	})
}

// Nor does a waiter.
func TestSharedEpochWaiter(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b, c := w.peer(), w.peer(), w.peer()
		old := tryClaim(t, a, "k", etcdclaims.Shared())
		wctx, cancel := context.WithCancel(ctx)
		writer := tryWaiting(wctx, b, "k")
		next := tryWaiting(ctx, c, "k", etcdclaims.Shared())
		w.Server.RaiseEpoch(t, w.Prefix)
		cancel()
		<-writer
		time.Sleep(100 * time.Millisecond)
		if len(next) > 0 {
			got := <-next
			t.Errorf("joined the record of the old epoch: %v %v, old reader %v", got.cl.Token(), got.err, old.Check())
		}
	})
}

// A caller that waits for a slot hears of shared holders that die.
func TestSlotsBehindSharedHolders(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		b := w.peer()
		tryClaim(t, a, "k", etcdclaims.Shared())
		waits := tryWaiting(ctx, b, "k", etcdclaims.Slots(2))
		host.Cut()
		release(t, w.within(16*sec, waits))
	})
}

// A wait that ends behind shared holders names them.
func TestWaitBehindSharedHolders(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, b := w.peer(), w.peer()
		tryClaim(t, a, "k", etcdclaims.Shared())
		ctx, cancel := context.WithTimeout(context.Background(), 3*sec)
		defer cancel()
		_, err := b.Acquire(ctx, "k")
		if err == nil || !strings.Contains(err.Error(), "shared by other callers") {
			t.Errorf("got %v", err)
		}
	})
}

// The last holder that rests leaves a record, which the next caller deletes.
func TestSharedRecordOfTheRested(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		release(t, tryClaim(t, a, "k", etcdclaims.Shared(), etcdclaims.MinHold(5*sec)))
		time.Sleep(time.Hour)
		if i, err := a.Lookup(context.Background(), "k"); i.Held || err != nil {
			t.Errorf("%+v, %v", i, err)
		}
		w.Available("k", a)
		w.CloseClean(a)
	})
}

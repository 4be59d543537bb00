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
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	"google.golang.org/grpc/codes"
)

// A backup, more writes, and the backup restored by etcdutl into a new server:
// what fences promise holds over that, once the epoch is raised, and until then
// nobody claims who has seen it. The old token is refused by a gate that knows
// nothing of etcd.
func TestRealRestoreKeepsFencesRising(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		var marks fencing.Memory // of a resource elsewhere, which was not restored
		a, _ := w.client(etcdclaims.Config{})
		release(t, tryClaim(t, a, "k"))
		snapshot := w.Server.Snapshot(t)
		w.noise(100)
		old := tryClaim(t, a, "k")
		noErr(t, marks.Admit(ctx, old.Token()))
		w.Server.Restore(t, snapshot, 0)

		_, err := a.TryAcquire(ctx, "k")
		wantIs(t, err, etcdclaims.ErrRewound)
		if !strings.Contains(err.Error(), w.Prefix+"epoch above 0") {
			t.Errorf("%v does not say what to do", err)
		}
		wantIs(t, old.Check(), etcdclaims.ErrLost)

		epoch, err := admin.RaiseEpoch(ctx, w.Raw, w.Prefix, 0)
		if epoch != 1 || err != nil {
			t.Fatal(epoch, err)
		}
		time.Sleep(30 * sec) // whatever was held before has lapsed
		now := tryClaim(t, a, "k")
		if now.Fence() <= old.Fence() || now.Fence()>>47 != 1 {
			t.Errorf("fence %d came after %d", now.Fence(), old.Fence())
		}
		noErr(t, marks.Admit(ctx, now.Token()))
		wantIs(t, marks.Admit(ctx, old.Token()), fencing.ErrStale)

		// The backup is from before that epoch, too. Whoever restores it again
		// must know that there was one.
		w.Server.Restore(t, snapshot, 0)
		_, err = a.TryAcquire(ctx, "k")
		wantIs(t, err, etcdclaims.ErrRewound)
		if !strings.Contains(err.Error(), w.Prefix+"epoch above 1") {
			t.Errorf("%v does not say what to do", err)
		}
		if epoch, err = admin.RaiseEpoch(ctx, w.Raw, w.Prefix, now.Fence()>>47); epoch != 2 || err != nil {
			t.Fatal(epoch, err)
		}
		time.Sleep(30 * sec)
		last := tryClaim(t, a, "k")
		noErr(t, marks.Admit(ctx, last.Token()))
		wantIs(t, marks.Admit(ctx, now.Token()), fencing.ErrStale)
		release(t, last)
	})
}

func TestRaiseEpoch(t *testing.T) {
	t.Parallel()
	ctx, etcd, prefix := t.Context(), testetcd.Shared(t).Client(t), testetcd.Prefix(t)
	raise := func(above, want int64) {
		t.Helper()
		if got, err := admin.RaiseEpoch(ctx, etcd, prefix, above); got != want || err != nil {
			t.Errorf("epoch %d, %v, want %d", got, err, want)
		}
	}
	raise(0, 1)
	raise(0, 2)
	raise(7, 8)
	raise(3, 9)

	// Two operators raise it twice.
	var wg sync.WaitGroup
	seen := make(chan int64, 8)
	for range cap(seen) {
		wg.Go(func() {
			epoch, err := admin.RaiseEpoch(ctx, etcd, prefix, 0)
			if err != nil {
				t.Error(err)
			}
			seen <- epoch
		})
	}
	wg.Wait()
	close(seen)
	got := map[int64]bool{}
	for epoch := range seen {
		got[epoch] = true
	}
	if len(got) != cap(seen) || !got[17] {
		t.Errorf("epochs %v", got)
	}

	raise(65533, 65534)
	raise(0, 65535)
	for name, err := range map[string]func() (int64, error){
		"the last one": func() (int64, error) { return admin.RaiseEpoch(ctx, etcd, prefix, 0) },
		"above all":    func() (int64, error) { return admin.RaiseEpoch(ctx, etcd, testetcd.Prefix(t), 1<<63-1) },
		"negative":     func() (int64, error) { return admin.RaiseEpoch(ctx, etcd, prefix, -1) },
		"prefix":       func() (int64, error) { return admin.RaiseEpoch(ctx, etcd, "no slash", 0) },
		"no etcd":      func() (int64, error) { return admin.RaiseEpoch(ctx, nil, prefix, 0) },
	} {
		if epoch, err := err(); err == nil || epoch != 0 {
			t.Errorf("%s: %d, %v", name, epoch, err)
		}
	}
	for _, text := range []string{"", "x", "0", "-1", "01", "+1", "1 ", "1\n", "65536", "9223372036854775808"} {
		prefix := testetcd.Prefix(t)
		_, err := etcd.Put(ctx, prefix+"epoch", text)
		noErr(t, err)
		if _, err := admin.RaiseEpoch(ctx, etcd, prefix, 0); err == nil || !strings.Contains(err.Error(), "correct it") {
			t.Errorf("epoch %q: %v", text, err)
		}
		if resp, err := etcd.Get(ctx, prefix+"epoch"); err != nil || string(resp.Kvs[0].Value) != text {
			t.Errorf("epoch %q was changed: %v, %v", text, resp, err)
		}
	}
}

// The reply of an epoch that was raised is lost: that is told as unknown, and
// raising it again is right.
func TestRaiseEpochUnknown(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]claimtest.Fault{
		"reply lost":    {On: claimtest.Other, LoseReply: true},
		"request lost":  {On: claimtest.Other, LoseRequest: true},
		"not available": {On: claimtest.Other, LoseReply: true, Code: codes.Unavailable},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			host := w.Server.Host(t)
			etcd := host.Etcd(t)
			injected := host.Inject(fault)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := admin.RaiseEpoch(ctx, etcd, w.Prefix, 0)
			wantIs(t, err, etcdclaims.ErrUnknown)
			injected.Remove()
			epoch, err := admin.RaiseEpoch(t.Context(), etcd, w.Prefix, 0)
			if want := map[bool]int64{true: 2, false: 1}[fault.LoseReply]; epoch != want || err != nil {
				t.Errorf("epoch %d, %v, want %d", epoch, err, want)
			}
		})
	}
	virtualCase(t, "cut off", func(t *testing.T, w *world) {
		host := w.Server.Host(t)
		etcd := host.Etcd(t)
		host.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := admin.RaiseEpoch(ctx, etcd, w.Prefix, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		host.Heal()
	})
}

// A release frees the key also if the epoch is raised before its hand-over arrives, or before
// that is sent again: etcd refuses the hand-over then, and the claim is still there.
func TestReleaseWhileTheEpochIsRaised(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]struct {
		fault claimtest.Fault
		most  time.Duration
	}{
		"lost":    {claimtest.Fault{LoseRequest: true}, 20 * sec}, // no sooner than the request is given up
		"delayed": {claimtest.Fault{DelayRequest: 200 * ms}, sec},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			other := w.peer()
			held := tryClaim(t, c, "k")
			tryClaim(t, other, "warm")
			next := acquiring(context.Background(), other, "k")
			time.Sleep(sec)
			e.fault.On = steps.HandOver
			host.Inject(e.fault)
			released := make(chan error, 1)
			go func() { released <- held.Release(context.Background()) }()
			time.Sleep(100 * ms)
			w.Server.RaiseEpoch(t, w.Prefix)
			tryClaim(t, c, "x") // so that the client learns of the epoch
			noErr(t, <-released)
			release(t, w.within(e.most, next))
		})
	}
}

// A client that knows a greater epoch than etcd has warns once for each lower value, and its
// Health returns the error until the epoch is above the known one, however busy the client is.
func TestEpochDeletedByHand(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		for range 3 {
			w.Server.RaiseEpoch(t, w.Prefix)
		}
		log, logs := logged()
		c, _ := w.client(etcdclaims.Config{TTL: 15 * sec, Logger: log})
		held := tryClaim(t, c, "k")
		warned := func(n int, found int64) {
			t.Helper()
			all := logs.FilterMessage("epoch went back; claims refused until it is raised above the known one").All()
			if len(all) != n {
				t.Fatalf("%d warnings, want %d", len(all), n)
			}
			if f := all[n-1].ContextMap(); f["etcd_key"] != w.Prefix+"epoch" || f["known"] != int64(3) || f["found"] != found {
				t.Errorf("fields %v, want that 3 is known and %d found", f, found)
			}
		}
		refused := func() {
			t.Helper()
			for range 3 {
				_, err := c.TryAcquire(ctx, "other")
				wantIs(t, err, etcdclaims.ErrRewound)
				_, err = c.Health(ctx) // etcd has served a transaction just now
				wantIs(t, err, etcdclaims.ErrRewound)
			}
		}
		w.Server.Delete(t, w.Prefix+"epoch")
		refused()
		warned(1, 0)
		w.Server.RaiseEpoch(t, w.Prefix) // to 1, by an operator who does not know of the others
		refused()
		warned(2, 1)
		time.Sleep(15 * sec)
		wantIs(t, held.Check(), etcdclaims.ErrLost)
		refused()
		warned(2, 1)
		if epoch, err := admin.RaiseEpoch(ctx, w.Raw, w.Prefix, 3); epoch != 4 || err != nil {
			t.Fatal(epoch, err)
		}
		_, err := c.Health(ctx)
		noErr(t, err)
		now := tryClaim(t, c, "other")
		if now.Fence() <= held.Fence() {
			t.Errorf("fence %d after %d", now.Fence(), held.Fence())
		}
		warned(2, 1)
		release(t, now)
	})
}

package retention

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/attach"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Keys of one slice share a lease, which outlasts the retention of the last of them.
func TestKeysOfASliceShareALease(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *host) {
		h.oneAnswer = time.Second
		ls := NewLeases(h, zap.NewNop(), "keys", time.Hour, false)
		got := make(chan *Lease, 50)
		for range 50 {
			go func() { got <- h.get(ls, 0) }()
		}
		first := <-got
		for range 49 {
			if l := <-got; l != first {
				t.Fatal("callers of one instant have two leases")
			}
		}
		time.Sleep(6*time.Minute - 1100*time.Millisecond)
		if l := h.get(ls, time.Minute); l != first {
			t.Error("another lease before the slice is over")
		}
		time.Sleep(100 * time.Millisecond)
		if l := h.get(ls, 0); l == first {
			t.Error("the same lease after the slice is over")
		}
		if ttl := h.leases[first.ID()].ttl; ttl != 66*time.Minute || len(h.leases) != 2 {
			t.Errorf("a TTL of %v, %d leases", ttl, len(h.leases))
		}
		if len(ls.older) > 0 {
			t.Error("a lease is remembered that nothing renews")
		}
	})
}

// A lease gets no more keys than etcd can delete at once.
func TestLeaseIsFull(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *host) {
		ls := NewLeases(h, zap.NewNop(), "keys", time.Hour, false)
		first := h.get(ls, 0)
		first.Count(keysPerLease - 2)
		first.Leave(false)
		l := h.get(ls, 0)
		if l.Leave(true); l != first || l.Keys() != keysPerLease-1 {
			t.Errorf("%d keys are counted, the same lease: %v", l.Keys(), l == first)
		}
		if first.Count(1); h.get(ls, 0) == first {
			t.Error("a full lease is used")
		}
	})
}

// A key that must outlast a time is on a lease that lasts for half the retention after it.
func TestLeaseLastsAsLongAsItsKeys(t *testing.T) {
	t.Parallel()
	ls := &Leases{lasts: time.Hour}
	for d, want := range map[time.Duration]time.Duration{
		0: 0, 30 * time.Minute: 0, 31 * time.Minute: time.Hour, time.Hour: time.Hour, 61 * time.Minute: 2 * time.Hour,
		5 * time.Hour: 8 * time.Hour, 1<<63 - 1: longest,
	} {
		if got := ls.longer(d); got != want {
			t.Errorf("%v: %v longer, want %v", d, got, want)
		}
	}
	virtually(t, func(t *testing.T, h *host) {
		if l := h.get(NewLeases(h, zap.NewNop(), "keys", -1, true), 0); l.ID() != clientv3.NoLease {
			t.Error("for ever: a lease")
		}
		if l := h.get(NewLeases(h, zap.NewNop(), "keys", time.Hour, true), 1<<63-1); l.ID() != clientv3.NoLease {
			t.Error("for ever, because the key lasts as long: a lease")
		}
		if len(h.leases) > 0 {
			t.Errorf("%d leases", len(h.leases))
		}
	})
}

// While etcd does not answer, all callers get the failure of one. A caller that gives up does
// not fail for the others.
func TestCallersShareAFailure(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *host) {
		ls := NewLeases(h, zap.NewNop(), "keys", time.Hour, false)
		h.refuse = rpctypes.ErrPermissionDenied
		h.oneAnswer = time.Second
		failed := make(chan error, 9)
		for range 9 {
			go func() { _, err := ls.Get(context.Background(), 0); failed <- err }()
		}
		for range 9 {
			if err := <-failed; !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Error(err)
			}
		}
		if h.asked != 1 {
			t.Errorf("%d requests", h.asked)
		}

		h.refuse = nil
		ctx, cancel := context.WithTimeout(context.Background(), time.Second/2)
		defer cancel()
		go func() { _, err := ls.Get(ctx, 0); failed <- err }()
		synctest.Wait()
		if l := h.get(ls, 0); l.ID() == clientv3.NoLease {
			t.Error("no lease")
		}
		if err := <-failed; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}

		h.oneAnswer = time.Minute
		time.Sleep(time.Hour)
		go func() { _, err := ls.Get(context.Background(), 0); failed <- err }()
		synctest.Wait()
		if _, err := ls.Get(context.Background(), 0); !errors.Is(err, errExplained) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that waits for the lease of another: %v", err)
		}
		closed, end := context.WithCancelCause(context.Background())
		end(attach.ErrClosed)
		if _, err := ls.Get(closed, 0); !errors.Is(err, attach.ErrClosed) || errors.Is(err, errExplained) {
			t.Errorf("a caller whose client is closed: %v", err)
		}
		<-failed
	})
}

// A lease that was revoked is replaced. One that etcd still has is not.
func TestRevokedLeaseIsReplaced(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *host) {
		ls := NewLeases(h, zap.NewNop(), "keys", time.Hour, false)
		l := h.get(ls, 0)
		if ls.Gone(rpctypes.ErrLeaseNotFound, l) || ls.Gone(rpctypes.ErrLeaseNotFound, nil) || h.get(ls, 0) != l {
			t.Error("a lease that is there is given up")
		}
		if err := h.Revoke(context.Background(), l.ID()); err != nil {
			t.Fatal(err)
		}
		if ls.Gone(errors.New("another"), l) || !ls.Gone(rpctypes.ErrLeaseNotFound, l) || h.get(ls, 0) == l {
			t.Error("a lease that was revoked is used")
		}
	})
}

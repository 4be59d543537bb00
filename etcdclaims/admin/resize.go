package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Resize changes how many slots the key has to n; see etcdclaims.Slots. From then on calls must
// ask for n. Callers in line continue to wait, whatever number they asked for.
//
// Callers in line take new slots at once, one after the other. With fewer slots, the
// holders of surplus slots, those from n on, keep them until they release them.
// Surplus slots are not handed over. So the key can have more than n holders until
// these are released.
//
// Resize also stores the number of a key that has none yet. If n is 0, Resize removes
// the number, so that the next call with Slots sets it. Then no slot may be held, and
// no caller may wait: otherwise Resize returns ErrHeld. It also returns ErrHeld if
// the key is held by a claim without Slots.
//
// If the outcome is not known, Resize returns ErrUnknown. Calling again is safe.
func Resize(ctx context.Context, claims *etcdclaims.Client, key string, n int) error {
	c := of(claims)
	err := c.CheckClaimed(key)
	if err == nil {
		err = c.CheckKey(etcdclaims.SlotKey(key, max(n, 1)-1)) // the longest
	}
	if err == nil && (n < 0 || n > etcdclaims.MaxSlots) {
		err = fmt.Errorf("etcdclaims: %d slots: want 0 to %d", n, etcdclaims.MaxSlots)
	}
	if err != nil {
		return errtext.Call("resize", key, err)
	}
	if claims.Passthrough() {
		return nil
	}
	act := audit.Begin(ctx, claims, audit.Resize, audit.Target{Key: key, Detail: fmt.Sprintf("slots: %d", n)}, "")
	return act.End(ctx, c.resize(ctx, act, key, n))
}

func (c client) resize(ctx context.Context, act *audit.Act, key string, n int) error {
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	sent := false // a request that may have been carried out
	for try := 0; ; try++ {
		again, err := c.resizeOnce(ctx, act, protocol.Resize{Layout: c.Layout(), Key: key, N: n})
		if err == nil && !again {
			return nil
		}
		unknown := errors.Is(err, etcdclaims.ErrUnknown)
		sent = sent || unknown
		if err != nil && !unknown && !txn.IsTransient(err) {
			return errtext.Call("resize", key, txn.AfterSent(sent, err))
		}
		if !retry.PauseUnless(ctx, c.Closing(), try) {
			return errtext.Call("resize", key, txn.AfterSent(sent, c.Ended(txn.WithCause(ctx, err))))
		}
	}
}

// resizeOnce makes one attempt. again is true if something has changed meanwhile.
func (c client) resizeOnce(ctx context.Context, act *audit.Act, step protocol.Resize) (again bool, err error) {
	resp, err := c.Read(ctx, txn.OpsOf(step.Reads())...)
	if err != nil {
		return false, err
	}
	found := step.Judge((*pb.TxnResponse)(resp))
	switch {
	case found.Whole != nil:
		return false, c.Held(step.Key, found.Whole, 0)
	case found.Done:
		return false, nil
	case step.N == 0 && len(found.Claims) > 0:
		return false, fmt.Errorf("%d of its slots are held: %w", len(found.Claims), c.Held(step.Key, found.Claims[0], found.Waiting))
	case step.N == 0 && found.Waiting > 0:
		return false, c.Held(step.Key, nil, found.Waiting)
	}
	got, err := audit.Send(act, func(act *audit.Act) (*clientv3.TxnResponse, error) {
		return c.Store().Do(ctx, recorded(found.Change, act))
	})
	return err == nil && !got.Succeeded, err
}

package etcdclaims

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// yielder is what a term knows about yielding. The session's mutex guards what changes.
type yielder struct {
	preferring
	successor *place // for whose sake its context has ended, or nil
}

// Yield hands the key to the most preferred caller in line if that caller's preference is
// greater than the claim's own; see [Prefer]. Call it when the work under the claim has
// stopped. It returns true if the key was handed over: the claim has then ended, as with Release.
// The next owner has a greater fence.
//
// Yield returns false and a nil error if no caller in line has a greater preference, or if
// such a caller has left meanwhile. The claim is then still held. While the key is being handed over,
// Check fails with ErrReleased; if Yield returns false, Check succeeds again.
//
// The error matches ErrLost if the claim was lost. It matches ErrUnknown if it is not known
// whether the key was handed over. The claim has ended then, and the key is freed in the background
// if it was not handed over. It matches ErrReleased if the claim is being released, or was. After
// any other error the claim is held. ctx and the claim's
// deadline bound the call.
//
// The claim of work, one with Slots or Shared, one that a Reentrant call shares, one whose
// MinHold is not over, and that of a passthrough client do not yield: Yield returns false.
func (cl *Claim) Yield(ctx context.Context) (bool, error) {
	if err := cl.Err(); err != nil {
		return false, err
	}
	t := cl.t
	if t == nil || t.work || t.slots != nil || t.shared != nil || t.rests() > 0 {
		return false, nil
	}
	ctx, cancel := t.s.within(ctx)
	defer cancel()
	resp, err := t.s.c.store.readAll(ctx, t.readWholeLine())
	if err != nil {
		if lost := t.lostByNow(); lost != nil {
			return false, lost
		}
		return false, callError("yield", cl.key, txn.WithCause(ctx, txn.Failed(err)))
	}
	if !t.owned(resp) {
		return false, t.lost()
	}
	l := t.betterIn(resp)
	if len(l.next) == 0 {
		return false, nil
	}
	if may, err := t.beginYield(); !may {
		return false, err
	}
	return t.yieldTo(ctx, l)
}

// betterIn takes from the reply to readWholeLine the most preferred caller, if it is preferred to
// the claim's own.
func (t *term) betterIn(resp *clientv3.TxnResponse) line {
	kvs := resp.Responses[2].GetResponseRange().Kvs
	if best := mostPreferred(kvs); best == nil || preferenceOf(best) <= t.preference {
		return line{}
	}
	return preferredIn(kvs, t.s.c.store.layout.waiting(t.key))
}

// beginYield starts to give the term up, unless others share it.
func (t *term) beginYield() (may bool, err error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.refs > 1 && t.phase != phaseEnded {
		return false, nil
	}
	err = t.beginLocked()
	return err == nil, err
}

// yieldTo hands the key to the caller that l begins with, or to another that is preferred to
// this one by then. Only one request at a time can still be carried out: the next caller is
// tried for when the last one's place is gone for good.
func (t *term) yieldTo(ctx context.Context, l line) (bool, error) {
	st := t.s.c.store
	sent := false // a request that may have been carried out
	for try := 0; ; try++ {
		r, to := t.pass(l)
		if to == "" {
			return t.notYielded(ctx, nil) // of an epoch before: it asks anew
		}
		r.In.Failure = t.readWholeLine()
		resp, err := st.Do(ctx, r)
		if err == nil && resp.Succeeded {
			t.s.c.local.leaveTo(t, to)
			t.finish(ErrReleased)
			t.s.c.countRelease(t, nil)
			return true, nil
		}
		full := errors.Is(err, rpctypes.ErrNoSpace) && !sent // and nothing is on its way
		if full || errors.Is(err, rpctypes.ErrLeaseNotFound) {
			sent = sent || full
			var rerr error
			if resp, rerr = st.readAll(ctx, t.readWholeLine()); rerr != nil {
				resp = nil
			}
		}
		switch {
		case resp != nil && !t.stillOwned(resp):
			// Under another epoch no request of before is carried out any more.
			if err := t.foundGone(resp, sent && !t.hasKey(resp)); err != nil {
				return false, err
			}
			t.s.c.countRelease(t, nil)
			return true, nil
		case resp != nil:
			sent = false
			if full {
				return t.notYielded(ctx, txn.Failed(err))
			}
			if l = t.betterIn(resp); len(l.next) == 0 || try >= mostHandOvers {
				return t.notYielded(ctx, nil)
			}
			continue
		case errors.Is(err, ErrUnknown):
			sent = true
			t.s.c.local.close(&t.local) // it may take long to find out
		case !txn.IsTransient(err) && !errors.Is(err, rpctypes.ErrLeaseNotFound):
			return t.notYieldedUnless(ctx, sent, r, err)
		}
		if !retry.PauseUnless(ctx, t.done, try) {
			return t.notYieldedUnless(ctx, sent, r, txn.WithCause(ctx, err))
		}
	}
}

// notYieldedUnless ends a term whose yield, by r, may yet be carried out, or was: it is freed in the
// background. Otherwise the term is held again.
func (t *term) notYieldedUnless(ctx context.Context, sent bool, r txn.Request, err error) (bool, error) {
	if !sent {
		return t.notYielded(ctx, txn.Failed(err))
	}
	t.settleLater(nil, r)
	t.finish(ErrReleased)
	err = callError("yield", t.key, txn.Unknown(err))
	t.s.c.countRelease(t, err)
	return false, err
}

// notYielded makes a term held again whose yield came to nothing, unless it was to be released
// meanwhile.
func (t *term) notYielded(ctx context.Context, err error) (bool, error) {
	held := t.stay(ctx)
	if lost := t.lostByNow(); lost != nil {
		return false, lost
	}
	if !held {
		return false, ErrReleased
	}
	if err != nil {
		err = callError("yield", t.key, err)
	}
	return false, err
}

// lostByNow returns the error of a term that has ended, or whose deadline has passed, and else nil.
func (t *term) lostByNow() error {
	if left, _ := t.s.left(); left <= 0 {
		t.s.enforce()
	}
	return t.ended()
}

package etcdclaims

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/internal/wire"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Upgrade makes a claim with Shared exclusive, in one transaction, if no other caller
// shares the key. It does not wait, and gets ahead of callers in line: what the caller
// read under the shared claim cannot have changed.
//
// The result is another claim, with a greater fence, which the caller releases. The shared
// claim has then ended, with ErrReleased, and so has its context. After an error other than
// ErrUnknown the shared claim is still held, unless it was lost. While the call runs, Check
// of the shared claim returns ErrReleased.
//
// Do not call Upgrade in a function that [Claim.Run] or [Client.Run] has called under the
// claim: its context ends, and Run waits for it no longer than the drain.
//
// Two holders that both wait for the other to go would wait for ever. So a caller that
// gets ErrHeld must release its shared claim, and call Acquire.
//
// The options are If, Then, Note, MinHold and MaxHold. The note, MinHold and MaxHold of the
// shared claim do not apply to the new one.
//
// The error matches:
//
//   - ErrHeld if other callers share the key; it is a *HeldError.
//   - ErrRefused if a condition given with If does not hold.
//   - ErrLost or ErrReleased if the claim has ended.
//   - ErrUnknown if the outcome is not known. Both claims are then given up in the
//     background.
//
// Upgrade of a claim without Shared is an error.
func (cl *Claim) Upgrade(ctx context.Context, opts ...ReplaceOption) (*Claim, error) {
	if cl.t == nil {
		return cl.replacePassthrough("upgrade", opts)
	}
	if cl.t.shared == nil {
		return nil, callError("upgrade", cl.key, errors.New("it is not a claim with Shared"))
	}
	o, err := cl.replacing(opts)
	if err != nil {
		return nil, callError("upgrade", cl.key, err)
	}
	return cl.replace(ctx, "upgrade", o)
}

// Downgrade makes an exclusive claim one with Shared, in one transaction: no other
// exclusive holder comes in between. Callers with Shared that are first in line then share
// the key.
//
// The result is another claim, which the caller releases. Its fence is greater than that
// of the exclusive claim, which has then ended with ErrReleased. Otherwise Downgrade is as
// Upgrade. A claim of work, one with Slots and one that has several handles by Reentrant
// cannot be downgraded.
func (cl *Claim) Downgrade(ctx context.Context, opts ...ReplaceOption) (*Claim, error) {
	if cl.t == nil {
		return cl.replacePassthrough("downgrade", opts)
	}
	if cl.t.shared != nil || cl.t.slots != nil || cl.t.work {
		return nil, callError("downgrade", cl.key, errors.New("it is a claim with Shared or Slots, or of work"))
	}
	o, err := cl.replacing(opts)
	if err == nil {
		o.shared = &sharing{}
		err = o.shared.of(cl.key)
	}
	if err != nil {
		return nil, callError("downgrade", cl.key, err)
	}
	return cl.replace(ctx, "downgrade", o)
}

// replacePassthrough is what replace does without etcd.
func (cl *Claim) replacePassthrough(call string, opts []ReplaceOption) (*Claim, error) {
	if _, err := optionsOf(anyPassthrough, opts); err != nil {
		return nil, callError(call, cl.key, err)
	}
	if cl.released.Swap(true) {
		return nil, callError(call, cl.key, ErrReleased)
	}
	return &Claim{key: cl.key}, nil
}

// replacing checks the options of a claim that takes the place of another.
func (cl *Claim) replacing(opts []ReplaceOption) (*acquireOptions, error) {
	c := cl.t.s.c
	o, err := optionsOf(c, opts)
	o.until = clock.Mono().Add(c.bound())
	return o, err
}

// replace puts another claim in the place of this one, on the same lease.
func (cl *Claim) replace(ctx context.Context, call string, o *acquireOptions) (*Claim, error) {
	t, c := cl.t, cl.t.s.c
	if _, err := cl.checkSure(); err != nil {
		return nil, err
	}
	if err := t.beginAlone(); err != nil {
		return nil, callError(call, cl.key, err)
	}
	c.stats.attempts.Add(1)
	o.observer = c.observeCall(ctx, Call{Key: cl.key})
	next, err := t.replaceBy(ctx, o)
	o.observed(err)
	switch {
	case err == nil:
		cl.released.Store(true)
		return next.claim(), nil
	case errors.Is(err, ErrUnknown):
		// If the new claim was made, then this one is gone; it is being undone, and after that
		// any caller can have the key.
		t.settleLater(nil, txn.Request{})
		t.finish(ErrReleased)
	case errors.Is(err, ErrHeld):
		c.stats.contended.Add(1)
		fallthrough
	default:
		if !errors.Is(err, ErrLost) { // else somebody may be giving up what is left of it
			t.stay(ctx)
		}
	}
	var lost *LostError
	if ended := t.ended(); errors.As(ended, &lost) && !errors.Is(err, ErrUnknown) {
		return nil, ended
	}
	return nil, callError(call, cl.key, err)
}

// beginAlone is begin for a term with one handle.
func (t *term) beginAlone() error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.refs > 1 {
		return errors.New("it has several handles, by Reentrant")
	}
	return t.beginLocked()
}

// replaceBy makes attempts until one has an answer. The term, which is being given up,
// ends if one succeeds.
func (t *term) replaceBy(ctx context.Context, o *acquireOptions) (*term, error) {
	ctx, cancel := context.WithDeadline(ctx, o.until)
	defer cancel()
	for try := 0; ; try++ {
		next, again, err := t.replaceOnce(ctx, o)
		if !again {
			return next, err
		}
		if !retry.PauseUnless(ctx, t.done, try) {
			if err == nil {
				err = errSessionLost
			}
			return nil, txn.WithCause(ctx, err)
		}
	}
}

// replaceOnce makes one attempt. again is true if another makes sense.
func (t *term) replaceOnce(ctx context.Context, o *acquireOptions) (next *term, again bool, err error) {
	s, c := t.s, t.s.c
	key := t.key
	if t.shared != nil {
		key = t.shared.key
	}
	s.again()
	defer func() {
		if next == nil {
			s.unreserve()
		}
	}()
	a := c.newAttempt(s, key, o, nil)
	defer c.keys.unregister(a.id)
	a.epoch = &txn.Epoch{Value: t.fence >> epochShift, Rev: t.epoch} // that of the guard
	if a.shared != nil {
		a.shared.rev, a.shared.epoch = 0, a.epoch.Value // it puts the record, in the place of the claim
	}
	a.describe()
	a.line = unread
	resp, rev, err := a.send(ctx, t.replacement(a))
	switch {
	case err != nil:
		return nil, a.leaseGone(ctx, err) || txn.IsTransient(err), err
	case resp == nil && rev == 0:
		return nil, true, nil
	case resp != nil && !resp.Succeeded:
		if rev = a.mine(firstKV(resp, len(resp.Responses)-1)); rev == 0 {
			again, err = t.notReplaced(resp, o)
			return nil, again, err
		}
	case resp != nil:
		rev = resp.Header.Revision
	}
	next, err = c.grant(ctx, a, rev)
	t.finish(ErrReleased)
	c.countRelease(t, nil)
	if err != nil && wire.ContextError(ctx) != nil && !errors.Is(err, ErrLost) {
		err = txn.Unknown(err) // the claim was replaced, and the new one is being given up
	}
	return next, false, err
}

// replacement is the request that puts the attempt's claim in the place of the term's.
func (t *term) replacement(a *attempt) txn.Request {
	l := t.s.c.store.layout
	cmps := append(t.guard(), a.notVoid())
	var ops []clientv3.Op
	t.s.mu.Lock()
	noted := t.noted
	t.s.mu.Unlock()
	if noted { // that of the new claim has another key
		ops = append(ops, clientv3.OpDelete(l.note(t.key)))
	}
	if t.noticed {
		ops = append(ops, t.deleteNotice())
	}
	if t.shared != nil { // the claim is the only one, and goes
		cmps = append(cmps, clientv3.Compare(clientv3.Value(l.sharers(t.shared.key)), "=", t.value).WithPrefix())
		ops = append(ops, clientv3.OpDelete(l.own(t.key)))
	}
	els := append(t.readOps(), clientv3.OpGet(l.sharers(a.asked()), clientv3.WithPrefix(), clientv3.WithCountOnly()), clientv3.OpGet(l.own(a.key)))
	return txn.Request{Key: a.sharedKey(), Also: []string{t.key, a.key}, Until: a.opts.until, In: a.take(append(cmps, a.opts.cmps...), ops, els)}
}

// notReplaced returns why the replacement of the term was refused, or again if nothing
// speaks against it any more.
func (t *term) notReplaced(resp *clientv3.TxnResponse, o *acquireOptions) (again bool, err error) {
	if !t.stillOwned(resp) || t.shared != nil && !t.hasRecord(resp) {
		t.back()
		t.owned(resp)
		return false, t.lost()
	}
	if n := resp.Responses[len(resp.Responses)-2].GetResponseRange().Count; t.shared != nil && n > 1 {
		token := t.token()
		return false, heldFor{&HeldError{Info: Info{Key: token.Key, Held: true, Fence: token.Fence, Kind: kindShared, Shared: n}}}
	}
	if len(o.cmps) > 0 {
		return false, fmt.Errorf("%w: a condition does not hold", ErrRefused)
	}
	return true, nil
}

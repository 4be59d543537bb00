package etcdclaims

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ending is the part about work of the transaction that ends it and gives its claim up.
type ending struct {
	state State // in which the work is recorded
	ops   []clientv3.Op
	// read reads whether a lost request was carried out, and carriedOut judges the
	// reply.
	read       clientv3.Op
	carriedOut func(*clientv3.GetResponse) bool
	foreign    bool   // ops are not of this key alone
	shelf      *shelf // that ops put the record on, or nil
}

// over is called with the result of the end of the work.
func (w *ending) over(err error) {
	if w != nil {
		w.shelf.leave(err == nil)
	}
}

// endWork gives the term up with the end of its work. A refusal leaves the term held,
// for its holder to try something else.
func (t *term) endWork(ctx context.Context, w *ending) error {
	t.s.mu.Lock()
	err := t.beginLocked()
	if err == nil {
		t.outcome = w.state
	}
	t.s.mu.Unlock()
	if err != nil {
		return err
	}
	err = t.dropWith(ctx, w)
	t.s.c.countRelease(t, err)
	return err
}

// dropWith gives the key up and ends the work, in one request under the claim's
// guard. It keeps trying until that is settled, ctx ends or the lease does. Work has
// no local waiters, and those in line see that the key is free.
func (t *term) dropWith(ctx context.Context, w *ending) error {
	st := t.s.c.store
	r := w.request(t)
	ctx, cancel := t.s.hurried(ctx)
	defer cancel()
	sent := false // a request that may have been carried out
	for try := 0; ; try++ {
		if try == 1 { // the first request ends before the claim does
			var cancel context.CancelFunc
			ctx, cancel = t.s.within(ctx)
			defer cancel()
			defer t.s.c.calls.await(t.token().Key)()
		}
		resp, err := st.Do(ctx, r)
		if err == nil && resp.Succeeded {
			t.finish(ErrReleased)
			return nil
		}
		if err == nil {
			// The reason is read only now: few are refused.
			if resp, err = st.Send(ctx, txn.Request{In: txn.Then(append(t.readOps(), w.read)...)}); err != nil {
				if err = txn.Failed(err); isPassing(err) && retry.PauseUnless(ctx, t.done, try) {
					continue // to be refused again, if it was
				}
			}
		}
		switch {
		case err == nil && w.carriedOut((*clientv3.GetResponse)(resp.Responses[2].GetResponseRange())):
			t.clearAway()
			t.finish(ErrReleased)
			return nil
		case err == nil:
			t.back()
			t.owned(resp)
			t.finish(ErrLost)
			return t.lostEnding(sent)
		case t.s.gone(ctx, err, true):
			return t.lostEnding(sent)
		case errors.Is(err, ErrUnknown):
			sent = true
		case !txn.IsTransient(err) && sent:
			return t.leaveUnsettled(w, r, err)
		case !txn.IsTransient(err): // by the caller's own operations: its to mend
			t.stay(ctx)
			return callError("end work", t.key, err)
		}
		if retry.PauseUnless(ctx, t.done, try) {
			continue
		}
		if sent {
			return t.leaveUnsettled(w, r, txn.WithCause(ctx, err))
		}
		t.stay(ctx)
		if left, _ := t.s.left(); left <= 0 {
			t.s.enforce()
			return t.lost()
		}
		return callError("end work", t.key, t.s.c.outage.explain(t.s.c, txn.WithCause(ctx, err)))
	}
}

// leaveWork ends a held term whose end of work was refused, or came to nothing, for a holder
// that cannot try again. In the background the end is tried once more, unless w is nil, and
// then the key is given up without it.
func (t *term) leaveWork(w *ending, why error) error {
	t.s.mu.Lock()
	err := t.beginLocked()
	if err == nil {
		t.parting.Store(leavingForGood)
		if w != nil {
			t.outcome = w.state
		}
	}
	t.s.mu.Unlock()
	if err != nil {
		return err
	}
	var r txn.Request
	if w != nil {
		r = w.request(t)
	}
	err = t.leaveUnsettled(w, r, why)
	t.s.c.countRelease(t, err)
	return err
}

// lostEnding is the error of an end of work that found its term lost. If a request
// may have been carried out, a successor may have gone on from what that wrote.
func (t *term) lostEnding(sent bool) error {
	if !sent {
		return t.lost()
	}
	return callError("end work", t.key, fmt.Errorf("%w: %v", ErrUnknown, t.lost())) //nolint:errorlint // it is one or the other
}

// request ends work and gives the key up, if the term is the owner.
func (w *ending) request(t *term) txn.Request {
	r := txn.Request{Key: t.key, Urgent: true, In: txn.Of(t.guard(), w.ops, nil)}
	r.In.Success = append(t.leaving().Success, r.In.Success...)
	if w.foreign {
		r.Key = ""
	}
	return r
}

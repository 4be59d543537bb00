package etcdclaims

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/internal/wire"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Release releases the claim. Call it when the work under the claim has
// stopped, not before. The claim has ended locally even if Release returns an
// error. Releasing again does nothing and returns nil.
//
// The error matches ErrLost if the client knew before that the claim was lost,
// or finds that the key is not its own any more. It matches ErrUnknown if it is
// not known that the key is free; it is then freed in the background, or when
// the lease lapses.
//
// ctx bounds the waiting only. If it has ended before, as at a shutdown, Release takes a time of
// its own: milliseconds, or a sixth of Config.TTL (1 s to 5 s) if etcd does not answer.
//
// The claim of work is released as [Work.Release] does.
func (cl *Claim) Release(ctx context.Context) error {
	if cl.work != nil {
		return cl.work.Release(ctx)
	}
	if !cl.released.CompareAndSwap(false, true) {
		return nil
	}
	if cl.t == nil {
		return nil
	}
	ctx, cancel := cl.t.s.c.releasing(ctx)
	defer cancel()
	return cl.t.release(ctx)
}

// releasing returns the context of a release: that of its caller, or one of the client's own if
// that has ended. No caller wants a key held that nothing uses any more.
func (c *Client) releasing(ctx context.Context) (context.Context, context.CancelFunc) {
	if wire.ContextError(ctx) == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(c.io, c.store.timeout)
}

// release gives the term up for one of its handles, and the key with the last.
func (t *term) release(ctx context.Context) error {
	t.s.mu.Lock()
	if t.refs > 1 && t.phase != phaseEnded {
		t.refs--
		t.s.mu.Unlock()
		return nil
	}
	err := t.beginOrWantLocked() // together with the handles: no other caller may share it from now on
	t.s.mu.Unlock()
	if errors.Is(err, ErrReleased) {
		return nil
	}
	if err != nil {
		return err
	}
	return t.releaseBegun(ctx)
}

// releaseBegun gives up a term that is given up for good already, as Check sees it.
func (t *term) releaseBegun(ctx context.Context) error {
	if t.rests() > 0 {
		return t.rest(ctx)
	}
	err := t.drop(ctx)
	t.s.c.countRelease(t, err)
	return err
}

func (c *Client) countRelease(t *term, err error) {
	if err != nil && !errors.Is(err, ErrUnknown) {
		return
	}
	c.stats.released.Add(1)
}

// mostHandOvers is how often a release tries, without a pause, to hand the key to a
// line that has changed meanwhile. After that it frees the key, and the waiters that
// watch it claim it.
const mostHandOvers = 8

// drop gives the key up to the next in line, under the claim's guard. It retries until
// the outcome is known, or ctx or the lease ends.
func (t *term) drop(ctx context.Context) error {
	if passed, err := t.handOffLocal(ctx); passed {
		return err
	}
	st := t.s.c.store
	if t.slots != nil { // else all releases of its client aim at the same place in line
		defer t.s.c.local.askInTurn(ctx, t.s, t.lineKey())()
	}
	ctx, cancel := t.s.hurried(ctx)
	defer cancel()
	t.learnLine(ctx)
	r, to := t.pass(t.line) // to is the attempt that r hands the key to
	sent := false           // a request that may have been carried out
	for try := 0; ; try++ {
		if try == 1 { // the first request ends before the claim does
			var cancel context.CancelFunc
			ctx, cancel = t.s.within(ctx)
			defer cancel()
			defer t.s.c.calls.await(t.token().Key)()
		}
		there := t.s.c.local.waiting(&t.local)
		resp, err := st.Do(ctx, r)
		if err == nil && resp.Succeeded {
			t.s.c.local.recordArrival(there, resp.Header.Revision)
			t.clearLeft(resp)
			if to != "" {
				t.s.c.local.leaveTo(t, to)
			}
			t.finish(ErrReleased)
			return nil
		}
		if err == nil && len(resp.Responses) == 0 {
			// The reason is read only now: few releases are refused, and the read would
			// be part of each.
			if resp, err = st.Send(ctx, t.readLine()); err != nil {
				if err = txn.Failed(err); isPassing(err) && retry.PauseUnless(ctx, t.done, try) {
					continue // to be refused again, if it was
				}
			}
		}
		switch {
		case err == nil && t.stillOwned(resp):
			if r, to = t.pass(t.lineIn(resp)); !t.handsOverAgain(ctx, try) {
				r, to = t.free(), "" // the first in line sees that
			}
			continue
		case err == nil && t.hasKey(resp):
			r, to = t.free(), "" // the epoch is another: the key may be freed, but not handed over
			continue
		case err == nil:
			return t.foundGone(resp, sent)
		case to != "" && errors.Is(err, rpctypes.ErrLeaseNotFound):
			r, to = t.free(), "" // the waiter that it was for is gone
			continue
		case errors.Is(err, ErrUnknown):
			sent = true
			t.s.c.local.close(&t.local) // the outcome may stay unknown for long
		case to != "" && !txn.IsTransient(err):
			r, to = t.free(), "" // that needs more of etcd, such as space
			continue
		case !txn.IsTransient(err): // another try would fail, too
			return t.leaveUnsettled(nil, r, err)
		}
		if !retry.PauseUnless(ctx, t.done, try) {
			return t.leaveUnsettled(nil, r, txn.WithCause(ctx, err))
		}
	}
}

// handsOverAgain reports whether a release that was refused try+1 times aims at the first
// in line again. For a slot it tries again, with pauses, while the other slots may be
// handed over at the same time: each of them succeeds once.
func (t *term) handsOverAgain(ctx context.Context, try int) bool {
	return try <= mostHandOvers || t.slots != nil && try <= mostHandOvers+t.slots.n && retry.PauseUnless(ctx, t.done, 0)
}

// learnLine reads the next places, if there probably is a line and no place in it is
// known. That costs less than a hand-over that is refused.
func (t *term) learnLine(ctx context.Context) {
	if t.prefers && len(t.line.next) > 0 {
		t.line = unread // those were in another order
	}
	if len(t.line.next) > 0 || !t.line.more {
		return
	}
	if resp, err := t.s.c.store.Do(ctx, t.readLine()); err == nil && t.stillOwned(resp) {
		t.line = t.lineIn(resp)
	}
}

// foundGone ends a term whose release was refused because the claim is gone, as resp
// shows. If an earlier request may have been carried out, that one has released it.
func (t *term) foundGone(resp *clientv3.TxnResponse, sent bool) error {
	if sent {
		t.clearAway()
		t.finish(ErrReleased)
		return nil
	}
	t.back()
	t.owned(resp)
	t.finish(ErrLost)
	return t.lost()
}

// leaveUnsettled ends a term whose release, by r, has an unknown outcome: it is settled
// in the background. w is its end with operations, if r is that.
func (t *term) leaveUnsettled(w *ending, r txn.Request, err error) error {
	call := "release"
	if w != nil {
		call = w.call
	}
	t.settleLater(w, r)
	t.finish(ErrReleased)
	return callError(call, t.token().Key, txn.Unknown(t.s.c.outage.explain(t.s.c, err)))
}

// free frees the key; waiters notice it by their watches. A client may give up its own
// claim under any epoch.
func (t *term) free() txn.Request { return t.leavesWith(t.leaving()) }

// leavesWith is the request that gives the key up without handing it over.
func (t *term) leavesWith(in *pb.TxnRequest) txn.Request {
	r := txn.Request{Key: t.lineKey(), Urgent: true, In: in}
	if t.shared != nil {
		r.Beside, r.Also = txn.Leaves, []string{t.key} // no request for its note is in the same batch
		if clearsRecord(in) {
			r.Beside = txn.Clears
		}
	}
	return r
}

// dropping frees the key even if there is a line. If it is refused, it reads the owner.
func (t *term) dropping() txn.Request {
	r := t.deletion()
	r.In.Failure = append(txn.Then(t.readOps()...).Success, r.In.Failure...)
	return r
}

// leaving deletes what the owner has in etcd, first the claim itself.
func (t *term) leaving() *pb.TxnRequest {
	l := t.s.c.store.layout
	own := []byte(l.own(t.key))
	in := &pb.TxnRequest{
		Compare: append(make([]*pb.Compare, 0, 4), txn.ModifiedAt(own, revision(t.fence)), txn.OnLease(own, t.s.id)),
		Success: append(make([]*pb.RequestOp, 0, 5), txn.Delete(own)),
	}
	t.s.mu.Lock()
	noted := t.noted
	t.s.mu.Unlock()
	if noted {
		in.Success = append(in.Success, txn.Delete([]byte(l.note(t.key))))
	}
	if t.noticed {
		in.Success = append(in.Success, txn.Delete([]byte(t.noticeKey())))
	}
	if t.shared != nil {
		in.Success = append(in.Success, t.leavesShared()...)
	}
	return in
}

// stillOwned reports whether the claim is still the owner although its guard failed.
func (t *term) stillOwned(resp *clientv3.TxnResponse) bool {
	e := resp.Responses[1].GetResponseRange().Kvs
	return t.hasKey(resp) && (len(e) == 0 && t.epoch == 0 || len(e) > 0 && e[0].ModRevision == t.epoch)
}

// hasKey is stillOwned under any epoch.
func (t *term) hasKey(resp *clientv3.TxnResponse) bool {
	own := resp.Responses[0].GetResponseRange().Kvs
	return len(own) > 0 && own[0].ModRevision == revision(t.fence) && own[0].Lease == int64(t.s.id)
}

// settleLater gives the term up in the background. If an end with operations was sent and
// can still be carried out, it sends that again.
func (t *term) settleLater(w *ending, r txn.Request) {
	st := t.s.c.store
	t.s.c.addCleanup(&cleanup{s: t.s, claim: t.id, over: w.settling(), what: "releasing a claim", do: func(ctx context.Context) error {
		if w != nil {
			resp, err := st.Do(ctx, r)
			if err == nil && resp.Succeeded {
				return nil
			}
			if err != nil && (txn.IsTransient(err) || errors.Is(err, ErrUnknown)) {
				return err
			}
		}
		return t.delete(ctx)
	}})
}

// delete carries out the deletion, and removes the remains of a claim that was taken
// away before.
func (t *term) delete(ctx context.Context) error {
	resp, err := t.s.c.store.Do(ctx, t.deletion())
	if err == nil && !resp.Succeeded {
		t.clearAway()
	} else if err == nil {
		t.clearLeft(resp)
	}
	return err
}

// deletion deletes what the term has in etcd: the claim if it still is the
// owner, under whatever epoch, and its handoff notice in any case.
func (t *term) deletion() txn.Request {
	in := t.leaving()
	if t.noticed {
		in.Failure = []*pb.RequestOp{txn.Delete([]byte(t.noticeKey()))}
	}
	return t.leavesWith(in)
}

// clearAway deletes the term's handoff notice and its note in the background:
// if another request than its own has ended the term, they are still there.
func (t *term) clearAway() {
	t.s.mu.Lock()
	noted, last := t.noted, t.noteRev
	t.s.mu.Unlock()
	if !t.noticed && !noted {
		return
	}
	st := t.s.c.store
	var cmps []clientv3.Cmp
	var then, els []clientv3.Op
	if noted {
		note := st.layout.note(t.key)
		// Its last note, or any, unless the session has the key again.
		cmps = []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(note), "=", last)}
		then = append(then, clientv3.OpDelete(note))
		els = append(els, t.s.strayNote(t.key))
	}
	if t.noticed {
		then, els = append(then, t.deleteNotice()), append(els, t.deleteNotice())
	}
	r := txn.Request{Key: t.lineKey(), Urgent: true, In: txn.Of(cmps, then, els)}
	t.s.c.cleanUp(t.s, "clearing away what a claim has left", func(ctx context.Context) error {
		_, err := st.Do(ctx, r)
		return err
	})
}

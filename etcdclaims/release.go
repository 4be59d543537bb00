package etcdclaims

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Release releases the claim. Call it when the work under the claim has
// stopped, not before. The claim has ended locally even if Release returns an
// error. Releasing again does nothing and returns nil.
//
// The error matches ErrLost if the claim was lost before. It matches
// ErrUnknown if the key may be held for a while yet: it is freed in the
// background, or when the lease lapses. ctx bounds the waiting only.
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
	return cl.t.release(ctx, nil)
}

// release ends a term for its holder. With extra operations it is the end of
// work, which only counts if they are carried out.
func (t *term) release(ctx context.Context, w *ending) error {
	t.s.mu.Lock()
	if t.refs > 1 {
		t.refs--
		t.s.mu.Unlock()
		return nil
	}
	err := t.beginLocked() // in the same breath: nobody may share it any more
	if err == nil && w == nil {
		t.parting.Store(leavingForGood)
	}
	t.s.mu.Unlock()
	if err != nil {
		if errors.Is(err, ErrReleased) && w == nil {
			return nil
		}
		return err
	}
	if w == nil && t.rests() > 0 {
		return t.rest(ctx)
	}
	err = t.drop(ctx, w)
	t.s.c.countRelease(t, err)
	return err
}

func (c *Client) countRelease(t *term, err error) {
	if err != nil && !errors.Is(err, ErrUnknown) {
		return
	}
	c.stats.released.Add(1)
	if hook := c.cfg.Hooks.Released; hook != nil {
		hook(t.token())
	}
}

// ending is what is written, in the transaction that gives a claim up, about
// the work that was done under it.
type ending struct {
	ops []clientv3.Op
	// look reads whether a lost request was carried out, and carriedOut says
	// whether that shows it.
	read       clientv3.Op
	carriedOut func(*clientv3.GetResponse) bool
	foreign    bool // ops are not of this key alone
}

// call names, for errors, what gives a claim up: w is nil if no work ends.
func (w *ending) call() string {
	if w == nil {
		return "release"
	}
	return "end work"
}

// mostHandOvers is how often a release tries to hand the key to a line that has
// changed meanwhile, at once and without a pause, before it frees the key for
// whoever watches it.
const mostHandOvers = 8

// drop deletes the claim under its guard, and keeps trying until that is
// settled, ctx ends or the lease does.
func (t *term) drop(ctx context.Context, w *ending) error {
	st := t.s.c.store
	var r txn.Request
	to := "" // the attempt that r hands the key to
	if w == nil {
		if passed, err := t.handOffLocal(ctx); passed {
			return err
		}
		r, to = t.pass(t.line)
	} else {
		r = w.request(t)
	}
	if left, _ := t.s.left(); left < 2*st.timeout {
		var cancel context.CancelFunc
		ctx, cancel = t.s.within(ctx)
		defer cancel()
	}
	if w == nil && len(t.line.next) == 0 && t.line.more {
		// There probably is a line: to read who is next costs less than to be
		// told so by a transaction that is refused.
		if resp, err := st.Do(ctx, t.readLine()); err == nil && t.stillOwned(resp) {
			r, to = t.pass(t.lineIn(resp))
		}
	}
	sent := false // a request that may have been carried out
	for try := 0; ; try++ {
		if try == 1 { // the first request ends before the claim does
			var cancel context.CancelFunc
			ctx, cancel = t.s.within(ctx)
			defer cancel()
		}
		there := t.s.c.localWaitersOf(t)
		resp, err := st.Do(ctx, r)
		if err == nil && resp.Succeeded {
			t.s.c.recordArrival(there, resp.Header.Revision)
			if to != "" {
				t.leaveTo(to)
			}
			t.finish(ErrReleased)
			return nil
		}
		if err == nil && len(resp.Responses) == 0 {
			// Why is asked only now: few releases are refused, and the question
			// would travel with each.
			look := t.readLine()
			if w != nil {
				look = txn.Request{In: txn.Then(append(t.readOps(), w.read)...)}
			}
			if resp, err = st.Send(ctx, look); err != nil {
				if err = txn.Failed(err); isPassing(err) && backOff(ctx, try, t.done) {
					continue // to be refused again, if it was
				}
			}
		}
		switch {
		case err == nil:
			if w == nil && t.stillOwned(resp) {
				if r, to = t.pass(t.lineIn(resp)); try > mostHandOvers {
					r, to = t.free(), "" // whoever is first sees that
				}
				continue
			}
			if w != nil && w.carriedOut((*clientv3.GetResponse)(resp.Responses[2].GetResponseRange())) || w == nil && sent {
				t.clearAway()
				t.finish(ErrReleased)
				return nil
			}
			t.back()
			t.owned(resp)
			t.finish(ErrLost)
			if w != nil && sent {
				// It may have been carried out, and a successor gone on from it.
				return callError("end work", t.key, fmt.Errorf("%w: %v", ErrUnknown, t.lost())) //nolint:errorlint // it is one or the other
			}
			return t.lost()
		case w == nil && errors.Is(err, rpctypes.ErrLeaseNotFound):
			r, to = t.free(), "" // whom it would have been handed to is gone
			continue
		case t.s.gone(ctx, err, w != nil):
			if sent && w != nil {
				return callError("end work", t.key, fmt.Errorf("%w: %v", ErrUnknown, t.lost())) //nolint:errorlint // it is one or the other
			}
			return t.lost()
		case errors.Is(err, ErrUnknown):
			sent = true
			t.requeueLocal() // it may take long to find out
		case to != "" && !txn.IsTransient(err):
			r, to = t.free(), "" // that needs more of etcd, such as space
			continue
		case !txn.IsTransient(err):
			// Refused: with the work's own operations this is the caller's to
			// mend; without, there is nothing to mend.
			if w != nil && !sent {
				t.back() // nothing was sent that may have been carried out
				return callError("end work", t.key, err)
			}
			t.settleLater(w, r)
			t.finish(ErrReleased)
			return callError(w.call(), t.key, txn.Unknown(err))
		}
		if backOff(ctx, try, t.done) {
			continue
		}
		if w != nil && !sent {
			t.back() // nothing was sent that may have been carried out
			if left, _ := t.s.left(); left <= 0 {
				t.s.enforce()
				return t.lost()
			}
			return callError("end work", t.key, txn.WithCause(ctx, err))
		}
		t.settleLater(w, r)
		t.finish(ErrReleased)
		return callError(w.call(), t.key, txn.Unknown(txn.WithCause(ctx, err)))
	}
}

// request ends work and gives the key up, if the term is the owner.
func (w *ending) request(t *term) txn.Request {
	r := txn.Request{Key: t.key, Urgent: true, In: txn.Of(t.guard(), append(t.leave(), w.ops...), nil)}
	if w.foreign {
		r.Key = ""
	}
	return r
}

// free frees the key to whom it may concern: it is watched. Giving up what is
// one's own is right under any epoch.
func (t *term) free() txn.Request { return txn.Request{Key: t.key, Urgent: true, In: t.leaving()} }

// dropping frees the key whoever waits, and else says in whose hands it is.
func (t *term) dropping() txn.Request {
	r := t.deletion()
	r.In.Failure = append([]*pb.RequestOp{txn.Get(r.In.Compare[0].Key), txn.Get(t.s.c.store.epochKey)}, r.In.Failure...)
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
	return in
}

// leave is what leaving does, as operations.
func (t *term) leave() []clientv3.Op {
	_, ops, _ := txn.Operations(t.leaving())
	return ops
}

// stillOwned reports whether a failed guard failed at nothing that concerns the
// claim itself.
func (t *term) stillOwned(resp *clientv3.TxnResponse) bool {
	own, e := resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs
	return len(own) > 0 && own[0].ModRevision == revision(t.fence) && own[0].Lease == int64(t.s.id) &&
		(len(e) == 0 && t.epoch == 0 || len(e) > 0 && e[0].ModRevision == t.epoch)
}

// settleLater gives the term up in the background: by the end of work that was
// sent before, if that can still be carried out, and else alone.
func (t *term) settleLater(w *ending, r txn.Request) {
	st := t.s.c.store
	t.s.c.addCleanup(&cleanup{s: t.s, claim: t.id, what: "releasing a claim", do: func(ctx context.Context) error {
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

// delete carries out the deletion, and clears away what is left of a claim that
// somebody took away before.
func (t *term) delete(ctx context.Context) error {
	resp, err := t.s.c.store.Do(ctx, t.deletion())
	if err == nil && !resp.Succeeded {
		t.clearAway()
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
	return txn.Request{Key: t.key, Urgent: true, In: in}
}

// clearAway deletes the term's handoff notice and its note in the background:
// whoever ended the term otherwise than by its own request has left them.
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
	r := txn.Request{Key: t.key, Urgent: true, In: txn.Of(cmps, then, els)}
	t.s.c.cleanUp(t.s, "clearing away what a claim has left", func(ctx context.Context) error {
		_, err := st.Do(ctx, r)
		return err
	})
}

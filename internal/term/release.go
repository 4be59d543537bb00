package term

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Release gives the term up for one of its handles, and the key with the last.
func (t *Term) Release(ctx context.Context) error {
	t.mu.Lock()
	if t.life.refs > 1 && t.life.phase != phaseEnded {
		t.life.refs--
		t.mu.Unlock()
		return nil
	}
	err := t.beginOrWantLocked() // together with the handles: no other caller may share it from now on
	t.mu.Unlock()
	if errors.Is(err, claimerr.ErrReleased) {
		return nil
	}
	if err != nil {
		return err
	}
	return t.releaseBegun(ctx)
}

// releaseBegun gives up a term that is given up for good already, as Check sees it.
func (t *Term) releaseBegun(ctx context.Context) error {
	if t.rests() > 0 {
		return t.rest(ctx)
	}
	err := t.drop(ctx)
	t.terms.countRelease(err)
	return err
}

// leaveTo moves the local waiters of the term behind a waiter of this client that was
// handed the key, if that has the same session: their claims will be on its lease,
// and their places are counted in their own session.
func (t *Term) leaveTo(id string) {
	ts := t.terms
	left := ts.Waiters.QueueOf(id, t.s)
	ts.Local.CloseTo(&t.local, func() *Queue {
		next := ts.Keys.Term(t.Key)
		if next != nil && next.ID == id && next.s == t.s && !next.local.Closed {
			return &next.local
		}
		return left
	})
	if t := ts.Keys.Term(t.Key); left != nil && t != nil && t.ID == id { // it became a term meanwhile
		ts.Local.Inherit(left, &t.local)
	}
}

// clearLeft deletes the record of a shared key in the background if a release, with so many
// operations of the holder, did not do that, and its reply shows that no holder is left.
func (t *Term) clearLeft(resp *clientv3.TxnResponse, ops int) {
	none, remains := t.leaving().Emptied((*pb.TxnResponse)(resp), ops)
	if !none {
		return
	}
	ts, key, guard := t.terms, t.Mode.Keys().User, t.Mode.Guard(t.Fence)
	ts.Keys.ForgetRecord(key, guard.Rev)
	if !remains {
		return
	}
	record := &mvccpb.KeyValue{Key: guard.Name, ModRevision: guard.Rev}
	t.s.CleanUp("deleting the record of a shared key", func(ctx context.Context) error {
		_, err := ts.ClearShared(ctx, key, record)
		return err
	})
}

// mostHandOvers is how often a release tries, without a pause, to hand the key to a
// line that has changed meanwhile. After that it frees the key, and the waiters that
// watch it claim it.
const mostHandOvers = 8

// drop gives the key up to the next in line, under the claim's guard. It retries until
// the outcome is known, or ctx or the lease ends.
func (t *Term) drop(ctx context.Context) error {
	if passed, err := t.handOffLocal(ctx); passed {
		return err
	}
	st := t.terms.Store
	if keys := t.Mode.Keys(); keys.Slots > 0 { // else all releases of its client aim at the same place in line
		defer t.terms.Local.AskInTurn(ctx, t.s.Dead(), keys.Line)()
	}
	ctx, cancel := t.s.Hurried(ctx)
	defer cancel()
	step := t.leaving()
	t.learnLine(ctx, step)
	r, to := t.pass(step, t.line) // to is the attempt that r hands the key to
	sent := false                 // a request that may have been carried out
	for try := 0; ; try++ {
		if try == 1 { // the first request ends before the claim does
			var cancel context.CancelFunc
			ctx, cancel = t.s.Within(ctx)
			defer cancel()
			defer t.terms.Outage.Await(t.Token().Key)()
		}
		there := t.terms.Local.Waiting(&t.local)
		resp, err := st.Do(ctx, r)
		if err == nil && resp.Succeeded {
			t.terms.Local.RecordArrival(there, resp.Header.Revision)
			t.clearLeft(resp, 0)
			if to != "" {
				t.leaveTo(to)
			}
			t.finish(claimerr.ErrReleased)
			return nil
		}
		if err == nil && len(resp.Responses) == 0 {
			// The reason is read only now: few releases are refused, and the read would
			// be part of each.
			if resp, err = st.Send(ctx, step.Behind()); err != nil {
				if err = txn.Failed(err); claimerr.IsPassing(err) && retry.PauseUnless(ctx, t.done, try) {
					continue // to be refused again, if it was
				}
			}
		}
		switch {
		case err == nil && step.StillOwned((*pb.TxnResponse)(resp)):
			if r, to = t.pass(step, step.JudgeLine((*pb.TxnResponse)(resp)).Line); !t.handsOverAgain(ctx, try) {
				r, to = step.Free(), "" // the first in line sees that
			}
			continue
		case err == nil && step.StillThere((*pb.TxnResponse)(resp)):
			r, to = step.Free(), "" // the epoch is another: the key may be freed, but not handed over
			continue
		case err == nil:
			return t.foundGone(resp, sent)
		case to != "" && errors.Is(err, rpctypes.ErrLeaseNotFound):
			r, to = step.Free(), "" // the waiter that it was for is gone
			continue
		case errors.Is(err, txn.ErrUnknown):
			sent = true
			t.terms.Local.Close(&t.local) // the outcome may stay unknown for long
		case to != "" && !txn.IsTransient(err):
			r, to = step.Free(), "" // that needs more of etcd, such as space
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
func (t *Term) handsOverAgain(ctx context.Context, try int) bool {
	slots := t.Mode.Keys().Slots
	return try <= mostHandOvers || try <= mostHandOvers+slots && slots > 0 && retry.PauseUnless(ctx, t.done, 0)
}

// leaving is what gives the term up, for one goroutine.
func (t *Term) leaving() protocol.Release {
	held := t.Held
	t.mu.Lock()
	noted := t.note.sent
	t.mu.Unlock()
	alone := t.Mode.Guard(t.Fence).Unchanged && t.terms.Keys.RecordBy(t.Mode.Keys().User) <= 1
	return protocol.Release{Held: &held, Noted: noted, Noticed: t.Noticed, Alone: alone, Prefers: t.Prefers}
}

// pass is the request that hands the key to the first in line, or frees it.
func (t *Term) pass(step protocol.Release, l protocol.Line) (r txn.Request, to string) {
	if len(l.Next) > 0 {
		step.Trace = t.terms.Observer.Trace(t)
	}
	return step.Pass(l)
}

// learnLine reads the next places, if there probably is a line and no place in it is
// known. That costs less than a hand-over that is refused.
func (t *Term) learnLine(ctx context.Context, step protocol.Release) {
	if t.Prefers && len(t.line.Next) > 0 {
		t.line = protocol.Unread // those were in another order
	}
	if len(t.line.Next) > 0 || !t.line.More {
		return
	}
	resp, err := t.terms.Store.Do(ctx, step.Behind())
	if err == nil && step.StillOwned((*pb.TxnResponse)(resp)) {
		t.line = step.JudgeLine((*pb.TxnResponse)(resp)).Line
	}
}

// foundGone ends a term whose release was refused because the claim is gone, as resp
// shows. If an earlier request may have been carried out, that one has released it.
func (t *Term) foundGone(resp *clientv3.TxnResponse, sent bool) error {
	if sent {
		t.clearAway()
		t.finish(claimerr.ErrReleased)
		return nil
	}
	t.back()
	t.Owned(resp)
	t.finish(claimerr.ErrLost)
	return t.loss()
}

// leaveUnsettled ends a term whose release, by r, has an unknown outcome: it is settled
// in the background. w is its end with operations, if r is that.
func (t *Term) leaveUnsettled(w *Ending, r txn.Request, err error) error {
	call := "release"
	if w != nil {
		call = w.Call
	}
	t.settleLater(w, r)
	t.finish(claimerr.ErrReleased)
	return errtext.Call(call, t.Token().Key, txn.Unknown(t.terms.Outage.Explain(err)))
}

// dropping frees the key even if there is a line. If it is refused, it reads the owner.
func (t *Term) dropping() txn.Request {
	r := t.leaving().Delete()
	r.In.Failure = append(protocol.Owner{Held: &t.Held}.Reads(), r.In.Failure...)
	return r
}

// settleLater gives the term up in the background. If an end with operations was sent and
// can still be carried out, it sends that again.
func (t *Term) settleLater(w *Ending, r txn.Request) {
	st := t.terms.Store
	var over func()
	if w != nil && w.Unsettled != nil {
		over = w.Unsettled()
	}
	t.terms.CleanUp(t.ID, &lease.Cleanup{Of: t.s, Over: over, What: "releasing a claim", Do: func(ctx context.Context) error {
		if w != nil {
			resp, err := st.Do(ctx, r)
			if err == nil && resp.Succeeded {
				t.clearLeft(resp, len(w.Ops))
				return nil
			}
			if err != nil && (txn.IsTransient(err) || errors.Is(err, txn.ErrUnknown)) {
				return err
			}
		}
		return t.delete(ctx)
	}})
}

// delete carries out the deletion, and removes the remains of a claim that was taken
// away before.
func (t *Term) delete(ctx context.Context) error {
	resp, err := t.terms.Store.Do(ctx, t.leaving().Delete())
	if err == nil && !resp.Succeeded {
		t.clearAway()
	} else if err == nil {
		t.clearLeft(resp, 0)
	}
	return err
}

// clearAway deletes the term's handoff notice and its note in the background:
// if another request than its own has ended the term, they are still there.
func (t *Term) clearAway() {
	t.mu.Lock()
	last := t.note.rev
	t.mu.Unlock()
	r, some := t.leaving().ClearAway(last)
	if !some {
		return
	}
	t.s.CleanUp("clearing away what a claim has left", func(ctx context.Context) error {
		_, err := t.terms.Store.Do(ctx, r)
		return err
	})
}

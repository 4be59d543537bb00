package etcdclaims

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
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
func (cl *Claim) Release(ctx context.Context) error {
	if cl.owner != nil {
		return cl.owner.Release(ctx)
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
	if txn.ContextError(ctx) == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(c.io, c.store.Timeout())
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
	if keys := t.Mode.Keys(); keys.Slots > 0 { // else all releases of its client aim at the same place in line
		defer t.s.c.local.AskInTurn(ctx, t.s.dead, keys.Line)()
	}
	ctx, cancel := t.s.hurried(ctx)
	defer cancel()
	step := t.leaving()
	t.learnLine(ctx, step)
	r, to := t.pass(step, t.line) // to is the attempt that r hands the key to
	sent := false                 // a request that may have been carried out
	for try := 0; ; try++ {
		if try == 1 { // the first request ends before the claim does
			var cancel context.CancelFunc
			ctx, cancel = t.s.within(ctx)
			defer cancel()
			defer t.s.c.outage.Await(t.Token().Key)()
		}
		there := t.s.c.local.Waiting(&t.local)
		resp, err := st.Do(ctx, r)
		if err == nil && resp.Succeeded {
			t.s.c.local.RecordArrival(there, resp.Header.Revision)
			t.clearLeft(resp, 0)
			if to != "" {
				t.leaveTo(to)
			}
			t.finish(ErrReleased)
			return nil
		}
		if err == nil && len(resp.Responses) == 0 {
			// The reason is read only now: few releases are refused, and the read would
			// be part of each.
			if resp, err = st.Send(ctx, step.Behind()); err != nil {
				if err = txn.Failed(err); isPassing(err) && retry.PauseUnless(ctx, t.done, try) {
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
		case errors.Is(err, ErrUnknown):
			sent = true
			t.s.c.local.Close(&t.local) // the outcome may stay unknown for long
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
func (t *term) handsOverAgain(ctx context.Context, try int) bool {
	slots := t.Mode.Keys().Slots
	return try <= mostHandOvers || try <= mostHandOvers+slots && slots > 0 && retry.PauseUnless(ctx, t.done, 0)
}

// leaving is what gives the term up, for one goroutine.
func (t *term) leaving() protocol.Release {
	held := t.Held
	t.s.mu.Lock()
	noted := t.noted
	t.s.mu.Unlock()
	alone := t.Mode.Guard(t.Fence).Unchanged && t.s.c.keys.RecordBy(t.Mode.Keys().User) <= 1
	return protocol.Release{Held: &held, Noted: noted, Noticed: t.Noticed, Alone: alone, Prefers: t.prefers}
}

// pass is the request that hands the key to the first in line, or frees it.
func (t *term) pass(step protocol.Release, l protocol.Line) (r txn.Request, to string) {
	if len(l.Next) > 0 {
		step.Trace = t.s.c.events.trace(t)
	}
	return step.Pass(l)
}

// learnLine reads the next places, if there probably is a line and no place in it is
// known. That costs less than a hand-over that is refused.
func (t *term) learnLine(ctx context.Context, step protocol.Release) {
	if t.prefers && len(t.line.Next) > 0 {
		t.line = protocol.Unread // those were in another order
	}
	if len(t.line.Next) > 0 || !t.line.More {
		return
	}
	resp, err := t.s.c.store.Do(ctx, step.Behind())
	if err == nil && step.StillOwned((*pb.TxnResponse)(resp)) {
		t.line = step.JudgeLine((*pb.TxnResponse)(resp)).Line
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
	return callError(call, t.Token().Key, txn.Unknown(t.s.c.outage.Explain(err)))
}

// dropping frees the key even if there is a line. If it is refused, it reads the owner.
func (t *term) dropping() txn.Request {
	r := t.leaving().Delete()
	r.In.Failure = append(protocol.Owner{Held: &t.Held}.Reads(), r.In.Failure...)
	return r
}

// settleLater gives the term up in the background. If an end with operations was sent and
// can still be carried out, it sends that again.
func (t *term) settleLater(w *ending, r txn.Request) {
	st := t.s.c.store
	var over func()
	if w != nil && w.unsettled != nil {
		over = w.unsettled()
	}
	t.s.c.addCleanup(&cleanup{s: t.s, claim: t.ID, over: over, what: "releasing a claim", do: func(ctx context.Context) error {
		if w != nil {
			resp, err := st.Do(ctx, r)
			if err == nil && resp.Succeeded {
				t.clearLeft(resp, len(w.ops))
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
	resp, err := t.s.c.store.Do(ctx, t.leaving().Delete())
	if err == nil && !resp.Succeeded {
		t.clearAway()
	} else if err == nil {
		t.clearLeft(resp, 0)
	}
	return err
}

// clearAway deletes the term's handoff notice and its note in the background:
// if another request than its own has ended the term, they are still there.
func (t *term) clearAway() {
	t.s.mu.Lock()
	last := t.noteRev
	t.s.mu.Unlock()
	r, some := t.leaving().ClearAway(last)
	if !some {
		return
	}
	t.s.c.cleanUp(t.s, "clearing away what a claim has left", func(ctx context.Context) error {
		_, err := t.s.c.store.Do(ctx, r)
		return err
	})
}

package term

import (
	"context"
	"errors"
	"fmt"

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

// exit carries out the end of a term. What is done, and in which order, the Ending decides.
type exit struct {
	protocol.Ending
	t         *Term
	call      string                  // as errors name it
	local     *LocalWaiter            // that is to get the key, or nil
	unsettled func() (settled func()) // see Ending of this package
	traced    bool                    // the next holder is passed on what observers want
	err       error                   // of the last request; why there is no other once the time is up
}

// run ends the term for a caller that waits. It retries until the outcome is known, or ctx or the
// lease ends.
func (x *exit) run(ctx context.Context) error {
	t := x.t
	bounded, cancel := t.s.Hurried(ctx)
	defer cancel()
	retries := false
	for ev := (protocol.EndEvent{Kind: protocol.EndBegins}); ; {
		if x.local != nil {
			x.Arrival = t.terms.Local.Arrival(x.local)
		}
		x.trace(ev)
		a := x.Step(ev)
		x.arrange(a.Locals)
		if a.Kind.Ends() {
			return x.end(ctx, a)
		}
		if !retries && (a.Tries == 1 || a.Kind == protocol.EndPause) { // the first request ends before the claim does
			retries = true
			var cancel context.CancelFunc
			bounded, cancel = t.s.Within(bounded)
			defer cancel()
			defer t.terms.Outage.Await(t.Token().Key)()
		}
		ev = x.carryOut(bounded, a)
	}
}

// trace has the next holder passed on what observers want, once there may be one.
func (x *exit) trace(ev protocol.EndEvent) {
	lineKnown := x.Line.More || len(x.Line.Next) > 0 || ev.Reply != nil && !ev.Reply.Succeeded // or about to be
	if !x.traced && lineKnown && !x.Frees {
		x.traced, x.Trace = true, x.t.terms.Observer.Trace(x.t)
	}
}

// goOn ends the term in the background, from where it has come to so far.
func (x *exit) goOn(ctx context.Context) error {
	_, err := x.settle(ctx, x.resume())
	return err
}

// resume is what is to be done first in the background.
func (x *exit) resume() protocol.EndAction {
	x.Release = x.t.leaving() // its note may have been sent meanwhile, and other claims of its record may be gone
	return x.Step(protocol.EndEvent{Kind: protocol.EndResumes})
}

// settle carries out an action, and what follows from it. It returns how the term ended, or why that is not settled.
func (x *exit) settle(ctx context.Context, a protocol.EndAction) (protocol.EndAction, error) {
	for !a.Kind.Ends() {
		ev := x.carryOut(ctx, a)
		x.trace(ev)
		a = x.Step(ev)
	}
	if a.Kind == protocol.EndUnsettled {
		return a, x.err
	}
	x.clear(a)
	return a, nil
}

// carryOut does what is to be done next, and returns what came of it.
func (x *exit) carryOut(ctx context.Context, a protocol.EndAction) protocol.EndEvent {
	t, ts := x.t, x.t.terms
	switch a.Kind {
	case protocol.EndPause:
		if retry.PauseUnless(ctx, t.done, a.Tries) {
			return protocol.EndEvent{Kind: protocol.EndResumes}
		}
		if x.err = txn.WithCause(ctx, x.err); x.err == nil {
			x.err = t.loss()
		}
		return protocol.EndEvent{Kind: protocol.EndTimeUp}
	case protocol.EndAsk:
		if t.s.Gone(ctx, x.err, true) {
			return protocol.EndEvent{Kind: protocol.EndSessionGone}
		}
		return protocol.EndEvent{Kind: protocol.EndSessionLives}
	}
	there := ts.Local.Waiting(&t.local)
	resp, err := ts.Store.Do(ctx, a.Request)
	if err == nil && resp.Succeeded {
		ts.Local.RecordArrival(there, resp.Header.Revision)
	}
	ev := x.came(resp, err)
	if a.Kind == protocol.EndRead {
		switch x.err = txn.Failed(err); { // a read changes nothing, so its outcome is known
		case x.err != nil && claimerr.IsPassing(x.err):
			ev.Kind = protocol.EndPassing
		case ev.Kind == protocol.EndUnknown:
			ev.Kind = protocol.EndFinal
		}
	}
	return ev
}

// came is the event of a reply.
func (x *exit) came(resp *clientv3.TxnResponse, err error) protocol.EndEvent {
	x.err = err
	kind := protocol.EndFinal
	switch {
	case err == nil:
		return protocol.EndEvent{Kind: protocol.EndReplied, Reply: (*pb.TxnResponse)(resp)}
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		kind = protocol.EndNoLease
	case errors.Is(err, rpctypes.ErrCompacted):
		kind = protocol.EndCompacted
	case errors.Is(err, txn.ErrUnknown):
		kind = protocol.EndUnknown
	case txn.IsTransient(err):
		kind = protocol.EndPassing
	}
	return protocol.EndEvent{Kind: kind}
}

// end ends the term as the action says, and returns the error of the call.
func (x *exit) end(ctx context.Context, a protocol.EndAction) error {
	t := x.t
	t.line = x.Line
	switch a.Kind {
	case protocol.EndGiven:
		t.succeed(x.local, a.Rev)
		return nil
	case protocol.EndReleased:
		x.clear(a)
		if a.To != "" {
			t.leaveTo(a.To)
		}
		t.finish(claimerr.ErrReleased)
		if t.freed != nil {
			t.freed()
		}
		return nil
	case protocol.EndLost:
		if a.State != protocol.Kept {
			t.back()
			t.Found(a.State)
			t.finish(claimerr.ErrLost)
		}
		if a.Unsure { // a successor may have gone on from what the request wrote
			err := fmt.Errorf("%w: %v", txn.ErrUnknown, t.loss()) //nolint:errorlint // it is one or the other
			return errtext.Call(x.call, t.Token().Key, err)
		}
		return t.loss()
	case protocol.EndStays:
		t.stay(ctx)
		if left, _ := t.s.Left(); left <= 0 {
			t.s.Enforce()
		}
		if t.IsLost() {
			return t.loss()
		}
		return errtext.Call(x.call, t.Token().Key, t.terms.Outage.Explain(x.err))
	}
	x.later()
	return errtext.Call(x.call, t.Token().Key, txn.Unknown(t.terms.Outage.Explain(x.err)))
}

// later ends the term. What is unsettled is done in the background.
func (x *exit) later() {
	rest := *x // no other exit escapes to the heap
	id, over := x.t.ID, (func())(nil)
	if rest.Local != nil {
		id = rest.Local.ID
	}
	if rest.unsettled != nil {
		over = rest.unsettled()
	}
	x.t.terms.CleanUp(id, &lease.Cleanup{Of: x.t.s, Over: over, What: "releasing a claim", Do: rest.goOn})
	x.t.finish(claimerr.ErrReleased)
}

// clear removes, in the background, what a released claim has left.
func (x *exit) clear(a protocol.EndAction) {
	t, ts := x.t, x.t.terms
	if a.Away {
		t.clearAway()
	}
	if !a.Emptied {
		return
	}
	key, guard := t.Mode.Keys().User, t.Mode.Guard(t.Fence)
	ts.Keys.ForgetRecord(key, guard.Rev)
	if !a.Remains {
		return
	}
	record := &mvccpb.KeyValue{Key: guard.Name, ModRevision: guard.Rev}
	t.s.CleanUp("deleting the record of a shared key", func(ctx context.Context) error {
		_, err := ts.ClearShared(ctx, key, record)
		return err
	})
}

package etcdclaims

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What keeps keys beside claims, such as records of work, reaches the following by package beside.

func init() {
	beside.Provide(
		func(claims any) beside.Host {
			c := claims.(*Client) //nolint:forcetypeassert // nothing else has a host
			return host{built{c}}
		},
		func(claim any) beside.Term {
			cl := claim.(*Claim) //nolint:forcetypeassert // nor a term
			if cl.t == nil {
				return nil
			}
			return claimTerm{cl}
		},
	)
}

// host is a client as package beside shows it.
type host struct{ built }

func (h host) Watch(ctx context.Context, key string) (news clientv3.WatchChan, stop context.CancelFunc) {
	return h.c.line.Watches.BeginInTurn(ctx, key)
}

func (h host) LeaseGone(ctx context.Context, id clientv3.LeaseID) (bool, error) {
	return h.c.store.LeaseGone(ctx, id)
}

func (h host) TTL() time.Duration    { return h.c.cfg.TTL }
func (h host) Clock() clock.Clock    { return h.c.clock }
func (h host) IO() context.Context   { return h.c.life.IO }
func (h host) Open() context.Context { return h.c.life.Open }

func (h host) OnReleased(f func(context.Context)) {
	h.c.closing.add(f)
}

func (h host) Releasing(ctx context.Context) (context.Context, context.CancelFunc) {
	return h.c.releasing(ctx)
}

func (h host) Fail(call, key string, err error) error { return callError(call, key, err) }
func (h host) Explain(err error) error                { return h.c.outage.Explain(err) }
func (h host) IsPassing(err error) bool               { return claimerr.IsPassing(err) }

func (h host) Own(key string) (claim string, held error) {
	t := h.c.terms.Keys.Term(key)
	if t == nil {
		return "", nil
	}
	return t.ID, h.c.held(h.c.infoOf(t))
}

func (h host) HeldBy(ctx context.Context, key string, own *mvccpb.KeyValue, acquires bool) error {
	err := h.c.line.HeldBy(ctx, acquire.Holder{Key: key, Own: own})
	if !acquires {
		err = notAcquiring(err)
	}
	return err
}

func (h host) Waited(ctx context.Context, key string, own *mvccpb.KeyValue) error {
	cause := txn.ContextError(ctx)
	if errors.Is(cause, ErrClosed) {
		return cause
	}
	i := h.c.info(key, own, nil, 0)
	if own == nil {
		i = Info{}
	}
	return &WaitError{Key: key, Info: i, Err: h.c.outage.Explain(cause), own: h.c.isOwn(i)}
}

// claimTerm is a claim as package beside shows it.
type claimTerm struct{ cl *Claim }

func (ct claimTerm) ending(e beside.End) *term.Ending {
	out := &term.Ending{Call: e.Call, Ops: append([]clientv3.Op{e.Own}, e.Ops...), Outcome: e.Outcome, Unsettled: e.Unsettled}
	if len(e.Ops) == 0 {
		out.Concern = []string{} // nothing but the key
	}
	if e.Deletes {
		out.Deletes = string(e.Own.KeyBytes())
	}
	return out
}

func (ct claimTerm) End(ctx context.Context, e beside.End) error {
	cl := ct.cl
	if err := ct.Check(e.Call, e.Ops); err != nil {
		return err
	}
	return cl.afterRelease(e.Call, cl.end(ctx, ct.ending(e)))
}

func (ct claimTerm) OwnedBy(owner beside.Owner) { ct.cl.owner = owner }

func (ct claimTerm) Check(call string, ops []clientv3.Op) error {
	if err := ct.cl.c.checkOps(nil, ops); err != nil {
		return callError(call, ct.cl.key, err)
	}
	return ct.cl.afterRelease(call, ct.cl.checkSure())
}

func (ct claimTerm) Leave(e *beside.End, why error) error {
	var out *term.Ending
	if e != nil {
		out = ct.ending(*e)
	}
	ct.cl.released.Store(true)
	return ct.cl.t.LeaveFor(out, why)
}

func (ct claimTerm) Run(ctx context.Context, fn func(context.Context) error, end func(beside.Far, error) error) error {
	return ct.cl.run(ctx, fn, end)
}

func (ct claimTerm) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return ct.cl.t.Session().Within(ctx)
}

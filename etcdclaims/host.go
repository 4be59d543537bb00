package etcdclaims

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/clock"
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
	select {
	case h.c.watches.creations <- struct{}{}:
	case <-ctx.Done():
		closed := make(chan clientv3.WatchResponse)
		close(closed)
		return closed, func() {}
	}
	defer func() { <-h.c.watches.creations }()
	news, stop, _ = h.c.beginWatch(ctx, key)
	return news, stop
}

func (h host) LeaseGone(ctx context.Context, id clientv3.LeaseID) (bool, error) {
	return h.c.store.LeaseGone(ctx, id)
}

func (h host) TTL() time.Duration    { return h.c.cfg.TTL }
func (h host) Clock() clock.Clock    { return h.c.clock }
func (h host) IO() context.Context   { return h.c.io }
func (h host) Open() context.Context { return h.c.open }

func (h host) OnReleased(f func(context.Context)) {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.c.onReleased = append(h.c.onReleased, f)
}

func (h host) Releasing(ctx context.Context) (context.Context, context.CancelFunc) {
	return h.c.releasing(ctx)
}

func (h host) Fail(call, key string, err error) error { return callError(call, key, err) }
func (h host) Explain(err error) error                { return h.c.outage.Explain(err) }
func (h host) IsPassing(err error) bool               { return isPassing(err) }

func (h host) Own(key string) (claim string, held error) {
	t := h.c.keys.Term(key)
	if t == nil {
		return "", nil
	}
	return t.ID, h.c.held(t.info())
}

func (h host) HeldBy(ctx context.Context, key string, own *mvccpb.KeyValue, acquires bool) error {
	err := h.c.heldBy(ctx, own, h.c.info(key, own, nil, 0))
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

func (ct claimTerm) ending(e beside.End) *ending {
	out := &ending{call: e.Call, ops: append([]clientv3.Op{e.Own}, e.Ops...), outcome: e.Outcome, unsettled: e.Unsettled}
	if len(e.Ops) == 0 {
		out.concern = []string{} // nothing but the key
	}
	if e.Deletes {
		out.deletes = string(e.Own.KeyBytes())
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
	if err := ct.cl.t.s.c.checkOps(nil, ops); err != nil {
		return callError(call, ct.cl.key, err)
	}
	_, err := ct.cl.checkSure()
	return ct.cl.afterRelease(call, err)
}

func (ct claimTerm) Leave(e *beside.End, why error) error {
	var out *ending
	if e != nil {
		out = ct.ending(*e)
	}
	ct.cl.released.Store(true)
	return ct.cl.t.leaveFor(out, why)
}

func (ct claimTerm) Run(ctx context.Context, fn func(context.Context) error, end func(beside.Far, error) error) error {
	return ct.cl.run(ctx, fn, end)
}

func (ct claimTerm) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return ct.cl.t.s.within(ctx)
}

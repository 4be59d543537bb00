package etcdclaims

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Suspectable lets the first caller in line take the key from a holder whose client
// does not answer, in about half a second instead of the TTL. Both must have the option.
// Use it only if each effect of the claim is fenced.
//
// Claim.Check of a suspectable claim can still succeed while the next owner already
// works, until its deadline: only the fence refuses the effects of the old owner.
//
// When a caller with the option has been first in line for 200 ms, its client begins to
// ask the holder's client through etcd, 20 times a second. That client answers. This costs
// etcd 40 writes a second for each such pair of clients, whatever the number of keys. A
// standby for a leader waits for ever, and so costs that for ever. Where many clients wait
// for each other they ask less often: 20 clients cost at most 100 requests a second together,
// and a death is noticed after up to 2.5 s. Without a caller in line it costs nothing.
//
// If 450 ms pass without an answer, although etcd answers every request of the asking client,
// the first in line takes the key. The fence rises, and the old claim is lost with
// ReasonSuperseded and ErrSuspected as soon as its client learns of that. If the round trip
// of either client to etcd is longer than 150 ms, that takes three round trips, up to 3.6 s. Until
// the holder's client has answered once, it takes 1.5 s.
//
// A suspicion is wrong if the process was only paused for so long, if its watch hangs
// with its member of etcd, or if its way to etcd suddenly becomes three times as long.
// The process then loses one term of each key that a caller waits
// for. The client that was wrong doubles the time that it gives that process, up to 3.6 s,
// and halves it each minute. After an outage of etcd it waits 3 s for the next answer.
// Stats.SuspectedWrongly counts wrong suspicions. docs/protocol.md lists them all.
//
// Suspectable excludes Slots, Shared, Manual, MinHold, If and Then: a claim whose reply was
// lost may have been taken before its client reads it back. A key that stays held
// for a handler that outlived its drain is not suspected. A passthrough client ignores the
// option.
func Suspectable() AcquireOption {
	return acquireOption{setter: func(o *acquireOptions) { o.suspectable = true }}
}

// checkSuspectable refuses options that promise more than a suspectable claim can keep.
func (o *acquireOptions) checkSuspectable() error {
	if o.suspectable && (o.slots != nil || o.shared != nil || o.manual || o.minHold > 0) {
		return errors.New("etcdclaims: Suspectable excludes Slots, Shared, Manual and MinHold")
	}
	if o.suspectable && len(o.cmps)+len(o.ops) > 0 {
		return errors.New("etcdclaims: Suspectable excludes If and Then")
	}
	return nil
}

// suspected is a holder whose client did not answer an ask.
type suspected struct {
	own    *mvccpb.KeyValue // its claim
	holder holder
	ask    string // the key of the ask
	silence
	by *Client
}

// unanswered are the conditions under which the key may be taken from the holder: it has
// that very claim, and has not answered by then.
func (s *suspected) unanswered(own string) []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(own), "=", s.own.ModRevision),
		clientv3.Compare(clientv3.LeaseValue(own), "=", s.own.Lease),
		clientv3.Compare(clientv3.ModRevision(s.ask), "=", s.rev),
	}
}

// notify puts a notice for the holder, which may be alive. The notice is on the holder's
// lease.
func (s *suspected) notify(st *store) clientv3.Op {
	e := eviction{
		Version: valueVersion, Key: string(s.own.Key[len(st.layout.own("")):]), Claim: s.holder.Claim, By: s.by.cfg.Owner,
		Reason: fmt.Sprintf("no answer for %v", s.lasted.Round(10*time.Millisecond)), Suspected: true,
	}
	return clientv3.OpPut(st.layout.evict(s.holder.Instance, s.holder.Claim), encode(e), clientv3.WithLease(clientv3.LeaseID(s.own.Lease)))
}

// mayNotTake notes that etcd does not permit to take the key from a suspected holder. The
// attempt continues to wait for the end of the holder's lease.
func (a *attempt) mayNotTake(err error) {
	a.forbidden = true
	a.s.c.log.Warn("a suspected holder's key cannot be taken before its lease ends: see Suspectable in docs/permissions.md",
		zap.String("key", a.key), zap.String("claim", a.id), zap.String("holder", a.suspected.holder.Owner), zap.Error(err))
}

// leaseGone reports whether the key could not be taken because the holder's lease has
// ended, after the session of the attempt was found to be good.
func (s *suspected) leaseGone(err error) bool {
	return s != nil && errors.Is(err, rpctypes.ErrLeaseNotFound)
}

// accuses returns the holder of the attempt's key, and whether its client may be asked:
// the attempt is the first in line, and both sides have the option. A claim
// of another epoch is void already.
func (a *attempt) accuses(p position) (h holder, ok bool) {
	if !a.opts.suspectable || a.forbidden || p.pred != nil || p.behind || p.own == nil || p.own.Lease == 0 {
		return h, false
	}
	h, err := decodeHolder(p.own.Value)
	ok = err == nil && h.Suspectable && h.Kind == "" && h.Instance != "" && h.Instance != a.s.c.store.layout.instance && h.Epoch == a.epoch.Value
	return h, ok
}

// askHolder begins to ask the client of the holder for the waiter, if it may be asked.
func (a *attempt) askHolder(p position, w *waiter) {
	if h, ok := a.accuses(p); ok {
		a.s.c.inquiries.join(a.s.c, w, h.Instance)
	} else {
		a.s.c.inquiries.leave(w)
	}
}

// keepAsking continues to ask if the key's holder still has the client that askHolder
// asks.
func (a *attempt) keepAsking(p position, w *waiter) {
	if w.inquiry == nil {
		return
	}
	if h, ok := a.accuses(p); !ok || h.Instance != w.inquiry.instance {
		a.s.c.inquiries.leave(w)
	}
}

// follow notes that the key has another claim, by which the holder's client may be another.
func (a *attempt) follow(p position, ev *clientv3.Event, w *waiter) position {
	if a.opts.suspectable && p.pred == nil && p.own != nil && ev.Type == mvccpb.PUT && string(ev.Kv.Key) == string(p.own.Key) {
		p.own = ev.Kv
		a.askHolder(p, w)
	}
	return p
}

// suspects reports whether the attempt may take the key from its holder, whose client did
// not answer.
func (a *attempt) suspects(p position, w *waiter, s silence) bool {
	h, ok := a.accuses(p)
	if !ok || w.inquiry == nil || w.inquiry.instance != h.Instance {
		return false
	}
	l := a.s.c.store.layout
	a.suspected = &suspected{own: p.own, holder: h, ask: l.ask(h.Instance, l.instance), silence: s, by: a.s.c}
	return true
}

// tookOver notes that the attempt has taken the key from a suspected holder. If the reply
// was lost, the holder may have handed it over at the last moment instead.
func (a *attempt) tookOver(w *waiter, rev int64) {
	s, c := a.suspected, a.s.c
	if s == nil {
		return
	}
	c.stats.suspected.Add(1)
	c.inquiries.took(w)
	c.log.Info("key taken from a suspected holder", zap.String("key", a.key), zap.Int64("fence", a.epoch.Fence(rev)), zap.String("claim", a.id),
		zap.String("holder", s.holder.Owner), zap.String("instance", s.holder.Instance), zap.Int64("before", s.holder.fence(s.own.ModRevision)))
}

// overtaken ends a term whose key has another owner. If that owner suspected this client,
// the watch that should have brought the question, or the notice, may be deaf: it begins anew.
func (t *term) overtaken() {
	if t.lose(ReasonSuperseded, nil) && t.suspectable {
		t.s.c.store.generation.advance()
	}
}

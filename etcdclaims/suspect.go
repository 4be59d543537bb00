package etcdclaims

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/protocol"
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
	return acquireOption{setter: func(o *acquireOptions) { o.suspectable = true; o.give(optionSuspectable, true) }}
}

// suspected is a holder whose client did not answer a question.
type suspected struct {
	protocol.Suspicion
	silence
}

// mayNotTake notes that etcd does not permit to take the key from a suspected holder. The
// attempt continues to wait for the end of the holder's lease.
func (a *attempt) mayNotTake(err error) {
	a.forbidden = true
	a.s.c.log.Warn("a suspected holder's key cannot be taken before its lease ends: see Suspectable in docs/permissions.md",
		zap.String("key", a.user), zap.String("claim", a.ID), zap.String("holder", a.suspected.Holder.Owner), zap.Error(err))
}

// leaseGone reports whether the key could not be taken because the holder's lease has
// ended, after the session of the attempt was found to be good.
func (s *suspected) leaseGone(err error) bool {
	return s != nil && errors.Is(err, rpctypes.ErrLeaseNotFound)
}

// accuses returns the holder of the attempt's key, and whether its client may be asked:
// the attempt is the first in line, and both sides have the option. A claim
// of another epoch is void already.
func (a *attempt) accuses(p protocol.Position) (h protocol.Holder, ok bool) {
	if !a.opts.suspectable || a.forbidden || p.Pred != nil || p.Behind {
		return h, false
	}
	return protocol.Accuses(a.Layout, p.Own, a.Epoch.Value)
}

// askHolder begins to ask the client of the holder for the waiter, if it may be asked.
func (a *attempt) askHolder(p protocol.Position, w *waiter) {
	if h, ok := a.accuses(p); ok {
		a.s.c.inquiries.join(a.s.c, w, h.Instance)
	} else {
		a.s.c.inquiries.leave(w)
	}
}

// keepAsking continues to ask if the key's holder still has the client that askHolder
// asks.
func (a *attempt) keepAsking(p protocol.Position, w *waiter) {
	if w.inquiry == nil {
		return
	}
	if h, ok := a.accuses(p); !ok || h.Instance != w.inquiry.instance {
		a.s.c.inquiries.leave(w)
	}
}

// follow notes that the key has another claim, by which the holder's client may be another.
func (a *attempt) follow(p protocol.Position, ev *clientv3.Event, w *waiter) protocol.Position {
	if a.opts.suspectable && p.Pred == nil && p.Own != nil && ev.Type == mvccpb.PUT && string(ev.Kv.Key) == string(p.Own.Key) {
		p.Own = ev.Kv
		a.askHolder(p, w)
	}
	return p
}

// suspects reports whether the attempt may take the key from its holder, whose client did
// not answer.
func (a *attempt) suspects(p protocol.Position, w *waiter, s silence) bool {
	h, ok := a.accuses(p)
	if !ok || w.inquiry == nil || w.inquiry.instance != h.Instance {
		return false
	}
	c := protocol.Suspicion{Own: p.Own, Holder: h, Question: a.Question(h.Instance, a.Instance), Rev: s.rev}
	a.suspected = &suspected{Suspicion: c, silence: s}
	a.Over = c.Over(a.Layout, a.s.c.cfg.Owner, fmt.Sprintf("no answer for %v", s.lasted.Round(10*time.Millisecond)))
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
	c.log.Info("key taken from a suspected holder", zap.String("key", a.user), zap.Int64("fence", a.Epoch.Fence(rev)), zap.String("claim", a.ID),
		zap.String("holder", s.Holder.Owner), zap.String("instance", s.Holder.Instance), zap.Int64("before", s.Holder.Fence(s.Own.ModRevision)))
}

// overtaken ends a term whose key has another owner. If that owner suspected this client,
// the watch that should have brought the question, or the notice, may be deaf: it begins anew.
func (t *term) overtaken() {
	if t.lose(ReasonSuperseded, nil) && t.suspectable {
		t.s.c.store.generation.advance()
	}
}

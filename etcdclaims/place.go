package etcdclaims

import (
	"fmt"
	"path"
	"strings"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// takeOrQueue claims a free key without a line, and else takes a place at the
// end of it. All of it only if the attempt is not void, so that a place cannot
// come up for a caller that is gone.
func (a *attempt) takeOrQueue() txn.Request {
	st := a.s.c.store
	if a.sharedKey() != "" && a.supersedes == nil && !a.readsRecord() {
		r := a.takeIfFree()
		count, readers := txn.Range(st.layout.waiting(a.key)), txn.Range(st.layout.waiting(a.key)+sharedPlace)
		count.GetRequestRange().CountOnly, readers.GetRequestRange().CountOnly = true, true
		r.In.Failure = []*pb.RequestOp{
			txn.Put([]byte(st.layout.waiter(a.key, a.id)), a.placeValue(), a.s.id),
			txn.Get(r.In.Compare[0].Key),
			count, // which place is before it is read when that matters
			readers,
		}
		r.Nested = true
		return r
	}
	cmps := a.cmps()
	if a.supersedes == nil {
		cmps = append(cmps, a.nobodyBefore())
	}
	join := clientv3.OpPut(a.place(), a.placeValue(), clientv3.WithLease(a.s.id))
	els := []clientv3.Op{join, clientv3.OpGet(st.layout.own(a.key)), st.countWaiting(a.key), st.countWaiting(a.key, sharedPlace)}
	if a.readsRecord() {
		els = append([]clientv3.Op{join}, a.readOps()...)
	}
	in := txn.Of([]clientv3.Cmp{a.notVoid(), st.epochIs(a.epoch)}, nil, []clientv3.Op{clientv3.OpGet(st.layout.epoch())})
	in.Success = []*pb.RequestOp{txn.Nest(a.take(cmps, nil, els))}
	return txn.Request{Key: a.sharedKey(), Also: a.concerned(), Open: true, In: in}
}

// grantable reports whether a releaser can hand the key to the attempt.
func (a *attempt) grantable() bool {
	return a.opts.beside == nil && a.shared == nil && a.opts.shared == nil && a.opts.note == nil && len(a.opts.cmps)+len(a.opts.ops) == 0
}

// sharedPlace begins the ids of callers with Shared in line. It comes after all other ids,
// which are hexadecimal. So these callers can ask whether an exclusive one is before them.
const sharedPlace = "~"

// place is the attempt's place in line.
func (a *attempt) place() string {
	id := a.id
	if a.shared != nil {
		id = sharedPlace + id
	}
	return a.s.c.store.layout.waiter(a.lineKey(), id)
}

// placedID returns the id of the attempt that a place in line, or a notice, is of.
func placedID(key []byte) string {
	return strings.TrimPrefix(path.Base(string(key)), sharedPlace)
}

// lastBefore ends the range of the places that must be gone before the attempt's turn
// comes: all that were taken before its own, or the exclusive ones among them.
func (a *attempt) lastBefore() string {
	line := a.s.c.store.layout.waiting(a.lineKey())
	if a.shared != nil {
		return line + sharedPlace
	}
	return rangeEnd(line)
}

// nobodyBefore is the condition under which the attempt may take the key as a newcomer: the
// line is empty, or without exclusive callers if it wants to share the key.
func (a *attempt) nobodyBefore() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(a.s.c.store.layout.waiting(a.lineKey())).WithRange(a.lastBefore()), "=", 0)
}

// placeValue is the value that a releaser may put as the claim, or shows that it must
// not hand over.
func (a *attempt) placeValue() string {
	if a.grantable() {
		return a.value
	}
	return holder{Claim: a.id, Owner: a.s.c.cfg.Owner, Instance: a.s.c.store.layout.instance, Since: a.since.UTC(), Kind: kindSelf}.encode()
}

// place is one in line, with what it takes to hand it the key.
type place struct {
	ID    string `json:"id"`  // of the attempt
	Rev   int64  `json:"rev"` // of its place in line
	Lease int64  `json:"lease"`
	Value string `json:"value"`
}

// position is what a waiter knows about its place in line: the place before it, or the
// claim if it is the first.
type position struct {
	own, pred *mvccpb.KeyValue
	behind    bool  // there is a place before it that was not read
	next      bool  // the key, or a slot, may be free, and was not tried
	shared    bool  // the attempt is the first in line, and shared holders are in its way
	unnoticed bool  // shared holders or waiters are before it, so that no hand-over may be
	rev       int64 // of that knowledge
}

// advance claims the key if it is free, or held by a suspected holder, and the attempt
// is first in line. It leaves the line with that, so that no release hands it the key
// again.
func (a *attempt) advance() txn.Request {
	st := a.s.c.store
	mine, line, end := a.place(), st.layout.waiting(a.lineKey()), a.lastBefore()
	cmps := append(a.cmps(), clientv3.Compare(clientv3.CreateRevision(mine), "=", a.queued))
	switch {
	case a.shared != nil && a.shared.first:
	case a.shared != nil: // no exclusive caller is before it: the condition below fails for an empty range
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(line).WithRange(end), "=", 0))
	default:
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(line).WithRange(end), ">", a.queued-1))
	}
	leave := []clientv3.Op{clientv3.OpDelete(mine)}
	if a.suspected != nil {
		leave = append(leave, a.suspected.notify(st))
	}
	return txn.Request{
		Key:    a.sharedKey(),
		Also:   a.concerned(),
		Beside: a.beside(),
		In: a.take(
			cmps,
			leave,
			append(a.readOps(),
				clientv3.OpGet(mine),
				clientv3.OpGet(line, append(clientv3.WithLastCreate(), clientv3.WithRange(end), clientv3.WithMaxCreateRev(a.queued-1), clientv3.WithKeysOnly())...)),
		),
	}
}

// see reads from the reply to an advance the attempt's position in line. lost is true
// if its place was removed.
func (a *attempt) see(resp *clientv3.TxnResponse) (p position, lost bool, err error) {
	v := a.snapshot(resp)
	st := a.s.c.store
	if err := st.learnEpoch(v.epoch, v.rev); err != nil {
		return p, false, err
	}
	n := len(resp.Responses)
	if !a.readsRecord() {
		v.refused = v.own == nil
	} else if err := a.judgeState(&v); err != nil {
		return p, false, err
	}
	if a.granted = a.taken(v.own); a.granted > 0 {
		a.handed()
		return position{rev: v.rev}, false, nil
	}
	mine := resp.Responses[n-2].GetResponseRange().Kvs
	if len(mine) == 0 {
		return p, true, nil // perhaps it was handed the key, which was taken away again
	}
	queued, epoch := a.queued, a.epoch
	a.queued, a.epoch = mine[0].CreateRevision, st.epoch.Load()
	a.describe()
	if queued != a.queued || !epoch.Is(a.epoch) {
		// The request that took the place was carried out twice, or the epoch was raised:
		// this one could not succeed, and may have read the attempt's own place as the
		// one before it.
		return position{next: true, rev: v.rev}, false, nil
	}
	p = position{own: v.own, rev: v.rev}
	if kvs := resp.Responses[n-1].GetResponseRange().Kvs; len(kvs) > 0 {
		p.pred = kvs[0]
	}
	if a.shared != nil && p.pred == nil && !a.shared.first {
		a.shared.first, p.next = true, p.own == nil
	}
	p.next = p.next || p.own == nil && !v.refused
	p.shared = p.pred == nil && isShared(p.own)
	p.unnoticed = isShared(p.own) || p.pred != nil && strings.HasPrefix(string(p.pred.Key), st.layout.waiting(a.lineKey())+sharedPlace)
	if p.own == nil && p.pred == nil {
		if a.put != nil && a.opts.beside.Changed(v.beside) {
			a.describe()
			return p, false, nil
		}
		if len(a.opts.cmps) > 0 && v.refused {
			return p, false, fmt.Errorf("%w: acquiring %q", ErrRefused, a.key)
		}
	}
	return p, false, nil
}

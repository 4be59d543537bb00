package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// attempt is one try to claim a key. It has an id of its own, and so a value that no
// other claim has. If its reply is lost, it can be read back, and made void if it may
// still arrive.
type attempt struct {
	id         string
	key        string
	value      string
	slots      *slots   // nil: none; otherwise key is that of the slot tried
	shared     *sharing // nil: it is exclusive; otherwise key is one of its own
	s          *session
	epoch      *txn.Epoch
	since      time.Time // by the wall clock, for people
	ttl        int64     // of the session's lease, in seconds
	opts       *acquireOptions
	put        *beside.Put // what it puts under the key beside it, or nil
	overtakes  bool        // the last holder of that has died
	supersedes *term       // the own term that it supersedes, or nil
	suspected  *suspected  // the holder that it takes the key from, or nil
	forbidden  bool        // etcd does not permit that
	with       []*attempt  // claim other keys in the same transaction

	turnOver func() // ends its turn to put the record of a shared key

	ticket   string // what its requests went under, see txn.Request
	queued   int64  // CreateRevision of its place in line, 0 if it never had one
	enqueues bool   // whether a place in line may have been put
	unsure   bool   // whether a request may still arrive
	answered bool   // its unknown outcome was resolved, so no request of it arrives any more
	granted  int64  // revision at which a releaser handed it the key, or 0
	noticed  bool   // it was handed the key, or may have been, by a notice
	line     line   // the waiters behind it, as far as known

	hooked context.Context // for the hooks, or nil
	trace  string          // what the holder that handed it the key has passed on
}

// newAttempt begins an attempt, which its caller ends with unregister.
func (c *Client) newAttempt(s *session, key string, o *acquireOptions) *attempt {
	a := &attempt{id: uuid.NewString(), key: key, s: s, epoch: c.store.epoch.Load(), since: c.clock.Time(), opts: o, hooked: o.hooked, turnOver: func() {}}
	if o.slots != nil {
		own := *o.slots
		a.slots, a.key = &own, own.held()
	}
	if o.shared != nil {
		own := *o.shared
		if own.epoch != a.epoch.Value {
			own.rev, own.epoch = 0, a.epoch.Value
		}
		a.shared, a.key = &own, sharedKey(key, a.id)
	}
	a.ticket, a.ttl = a.id, int64(s.lease.Load().ttl/time.Second)
	a.describe()
	c.keys.register(a.id)
	return a
}

// copied returns the attempt as it is now, for a cleanup that runs beside it.
func (a *attempt) copied() *attempt {
	now := *a
	if a.slots != nil {
		own := *a.slots
		now.slots = &own
	}
	if a.shared != nil {
		own := *a.shared
		now.shared = &own
	}
	return &now
}

// number is the number of the attempt, of what has a key beside the claim.
func (a *attempt) number() int {
	if a.put == nil {
		return 0
	}
	return a.put.Number
}

// describe makes the value of the claim, and that of the key beside it.
func (a *attempt) describe() {
	if a.opts.beside != nil {
		a.put = a.opts.beside.Put(beside.Attempt{Claim: a.id, Epoch: a.epoch.Value, Since: a.since})
	}
	a.value = a.s.c.claimValue(a)
}

// cmps returns the conditions of the attempt, except that the line is empty.
func (a *attempt) cmps() []clientv3.Cmp {
	st := a.s.c.store
	own := st.layout.own(a.key)
	cmps := make([]clientv3.Cmp, 0, 6+len(a.opts.cmps))
	switch {
	case a.supersedes != nil:
		cmps = append(cmps, a.supersedes.guard()...)
	case a.suspected != nil:
		cmps = append(cmps, a.suspected.unanswered(own)...)
	default:
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(own), "=", 0))
	}
	cmps = append(cmps, st.epochIs(a.epoch), a.notVoid())
	if a.readsRecord() {
		cmps = append(cmps, clientv3.FromCompare(a.recorded(st.layout)))
	}
	if a.put != nil {
		cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(a.put.Key), "=", a.opts.beside.Rev()))
	}
	return append(cmps, a.opts.cmps...)
}

// notVoid keeps a request that was given up from succeeding when it arrives
// late.
func (a *attempt) notVoid() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(a.s.c.store.layout.void(a.id)), "=", 0)
}

// nobodyInLine is the condition under which a newcomer may take a free key.
func (c *Client) nobodyInLine(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(c.store.layout.waiting(key)).WithPrefix(), "=", 0)
}

// take is the transaction that claims the key if the conditions hold, with what the
// caller adds and then more; or else does els.
func (a *attempt) take(cmps []clientv3.Cmp, more, els []clientv3.Op) *pb.TxnRequest {
	in := txn.Of(cmps, append(slices.Clip(a.opts.ops), more...), els)
	in.Success = append(a.taking(), in.Success...)
	return in
}

// taking claims the key.
func (a *attempt) taking() []*pb.RequestOp {
	l := a.s.c.store.layout
	ops := make([]*pb.RequestOp, 0, 3)
	if record := a.putsRecord(); record != "" {
		ops = append(ops, txn.Put([]byte(l.own(a.asked())), record, clientv3.NoLease))
	}
	ops = append(ops, txn.Put([]byte(l.own(a.key)), a.value, a.s.id))
	switch note := []byte(l.note(a.key)); {
	case a.opts.note != nil:
		ops = append(ops, txn.Put(note, newNote(1, a.opts.note), a.s.id))
	case a.supersedes != nil, a.suspected != nil:
		ops = append(ops, txn.Delete(note))
	}
	if a.put != nil {
		ops = append(ops, txn.Put([]byte(a.put.Key), a.put.Value, a.put.Lease))
	}
	return ops
}

// hasKey is the condition that the attempt succeeded, whatever became of its
// reply.
func (a *attempt) hasKey() []clientv3.Cmp {
	own := a.s.c.store.layout.own(a.key)
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.Value(own), "=", a.value),
		clientv3.Compare(clientv3.LeaseValue(own), "=", int64(a.s.id)),
	}
}

// failed finds out why takeOnce failed, from its reply or, if that is not enough, by
// another read. It returns the revision at which the attempt has the key after
// all, or an error that is nil if another attempt makes sense.
func (a *attempt) failed(ctx context.Context, resp *clientv3.TxnResponse) (rev int64, err error) {
	if a.readsRecord() {
		return a.recordRefused(ctx, a.snapshot(resp))
	}
	c := a.s.c
	own := resp.Responses[0].GetResponseRange().Kvs
	if len(own) > 0 {
		if rev := a.mine(own[0]); rev > 0 {
			return rev, nil
		}
	}
	switch {
	case a.supersedes != nil && !a.supersedes.judge(own):
		if len(own) == 0 {
			return 0, nil // free
		}
		fallthrough
	case a.supersedes == nil && len(own) > 0:
		return 0, a.heldBy(ctx, own[0])
	}
	if a.put != nil && a.opts.beside.Changed(firstKV(resp, 1)) {
		return 0, nil
	}
	look, err := c.store.Send(ctx, txn.Request{Until: a.opts.until, In: txn.Then(a.readOps()...)})
	if err != nil {
		if isPassing(err) {
			return 0, nil
		}
		return 0, txn.Failed(err)
	}
	v := a.snapshot(look)
	if rev := a.mine(v.own); rev > 0 {
		return rev, nil
	}
	if a.supersedes != nil && !a.supersedes.judgeEpoch(v.epoch) && v.own != nil {
		return 0, c.held(c.info(a.key, v.own, nil, v.waiting))
	}
	return 0, a.verdict(v)
}

// takeOnce is the request of a TryAcquire.
func (a *attempt) takeOnce() txn.Request {
	if a.sharedKey() != "" && a.supersedes == nil {
		r := a.takeIfFree()
		r.Until = a.opts.until
		if a.opts.ask != nil {
			r.Departed = &a.opts.ask.departed
		}
		return r
	}
	cmps := a.cmps()
	if a.supersedes == nil {
		cmps = append(cmps, a.nobodyBefore())
	}
	// The second branch is sent with every attempt, so it reads only what explains
	// most failures.
	els := []clientv3.Op{clientv3.OpGet(a.s.c.store.layout.own(a.key))}
	if a.put != nil {
		els = append(els, clientv3.OpGet(a.put.Key))
	}
	if a.readsRecord() {
		els = a.readOps()
	}
	return txn.Request{Key: a.sharedKey(), Also: a.concerned(), Until: a.opts.until, In: a.take(cmps, nil, els)}
}

// takeIfFree is the usual form of takeOnce.
func (a *attempt) takeIfFree() txn.Request {
	l := a.s.c.store.layout
	own := []byte(l.own(a.key))
	in := &pb.TxnRequest{
		Compare: append(make([]*pb.Compare, 0, 3), txn.CreatedAt(own, 0), txn.NoneIn(l.waiting(a.lineKey()), a.lastBefore())),
		Success: a.taking(),
		Failure: append(make([]*pb.RequestOp, 0, 2), txn.Get(own)),
	}
	if a.readsRecord() {
		in.Compare = append(in.Compare, a.recorded(l))
		in.Failure = txn.Then(a.readOps()...).Success
	}
	if a.put != nil {
		name := []byte(a.put.Key)
		in.Compare = append(in.Compare, txn.ModifiedAt(name, a.opts.beside.Rev()))
		in.Failure = append(in.Failure, txn.Get(name))
	}
	if len(a.opts.cmps)+len(a.opts.ops) > 0 {
		more := txn.Of(a.opts.cmps, a.opts.ops, nil)
		in.Compare, in.Success = append(in.Compare, more.Compare...), append(in.Success, more.Success...)
	}
	a.ticket = a.id // not that of a round trip before
	return txn.Request{Key: a.lineKey(), Also: a.concerned(), Beside: a.beside(), In: in, Ticket: &a.ticket, TicketLease: a.s.id, Epoch: a.epoch}
}

// sharedKey names the key if it is known what else the attempt's requests concern.
func (a *attempt) sharedKey() string {
	if len(a.opts.cmps)+len(a.opts.ops) > 0 && a.opts.concern == nil {
		return ""
	}
	return a.lineKey()
}

// concerned is what a request with the caller's operations concerns beside its key.
func (a *attempt) concerned() []string { return append(a.alsoKeys(), a.opts.concern...) }

// mine returns the revision at which the attempt itself has the key, or 0: a
// request can be carried out twice on the way, and see itself the second time.
func (a *attempt) mine(own *mvccpb.KeyValue) int64 {
	if own == nil || own.Lease != int64(a.s.id) || string(own.Value) != a.value {
		return 0
	}
	return own.ModRevision
}

// send carries out a request of the attempt, resolving an unknown outcome. It
// returns the reply, or with a nil one the revision at which the lost request
// succeeded, 0 if it did not.
func (a *attempt) send(ctx context.Context, r txn.Request) (*clientv3.TxnResponse, int64, error) {
	resp, err := a.s.c.store.Do(ctx, r)
	if err == nil {
		return resp, 0, nil
	}
	if !errors.Is(err, ErrUnknown) {
		return nil, 0, err
	}
	a.doubt(err)
	resolving, cancel := ctx, context.CancelFunc(func() {})
	if !a.enqueues { // a call that does not wait in line has a time limit
		until := a.opts.until
		if until.IsZero() {
			until = clock.Mono().Add(a.s.c.bound())
		}
		resolving, cancel = context.WithDeadline(ctx, until)
	}
	rev, rerr := a.resolve(resolving)
	cancel()
	if rerr != nil {
		a.undo()
		if errors.Is(rerr, err) {
			return nil, 0, rerr
		}
		return nil, 0, fmt.Errorf("%w; it is undone in the background (%w)", err, txn.Failed(rerr))
	}
	if rev == 0 && a.answered {
		return nil, 0, txn.Failed(err)
	}
	if rev == 0 && a.put != nil {
		a.undo() // the claim may have come and gone, and what it put beside it would stay
	}
	return nil, rev, nil
}

// leaseGone handles an answer that a lease does not exist: true means that another
// attempt, on other leases, makes sense.
func (a *attempt) leaseGone(ctx context.Context, err error) bool {
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return false
	}
	return a.s.gone(ctx, err, len(a.opts.ops) > 0 || a.put != nil) || a.put != nil && a.opts.beside.LeaseGone(a.put, err)
}

// doubt notes that the outcome of a request is unknown. Others that wait for its
// answer need not wait until that is resolved.
func (a *attempt) doubt(err error) {
	if a.opts.ask != nil {
		a.s.c.asks.answer(a.opts.ask, func() verdict { return verdict{again: true, err: txn.Failed(err)} })
	}
	a.unsure, a.answered = true, errors.Is(err, rpctypes.ErrNoSpace)
}

package etcdclaims

import (
	"context"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/internal/wire"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A key that is shared has a record in the place of its claim. The first shared holder
// puts it, and the last one deletes it. Each holder has a key of its own beside it. So
// an exclusive claim, which requires that there is no claim, excludes all of them, and
// they exclude it, with no further condition. Both kinds of callers are in one line.
//
// The ModRevision of the record is the fence of all shared holders: it is greater than
// that of the exclusive claim before, and less than that of the next. The guard of a
// shared holder is its own key and the record.
//
// If the last holders die, the record remains. The next caller that it refuses deletes the
// record, on the condition that no holder is left.

const (
	kindShared   = "shared" // of the record
	sharedSuffix = keyspace.SharedSuffix
)

// sharing is the record of a shared key, as a call or a term knows it.
type sharing struct {
	key string // that is shared
	rev int64  // ModRevision of the record; 0: there is none, and the next claim puts it

	epoch int64 // of the record: under another it is no use
	stale int64 // the newest revision that was found not to be the record's any more

	first bool // no exclusive caller is before the attempt in line; later ones are behind it
}

// Shared claims the key together with all other callers that use Shared. A call without
// Shared is exclusive: it waits until no shared holder is left. So the key is a lock for
// many readers or one writer.
//
// Both kinds of callers wait in one line, first come first served. A caller with Shared
// waits behind the exclusive callers that are before it in line. So a stream of callers of
// one kind does not keep the other kind out.
// Callers with Shared that are next to each other in line get the key at the same time.
//
// All that share the key at the same time have the same fence. It is greater than the fence
// of each exclusive claim before, and less than that of each one after. So a gate refuses a
// shared holder once it has admitted a later exclusive holder. The fence does not
// distinguish a shared holder that has lost its claim from those that remain. Until an
// exclusive holder has come, only [Claim.Txn], [Claim.Guard] and [Claim.Owns] refuse it.
//
// [Claim.Key] and [Claim.Token] name the key. In List each shared claim has a key of its
// own; see SharedPrefix. The key must not be longer than 980 bytes.
//
// Shared excludes Reentrant, Supersede and Slots. A release does not hand the key over to a
// caller with Shared: it frees the key, and the first in line claims it by another request.
//
// If the last shared holders die, or end with MinHold, a small record of the key remains.
// The next caller for the key deletes it when no holder is left. Until then List shows the
// record, with the Kind "shared". So do not use Shared together with MinHold for ever new
// keys. Programs built with an earlier version find a shared key held, and do not delete
// such a record.
func Shared() AcquireOption {
	return acquireOption{setter: func(o *acquireOptions) { o.shared = &sharing{} }}
}

// of makes the record that of the key.
func (s *sharing) of(key string) error {
	s.key = key
	return validKey(sharedKey(key, strings.Repeat("0", 36))) // the length of a UUID
}

// SharedPrefix returns the prefix of the keys under which List shows the claims that
// share key.
func SharedPrefix(key string) string { return key + sharedSuffix }

func sharedKey(key, claim string) string { return key + sharedSuffix + claim }

// sharers is what the keys of all shared claims of a key begin with.
func (l layout) sharers(key string) string { return l.own(key + sharedSuffix) }

// sharedEnd is the first etcd key after those of all shared claims of a key. Between
// the key itself and them there may be keys of others.
func (l layout) sharedEnd(key string) string { return rangeEnd(l.sharers(key)) }

// recorded is the condition that the record is as it is known.
func (s *sharing) recorded(l layout) *pb.Compare {
	if s.rev == 0 {
		return txn.CreatedAt([]byte(l.own(s.key)), 0)
	}
	return txn.ModifiedAt([]byte(l.own(s.key)), s.rev)
}

// sharedRecord is the value of the record that the attempt puts, if there is none.
func (a *attempt) sharedRecord() string {
	return holder{Kind: kindShared, Epoch: a.epoch.Value}.encode()
}

// isShared reports whether the value in the place of a claim is the record of a shared
// key.
func isShared(own *mvccpb.KeyValue) bool {
	if own == nil || own.Lease != int64(clientv3.NoLease) {
		return false
	}
	h, err := decodeHolder(own.Value)
	return err == nil && h.Kind == kindShared
}

// judgeShared judges what readOps read. It makes v.own the attempt's own claim or the
// key that excludes it, or nil if the key can be shared. It also learns of the record.
// A record of another epoch excludes it: its holders have lost their claims, and may
// still be at work.
func (a *attempt) judgeShared(v *snapshot) {
	if a.mine(v.own) > 0 {
		return
	}
	s, before := a.shared, a.shared.rev
	s.rev, s.epoch = 0, a.s.c.store.epoch.Load().Value // which the reply has shown
	switch {
	case v.own != nil: // another client's, under an id that is random
	case v.record != nil && isShared(v.record) && s.ofEpoch(v.record):
		s.rev = v.record.ModRevision
	default:
		v.own = v.record
	}
	if before != s.rev {
		s.stale = max(s.stale, before)
	}
	v.refused = v.own == nil && s.rev == before
	o := a.opts.shared // for the call's next attempt
	o.rev, o.epoch, o.stale = s.rev, s.epoch, s.stale
}

// ofEpoch reports whether a record was put under the epoch.
func (s *sharing) ofEpoch(record *mvccpb.KeyValue) bool {
	h, err := decodeHolder(record.Value)
	return err == nil && h.Epoch == s.epoch
}

// guess makes the record the one that claims of this client share, if there are any. So
// the first request for the key need not be refused.
func (s *sharing) guess(c *Client) {
	epoch := c.store.epoch.Load().Value
	if rev := c.keys.sharedRev(s.key, epoch); s.rev == 0 && rev > s.stale {
		s.rev, s.epoch = rev, epoch
	}
}

// clears deletes the record if the claim, which is at own and is being deleted, is the
// last one. The conditions of the two name the claim and the record.
func (s *sharing) clears(l layout, claim, record *pb.Compare) *pb.RequestOp {
	claim.Key, claim.RangeEnd = []byte(l.sharers(s.key)), []byte(l.sharedEnd(s.key))
	record.Key = []byte(l.own(s.key))
	return txn.Nest(&pb.TxnRequest{Compare: []*pb.Compare{claim, record}, Success: []*pb.RequestOp{txn.Delete(record.Key)}})
}

// leavesShared counts who is left. If no other claim of this client shares the key, it also
// deletes the record if the term is the last one: etcd reads all shared claims for that.
func (t *term) leavesShared() (ops []*pb.RequestOp) {
	l := t.s.c.store.layout
	if t.s.c.keys.sharedBy(t.shared.key) <= 1 {
		ops = append(ops, t.shared.clears(l, txn.ValueIs(nil, t.value), txn.ModifiedAt(nil, t.shared.rev)))
	}
	count := txn.Range(l.sharers(t.shared.key))
	count.GetRequestRange().CountOnly = true
	return append(ops, count)
}

// clearsRecord reports whether leavesShared made the request delete the record.
func clearsRecord(leaving *pb.TxnRequest) bool {
	return slices.ContainsFunc(leaving.Success, func(op *pb.RequestOp) bool { return op.GetRequestTxn() != nil })
}

// clearLeft deletes the record in the background if the release did not do that, and
// its reply shows that no holder is left.
func (t *term) clearLeft(resp *clientv3.TxnResponse) {
	n := len(resp.Responses)
	if t.shared == nil || n == 0 || resp.Responses[n-1].GetResponseRange() == nil || resp.Responses[n-1].GetResponseRange().Count > 0 {
		return
	}
	c := t.s.c
	c.keys.forgetRecord(t.shared)
	if n > 1 && resp.Responses[n-2].GetResponseTxn().GetSucceeded() {
		return
	}
	record := &mvccpb.KeyValue{Key: []byte(c.store.layout.own(t.shared.key)), ModRevision: t.shared.rev}
	c.cleanUp(t.s, "deleting the record of a shared key", func(ctx context.Context) error {
		_, err := c.clearShared(ctx, t.shared.key, record)
		return err
	})
}

// heldBy returns the error of a call that own excludes, which i describes.
// Nil means that own was the record of a key without shared holders, and may be gone: to
// try again makes sense.
func (c *Client) heldBy(ctx context.Context, own *mvccpb.KeyValue, i Info) error {
	if !isShared(own) {
		return c.held(i)
	}
	n, err := c.clearShared(ctx, i.Key, own)
	switch {
	case err != nil && !isPassing(err):
		return txn.Failed(err)
	case err != nil || n == 0:
		return nil
	}
	i.Shared = n
	return c.held(i)
}

// advanceInTurn sends an advance.
func (a *attempt) advanceInTurn(ctx context.Context) (resp *clientv3.TxnResponse, rev int64, err error) {
	if a.shared == nil {
		return a.send(ctx, a.advance())
	}
	a.turnOver = a.s.c.knowRecord(ctx, a.s, a.shared)
	resp, rev, err = a.send(ctx, a.advance())
	if rev == 0 && (err != nil || resp == nil || !resp.Succeeded) {
		a.turnOver()
	}
	return resp, rev, err
}

// knowRecord learns the record of a shared key from other callers of the client. Callers
// that would all put the record do so one after the other, until one is known to have put
// it. The others then share round trips. The caller calls known when it has its answer.
func (c *Client) knowRecord(ctx context.Context, s *session, of *sharing) (known func()) {
	if of.guess(c); of.rev != 0 {
		return func() {}
	}
	known = c.local.askInTurn(ctx, s, of.key+sharedSuffix)
	if of.guess(c); of.rev != 0 {
		known()
	}
	return known
}

// withoutShared returns the position of the first in line once the record of a key without
// shared holders is gone, or else the position as it is.
func (a *attempt) withoutShared(ctx context.Context, p position) (position, error) {
	n, err := a.s.c.clearShared(ctx, a.asked(), p.own)
	switch {
	case err != nil && !isPassing(err):
		return p, txn.Failed(err)
	case err == nil && n == 0:
		return position{next: true}, nil
	}
	return p, nil
}

// clearsShared is clears for an attempt that is undone.
func (a *attempt) clearsShared() clientv3.Op {
	l, record := a.s.c.store.layout, txn.ValueIs(nil, a.sharedRecord())
	if a.shared.rev != 0 {
		record = txn.ModifiedAt(nil, a.shared.rev)
	}
	_, ops, _ := wire.Operations(&pb.TxnRequest{Success: []*pb.RequestOp{a.shared.clears(l, txn.ValueIs(nil, a.value), record)}})
	return ops[0]
}

// clearShared deletes the record of a shared key whose holders are all gone. It returns
// how many are not. Without an error and with 0, the record is not as it was: it makes
// sense to look again.
func (c *Client) clearShared(ctx context.Context, key string, record *mvccpb.KeyValue) (holders int64, err error) {
	l := c.store.layout
	count := txn.Range(l.sharers(key))
	count.GetRequestRange().CountOnly = true
	resp, err := c.store.Send(ctx, txn.Request{Key: key, In: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.ModifiedAt(record.Key, record.ModRevision), txn.NoneUnder(l.sharers(key))},
		Success: []*pb.RequestOp{txn.Delete(record.Key)},
		Failure: []*pb.RequestOp{count},
	}})
	if err != nil || resp.Succeeded {
		return 0, err
	}
	return resp.Responses[0].GetResponseRange().Count, nil
}

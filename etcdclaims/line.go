package etcdclaims

import (
	"strings"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The line for a key is the keys under wait/<digest>/, in the order of their
// creation. The holder of the key is not in it.
//
// A releaser hands the key to the first in line. In one transaction it puts the claim
// with the value and on the lease of the waiter, deletes the waiter's place, and puts a
// notice for the waiter. So no place is handed the key twice.
//
// The notice contains the next places, so that the new owner can release without
// reading them: new places are only added at the end, and a hand-over to a waiter that
// has left is refused. A waiter whose claim needs more than that (a record of work,
// conditions) takes the key itself when the place before its own is gone.

// kindSelf marks the place of a waiter that serves itself.
const kindSelf = "self"

// readAhead is how many places a releaser reads: the first, and those that the notice
// to the first contains.
const readAhead = 8

// line is what a holder knows about the waiters behind it.
type line struct {
	known bool    // that there is, or was, a line
	next  []place // the first in it
	more  bool    // there are, or may be, further places behind those
}

// unread is the line behind a new owner that got the key without a notice.
var unread = line{known: true, more: true}

// readLineOps reads the term's claim and its line; lineIn takes the line from the
// reply.
func (t *term) readLineOps() []*pb.RequestOp {
	l := t.s.c.store.layout
	first := txn.Range(l.waiting(t.lineKey()))
	r := first.GetRequestRange()
	r.SortTarget, r.SortOrder = pb.RangeRequest_CREATE, pb.RangeRequest_ASCEND
	if !t.prefers { // else any of them may be the next
		r.Limit = readAhead
	}
	ops := []*pb.RequestOp{txn.Get([]byte(l.own(t.key))), txn.Get(t.s.c.store.epochKey), first}
	if t.slots != nil {
		ops = append(ops, txn.Get([]byte(l.own(t.slots.key))))
	}
	return ops
}

// readLine is readLineOps as a request of its own.
func (t *term) readLine() txn.Request {
	return txn.Request{In: &pb.TxnRequest{Success: t.readLineOps()}}
}

func (t *term) lineIn(resp *clientv3.TxnResponse) line {
	if t.slots != nil {
		t.slots.learn(firstKV(resp, 3))
	}
	r := resp.Responses[2].GetResponseRange()
	waiting, first := t.s.c.store.layout.waiting(t.lineKey()), r.Kvs
	if t.prefers {
		first = mostPreferred(first)
	}
	l := line{known: true, next: make([]place, len(first)), more: r.Count > int64(len(first))}
	for i, kv := range first {
		l.next[i] = placeOf(kv, waiting)
	}
	return l
}

// placeOf returns the place in line of a key. Everything after the line's prefix is its
// ID, even if another program put the key, without an attempt.
func placeOf(kv *mvccpb.KeyValue, waiting string) place {
	return place{ID: strings.TrimPrefix(string(kv.Key), waiting), Rev: kv.ModRevision, Lease: kv.Lease, Value: string(kv.Value)}
}

// pass is the request that hands the key to the first in line, or frees it if the line
// is empty. If the line has changed, the request is refused, and reads the line if
// there probably is one. to names the attempt that gets the key, if any.
func (t *term) pass(l line) (r txn.Request, to string) {
	if t.surplus() || t.shared != nil {
		return t.free(), ""
	}
	in := t.leaving()
	if l.known {
		in.Failure = t.readLineOps()
	}
	layout := t.s.c.store.layout
	if len(l.next) == 0 {
		in.Compare = append(in.Compare, txn.NoneUnder(layout.waiting(t.lineKey())))
		return txn.Request{Key: t.lineKey(), Urgent: true, In: in}, ""
	}
	first := l.next[0]
	name := []byte(layout.waiter(t.lineKey(), first.ID))
	in.Compare = append(in.Compare, txn.ModifiedAt(name, first.Rev))
	h, err := decodeHolder([]byte(first.Value))
	if err != nil || h.Kind == kindSelf || h.Claim != first.ID || h.Epoch != t.fence>>epochShift || first.Lease == 0 {
		return txn.Request{Key: t.lineKey(), Urgent: true, In: in}, "" // it sees that the key is free
	}
	handedOver := notice{Version: valueVersion, Epoch: t.fence >> epochShift, Rev: t.epoch, Next: l.next[1:], More: l.more, Trace: t.s.c.events.trace(t)}
	if t.slots != nil {
		handedOver.Slot = t.slots.i
		in.Compare = append(in.Compare, t.slots.recorded(layout)) // else this slot may be surplus
	}
	lease := clientv3.LeaseID(first.Lease)
	t.give(in, first.Value, lease)
	in.Success = append(in.Success, txn.Delete(name), txn.Put([]byte(layout.notice(h.Instance, first.ID)), encode(handedOver), lease))
	return txn.Request{Key: t.lineKey(), Urgent: true, In: in}, first.ID
}

// give turns the request that deletes the claim into one that puts another claim in its
// place, under the same epoch.
func (t *term) give(leaving *pb.TxnRequest, value string, lease clientv3.LeaseID) {
	leaving.Compare = append(leaving.Compare, txn.ModifiedAt(t.s.c.store.epochKey, t.epoch))
	leaving.Success[0] = txn.Put(leaving.Compare[0].Key, value, lease)
}

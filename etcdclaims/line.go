package etcdclaims

import (
	"path"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The line for a key is the keys under wait/<digest>/, in the order of their
// creation. Who holds the key is not in it.
//
// A releaser hands the key to the first in line itself: in one transaction it
// puts the claim with the value and on the lease of the waiter, deletes the
// waiter's place, and tells it by a mail. So no place is handed the key twice.
// The mail says who comes next, so that the new owner need not read that when it
// releases in turn: places are only ever added behind, and the hand-over is
// refused if the one that it is for has left. Waiters whose claim takes more
// than that (a record of work, conditions) serve themselves when the one before
// them leaves.

// kindSelf marks the place of a waiter that serves itself.
const kindSelf = "self"

// readAhead is how many in line a releaser reads: the first, and those that the
// first is told of.
const readAhead = 8

// line is what a holder knows of who waits behind it.
type line struct {
	known bool    // that there is, or was, a line
	next  []place // the first in it
	more  bool    // others stand, or may stand, behind those
}

// unread is the line behind who came through it without being told of it.
var unread = line{known: true, more: true}

// nobodyBehind is the condition that the line is empty.
func (t *term) nobodyBehind() clientv3.Cmp { return t.s.c.nobodyInLine(t.key) }

// behindMe reads the first places in line.
func (t *term) behindMe() clientv3.Op {
	return clientv3.OpGet(t.s.c.store.layout.waiting(t.key), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(readAhead))
}

// lookBehind reads how the term and its line stand; lineIn takes the line from
// the reply.
func (t *term) lookBehind() []clientv3.Op { return append(t.sight(), t.behindMe()) }

func lineIn(resp *clientv3.TxnResponse) line {
	r := resp.Responses[2].GetResponseRange()
	l := line{known: true, next: make([]place, len(r.Kvs)), more: r.Count > int64(len(r.Kvs))}
	for i, kv := range r.Kvs {
		l.next[i] = placeOf(kv)
	}
	return l
}

func placeOf(kv *mvccpb.KeyValue) place {
	return place{ID: path.Base(string(kv.Key)), Rev: kv.ModRevision, Lease: kv.Lease, Value: string(kv.Value)}
}

// pass is the request that gives the key up to the line: to the first in it, or
// to nobody if nobody is there. If that has changed it is refused, and reads how
// the line stands, unless there is no reason to expect one. to names the attempt
// that it is handed to, if any.
func (t *term) pass(free request, l line) (r request, to string) {
	r = free
	if l.known {
		r.els = t.lookBehind()
	}
	if len(l.next) == 0 {
		r.cmps = append(r.cmps[:len(r.cmps):len(r.cmps)], t.nobodyBehind())
		return r, ""
	}
	st := t.s.c.store
	first := l.next[0]
	name := st.layout.waiter(t.key, first.ID)
	stands := clientv3.Compare(clientv3.ModRevision(name), "=", first.Rev)
	h, err := decodeHolder([]byte(first.Value))
	if err != nil || h.Kind == kindSelf || h.Epoch != t.fence>>epochShift || first.Lease == 0 {
		r.cmps = append(r.cmps[:len(r.cmps):len(r.cmps)], stands) // it sees that the key is free
		return r, ""
	}
	lease := clientv3.WithLease(clientv3.LeaseID(first.Lease))
	told := encode(mail{Version: valueVersion, Epoch: t.fence >> epochShift, Rev: t.epoch, Next: l.next[1:], More: l.more})
	r.cmps = append(t.guard(), stands)
	r.then = append([]clientv3.Op{
		clientv3.OpPut(st.layout.own(t.key), first.Value, lease),
		clientv3.OpDelete(name),
		clientv3.OpPut(st.layout.won(h.Instance, first.ID), told, lease),
	}, t.leave()[1:]...) // all but the claim itself
	return r, first.ID
}

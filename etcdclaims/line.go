package etcdclaims

import (
	"encoding/json"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The line for a key is the keys under wait/<digest>/, in the order of their
// creation. A waiter that gets the key keeps its place for as long as it holds
// it, so that whoever stands behind it watches one key from the time it joined:
// a watch that begins in etcd's past is served by a loop that runs each 100 ms
// (server/storage/mvcc/watchable_store.go).
//
// A releaser hands the key to the first in line itself. It puts the claim with
// the value and on the lease of the waiter, and tells it by a put to its place,
// all in one transaction; so the event that wakes the waiter is proof of the
// claim, and carries its fence. Waiters whose claim takes more than that (a
// record of work, conditions) serve themselves when the one before them leaves.

// grantValue is what a releaser puts to the place of whom it handed the key to.
type grantValue struct {
	Version int   `json:"v"`
	Granted bool  `json:"granted"`
	Epoch   int64 `json:"epoch,omitempty"`    // under which the fence is
	Rev     int64 `json:"epochRev,omitempty"` // ModRevision of the epoch's key
}

// tookIt is what a waiter puts to its own place when it takes the key itself.
const tookIt = emptyValue

// kindSelf marks the place of a waiter that serves itself.
const kindSelf = "self"

// lastInLine is the condition that nobody stands in line behind the term, and
// for one that has no place in it that nobody does at all.
func (t *term) lastInLine() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(t.s.c.store.layout.waiting(t.key)).WithPrefix(), "<", t.queued+1)
}

// afterMe reads the first places in line. The term's own can be one of them.
func (t *term) afterMe() clientv3.Op {
	return clientv3.OpGet(t.s.c.store.layout.waiting(t.key), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(2))
}

// handOver is the request that gives the key to the first in line, if there is
// one that can be given it.
func (t *term) handOver(line []*mvccpb.KeyValue) (request, bool) {
	st := t.s.c.store
	for _, next := range line {
		if next.CreateRevision == t.queued {
			continue
		}
		h, err := decodeHolder(next.Value)
		if err != nil || h.Kind == kindSelf || h.Epoch != t.fence>>epochShift || next.Lease == 0 || next.ModRevision != next.CreateRevision {
			return request{}, false
		}
		lease := clientv3.WithLease(clientv3.LeaseID(next.Lease))
		told := encode(grantValue{Version: valueVersion, Granted: true, Epoch: t.fence >> epochShift, Rev: t.epoch})
		then := append(t.leave()[1:], // all but the claim itself
			clientv3.OpPut(st.layout.own(t.key), string(next.Value), lease),
			clientv3.OpPut(string(next.Key), told, lease))
		return request{
			key:  t.key,
			cmps: append(t.guard(), clientv3.Compare(clientv3.ModRevision(string(next.Key)), "=", next.ModRevision)),
			then: then,
			els:  append(t.sight(), t.afterMe()),
		}, true
	}
	return request{}, false
}

// told reads a releaser's word from the waiter's own place.
func (a *attempt) told(kv *mvccpb.KeyValue) bool {
	var g grantValue
	if err := json.Unmarshal(kv.Value, &g); err != nil || !g.Granted {
		return false
	}
	a.granted, a.epoch = kv.ModRevision, &epoch{value: g.Epoch, rev: g.Rev}
	return true
}

package tick

import (
	"maps"
	"slices"
	"strconv"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Slots is the directory of the slots of a limit.
func (k Keys) Slots(limit string) string { return k.Now() + "slot/" + keyspace.Digest(limit) + "/" }

// Slot is the key of a slot, which has a number from 0 on. A run of a job whose limit is n has a slot with a
// number below n.
func (k Keys) Slot(limit string, n int) string { return k.Slots(limit) + strconv.Itoa(n) }

// Holder is the value of slot/: the run that has the slot. It is put in the transaction that begins the
// run, and so at the revision of the record of the run. The slot is taken as long as there is a record of that
// revision. So nothing but the record need be removed to free the slot, and a slot cannot be lost before
// the claim of the run. [End] and [Settle] delete the key as well.
type Holder struct {
	Version int    `json:"v"`
	Limit   string `json:"limit"`
	Job     string `json:"job"`
	ID      string `json:"id"` // of the tick
}

// Holder returns the value of a slot that the run has.
func (r Run) Holder(limit string) Holder {
	return Holder{Version: Version, Limit: limit, Job: r.Job, ID: r.ID}
}

// Record is the key of the record of the run.
func (h Holder) Record(k Keys) string { return k.Run(h.Job, h.ID) }

// Slot is a slot that is free, as it was read.
type Slot struct {
	Key   string
	Rev   int64 // 0 if there is no such key
	Value string
	Last  Holder // the decoded value
}

// free are the conditions that the slots are free.
func (k Keys) free(slots []Slot) (all []*pb.Compare) {
	for _, s := range slots {
		all = append(all, txn.ModifiedAt([]byte(s.Key), s.Rev))
		if s.Rev > 0 {
			// After a restore from a backup, another value can have the revision.
			all = append(all, txn.ValueIs([]byte(s.Key), s.Value), txn.NotModifiedAt([]byte(s.Last.Record(k)), s.Rev))
		}
	}
	return all
}

// SlotsOf are the keys of the slots of a run, by the names of the limits, in order.
func (k Keys) SlotsOf(r Run) (limits, keys []string) {
	limits = slices.Sorted(maps.Keys(r.Slots))
	for _, limit := range limits {
		keys = append(keys, k.Slot(limit, r.Slots[limit]))
	}
	return limits, keys
}

// takes are the operations by which a run takes its slots.
func (k Keys) takes(r Run) (ops []*pb.RequestOp) {
	limits, keys := k.SlotsOf(r)
	for i, key := range keys {
		ops = append(ops, txn.Put([]byte(key), Encode(r.Holder(limits[i])), noLease))
	}
	return ops
}

// Frees are the operations that delete the slots of a run whose record has the revision. A slot that another run
// has taken since stays: it can if the key was deleted by hand.
func (k Keys) Frees(r Run, rev int64) (ops []*pb.RequestOp) {
	_, keys := k.SlotsOf(r)
	for _, key := range keys {
		ops = append(ops, txn.Nest(&pb.TxnRequest{
			Compare: []*pb.Compare{txn.ModifiedAt([]byte(key), rev)},
			Success: []*pb.RequestOp{txn.Delete([]byte(key))},
		}))
	}
	return ops
}

// removes are the operations that delete the record of a run, which has the revision, and its slots: these first, so
// that a process which sees a slot that is free also knows of the deletion of its key.
func (k Keys) removes(r Run, rev int64) []*pb.RequestOp {
	return append(k.Frees(r, rev), txn.Delete([]byte(k.Run(r.Job, r.ID))))
}

package tick

import (
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// History is the history of a job as it was last read. Each transaction that adds records also
// reads the oldest ones, so that the next transaction knows which records to delete.
type History struct {
	Limit  int
	Count  int      // the number of records
	Oldest []string // the keys of the oldest of them, in the order of writing
	Before string   // older records are trimmed, too, by the part of their keys that is their time; empty for none
}

// trimAtOnce is how many more records one transaction deletes than it adds. It is also how many of
// the newest records remain at least, up to the limit, if a clock was ahead when others were written.
const trimAtOnce = 64

// mostTrims is how many operations of one transaction trim a history at most. One is enough
// unless clocks differ or records were written at the same time.
const mostTrims = 8

// ReadOldest reads the records to delete next. added is how many the same transaction adds.
func (k Keys) ReadOldest(job string, added int) *pb.RequestOp {
	return ReadOldestOf(k.Records(job), added)
}

// ReadOldestOf is ReadOldest for the job whose records have the prefix.
func ReadOldestOf(prefix string, added int) *pb.RequestOp {
	op := txn.Range(prefix)
	r := op.GetRequestRange()
	r.KeysOnly, r.Limit = true, int64(trimAtOnce+added)
	return op
}

// Record returns the operations that add records, oldest first, and trim the history. Records
// that would be trimmed at once are not written. The history changes only with a reply,
// because these operations may be in a branch that is not taken.
func (h History) Record(k Keys, job string, all ...Past) []*pb.RequestOp {
	all = all[max(0, len(all)-h.Limit):]
	ops, keys := make([]*pb.RequestOp, 0, len(all)+2), make([]string, 0, len(all))
	for _, p := range all {
		p.Version, p.Job = Version, job
		key := k.Entry(job, p)
		ops, keys = append(ops, txn.Put([]byte(key), Encode(p), noLease)), append(keys, key)
	}
	return append(append(ops, h.Trim(keys)...), k.ReadOldest(job, len(all)))
}

// noLease is the lease of keys that stay.
const noLease int64 = 0

// Trim returns the operations that delete the excess records when keys are added. Those that
// were written first go. Where they follow each other in the order of keys, one range deletes
// them, unless a clock was put back, or is behind another, and newer keys are within that range.
func (h History) Trim(keys []string) (ops []*pb.RequestOp) {
	n := min(len(h.Oldest), max(0, h.Count+len(keys)-h.Limit))
	for n < len(h.Oldest) && timeOf(h.Oldest[n]) < h.Before {
		n++
	}
	excess := h.Oldest[:n]
	if len(excess) == 0 {
		return nil
	}
	var run []string
	end := func() {
		switch n := len(run); {
		case n == 0:
		// Other decisions of the same request can add records of the same time.
		case len(keys) == 0 || timeOf(slices.Min(keys)) > timeOf(run[n-1]):
			op := txn.Delete([]byte(run[0]))
			op.GetRequestDeleteRange().RangeEnd = []byte(run[n-1] + "\x00")
			ops = append(ops, op)
		default:
			for _, old := range run {
				if !slices.Contains(keys, old) {
					ops = append(ops, txn.Delete([]byte(old)))
				}
			}
		}
		run = nil
	}
	for _, key := range slices.Sorted(slices.Values(h.Oldest)) {
		if slices.Contains(excess, key) {
			run = append(run, key)
		} else {
			end()
		}
	}
	end()
	return ops[:min(len(ops), mostTrims)]
}

// timeOf returns the part of a record's key that is its time.
func timeOf(key string) string {
	at, _, _ := strings.Cut(key[strings.LastIndexByte(key, '/')+1:], "-")
	return at
}

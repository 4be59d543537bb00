package live

import (
	"cmp"
	"slices"
	"sync"

	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Histories has what a process knows of the records of jobs, to trim them. Each transaction that
// adds records also reads the oldest ones, so that the next transaction knows which to delete.
type Histories struct {
	prefix   int // length of the keys of byPrefix
	mu       sync.Mutex
	byPrefix map[string]*history
	over     map[string]*history // those with more records than their limit
}

type history struct {
	tick.History
	rev int64 // of the last reply
}

// NewHistories returns histories of jobs whose records have prefixes of the length.
func NewHistories(prefix int) *Histories {
	return &Histories{prefix: prefix, byPrefix: make(map[string]*history), over: make(map[string]*history)}
}

// Of returns the history of the records with the prefix, as it is known.
func (h *Histories) Of(prefix string, limit int) tick.History {
	h.mu.Lock()
	defer h.mu.Unlock()
	is := h.byPrefix[prefix]
	if is == nil {
		is = &history{}
		h.byPrefix[prefix] = is
	}
	is.Limit = limit
	return is.History
}

// Len returns how many histories are known.
func (h *Histories) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.byPrefix) + len(h.over)
}

// Forget drops the history of a job that was removed. It is learned anew if it is used again.
func (h *Histories) Forget(prefix string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.byPrefix, prefix)
	delete(h.over, prefix)
}

// ForgetAll drops what was learned before etcd was restored: revisions have begun anew.
func (h *Histories) ForgetAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.byPrefix)
	clear(h.over)
}

// Excess returns the operations that trim the histories with more records than their
// limit, one list per history and at most the given number of lists. A history exceeds its
// limit after a transaction that did not know all its records: the first of a process, or
// one beside another.
func (h *Histories) Excess(most int) (trims [][]*pb.RequestOp) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for prefix := range h.over {
		if len(trims) == most {
			break
		}
		if ops := h.cut(prefix); len(ops) > 0 {
			trims = append(trims, ops)
		}
	}
	return trims
}

// ExcessOf is Excess for one history.
func (h *Histories) ExcessOf(prefix string) []*pb.RequestOp {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cut(prefix)
}

// cut returns the operations that trim a history, if it exceeds its limit. The mutex is held.
func (h *Histories) cut(prefix string) []*pb.RequestOp {
	of := h.over[prefix]
	delete(h.over, prefix)
	if of == nil {
		return nil
	}
	ops := of.Trim(nil)
	if len(ops) == 0 {
		return nil
	}
	return append(ops, tick.ReadOldestOf(prefix, 0))
}

// byCreation orders records as they were written, whatever the clocks were.
func byCreation(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) }

// Learn updates the histories from the reply to a transaction. Of the histories that were read
// together the last has the most records.
func (h *Histories) Learn(reply txn.Reply) {
	for got := range reply.Reads() {
		h.LearnOf(reply.Rev, got)
	}
}

// LearnOf updates a history from the reply to a read of the oldest records. A reply that comes late is of the past.
func (h *Histories) LearnOf(rev int64, got *pb.RangeResponse) {
	if len(got.Kvs) == 0 || len(got.Kvs[0].Key) < h.prefix {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	prefix := string(got.Kvs[0].Key[:h.prefix])
	is := h.byPrefix[prefix]
	if is == nil || !(rev > is.rev || rev == is.rev && int(got.Count) > is.Count) {
		return
	}
	is.rev = rev
	is.Count, is.Oldest = int(got.Count), is.Oldest[:0:0]
	// Of two clocks the one behind writes records whose keys are less than those of before.
	for _, kv := range slices.SortedStableFunc(slices.Values(got.Kvs), byCreation) {
		is.Oldest = append(is.Oldest, string(kv.Key))
	}
	if is.Count > is.Limit {
		h.over[prefix] = is
	} else {
		delete(h.over, prefix)
	}
}

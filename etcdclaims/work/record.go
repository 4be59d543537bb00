package work

import (
	"time"

	"github.com/etcdclaims/claims/internal/record"
	"github.com/etcdclaims/claims/internal/retention"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// State is the state of work.
type State = record.State

// The states of work.
const (
	StateFree     State = record.Free     // given back without an outcome, or after Runner.Retry
	StateClaimed  State = record.Claimed  // held by an owner
	StateOrphaned State = record.Orphaned // claimed, but its key is free: the owner is gone; never stored
	StateFailed   State = record.Failed   // failed; the next attempt may begin at NotBefore
	StateDone     State = record.Done     // completed; kept for Config.Retention
	StateDead     State = record.Dead     // failed for good; kept for Config.DeadRetention

	// StateUnreadable is the state of a record that this version of the
	// package cannot read: a newer version or another program wrote it. It is
	// never stored. Only Key and Error of such a record are set.
	StateUnreadable State = record.Unreadable
)

// Record is what etcd stores about work. It outlives its owners, and is kept
// for Config.Retention or Config.DeadRetention.
type Record struct {
	Key     string
	State   State
	Attempt int // 1 for the first attempt; one that is given back is subtracted again
	// Earlier is the number of attempts before the work was last begun anew,
	// with Again or after Retry. Config.MaxAttempts does not count them.
	Earlier    int
	Fence      int64  // fence of the attempt
	Claim      string // ID of the attempt's claim
	Owner      string // label of the attempt's owner
	Instance   string // client of the attempt's owner
	Begun      time.Time
	Ended      time.Time // zero while claimed
	NotBefore  time.Time // earliest begin of the next attempt, in StateFailed
	Error      string    // error of the last failed attempt, up to 4 KiB; a longer one ends in an ellipsis
	Stack      string    // stack of that attempt's panic, up to 8 KiB; empty if it did not panic
	Result     string    // result of done work, up to 64 KiB; see Work.CompleteWith
	Note       string    // note of the last attempt that was begun with Note
	AtMostOnce bool
}

// decodeRecord returns a record that was read. One that cannot be read is in StateUnreadable.
func decodeRecord(key string, kv *mvccpb.KeyValue) (Record, error) {
	r, err := record.Decode(key, kv)
	return Record(r), err
}

// put stores a record on the lease.
func put(key string, r record.Value, l *retention.Lease) clientv3.Op {
	return clientv3.OpPut(key, r.Encode(), clientv3.WithLease(l.ID()))
}

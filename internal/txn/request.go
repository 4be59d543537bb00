package txn

import (
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Request is one transaction: if all conditions of In hold, its first branch is
// carried out, otherwise its second.
type Request struct {
	// Key is the key that the request concerns. Two requests of one key do not share
	// a round trip, because etcd evaluates all conditions of a round trip before it
	// carries out any operation. A request without a key shares with no other; that is
	// right for operations of a caller, which may concern any key unless the caller has
	// said otherwise; see option.Concern.
	Key  string
	Also []string // further keys that the request concerns
	In   *pb.TxnRequest

	// Ticket makes it possible to void the request: it is carried out only while the
	// void key of its ticket does not exist. Requests that share a round trip, and have
	// the same TicketLease, share a ticket and its condition. The batcher stores into
	// Ticket which ticket the request was sent under.
	Ticket *string
	// TicketLease is the lease that a void of Ticket would be on, and that the request puts
	// its keys on. The void ends with it, and from then on the request would fail anyway.
	TicketLease clientv3.LeaseID
	// Epoch is the only epoch under which the request may be carried out. Requests
	// that share a round trip share that condition too.
	Epoch *Epoch
	// Nested says that the second branch of In changes something too, and that only
	// the request's own conditions may lead to it. The reply is then that of an outer
	// transaction, which contains In and succeeds if ticket and epoch are good.
	Nested bool
	// Open says that the request's conditions may still hold after it was carried out,
	// as those of a caller's own transaction may.
	Open bool
	// Void is put whichever branch is carried out, if not nil. A request with a Void has no
	// Ticket, no Epoch, and is not Nested. Requests that share a round trip, after the one that they shared before was lost, put it once.
	Void *Void

	// Urgent says that the request gives up a key, a place in line, or an attempt. It
	// is sent before requests that ask for keys.
	Urgent bool
	// Beside says what requests of the same key the request may share a round trip with;
	// see with.
	Beside Beside
	// Until is when the caller stops waiting for the request. Zero means never.
	Until time.Time
	// Crowd is the member of a crowd that makes the request, if not nil.
	Crowd *Member
	// Departed is set just before the request is sent, if not nil.
	Departed *atomic.Bool
}

// Beside is a kind of requests of which none depends on the effect of another.
type Beside int8

const (
	// BesideNone is for every other request.
	BesideNone Beside = iota
	// TakesBack is for a request that deletes the keys of one attempt or finds that
	// they do not exist, and does nothing else.
	TakesBack
	// Joins is for a request that puts a key of its own while a record stands, which it
	// does not change.
	Joins
	// Leaves is for a request that deletes such a key.
	Leaves
	// Clears is for a request that deletes such a key, and also the record if there is no
	// other such key.
	Clears
)

// with returns the kind of a round trip that has requests of kind b for a key, after it
// takes one of kind c. It reports whether it may: etcd evaluates all conditions of a round
// trip before it carries out any part of it, so a request that deletes the record would
// not see those that join.
func (b Beside) with(c Beside) (kind Beside, ok bool) {
	switch {
	case b == BesideNone || c == BesideNone:
		return BesideNone, false
	case b == c, b == Leaves && (c == Joins || c == Clears):
		return c, true
	case c == Leaves && (b == Joins || b == Clears):
		return b, true
	}
	return BesideNone, false
}

func (r *Request) depart() {
	if r.Departed != nil {
		r.Departed.Store(true)
	}
}

// Void is a key that voids the requests sent under a ticket. It is on a lease.
type Void struct {
	Ticket string
	Lease  clientv3.LeaseID
}

// VoidValue is the value of a void key. Like every value it has a version.
const VoidValue = `{"v":1}`

// Epoch is the value of the epoch's key, which an operator raises after a restore
// that made revisions go back.
type Epoch struct {
	Value int64
	Rev   int64 // ModRevision of the epoch's key, 0 if it does not exist
	AsOf  int64 // revision at which the key was read
}

// ReadEpoch returns the epoch that was read at a revision from the epoch's key.
func ReadEpoch(kvs []*mvccpb.KeyValue, asOf int64) (*Epoch, error) {
	if len(kvs) == 0 {
		return &Epoch{AsOf: asOf}, nil
	}
	v, err := keyspace.StoredEpoch(kvs[0].Key, kvs[0].Value)
	if err != nil {
		return nil, err
	}
	return &Epoch{Value: v, Rev: kvs[0].ModRevision, AsOf: asOf}, nil
}

// Is reports whether both are the same epoch.
func (e *Epoch) Is(o *Epoch) bool { return e.Value == o.Value && e.Rev == o.Rev }

// Fence returns the fence of a claim that was put at a revision under the epoch.
func (e *Epoch) Fence(rev int64) int64 { return keyspace.Fence(e.Value, rev) }

// width returns how many operations of etcd's limit a transaction takes. A nested
// transaction adds its own, as it does for etcd.
func width(in *pb.TxnRequest) int {
	widest, deepest := max(len(in.Compare), len(in.Success), len(in.Failure)), 0
	for _, ops := range [...][]*pb.RequestOp{in.Success, in.Failure} {
		for _, op := range ops {
			if inner := op.GetRequestTxn(); inner != nil {
				deepest = max(deepest, width(inner))
			}
		}
	}
	return widest + deepest
}

// size returns about how many bytes a transaction takes.
func size(in *pb.TxnRequest) int {
	n := 64
	for _, c := range in.Compare {
		n += len(c.Key) + len(c.GetValue()) + 16
	}
	for _, ops := range [...][]*pb.RequestOp{in.Success, in.Failure} {
		for _, op := range ops {
			switch op := op.Request.(type) {
			case *pb.RequestOp_RequestPut:
				n += len(op.RequestPut.Key) + len(op.RequestPut.Value) + 32
			case *pb.RequestOp_RequestRange:
				n += len(op.RequestRange.Key) + 32
			case *pb.RequestOp_RequestDeleteRange:
				n += len(op.RequestDeleteRange.Key) + 32
			case *pb.RequestOp_RequestTxn:
				n += size(op.RequestTxn)
			}
		}
	}
	return n
}

// severalLeases stands for the lease of a transaction that puts keys on more than
// one.
const severalLeases = -1

// leaseOf returns the lease that a transaction puts keys on, 0 if none.
func leaseOf(in *pb.TxnRequest) int64 {
	lease := int64(0)
	for _, ops := range [...][]*pb.RequestOp{in.Success, in.Failure} {
		for _, op := range ops {
			l := op.GetRequestPut().GetLease()
			if inner := op.GetRequestTxn(); inner != nil {
				l = leaseOf(inner)
			}
			lease = oneLease(lease, l)
		}
	}
	return lease
}

func oneLease(a, b int64) int64 {
	switch {
	case a == 0:
		return b
	case b == 0 || a == b:
		return a
	}
	return severalLeases
}

// LeaseID is the id of a lease, for packages that know no client of etcd.
type LeaseID = clientv3.LeaseID

package etcdclaims

import (
	"context"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// request is one atomic step in etcd: if all of cmps hold then the one list is
// carried out, else the other.
type request struct {
	// key is the user's key that the request is of, and all of it: then it may
	// share a round trip with requests of other keys. It is empty if the request
	// carries what a caller gave.
	key  string
	also []string // further keys of the user's that it is of
	cmps []clientv3.Cmp
	then []clientv3.Op
	els  []clientv3.Op

	// built stands for the three where it is there: clientv3 copies every
	// condition twice on its way, which is much for what is sent most.
	built *pb.TxnRequest

	// With a ticket the request is carried out only while the ticket's key is
	// not there, so that one that was given up can be made void. The store
	// writes into it which ticket the request went under: those that share a
	// round trip share a ticket, and with it the condition.
	ticket *string
	// epoch is the epoch under which alone the request may be carried out, a
	// condition that is shared likewise.
	epoch *epoch
	// nested says that the failing branch changes something, too, which nothing
	// but the conditions of the request's own may lead to: the reply is that of a
	// transaction in which this one stands, and which succeeds if ticket and epoch
	// are good.
	nested bool
	// open says that the conditions may hold still when the request was carried
	// out, as those of a caller's own transaction do.
	open bool
	// void is put beside what the request does, where it is there: those that
	// share a round trip, after they shared one that was lost, put it once.
	void *void

	// urgent says that the request gives up a key, a place in line or an attempt:
	// it goes before those that ask for keys.
	urgent bool
	// takesBack says that the request deletes what is of one attempt, or finds
	// that it is not there, and does nothing else: those of one key may share a
	// round trip, since none can see what another does.
	takesBack bool
	// until is when the caller stops to wait for the request, if not zero.
	until time.Time
	// departed is set when the request leaves, if not nil.
	departed *atomic.Bool
}

// departs notes that the request is about to leave.
func (r *request) departs() {
	if r.departed != nil {
		r.departed.Store(true)
	}
}

// void makes void what went under a ticket.
type void struct {
	ticket string
	lease  clientv3.LeaseID
}

func (s *store) voidOp(v *void) *pb.RequestOp {
	return putOp([]byte(s.layout.void(v.ticket)), emptyValue, v.lease)
}

// op returns the request as a step of another.
func (r request) op() clientv3.Op { return clientv3.OpTxn(r.cmps, r.then, r.els) }

// proto returns the request as it is sent, but for the conditions that come with
// the ticket and the epoch.
func (r request) proto() *pb.TxnRequest {
	if r.built != nil {
		return r.built
	}
	var c capture
	_, _ = clientv3.NewKVFromKVClient(&c, nil).Txn(context.Background()).If(r.cmps...).Then(r.then...).Else(r.els...).Commit()
	return c.in
}

// capture is where clientv3 "sends" a request whose protobuf is wanted: the
// lease of an operation can be had in no other way.
type capture struct {
	pb.KVClient
	in *pb.TxnRequest
}

func (c *capture) Txn(_ context.Context, in *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	c.in = in
	return &pb.TxnResponse{}, nil
}

// width is how many operations of etcd's limit a transaction takes. It counts
// nested transactions with what stands in them, as etcd does.
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

// size is about what a transaction takes in bytes.
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

// severalLeases is what a transaction of more than one is said to be on.
const severalLeases = -1

// leaseOf returns the lease that a transaction puts keys on, if any.
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

// What a request is built of. Each part and what it wraps are allocated together:
// protobuf's messages are many and small.

func createdAt(key []byte, rev int64) *pb.Compare {
	m := &struct {
		pb.Compare
		u pb.Compare_CreateRevision
	}{}
	m.u.CreateRevision = rev
	m.Key, m.Target, m.TargetUnion = key, pb.Compare_CREATE, &m.u
	return &m.Compare
}

// noneUnder is the condition that there is no key with the prefix.
func noneUnder(prefix string) *pb.Compare {
	c := createdAt([]byte(prefix), 0)
	c.RangeEnd = []byte(rangeEnd(prefix))
	return c
}

func modifiedAt(key []byte, rev int64) *pb.Compare {
	m := &struct {
		pb.Compare
		u pb.Compare_ModRevision
	}{}
	m.u.ModRevision = rev
	m.Key, m.Target, m.TargetUnion = key, pb.Compare_MOD, &m.u
	return &m.Compare
}

func onLease(key []byte, id clientv3.LeaseID) *pb.Compare {
	m := &struct {
		pb.Compare
		u pb.Compare_Lease
	}{}
	m.u.Lease = int64(id)
	m.Key, m.Target, m.TargetUnion = key, pb.Compare_LEASE, &m.u
	return &m.Compare
}

func putOp(key []byte, value string, id clientv3.LeaseID) *pb.RequestOp {
	m := &struct {
		pb.RequestOp
		u   pb.RequestOp_RequestPut
		put pb.PutRequest
	}{}
	m.put.Key, m.put.Value, m.put.Lease = key, []byte(value), int64(id)
	m.u.RequestPut = &m.put
	m.Request = &m.u
	return &m.RequestOp
}

func getOp(key []byte) *pb.RequestOp {
	m := &struct {
		pb.RequestOp
		u   pb.RequestOp_RequestRange
		get pb.RangeRequest
	}{}
	m.get.Key = key
	m.u.RequestRange = &m.get
	m.Request = &m.u
	return &m.RequestOp
}

// rangeOp reads what stands under the prefix.
func rangeOp(prefix string) *pb.RequestOp {
	op := getOp([]byte(prefix))
	op.GetRequestRange().RangeEnd = []byte(rangeEnd(prefix))
	return op
}

func deleteOp(key []byte) *pb.RequestOp {
	m := &struct {
		pb.RequestOp
		u   pb.RequestOp_RequestDeleteRange
		del pb.DeleteRangeRequest
	}{}
	m.del.Key = key
	m.u.RequestDeleteRange = &m.del
	m.Request = &m.u
	return &m.RequestOp
}

func txnOp(in *pb.TxnRequest) *pb.RequestOp {
	m := &struct {
		pb.RequestOp
		u pb.RequestOp_RequestTxn
	}{}
	m.u.RequestTxn = in
	m.Request = &m.u
	return &m.RequestOp
}

// throughKV sends a transaction by a KV of the caller's own, such as one of a
// namespace, which takes nothing but operations of clientv3. It knows what the
// package itself builds.
func throughKV(ctx context.Context, kv clientv3.KV, in *pb.TxnRequest) (*clientv3.TxnResponse, error) {
	cmps, then, els := operations(in)
	return kv.Txn(ctx).If(cmps...).Then(then...).Else(els...).Commit()
}

func operations(in *pb.TxnRequest) (cmps []clientv3.Cmp, then, els []clientv3.Op) {
	for _, c := range in.Compare {
		cmps = append(cmps, clientv3.FromCompare(c))
	}
	for _, op := range in.Success {
		then = append(then, operation(op))
	}
	for _, op := range in.Failure {
		els = append(els, operation(op))
	}
	return cmps, then, els
}

func operation(op *pb.RequestOp) clientv3.Op {
	switch op := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		p := op.RequestPut
		return clientv3.OpPut(string(p.Key), string(p.Value), clientv3.WithLease(clientv3.LeaseID(p.Lease)))
	case *pb.RequestOp_RequestDeleteRange:
		d := op.RequestDeleteRange
		return clientv3.OpDelete(string(d.Key), clientv3.WithRange(string(d.RangeEnd)))
	case *pb.RequestOp_RequestTxn:
		return clientv3.OpTxn(operations(op.RequestTxn))
	}
	r := op.GetRequestRange()
	opts := []clientv3.OpOption{
		clientv3.WithRange(string(r.RangeEnd)), clientv3.WithLimit(r.Limit),
		clientv3.WithSort(clientv3.SortTarget(r.SortTarget), clientv3.SortOrder(r.SortOrder)),
		clientv3.WithMaxCreateRev(r.MaxCreateRevision), clientv3.WithMinModRev(r.MinModRevision),
	}
	if r.KeysOnly {
		opts = append(opts, clientv3.WithKeysOnly())
	}
	if r.CountOnly {
		opts = append(opts, clientv3.WithCountOnly())
	}
	return clientv3.OpGet(string(r.Key), opts...)
}

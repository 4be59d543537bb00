package etcdmodel_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// A step is one request to etcd, or a lease that expires.
type step struct {
	name    string
	id, n   int64         // of a lease: its id and TTL; of a compaction: its revision
	request proto.Message // of txn, range and watch
}

func (s step) String() string {
	if s.request != nil {
		return s.name + " " + prototext.MarshalOptions{}.Format(s.request)
	}
	return fmt.Sprintf("%s %d %d", s.name, s.id, s.n)
}

// parts returns the step with one condition or operation less, or one nested transaction alone.
func (s step) parts() (all []step) {
	in, ok := s.request.(*pb.TxnRequest)
	if !ok {
		return nil
	}
	variant := func(change func(*pb.TxnRequest)) {
		less := proto.Clone(in).(*pb.TxnRequest)
		change(less)
		all = append(all, step{name: s.name, request: less})
	}
	for i := range in.Compare {
		variant(func(r *pb.TxnRequest) { r.Compare = slices.Delete(r.Compare, i, i+1) })
	}
	for i, op := range in.Success {
		variant(func(r *pb.TxnRequest) { r.Success = slices.Delete(r.Success, i, i+1) })
		if inner := op.GetRequestTxn(); inner != nil {
			all = append(all, step{name: s.name, request: inner})
		}
	}
	for i, op := range in.Failure {
		variant(func(r *pb.TxnRequest) { r.Failure = slices.Delete(r.Failure, i, i+1) })
		if inner := op.GetRequestTxn(); inner != nil {
			all = append(all, step{name: s.name, request: inner})
		}
	}
	return all
}

// apply carries out a step in the model.
func (s step) apply(m etcdmodel.State) (next etcdmodel.State, reply any, err error) {
	switch s.name {
	case "txn":
		return m.Txn(s.request.(*pb.TxnRequest))
	case "range":
		resp, err := m.Range(s.request.(*pb.RangeRequest))
		return m, resp, err
	case "watch":
		events, err := m.Events(s.request.(*pb.WatchCreateRequest))
		return m, &pb.WatchResponse{Events: events}, err
	case "grant":
		next, err = m.Grant(s.id)
		return next, &pb.LeaseGrantResponse{Header: header(next), ID: s.id, TTL: s.n}, err
	case "renew":
		r := &pb.LeaseKeepAliveResponse{ID: s.id}
		if m.Lives(s.id) {
			r.TTL = alive
		}
		return m, r, nil
	case "revoke", "expire":
		next, err = m.Revoke(s.id)
		return next, &pb.LeaseRevokeResponse{Header: header(next)}, err
	}
	return m.Compact(s.n), &pb.CompactionResponse{Header: header(m)}, nil
}

// alive stands for the TTL of a lease that is there.
const alive = 1

func header(m etcdmodel.State) *pb.ResponseHeader { return &pb.ResponseHeader{Revision: m.Revision()} }

// Leases with this TTL expire when a step says so. There is one at most, so that the order in which
// etcd ends leases is no matter. All others live for ever.
const (
	soon    = 60
	forever = 1_000_000
)

// Leases have ids from 1 to this.
const lastLease = 7

// A source generates random steps. It reads the model so that more of them concern existing keys.
type source struct {
	*rand.Rand
	m     etcdmodel.State
	least int64 // the last compaction
	dying int64 // the lease that may expire
}

// steps returns the steps of a seed.
func steps(seed uint64, n int) (all []step) {
	s := &source{Rand: rand.New(rand.NewPCG(seed, 0)), m: etcdmodel.New(1)}
	for range n {
		st := s.step()
		s.m, _, _ = st.apply(s.m)
		all = append(all, st)
	}
	return all
}

// valid reports whether a test may take the steps: at most one lease can expire, and does so when a
// step says so, and each compaction goes on from the last one.
func valid(all []step) bool {
	m, dying, least := etcdmodel.New(1), int64(0), int64(0)
	for _, s := range all {
		next, _, err := s.apply(m)
		switch {
		case s.name == "grant" && s.n == soon:
			if err != nil || dying != 0 {
				return false
			}
			dying = s.id
		case s.name == "expire" && s.id != dying, s.name == "compact" && (s.n <= least || s.n > m.Revision()):
			return false
		case s.name == "watch" && s.request.(*pb.WatchCreateRequest).StartRevision == least:
			return false
		case s.name == "expire", s.name == "revoke" && s.id == dying:
			dying = 0
		case s.name == "compact":
			least = s.n
		}
		m = next
	}
	return true
}

func (s *source) one(in int) bool { return s.IntN(in) == 0 }

func (s *source) step() step {
	switch s.IntN(50) {
	case 0, 1, 2, 3:
		return step{name: "range", request: s.read()}
	case 4, 5:
		id, ttl := s.leaseID(), int64(forever)
		if s.dying == 0 && !s.m.Lives(id) && s.one(2) {
			s.dying, ttl = id, soon
		}
		return step{name: "grant", id: id, n: ttl}
	case 6, 7:
		id := s.leaseID()
		if s.dying != 0 && s.one(2) {
			id, s.dying = s.dying, 0
			return step{name: "expire", id: id}
		}
		if id == s.dying {
			s.dying = 0
		}
		return step{name: "revoke", id: id}
	case 8:
		return step{name: "renew", id: s.leaseID()}
	case 9:
		if n := s.rev(); s.least < n && n <= s.m.Revision() {
			s.least = n
			return step{name: "compact", n: n}
		}
	case 10, 11:
		return step{name: "watch", request: s.watch()}
	case 12:
		put := ofPut(&pb.PutRequest{Key: s.key()})
		return step{name: "txn", request: &pb.TxnRequest{Success: []*pb.RequestOp{put, put}}}
	}
	return step{name: "txn", request: s.txn(2)}
}

func (s *source) leaseID() int64 { return 1 + s.Int64N(lastLease) }

// rev returns a revision, which may be compacted or ahead.
func (s *source) rev() int64 {
	if s.one(6) {
		return max(0, s.least-1+s.Int64N(2))
	}
	return max(0, s.m.Revision()+1-s.Int64N(8))
}

func (s *source) key() []byte {
	if s.one(3) {
		return []byte{'a' + byte(s.IntN(20))}
	}
	return []byte{'a' + byte(s.IntN(5))}
}

func (s *source) end(first []byte, some int) []byte {
	switch {
	case !s.one(some):
		return nil
	case s.one(4):
		return []byte{0}
	case s.one(3):
		return append(slices.Clone(first), 0)
	}
	return []byte{'a' + byte(s.IntN(24))}
}

func (s *source) value() []byte { return []byte([]string{"", "1", "2", "22"}[s.IntN(4)]) }

func ofRange(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

func ofTxn(r *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
}

func ofPut(r *pb.PutRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
}

func (s *source) txn(depth int) *pb.TxnRequest {
	in := &pb.TxnRequest{}
	for range s.IntN(3) {
		in.Compare = append(in.Compare, s.compare())
	}
	in.Success, in.Failure = s.ops(depth, 1+s.IntN(3)), s.ops(depth, s.IntN(3))
	return in
}

// ops returns operations that change no key twice, whatever conditions hold.
func (s *source) ops(depth, n int) (ops []*pb.RequestOp) {
	for range 3 * n {
		if more := append(slices.Clip(ops), s.op(depth)); len(ops) < n && !twice(more) {
			ops = more
		}
	}
	return ops
}

func (s *source) op(depth int) *pb.RequestOp {
	switch n := s.IntN(10); {
	case n < 4:
		return ofPut(s.put())
	case n < 6:
		del := &pb.DeleteRangeRequest{Key: s.key()}
		del.RangeEnd = s.end(del.Key, 3)
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: del}}
	case n < 8 && depth > 0:
		return ofTxn(s.txn(depth - 1))
	}
	r := s.read()
	r.Revision = min(r.Revision, s.m.Revision()) // the model does not refuse to read what the transaction itself puts
	return ofRange(r)
}

// span is what an operation puts or deletes.
type span struct {
	first, end string
	put        bool
}

func (a span) meets(b span) bool {
	before := func(first string, s span) bool {
		return s.end == "\x00" || first < s.end || s.end == "" && first == s.first
	}
	return (a.put || b.put) && (a.first >= b.first && before(a.first, b) || b.first >= a.first && before(b.first, a))
}

// twice reports whether operations may put a key twice, or put and delete it.
func twice(ops []*pb.RequestOp) bool {
	var all []span
	for _, op := range ops {
		one := spans(op)
		for _, a := range one {
			if slices.ContainsFunc(all, a.meets) {
				return true
			}
		}
		all = append(all, one...)
	}
	return false
}

// spans returns what an operation may change, in either branch of a nested transaction.
func spans(op *pb.RequestOp) (all []span) {
	switch o := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		all = append(all, span{first: string(o.RequestPut.Key), put: true})
	case *pb.RequestOp_RequestDeleteRange:
		all = append(all, span{first: string(o.RequestDeleteRange.Key), end: string(o.RequestDeleteRange.RangeEnd)})
	case *pb.RequestOp_RequestTxn:
		for _, inner := range slices.Concat(o.RequestTxn.Success, o.RequestTxn.Failure) {
			all = append(all, spans(inner)...)
		}
	}
	return all
}

func (s *source) put() *pb.PutRequest {
	put := &pb.PutRequest{Key: s.key(), Value: s.value()}
	if s.one(2) {
		put.Lease = s.leaseID()
		for range 5 {
			if !s.m.Lives(put.Lease) && !s.one(8) {
				put.Lease = s.leaseID()
			}
		}
	}
	return put
}

func (s *source) read() *pb.RangeRequest {
	r := &pb.RangeRequest{Key: s.key(), KeysOnly: s.one(5), CountOnly: s.one(8), Serializable: s.one(3)}
	if r.RangeEnd = s.end(r.Key, 1); s.one(3) {
		r.RangeEnd = nil
	}
	if s.one(3) {
		r.Revision = s.rev()
	}
	if s.one(3) {
		r.Limit = s.Int64N(5)
	}
	if s.one(2) {
		r.SortTarget = []pb.RangeRequest_SortTarget{pb.RangeRequest_KEY, pb.RangeRequest_CREATE}[s.IntN(2)]
		r.SortOrder = pb.RangeRequest_SortOrder(1 + s.IntN(2))
	}
	if s.one(8) {
		r.MinModRevision = s.rev()
	}
	if s.one(8) {
		r.MaxCreateRevision = s.rev()
	}
	return r
}

// targets are what conditions may name.
var targets = []pb.Compare_CompareTarget{pb.Compare_CREATE, pb.Compare_MOD, pb.Compare_VALUE, pb.Compare_LEASE}

// compare mostly compares with what is there.
func (s *source) compare() *pb.Compare {
	c := &pb.Compare{Key: s.key(), Result: pb.Compare_CompareResult(s.IntN(4))}
	c.Target, c.RangeEnd = targets[s.IntN(len(targets))], s.end(c.Key, 4)
	near := s.Int64N(3) - 1
	n, m, l := near, near, near
	if k := s.m.Get(string(c.Key)); k.Modified > 0 {
		n, m, l = k.Created+near, k.Modified+near, k.Lease+near
	}
	switch c.Target {
	case pb.Compare_CREATE:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: n}
	case pb.Compare_MOD:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: m}
	case pb.Compare_LEASE:
		c.TargetUnion = &pb.Compare_Lease{Lease: l}
	default:
		c.TargetUnion = &pb.Compare_Value{Value: s.value()}
	}
	return c
}

// watch returns a watch of a key or a range that is not empty, which etcd would refuse.
func (s *source) watch() *pb.WatchCreateRequest {
	w := &pb.WatchCreateRequest{Key: []byte{'a' + byte(s.IntN(5))}, StartRevision: max(1, s.rev())}
	if end := s.end(w.Key, 1); string(end) == "\x00" || string(end) > string(w.Key) {
		w.RangeEnd = end
	}
	if s.one(2) {
		w.Key, w.RangeEnd, w.StartRevision = []byte("a"), []byte{0}, s.least+1
	}
	if w.StartRevision == s.least {
		w.StartRevision++ // etcd would still have the events of that revision
	}
	return w
}

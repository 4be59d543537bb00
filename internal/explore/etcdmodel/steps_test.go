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
		return reply3(m.Txn(s.request.(*pb.TxnRequest)))
	case "range":
		resp, err := m.Range(s.request.(*pb.RangeRequest))
		return m, resp, err
	case "watch":
		events, err := m.Events(s.request.(*pb.WatchCreateRequest))
		return m, &pb.WatchResponse{Events: events}, err
	case "grant":
		return reply3(m.Grant(s.id, s.n))
	case "renew":
		return m, &pb.LeaseKeepAliveResponse{ID: s.id, TTL: m.KeepAlive(s.id)}, nil
	case "revoke", "expire":
		return reply3(m.Revoke(s.id))
	}
	next, err = m.Compact(s.n)
	return next, &pb.CompactionResponse{Header: &pb.ResponseHeader{Revision: m.Revision()}}, err
}

func reply3[T any](next etcdmodel.State, resp T, err error) (etcdmodel.State, any, error) {
	return next, resp, err
}

// Leases with this TTL expire when a step says so. There is one at most, so that the order in which
// etcd ends leases is no matter. All others live for ever.
const (
	soon    = 60
	forever = 1_000_000
)

// A source generates random steps. It reads the model so that more of them concern existing keys.
type source struct {
	*rand.Rand
	m     etcdmodel.State
	least int64 // the last compaction
	dying int64 // the lease that may expire
	used  map[string]bool
	brief bool // it does so next
	torn  map[int64]bool
}

// steps returns the steps of a seed.
func steps(seed uint64, n int) (all []step) {
	s := &source{Rand: rand.New(rand.NewPCG(seed, 0)), m: etcdmodel.New(1), torn: map[int64]bool{}}
	for range n {
		s.used = map[string]bool{}
		st := s.step()
		s.m, _, _ = st.apply(s.m)
		s.torn[s.m.Revision()] = s.torn[s.m.Revision()] || sweeps(st.request)
		all = append(all, st)
	}
	return all
}

// sweeps reports whether a transaction deletes up to the last key. etcd does not see that such a
// deletion covers a put of the same transaction. If the put comes later, and etcd is compacted at
// the revision of both, it forgets the value, and dies when the key is read. No test compacts there.
func sweeps(request proto.Message) bool {
	in, ok := request.(*pb.TxnRequest)
	return ok && slices.ContainsFunc(slices.Concat(in.Success, in.Failure), func(op *pb.RequestOp) bool {
		inner := op.GetRequestTxn()
		return string(op.GetRequestDeleteRange().GetRangeEnd()) == "\x00" || inner != nil && sweeps(inner)
	})
}

// valid reports whether a test may take the steps: at most one lease can expire, and does so when a
// step says so, and no compaction is where etcd loses a value.
func valid(all []step) bool {
	m, dying, torn := etcdmodel.New(1), int64(0), map[int64]bool{}
	for i, s := range all {
		next, _, err := s.apply(m)
		switch {
		case s.name == "grant" && s.n <= soon:
			if err != nil || dying != 0 || s.n < soon && i+1 < len(all) && all[i+1].name != "expire" {
				return false
			}
			dying = s.id
		case s.name == "expire" && s.id != dying, s.name == "compact" && torn[s.n]:
			return false
		case s.name == "expire", s.name == "revoke" && s.id == dying:
			dying = 0
		}
		m = next
		torn[m.Revision()] = torn[m.Revision()] || sweeps(s.request)
	}
	return true
}

func (s *source) one(in int) bool { return s.IntN(in) == 0 }

func (s *source) step() step {
	if s.brief {
		id := s.dying
		s.brief, s.dying = false, 0
		return step{name: "expire", id: id}
	}
	switch s.IntN(50) {
	case 0, 1, 2, 3:
		return step{name: "range", request: s.read()}
	case 4, 5:
		id, ttl := s.leaseID(), int64(forever)
		switch free := !slices.Contains(s.m.Leases(), id); {
		case s.one(3):
			ttl = 9_000_000_000 + s.Int64N(2) // the longest, or one second more
		case s.dying == 0 && free && s.one(10):
			s.dying, s.brief, ttl = id, true, 1 // etcd makes it longer
		case s.dying == 0 && free && s.one(2):
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
		n := s.rev()
		for s.torn[n] {
			n--
		}
		if s.least < n && n <= s.m.Revision() {
			s.least = n
		}
		return step{name: "compact", n: n}
	case 10, 11:
		return step{name: "watch", request: s.watch()}
	}
	return step{name: "txn", request: s.txn(2)}
}

func (s *source) leaseID() int64 { return 1 + s.Int64N(7) }

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

func (s *source) txn(depth int) *pb.TxnRequest {
	in := &pb.TxnRequest{}
	for range s.IntN(3) {
		in.Compare = append(in.Compare, s.compare())
	}
	for range 1 + s.IntN(3) {
		in.Success = append(in.Success, s.op(depth))
	}
	for range s.IntN(3) {
		in.Failure = append(in.Failure, s.op(depth))
	}
	return in
}

func (s *source) op(depth int) *pb.RequestOp {
	switch n := s.IntN(10); {
	case n < 4:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: s.put()}}
	case n < 6:
		del := &pb.DeleteRangeRequest{Key: s.key(), PrevKv: s.one(2)}
		del.RangeEnd = s.end(del.Key, 3)
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: del}}
	case n < 8 && depth > 0:
		return ofTxn(s.txn(depth - 1))
	}
	return ofRange(s.read())
}

// put mostly takes a key that the transaction does not put yet.
func (s *source) put() *pb.PutRequest {
	put := &pb.PutRequest{Key: s.key(), Value: s.value(), PrevKv: s.one(3)}
	for range 5 {
		if s.used[string(put.Key)] && !s.one(20) {
			put.Key = s.key()
		}
	}
	s.used[string(put.Key)] = true
	if s.one(2) {
		put.Lease = s.leaseID()
		if all := s.m.Leases(); len(all) > 0 && !s.one(8) {
			put.Lease = all[s.IntN(len(all))]
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
		r.SortTarget, r.SortOrder = pb.RangeRequest_SortTarget(s.IntN(5)), pb.RangeRequest_SortOrder(s.IntN(3))
	}
	for _, bound := range []*int64{&r.MinModRevision, &r.MaxModRevision, &r.MinCreateRevision, &r.MaxCreateRevision} {
		if s.one(10) {
			*bound = s.rev()
		}
	}
	return r
}

// compare mostly compares with what is there.
func (s *source) compare() *pb.Compare {
	c := &pb.Compare{Key: s.key(), Result: pb.Compare_CompareResult(s.IntN(4))}
	c.Target, c.RangeEnd = pb.Compare_CompareTarget(s.IntN(5)), s.end(c.Key, 4)
	near := s.Int64N(3) - 1
	v, n, m, l := near, near, near, near
	if resp, err := s.m.Range(&pb.RangeRequest{Key: c.Key}); err == nil && len(resp.Kvs) > 0 {
		kv := resp.Kvs[0]
		v, n, m, l = kv.Version+near, kv.CreateRevision+near, kv.ModRevision+near, kv.Lease+near
	}
	switch c.Target {
	case pb.Compare_VERSION:
		c.TargetUnion = &pb.Compare_Version{Version: v}
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
	w := &pb.WatchCreateRequest{Key: []byte{'a' + byte(s.IntN(5))}, StartRevision: s.rev(), PrevKv: s.one(2)}
	if end := s.end(w.Key, 1); string(end) == "\x00" || string(end) > string(w.Key) {
		w.RangeEnd = end
	}
	if s.one(2) {
		w.Key, w.RangeEnd, w.StartRevision = []byte("a"), []byte{0}, s.least
	}
	if s.one(4) {
		w.Filters = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_FilterType(s.IntN(2))}
	}
	return w
}

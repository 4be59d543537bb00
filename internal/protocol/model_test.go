package protocol_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// model is the keys of an etcd, and carries out transactions as etcd does.
type model struct {
	tb   testing.TB
	rev  int64
	keys map[string]*mvccpb.KeyValue
	past map[int64]map[string]*mvccpb.KeyValue // by revision
	send *txn.Batcher
	fate fate // of the next transaction
	late []*pb.TxnRequest
}

// fate is what becomes of a transaction on its way.
type fate int

const (
	arrives    fate = iota
	loses           // it does not arrive
	losesReply      // it is carried out, and its reply does not arrive
	comesLate       // it is carried out when the test calls arrive
	comesTwice      // it is carried out, and once more before its reply is sent
	losesBoth       // the same, and its reply does not arrive
)

func newModel(tb testing.TB) *model {
	tb.Helper()
	m := &model{tb: tb, rev: 100, keys: make(map[string]*mvccpb.KeyValue), past: make(map[int64]map[string]*mvccpb.KeyValue)}
	m.send = txn.NewBatcher(txn.Config{
		IO: context.Background(), Timeout: time.Second, EpochKey: []byte(layout.Epoch()), VoidKey: layout.Void, Ops: 128, Bytes: 1 << 20,
		Send: func(_ context.Context, in *pb.TxnRequest, _ time.Duration) (*clientv3.TxnResponse, error) {
			f := m.fate
			m.fate = arrives
			switch f {
			case loses:
				return nil, txn.ErrUnknown
			case comesLate:
				m.late = append(m.late, in)
				return nil, txn.ErrUnknown
			case losesReply:
				m.do(in)
				return nil, txn.ErrUnknown
			case comesTwice:
				m.do(in)
			case losesBoth:
				m.do(in)
				m.do(in)
				return nil, txn.ErrUnknown
			}
			return (*clientv3.TxnResponse)(m.do(in)), nil
		},
	})
	return m
}

// request carries out a request of the protocol. It returns nil if the reply is lost.
func (m *model) request(r txn.Request) *pb.TxnResponse {
	m.tb.Helper()
	resp, err := m.send.Send(context.Background(), r)
	if err != nil {
		return nil
	}
	return (*pb.TxnResponse)(resp)
}

// arrive carries out what was on its way.
func (m *model) arrive() {
	for _, in := range m.late {
		m.do(in)
	}
	m.late = nil
}

// do carries out a transaction. As in etcd, the conditions of nested transactions are evaluated
// before any operation.
func (m *model) do(in *pb.TxnRequest) *pb.TxnResponse {
	before := m.rev
	m.rev++
	changed := false
	resp := m.run(m.plan(in), &changed)
	if !changed {
		m.rev = before
	}
	m.past[m.rev] = maps.Clone(m.keys)
	resp.Header = &pb.ResponseHeader{Revision: m.rev}
	return resp
}

// plan is a transaction whose conditions were evaluated.
type plan struct {
	succeeded bool
	ops       []*pb.RequestOp
	nested    map[int]*plan
}

func (m *model) plan(in *pb.TxnRequest) *plan {
	p := &plan{succeeded: !slices.ContainsFunc(in.Compare, func(c *pb.Compare) bool { return !m.holds(c) }), nested: make(map[int]*plan)}
	if p.ops = in.Failure; p.succeeded {
		p.ops = in.Success
	}
	for i, op := range p.ops {
		if inner := op.GetRequestTxn(); inner != nil {
			p.nested[i] = m.plan(inner)
		}
	}
	return p
}

func (m *model) run(p *plan, changed *bool) *pb.TxnResponse {
	resp := &pb.TxnResponse{Succeeded: p.succeeded}
	for i, op := range p.ops {
		switch o := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			put := o.RequestPut
			kv := &mvccpb.KeyValue{Key: put.Key, Value: put.Value, Lease: put.Lease, ModRevision: m.rev, CreateRevision: m.rev}
			if old := m.keys[string(put.Key)]; old != nil {
				kv.CreateRevision = old.CreateRevision
			}
			m.keys[string(put.Key)], *changed = kv, true
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}})
		case *pb.RequestOp_RequestDeleteRange:
			for _, kv := range between(m.keys, o.RequestDeleteRange.Key, o.RequestDeleteRange.RangeEnd) {
				delete(m.keys, string(kv.Key))
				*changed = true
			}
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{}}})
		case *pb.RequestOp_RequestRange:
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: m.get(o.RequestRange)}})
		case *pb.RequestOp_RequestTxn:
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: m.run(p.nested[i], changed)}})
		}
	}
	return resp
}

// between returns those of some keys that are in a range, in their order.
func between(keys map[string]*mvccpb.KeyValue, first, end []byte) (kvs []*mvccpb.KeyValue) {
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		switch {
		case len(end) == 0 && name == string(first), len(end) > 0 && name >= string(first) && (name < string(end) || string(end) == "\x00"):
			kvs = append(kvs, keys[name])
		}
	}
	return kvs
}

func (m *model) get(r *pb.RangeRequest) *pb.RangeResponse {
	keys := m.keys
	if r.Revision > 0 {
		keys = m.past[r.Revision]
	}
	kvs := slices.DeleteFunc(between(keys, r.Key, r.RangeEnd), func(kv *mvccpb.KeyValue) bool {
		return r.MaxCreateRevision > 0 && kv.CreateRevision > r.MaxCreateRevision || r.MinModRevision > kv.ModRevision
	})
	if r.SortTarget == pb.RangeRequest_CREATE {
		sort.SliceStable(kvs, func(i, j int) bool { return kvs[i].CreateRevision < kvs[j].CreateRevision })
		if r.SortOrder == pb.RangeRequest_DESCEND {
			slices.Reverse(kvs)
		}
	}
	resp := &pb.RangeResponse{Count: int64(len(kvs))}
	if r.CountOnly {
		return resp
	}
	if r.Limit > 0 {
		kvs = kvs[:min(len(kvs), int(r.Limit))]
	}
	for _, kv := range kvs {
		one := &mvccpb.KeyValue{Key: kv.Key, Value: kv.Value, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Lease: kv.Lease}
		if r.KeysOnly {
			one.Value = nil
		}
		resp.Kvs = append(resp.Kvs, one)
	}
	return resp
}

// holds evaluates a condition: for each key of a range, and for one that does not exist as if all
// its revisions were 0.
func (m *model) holds(c *pb.Compare) bool {
	kvs := between(m.keys, c.Key, c.RangeEnd)
	if len(kvs) == 0 {
		if c.Target == pb.Compare_VALUE {
			return false // nil values are not compared
		}
		kvs = []*mvccpb.KeyValue{{}}
	}
	return !slices.ContainsFunc(kvs, func(kv *mvccpb.KeyValue) bool { return !holdsFor(c, kv) })
}

func holdsFor(c *pb.Compare, kv *mvccpb.KeyValue) bool {
	n := 0
	switch c.Target {
	case pb.Compare_CREATE:
		n = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case pb.Compare_MOD:
		n = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case pb.Compare_LEASE:
		n = cmp.Compare(kv.Lease, c.GetLease())
	case pb.Compare_VALUE:
		n = strings.Compare(string(kv.Value), string(c.GetValue()))
	default:
		panic(fmt.Sprint("a condition on ", c.Target))
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return n == 0
	case pb.Compare_NOT_EQUAL:
		return n != 0
	case pb.Compare_GREATER:
		return n > 0
	}
	return n < 0
}

// end deletes the keys on a lease.
func (m *model) end(lease int64) {
	m.rev++
	maps.DeleteFunc(m.keys, func(_ string, kv *mvccpb.KeyValue) bool { return kv.Lease == lease })
	m.past[m.rev] = maps.Clone(m.keys)
}

// put puts a key.
func (m *model) put(name, value string, lease int64) int64 {
	m.do(&pb.TxnRequest{Success: []*pb.RequestOp{txn.Put([]byte(name), value, lease)}})
	return m.rev
}

func (m *model) remove(name string) {
	m.do(&pb.TxnRequest{Success: []*pb.RequestOp{txn.Delete([]byte(name))}})
}

// names lists the keys of claims, lines, notes, notices and records, shortened.
func (m *model) names() string {
	var all []string
	for name := range m.keys {
		short := strings.TrimPrefix(name, layout.Prefix)
		if parts := strings.Split(short, "/"); parts[0] == "wait" {
			short = "wait/" + parts[2]
		}
		if !strings.HasPrefix(short, "void/") && short != "epoch" {
			all = append(all, short)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

var layout = protocol.Layout{Prefix: "/p/", Instance: "i"}

// caller is who tries for a key.
type caller struct {
	*model
	protocol.Try
}

// caller returns one with an id, which is also its lease's.
func (m *model) caller(id string, mode protocol.Mode, epoch *txn.Epoch) *caller {
	lease := int64(0)
	for _, c := range id {
		lease = lease<<8 + int64(c)
	}
	value := protocol.Holder{Claim: id, Owner: id, Instance: "i", Epoch: epoch.Value}.Encode()
	return &caller{model: m, Try: protocol.Try{
		Layout: layout, Mode: mode.For(id, epoch.Value), ID: id, Value: value, PlaceValue: value, Lease: lease, Epoch: epoch,
	}}
}

var noEpoch = &txn.Epoch{}

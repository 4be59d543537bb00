// Package memetcd is etcd in memory, for tests of what needs no server: its keys, how transactions change them, and a
// client that asks it. No lease ends by itself.
package memetcd

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Model is the keys of an etcd, and carries out transactions as etcd does.
type Model struct {
	Rev  int64
	Keys map[string]*mvccpb.KeyValue
	past map[int64]map[string]*mvccpb.KeyValue // by revision
}

// New returns an etcd without keys.
func New() *Model {
	return &Model{Rev: 100, Keys: make(map[string]*mvccpb.KeyValue), past: make(map[int64]map[string]*mvccpb.KeyValue)}
}

// Do carries out a transaction. As in etcd, the conditions of nested transactions are evaluated
// before any operation.
func (m *Model) Do(in *pb.TxnRequest) *pb.TxnResponse {
	before := m.Rev
	m.Rev++
	changed := false
	resp := m.run(m.plan(in), &changed)
	if !changed {
		m.Rev = before
	}
	m.past[m.Rev] = maps.Clone(m.Keys)
	resp.Header = &pb.ResponseHeader{Revision: m.Rev}
	return resp
}

// plan is a transaction whose conditions were evaluated.
type plan struct {
	succeeded bool
	ops       []*pb.RequestOp
	nested    map[int]*plan
}

func (m *Model) plan(in *pb.TxnRequest) *plan {
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

func (m *Model) run(p *plan, changed *bool) *pb.TxnResponse {
	resp := &pb.TxnResponse{Succeeded: p.succeeded}
	for i, op := range p.ops {
		switch o := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			put := o.RequestPut
			kv := &mvccpb.KeyValue{Key: put.Key, Value: put.Value, Lease: put.Lease, ModRevision: m.Rev, CreateRevision: m.Rev}
			if old := m.Keys[string(put.Key)]; old != nil {
				kv.CreateRevision = old.CreateRevision
			}
			m.Keys[string(put.Key)], *changed = kv, true
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}})
		case *pb.RequestOp_RequestDeleteRange:
			for _, kv := range between(m.Keys, o.RequestDeleteRange.Key, o.RequestDeleteRange.RangeEnd) {
				delete(m.Keys, string(kv.Key))
				*changed = true
			}
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{}}})
		case *pb.RequestOp_RequestRange:
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: m.Get(o.RequestRange)}})
		case *pb.RequestOp_RequestTxn:
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: m.run(p.nested[i], changed)}})
		}
	}
	return resp
}

// between returns those of some keys that are in a range, in their order. Without an end it has one key.
func between(keys map[string]*mvccpb.KeyValue, first, end []byte) (kvs []*mvccpb.KeyValue) {
	if len(end) == 0 {
		if kv := keys[string(first)]; kv != nil {
			kvs = append(kvs, kv)
		}
		return kvs
	}
	for name, kv := range keys {
		if name >= string(first) && (name < string(end) || string(end) == "\x00") {
			kvs = append(kvs, kv)
		}
	}
	slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	return kvs
}

// Get carries out a read.
func (m *Model) Get(r *pb.RangeRequest) *pb.RangeResponse {
	keys := m.Keys
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
	if r.Limit > 0 && len(kvs) > int(r.Limit) {
		kvs, resp.More = kvs[:r.Limit], true
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
func (m *Model) holds(c *pb.Compare) bool {
	kvs := between(m.Keys, c.Key, c.RangeEnd)
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

// End deletes the keys on a lease.
func (m *Model) End(lease int64) {
	m.Rev++
	maps.DeleteFunc(m.Keys, func(_ string, kv *mvccpb.KeyValue) bool { return kv.Lease == lease })
	m.past[m.Rev] = maps.Clone(m.Keys)
}

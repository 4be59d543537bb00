package item

import (
	"cmp"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Head reads what a claimer must know: the first items that are visible, and those that may be.
type Head struct {
	Keys
	Ready     int    // how many visible items are read at most
	ReadyFrom string // from which key on; "" is all
	ReadyEnd  string // up to which key; "" is all
	Far       int    // if not 0, the key behind so many visible items is looked for
	Later     int    // the same of later items
	LaterFrom string
	LaterEnd  string
	Limited   bool // the queue has slots
}

// Build returns the operations.
func (s Head) Build() []*pb.RequestOp {
	part := func(n int, prefix, from, end string) *pb.RequestOp {
		return first(n, cmp.Or(from, prefix), cmp.Or(end, keyspace.RangeEnd(prefix)))
	}
	ops := []*pb.RequestOp{
		part(s.Ready, s.Keys.Ready(), s.ReadyFrom, s.ReadyEnd), part(s.Later, s.Keys.Later(), s.LaterFrom, s.LaterEnd),
		get(s.Paused()),
	}
	if s.Limited {
		ops = append(ops, keysOnly(txn.Range(s.Slots())))
	}
	if s.Far > 0 {
		ops = append(ops, keysOnly(part(s.Far, s.Keys.Ready(), s.ReadyFrom, s.ReadyEnd)))
	}
	return ops
}

// Front is what a Head has read.
type Front struct {
	Rev          int64
	Ready, Later *pb.RangeResponse
	Paused       *mvccpb.KeyValue // nil if the queue is not paused
	Used         map[int]bool     // slots, nil if the queue has none
	Far          string           // "" if there are not so many
}

// Judge takes the reply apart.
func (s Head) Judge(resp *pb.TxnResponse) Front {
	f := Front{
		Rev:   resp.Header.GetRevision(),
		Ready: resp.Responses[0].GetResponseRange(), Later: resp.Responses[1].GetResponseRange(),
	}
	for _, kv := range kvs(resp, 2) {
		f.Paused = kv
	}
	if s.Limited {
		f.Used = map[int]bool{}
		for _, kv := range kvs(resp, 3) {
			f.Used[s.SlotOf(string(kv.Key))] = true
		}
	}
	if all := kvs(resp, len(resp.Responses)-1); s.Far > 0 && len(all) == s.Far {
		f.Far = string(all[s.Far-1].Key) + "\x00"
	}
	return f
}

package item

import (
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Head reads what a claimer must know: the first items that are visible, and those that may be.
type Head struct {
	Keys
	Ready    int    // how many visible items are read at most
	ReadyEnd string // up to which key; "" is all
	Later    int    // the same of later items
	LaterEnd string
	Limited  bool // the queue has slots
}

// Build returns the operations.
func (s Head) Build() []*pb.RequestOp {
	ops := []*pb.RequestOp{
		first(s.Ready, s.Keys.Ready(), s.ReadyEnd), first(s.Later, s.Keys.Later(), s.LaterEnd),
		get(s.Paused()), count(txn.Range(s.Taken())),
	}
	if s.Limited {
		ops = append(ops, keysOnly(txn.Range(s.Slots())))
	}
	return ops
}

// Front is what a Head has read.
type Front struct {
	Rev          int64
	Ready, Later *pb.RangeResponse
	Paused       *mvccpb.KeyValue // nil if the queue is not paused
	Taken        int
	Used         map[int]bool // slots, nil if the queue has none
}

// Judge takes the reply apart.
func (s Head) Judge(resp *pb.TxnResponse) Front {
	f := Front{
		Rev:   resp.Header.GetRevision(),
		Ready: resp.Responses[0].GetResponseRange(), Later: resp.Responses[1].GetResponseRange(),
		Taken: int(counted(resp, 3)),
	}
	for _, kv := range kvs(resp, 2) {
		f.Paused = kv
	}
	if s.Limited {
		f.Used = map[int]bool{}
		for _, kv := range kvs(resp, 4) {
			f.Used[s.SlotOf(string(kv.Key))] = true
		}
	}
	return f
}

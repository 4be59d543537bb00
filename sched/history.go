package sched

import (
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// record returns the operations that add records, oldest first, and trim the history.
func (g *group) record(job Job, all ...past) []clientv3.Op {
	return txn.OpsOf(g.history(job).Record(g.keys, job.Name, all...))
}

// recordWithdrawn returns the operations that remove waiting ticks and add a record for
// each, unless the tick has begun. It also returns the transaction of each tick.
func (g *group) recordWithdrawn(job Job, ticks []*waiter, records []past) (ops txn.Ops, each []txn.Op) {
	var keys []string
	var takeBack []clientv3.Op
	for i, w := range ticks {
		p := records[i]
		p.Version, p.Job = valueVersion, job.Name
		keys = append(keys, g.keys.Entry(job.Name, p))
		takeBack = append(takeBack, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(w.Key), "=", w.Rev)},
			[]clientv3.Op{clientv3.OpDelete(w.Key), clientv3.OpPut(keys[i], tick.Encode(p))}, nil))
	}
	ops = txn.OpsOf(g.history(job).Trim(keys))
	for _, op := range takeBack {
		each = append(each, ops.Add(op))
	}
	ops = append(ops, txn.OpsOf([]*pb.RequestOp{g.keys.ReadOldest(job.Name, len(ticks))})...)
	return ops, each
}

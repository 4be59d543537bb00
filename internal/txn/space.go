package txn

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// etcd answers "no space" to requests that it refuses because it has run out of
// space, and also to the request that exceeds its quota, which it carries out
// (server/etcdserver/apply/quota.go). So the answer does not show which of the two
// happened. But nearly every request can succeed only once, because it makes its own
// conditions false. If they still hold, the request was not carried out and will not
// be.

// proofs is how many requests are checked in one transaction.
const proofs = 32

// untouched reports which of the requests, to which etcd has answered that there is
// no space, were certainly not carried out.
func (b *Batcher) untouched(ctx context.Context, requests ...Request) []bool {
	found := make([]bool, len(requests))
	read := []*pb.RequestOp{Get(b.cfg.EpochKey)}
	most := min(proofs, b.MaxOps()-1) // etcd counts one more for nested transactions
	for from := 0; from < len(requests); from += most {
		some := requests[from:min(from+most, len(requests))]
		in := &pb.TxnRequest{}
		var of []int
		for i, r := range some {
			// The second branch of a nested request changes something too.
			if conditions := r.In.Compare; len(conditions) > 0 && !r.Open && !r.Nested && r.Void == nil {
				in.Success = append(in.Success, Nest(&pb.TxnRequest{Compare: conditions, Success: read, Failure: read}))
				of = append(of, from+i)
			}
		}
		if len(of) == 0 {
			continue
		}
		resp, err := b.cfg.Send(ctx, in, b.cfg.Timeout)
		if err != nil {
			continue // it stays unknown
		}
		for i, at := range of {
			found[at] = resp.Responses[i].GetResponseTxn().Succeeded
		}
	}
	return found
}

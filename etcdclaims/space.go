package etcdclaims

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// etcd answers "no space" to what it refuses because it has run out of it, and
// also to the request by which it does, which it has carried out
// (server/etcdserver/apply/quota.go). So the answer leaves open which it was. But
// nearly all that this package asks for can succeed once only, since it makes an
// end of its own conditions: if they hold still, it was not carried out, nor will
// it be.

// proofs is how many requests are looked into at once.
const proofs = 32

// untouched reports which of the requests, to which etcd has answered that there
// is no space, were certainly not carried out.
func (s *store) untouched(ctx context.Context, requests ...request) []bool {
	found := make([]bool, len(requests))
	read := []*pb.RequestOp{getOp(s.epochKey)}
	for from := 0; from < len(requests); from += proofs {
		some := requests[from:min(from+proofs, len(requests))]
		in := &pb.TxnRequest{}
		var of []int
		for i, r := range some {
			// The failing branch of a nested one changes something, too.
			if conditions := r.proto().Compare; len(conditions) > 0 && !r.open && !r.nested && r.void == nil {
				in.Success = append(in.Success, txnOp(&pb.TxnRequest{Compare: conditions, Success: read, Failure: read}))
				of = append(of, from+i)
			}
		}
		if len(of) == 0 {
			continue
		}
		resp, err := s.sendBuilt(ctx, in, s.timeout)
		if err != nil {
			continue // it stays unknown
		}
		for i, at := range of {
			found[at] = resp.Responses[i].GetResponseTxn().Succeeded
		}
	}
	return found
}

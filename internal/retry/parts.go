package retry

import (
	"errors"
	"slices"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// InParts carries out operations that only read, at one revision. send carries out one request.
// If the reply is over a limit of the client or of a proxy, or etcd allows fewer operations, the
// operations are halved. A range that is too large by itself is read in pages, unless the
// operation gives it an order.
func InParts(ops []clientv3.Op, send func(ops ...clientv3.Op) (*clientv3.TxnResponse, error)) (*clientv3.TxnResponse, error) {
	for {
		p := parts{send: send}
		responses, err := p.read(ops)
		switch {
		case errors.Is(err, rpctypes.ErrCompacted) && p.first != nil &&
			!slices.ContainsFunc(ops, func(op clientv3.Op) bool { return op.Rev() != 0 }):
			continue // since the first part was read
		case err != nil:
			return nil, err
		}
		p.first.Responses = responses
		return p.first, nil
	}
}

// parts are requests that read at the revision of the first of them.
type parts struct {
	send  func(ops ...clientv3.Op) (*clientv3.TxnResponse, error)
	first *clientv3.TxnResponse
}

func (p *parts) read(ops []clientv3.Op) ([]*pb.ResponseOp, error) {
	if p.first != nil {
		ops = slices.Clone(ops)
		for i := range ops {
			if ops[i].Rev() == 0 {
				clientv3.WithRev(p.first.Header.Revision)(&ops[i])
			}
		}
	}
	resp, err := p.send(ops...)
	switch {
	case err == nil:
		if p.first == nil {
			p.first = resp
		}
		return resp.Responses, nil
	case !txn.IsReplyTooLarge(err) && !errors.Is(err, rpctypes.ErrTooManyOps):
		return nil, err
	case len(ops) > 1:
		some, err := p.read(ops[:len(ops)/2])
		if err != nil {
			return nil, err
		}
		others, err := p.read(ops[len(ops)/2:])
		return slices.Concat(some, others), err
	case len(ops[0].RangeBytes()) == 0 || ops[0].IsCountOnly() || ops[0].IsSortSet():
		return nil, err
	}
	all, err := p.pages(ops[0])
	return []*pb.ResponseOp{ofRange(all)}, err
}

func ofRange(r *pb.RangeResponse) *pb.ResponseOp {
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: r}}
}

// pages reads a range in pages, as if by one request.
func (p *parts) pages(op clientv3.Op) (*pb.RangeResponse, error) {
	limit, all, rev := op.Limit(), &pb.RangeResponse{}, int64(0)
	first, most := int64(128), int64(1024)
	if limit > 0 {
		first = min(first, max(limit/2, 1)) // limit was too much
	}
	read := func(op clientv3.Op) (*clientv3.GetResponse, error) {
		resp, err := p.send(op)
		if err != nil {
			return nil, err
		}
		if p.first == nil {
			p.first = resp
		}
		got := txn.Read(resp, 0)
		all.Count = max(all.Count, got.Count) // of a later page it has those of earlier ones no more
		return got, nil
	}
	for page, err := range Pages(op, first, most, read) {
		if err != nil {
			return nil, err
		}
		if rev == 0 {
			rev = page.Rev
		} else if rev != page.Rev {
			return nil, rpctypes.ErrCompacted
		}
		all.Kvs, all.More = append(all.Kvs, page.Kvs...), page.More
		if n := int64(len(all.Kvs)); limit > 0 && n >= limit {
			all.Kvs, all.More = all.Kvs[:limit], page.More || n > limit
			break
		}
	}
	return all, nil
}

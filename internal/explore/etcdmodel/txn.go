package etcdmodel

import (
	"cmp"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Txn carries out a transaction. If it returns an error, nothing is changed.
func (s State) Txn(in *pb.TxnRequest) (State, *pb.TxnResponse, error) {
	w := writer{State: s, begin: s}
	resp, err := w.run(in)
	if err != nil {
		return s, nil, err
	}
	resp.Header.Revision = w.rev
	return w.record(Operation{Txn: in, Reply: resp}), resp, nil
}

// A writer is a state while one transaction, or the end of a lease, changes it.
type writer struct {
	State
	begin State
}

// change puts or deletes a key. The first change begins the next revision, which all others share.
func (w *writer) change(k *Key, put bool) error {
	if w.rev == w.begin.rev {
		w.rev++
		w.keys = append(make([]*Key, 0, len(w.keys)+4), w.keys...)
	}
	for c := w.log; c != nil && c.Modified == w.rev; c = c.older {
		if c.Name == k.Name {
			return rpctypes.ErrDuplicateKey
		}
	}
	w.log = &change{Key: k, older: w.log}
	w.keys, w.log.before = set(w.keys, k, put)
	if k.Modified = w.rev; put {
		k.Created = cmp.Or(w.log.before.Created, w.rev)
	}
	return nil
}

// run carries out a transaction or a nested one. As in etcd, all conditions are evaluated, and leases looked up, in the
// state before the first operation. Reads see earlier operations.
func (w *writer) run(in *pb.TxnRequest) (_ *pb.TxnResponse, err error) {
	resp, ops := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: true}, in.Success
	if !w.begin.Holds(in.Compare) {
		resp.Succeeded, ops = false, in.Failure
	}
	resp.Responses = make([]*pb.ResponseOp, len(ops))
	for i, op := range ops {
		switch o := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			var r *pb.RangeResponse
			r, err = w.Range(o.RequestRange)
			resp.Responses[i] = &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: r}}
		case *pb.RequestOp_RequestPut:
			k := &Key{Name: string(o.RequestPut.Key), Value: string(o.RequestPut.Value), Lease: o.RequestPut.Lease}
			if k.Lease != 0 && !w.Lives(k.Lease) {
				return nil, rpctypes.ErrLeaseNotFound
			}
			resp.Responses[i], err = putDone, w.change(k, true)
		case *pb.RequestOp_RequestDeleteRange:
			keys := slices.Clone(within(w.keys, o.RequestDeleteRange.Key, o.RequestDeleteRange.RangeEnd))
			for n := 0; n < len(keys) && err == nil; n++ {
				err = w.change(&Key{Name: keys[n].Name}, false)
			}
			r := &pb.DeleteRangeResponse{Deleted: int64(len(keys))}
			resp.Responses[i] = &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: r}}
		case *pb.RequestOp_RequestTxn:
			var r *pb.TxnResponse
			r, err = w.run(o.RequestTxn)
			resp.Responses[i] = &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: r}}
		}
		if err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// putDone is the reply to each put.
var putDone = &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}}

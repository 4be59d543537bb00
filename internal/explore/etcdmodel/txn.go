package etcdmodel

import (
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
func (w *writer) change(name string, after *Key) error {
	if w.rev == w.begin.rev {
		w.rev++
		w.keys = append(make([]*Key, 0, len(w.keys)+4), w.keys...)
	}
	for c := w.log; c != nil && c.rev == w.rev; c = c.older {
		if c.name == name {
			return rpctypes.ErrDuplicateKey
		}
	}
	w.log = &change{rev: w.rev, name: name, after: after, older: w.log}
	w.keys, w.log.before = set(w.keys, name, after)
	if after != nil {
		after.Created, after.Modified = w.rev, w.rev
		if w.log.before != nil {
			after.Created = w.log.before.Created
		}
	}
	return nil
}

// run carries out a transaction or a nested one. As in etcd, all conditions are evaluated, and leases
// looked up, in the state before the first operation. Reads see earlier operations.
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
			resp.Responses[i], err = w.put(o.RequestPut)
		case *pb.RequestOp_RequestDeleteRange:
			resp.Responses[i], err = w.remove(o.RequestDeleteRange)
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

// putDone is the reply to each put that does not ask for the previous key.
var putDone = &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}}

func (w *writer) put(put *pb.PutRequest) (*pb.ResponseOp, error) {
	if put.Lease != 0 && w.KeepAlive(put.Lease) == 0 {
		return nil, rpctypes.ErrLeaseNotFound
	}
	k := &Key{Name: string(put.Key), Value: string(put.Value), Lease: put.Lease}
	err := w.change(k.Name, k)
	if w.log.before == nil || !put.PrevKv {
		return putDone, err
	}
	resp := &pb.PutResponse{PrevKv: w.log.before.kv()}
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: resp}}, err
}

func (w *writer) remove(del *pb.DeleteRangeRequest) (*pb.ResponseOp, error) {
	resp := &pb.DeleteRangeResponse{}
	for _, k := range slices.Clone(within(w.keys, del.Key, del.RangeEnd)) {
		if err := w.change(k.Name, nil); err != nil {
			return nil, err
		}
		resp.Deleted++
		if del.PrevKv {
			resp.PrevKvs = append(resp.PrevKvs, k.kv())
		}
	}
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: resp}}, nil
}

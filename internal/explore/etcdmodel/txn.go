package etcdmodel

import (
	"errors"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Txn carries out a transaction. If it returns an error, nothing is changed.
func (s State) Txn(in *pb.TxnRequest) (State, *pb.TxnResponse, error) {
	if _, _, err := distinct([]*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: in}}}); err != nil {
		return s, nil, err
	}
	w := writer{State: s, begin: s}
	resp, err := w.run(in)
	if err != nil {
		return s, nil, err
	}
	resp.Header.Revision = w.rev
	return w.State, resp, nil
}

// distinct refuses operations that put a key twice, or put and delete it, and returns what they put
// and delete. It overlooks what etcd overlooks: a deletion up to the last key, and one in a nested
// transaction of what an earlier one puts.
func distinct(ops []*pb.RequestOp) (puts []string, deleted []*pb.DeleteRangeRequest, err error) {
	add := func(name string, instead []string) {
		if slices.ContainsFunc(deleted, func(d *pb.DeleteRangeRequest) bool {
			first, end := string(d.Key), string(d.RangeEnd)
			return name == first && end == "" || name >= first && name < end
		}) {
			err = rpctypes.ErrDuplicateKey
		}
		if !slices.Contains(puts, name) {
			puts = append(puts, name)
		} else if !slices.Contains(instead, name) {
			err = rpctypes.ErrDuplicateKey
		}
	}
	for _, op := range ops {
		if d := op.GetRequestDeleteRange(); d != nil {
			deleted = append(deleted, d)
		}
	}
	for _, op := range ops {
		in := op.GetRequestTxn()
		then, thenDeleted, thenErr := distinct(in.GetSuccess())
		otherwise, otherwiseDeleted, otherwiseErr := distinct(in.GetFailure())
		if thenErr != nil || otherwiseErr != nil {
			return nil, nil, rpctypes.ErrDuplicateKey
		}
		for _, name := range then {
			add(name, nil)
		}
		for _, name := range otherwise {
			add(name, then) // only one of the two branches is carried out
		}
		deleted = slices.Concat(deleted, thenDeleted, otherwiseDeleted)
	}
	for _, op := range ops {
		if put := op.GetRequestPut(); put != nil {
			add(string(put.Key), nil)
		}
	}
	return puts, deleted, err
}

// A writer is a state while one transaction, or the end of a lease, changes it.
type writer struct {
	State
	begin State
}

// change puts or deletes a key. The first change begins the next revision, which all others share.
func (w *writer) change(name string, after *entry) {
	if w.rev == w.begin.rev {
		w.rev++
		w.keys = slices.Clone(w.keys)
	}
	if after != nil {
		after.modified, after.created = w.rev, w.rev
		if old := get(w.keys, name); old != nil {
			after.created, after.version = old.created, old.version
		}
		after.version++
	}
	w.keys = set(w.keys, name, after)
	w.log = &change{rev: w.rev, name: name, after: after, before: get(w.begin.keys, name), older: w.log}
}

// run carries out a transaction or a nested one. As in etcd, all conditions are evaluated, and leases
// and revisions looked up, in the state before the first operation. Reads see earlier operations.
func (w *writer) run(in *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, ops := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: true}, in.Success
	if slices.ContainsFunc(in.Compare, func(c *pb.Compare) bool { return !w.begin.holds(c) }) {
		resp.Succeeded, ops = false, in.Failure
	}
	for _, op := range ops {
		out := &pb.ResponseOp{}
		switch o := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			if err := w.begin.readable(o.RequestRange); err != nil {
				return nil, err
			}
			out.Response = &pb.ResponseOp_ResponseRange{ResponseRange: w.read(o.RequestRange)}
		case *pb.RequestOp_RequestPut:
			put, err := w.put(o.RequestPut)
			if err != nil {
				return nil, err
			}
			out.Response = &pb.ResponseOp_ResponsePut{ResponsePut: put}
		case *pb.RequestOp_RequestDeleteRange:
			out.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: w.remove(o.RequestDeleteRange)}
		case *pb.RequestOp_RequestTxn:
			inner, err := w.run(o.RequestTxn)
			if err != nil {
				return nil, err
			}
			out.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: inner}
		}
		resp.Responses = append(resp.Responses, out)
	}
	return resp, nil
}

func (w *writer) put(put *pb.PutRequest) (*pb.PutResponse, error) {
	if put.IgnoreValue || put.IgnoreLease {
		return nil, errors.New("put: the model has no puts that keep the value or lease of a key")
	}
	if _, found := w.lease(put.Lease); !found && put.Lease != 0 {
		return nil, rpctypes.ErrLeaseNotFound
	}
	resp := &pb.PutResponse{}
	if put.PrevKv {
		resp.PrevKv = get(w.keys, string(put.Key)).kv()
	}
	w.change(string(put.Key), &entry{name: string(put.Key), value: string(put.Value), lease: put.Lease})
	resp.Header = w.header()
	return resp, nil
}

func (w *writer) remove(del *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	resp := &pb.DeleteRangeResponse{}
	for _, e := range slices.Clone(within(w.keys, del.Key, del.RangeEnd)) {
		w.change(e.name, nil)
		resp.Deleted++
		if del.PrevKv {
			resp.PrevKvs = append(resp.PrevKvs, e.kv())
		}
	}
	resp.Header = w.header()
	return resp
}

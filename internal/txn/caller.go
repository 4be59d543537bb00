package txn

import clientv3 "go.etcd.io/etcd/client/v3"

// Commit sends a transaction that a caller has put together.
type Commit func(cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error)

// New returns a transaction for a caller to put together. Its Commit calls commit.
func New(commit Commit) clientv3.Txn { return &caller{commit: commit} }

type caller struct {
	commit    Commit
	cmps      []clientv3.Cmp
	then, els []clientv3.Op
}

func (t *caller) If(cmps ...clientv3.Cmp) clientv3.Txn {
	t.cmps = append(t.cmps, cmps...)
	return t
}

func (t *caller) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = append(t.then, ops...)
	return t
}

func (t *caller) Else(ops ...clientv3.Op) clientv3.Txn {
	t.els = append(t.els, ops...)
	return t
}

func (t *caller) Commit() (*clientv3.TxnResponse, error) { return t.commit(t.cmps, t.then, t.els) }

// Within sends a caller's transaction as the first branch of a guarded one. The
// caller's conditions, if any, are nested in it, so that their failure is not taken
// for the guard's. The response is that of the caller's transaction.
func Within(cmps []clientv3.Cmp, then, els []clientv3.Op, send func(then []clientv3.Op) (*clientv3.TxnResponse, error)) (*clientv3.TxnResponse, error) {
	if len(cmps) == 0 {
		return send(then)
	}
	resp, err := send([]clientv3.Op{clientv3.OpTxn(cmps, then, els)})
	if err != nil {
		return nil, err
	}
	inner := (*clientv3.TxnResponse)(resp.Responses[0].GetResponseTxn())
	inner.Header = resp.Header
	return inner, nil
}

package wire

import clientv3 "go.etcd.io/etcd/client/v3"

// Commit sends what was put together.
type Commit func(cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error)

// NewTxn returns a transaction of a user's, which commit sends.
func NewTxn(commit Commit) clientv3.Txn { return &txn{commit: commit} }

type txn struct {
	commit    Commit
	cmps      []clientv3.Cmp
	then, els []clientv3.Op
}

func (t *txn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	t.cmps = append(t.cmps, cmps...)
	return t
}

func (t *txn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = append(t.then, ops...)
	return t
}

func (t *txn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.els = append(t.els, ops...)
	return t
}

func (t *txn) Commit() (*clientv3.TxnResponse, error) { return t.commit(t.cmps, t.then, t.els) }

// Within sends a user's transaction as what is done under a guard. If it has
// conditions of its own they stand inside, so that their failure is not taken for
// the guard's, and the response is that of the user's part.
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

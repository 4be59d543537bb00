package etcdclaims

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Txn returns a transaction of which nothing is carried out unless the claim is
// the owner at that very moment: no round trip more than without. Commit
// returns
//
//   - the response, whose Succeeded speaks of the caller's own If alone,
//   - an error that matches ErrLost if the claim is not the owner: nothing was
//     carried out, not even the Else, and the claim is lost,
//   - one that matches ErrUnknown if the outcome is unknown: read back what
//     the transaction would have written,
//   - another if etcd refused it.
//
// Commit does not send after the claim's deadline, and does not try twice.
// Operations must not touch keys under the client's prefix.
func (cl *Claim) Txn(ctx context.Context) clientv3.Txn { return &txn{ctx: ctx, cl: cl} }

type txn struct {
	ctx  context.Context
	cl   *Claim
	cmps []clientv3.Cmp
	then []clientv3.Op
	els  []clientv3.Op
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

func (t *txn) Commit() (*clientv3.TxnResponse, error) {
	if _, err := t.cl.checkSure(); err != nil {
		return nil, err
	}
	if t.cl.t == nil {
		return nil, fmt.Errorf("%w: a transaction for %q", ErrPassthrough, t.cl.key)
	}
	term := t.cl.t
	if err := term.s.c.checkOps(t.cmps, t.then, t.els); err != nil {
		return nil, fmt.Errorf("transaction for %q: %w", t.cl.key, err)
	}
	ctx, cancel := term.s.within(t.ctx)
	defer cancel()
	r := request{cmps: term.guard(), then: t.then, els: term.sight(), open: true}
	nested := len(t.cmps) > 0
	if nested {
		// The caller's own conditions stand inside, so that their failure is
		// not taken for the loss of the claim.
		r.then = []clientv3.Op{clientv3.OpTxn(t.cmps, t.then, t.els)}
	}
	resp, err := term.s.c.store.do(ctx, r)
	switch {
	case err == nil && !resp.Succeeded:
		term.owned(resp)
		return nil, term.lost()
	case err == nil && nested:
		inner := (*clientv3.TxnResponse)(resp.Responses[0].GetResponseTxn())
		inner.Header = resp.Header
		return inner, nil
	case err == nil:
		return resp, nil
	case errors.Is(err, ErrClosed), errors.Is(err, ErrLost):
		return nil, err
	}
	return nil, fmt.Errorf("etcdclaims: transaction for %q (fence %d): %w", t.cl.key, term.fence, err)
}

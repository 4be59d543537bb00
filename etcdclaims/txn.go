package etcdclaims

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Txn returns a transaction that is carried out only if the claim owns its key
// at that moment. It takes no additional round trip. Commit returns:
//
//   - The response. Its Succeeded is the outcome of the caller's own If.
//   - An error that matches ErrLost if the claim does not own its key.
//     Neither Then nor Else was carried out, and the claim is lost.
//   - An error that matches ErrUnknown if the outcome is not known. Read
//     back what the transaction would have written.
//   - Another error if etcd refused the transaction. Nothing was carried
//     out.
//
// ctx and the claim's deadline bound Commit, which does not retry. Operations
// must not change keys under the client's prefix, except in the subtrees
// sched/ and queue/. For a passthrough claim Commit returns ErrPassthrough.
func (cl *Claim) Txn(ctx context.Context) clientv3.Txn {
	return txn.New(func(cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
		return cl.commit(ctx, cmps, then, els)
	})
}

func (cl *Claim) commit(ctx context.Context, cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
	if _, err := cl.checkSure(); err != nil {
		return nil, err
	}
	if cl.t == nil {
		return nil, fmt.Errorf("%w: a transaction for %q", ErrPassthrough, cl.key)
	}
	term := cl.t
	if err := term.s.c.checkOps(cmps, then, els); err != nil {
		return nil, fmt.Errorf("transaction for %q: %w", cl.key, err)
	}
	ctx, cancel := term.s.within(ctx)
	defer cancel()
	return txn.Within(cmps, then, els, func(then []clientv3.Op) (*clientv3.TxnResponse, error) {
		return term.commit(ctx, then)
	})
}

// commit carries out a user's operations under the guard.
func (t *term) commit(ctx context.Context, then []clientv3.Op) (*clientv3.TxnResponse, error) {
	resp, err := t.s.c.store.Do(ctx, txn.Request{Open: true, In: txn.Of(t.guard(), then, t.readOps())})
	switch {
	case err == nil && !resp.Succeeded:
		t.owned(resp)
		return nil, t.lost()
	case err == nil:
		return resp, nil
	case errors.Is(err, ErrClosed), errors.Is(err, ErrLost):
		return nil, err
	}
	return nil, callError("commit under the claim on", t.token().Key, err)
}

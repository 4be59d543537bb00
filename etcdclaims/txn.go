package etcdclaims

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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
	return txn.NewChecked(cl.checkTxn, func(in *pb.TxnRequest, concern []string) (*clientv3.TxnResponse, error) {
		return cl.commit(ctx, in, concern)
	})
}

// checkTxn refuses a transaction that cannot be sent.
func (cl *Claim) checkTxn(cmps []clientv3.Cmp, lists ...[]clientv3.Op) error {
	if err := cl.checkSure(); err != nil {
		return cl.afterRelease("commit under the claim on", err)
	}
	if cl.t == nil {
		return fmt.Errorf("%w: a transaction for %q", ErrPassthrough, cl.key)
	}
	if err := cl.c.checkOps(cmps, lists...); err != nil {
		return errtext.Call("commit under the claim on", cl.key, err)
	}
	return nil
}

func (cl *Claim) commit(ctx context.Context, in *pb.TxnRequest, concern []string) (*clientv3.TxnResponse, error) {
	if err := cl.checkSure(); err != nil { // it may have waited since it was checked
		return nil, cl.afterRelease("commit under the claim on", err)
	}
	ctx, cancel := cl.t.Session().Within(ctx)
	defer cancel()
	return txn.Within(in, func(then []*pb.RequestOp) (*clientv3.TxnResponse, error) {
		return cl.t.Commit(ctx, then, concern)
	})
}

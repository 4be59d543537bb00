package etcdguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/wire"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrNotGuarded says that a call cannot be made a part of a transaction, and so
// was not made at all.
var ErrNotGuarded = errors.New("etcdguard: cannot be guarded")

// NewKV returns a KV each of whose writes is carried out only if the holder's
// conditions hold at that very moment. Reads pass to kv unchanged. A write ends
// with
//
//   - its response, which is what it would be without the guard: for a Txn,
//     Succeeded speaks of the caller's own If alone,
//   - an error that matches fencing.ErrStale, and is a *fencing.StaleError, if
//     the holder's token is not the newest any more: nothing was carried out, not
//     an Else either. If the holder knows by then that its claim is lost, the
//     error matches that as well,
//   - one that matches fencing.ErrUnknown if the outcome is unknown: read back
//     what was to be written,
//   - another if nothing was sent, or if etcd refused it: nothing was carried
//     out.
//
// Each write is one request: several keys go into one Txn, which may have an If,
// an Else and transactions within. Writes that are made at the same time share
// requests, and succeed or fail each by itself: no order is promised among them,
// as none is without. Compact is refused with ErrNotGuarded, as are
// writes to the keys of the claims themselves.
//
// If kv is a *clientv3.Client, each request is sent once. The interceptor of
// clientv3 repeats a Txn that etcd answers with DeadlineExceeded or Canceled;
// repeated, an If that its own first try made false looks refused. With a KV of
// another kind, such as one of a namespace, that remains. The holder's claim must
// have been made through a client of the same namespace: else all is refused.
//
// The KV is safe for concurrent use, as kv is. NewKV panics if kv or holder is
// nil.
func NewKV(kv clientv3.KV, holder Holder) clientv3.KV {
	if kv == nil || holder == nil {
		panic("etcdguard: NewKV needs a KV and a holder")
	}
	g, sender := newGuard(holder), plain(kv)
	return &guardedKV{plainKV: sender, guard: g, traffic: &traffic{guard: g, kv: sender}}
}

// plainKV is what sends.
type plainKV struct {
	clientv3.KV
	direct bool // it sends what wire.Facts say
}

func plain(kv clientv3.KV) plainKV {
	if etcd, ok := kv.(*clientv3.Client); ok {
		kv, direct := wire.KV(etcd)
		return plainKV{kv, direct}
	}
	return plainKV{KV: kv}
}

// guardedKV is a KV whose reads are those of the one within.
type guardedKV struct {
	plainKV
	guard   *guard
	traffic *traffic
}

// Put is KV's, guarded.
func (k *guardedKV) Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	r, err := k.Do(ctx, clientv3.OpPut(key, val, opts...))
	return r.Put(), err
}

// Delete is KV's, guarded.
func (k *guardedKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	r, err := k.Do(ctx, clientv3.OpDelete(key, opts...))
	return r.Del(), err
}

// Compact is refused: no transaction can have it.
func (k *guardedKV) Compact(context.Context, int64, ...clientv3.CompactOption) (*clientv3.CompactResponse, error) {
	return nil, fmt.Errorf("%w: a compaction, use the client itself", ErrNotGuarded)
}

// Do is KV's; writes are guarded.
func (k *guardedKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	switch {
	case op.IsTxn():
		resp, err := k.txn(ctx).commit(op.Txn())
		if err != nil {
			return clientv3.OpResponse{}, err
		}
		return resp.OpResponse(), nil
	case !op.IsPut() && !op.IsDelete():
		return k.KV.Do(ctx, op)
	}
	resp, err := k.txn(ctx).commit(nil, []clientv3.Op{op}, nil)
	if err != nil {
		return clientv3.OpResponse{}, err
	}
	if put := resp.Responses[0].GetResponsePut(); put != nil {
		put.Header = resp.Header
		return (*clientv3.PutResponse)(put).OpResponse(), nil
	}
	del := resp.Responses[0].GetResponseDeleteRange()
	del.Header = resp.Header
	return (*clientv3.DeleteResponse)(del).OpResponse(), nil
}

// Txn is KV's, guarded. One without a write is sent as it is.
func (k *guardedKV) Txn(ctx context.Context) clientv3.Txn { return k.txn(ctx) }

func (k *guardedKV) txn(ctx context.Context) *txn { return &txn{ctx: ctx, kv: k} }

// txn puts a transaction together.
type txn struct {
	ctx       context.Context
	kv        *guardedKV
	cmps      []clientv3.Cmp
	then, els []clientv3.Op
}

// If adds conditions.
func (t *txn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	t.cmps = append(t.cmps, cmps...)
	return t
}

// Then adds to what is done if all conditions hold.
func (t *txn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = append(t.then, ops...)
	return t
}

// Else adds to what is done if one does not.
func (t *txn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.els = append(t.els, ops...)
	return t
}

// Commit sends the transaction.
func (t *txn) Commit() (*clientv3.TxnResponse, error) { return t.commit(t.cmps, t.then, t.els) }

func (t *txn) commit(cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
	if !writes(then) && !writes(els) {
		return t.kv.KV.Txn(t.ctx).If(cmps...).Then(then...).Else(els...).Commit()
	}
	g := t.kv.guard
	if err := g.over(); err != nil {
		return nil, err
	}
	if err := g.check(then, els); err != nil {
		return nil, err
	}
	nested := len(cmps) > 0
	if nested {
		// The caller's own conditions stand inside, so that their failure is not
		// taken for the guard's.
		then = []clientv3.Op{clientv3.OpTxn(cmps, then, els)}
	}
	resp, err := t.kv.traffic.send(t.ctx, then)
	if err != nil || !nested {
		return resp, err
	}
	inner := (*clientv3.TxnResponse)(resp.Responses[0].GetResponse().(*pb.ResponseOp_ResponseTxn).ResponseTxn)
	inner.Header = resp.Header
	return inner, nil
}

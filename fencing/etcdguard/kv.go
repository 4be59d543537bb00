package etcdguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrNotGuarded is returned for a call that cannot be part of a guarded
// transaction. Nothing was sent.
var ErrNotGuarded = errors.New("cannot be guarded")

// NewKV returns a KV that carries out a write only if the holder's conditions
// hold at that moment. Reads pass to kv unchanged. A write returns
//
//   - its response, as without the guard; for a Txn, Succeeded reports on the caller's
//     own If alone,
//   - an error that matches fencing.ErrStale and wraps a *fencing.StaleError if the
//     holder's token is no longer the newest: nothing was carried out, not even an
//     Else; if the holder knows that its claim is lost, the error matches that too,
//   - an error that matches fencing.ErrUnknown if the outcome is unknown: read back
//     what was to be written,
//   - another error if nothing was sent or etcd refused the write: nothing was carried
//     out.
//
// An etcd that runs out of space is an unknown outcome. It carries out the write
// that exceeds its quota, and answers as it answers the writes that it refuses
// afterwards (server/etcdserver/apply/quota.go).
//
// # Requests
//
// Each write is one request, and takes at most 10 s. To write several keys use one Txn,
// which may have an If, an Else and nested transactions. The guard takes one operation of
// etcd's limit, and two more for a Txn with an If. Compact, and writes to the keys of the
// claims themselves, return ErrNotGuarded.
//
// If kv is a *clientv3.Client, each request is sent once. The retry interceptor
// of clientv3 would repeat a Txn that etcd answers with DeadlineExceeded or
// Canceled. After such a repeat, an If that the first attempt made false looks
// refused. With another kind of KV, such as a namespace, that repeat remains. The
// holder's claim must then have been made through a client of the same namespace;
// otherwise every write is refused. Such a KV cannot report whether it had a connection.
// So a write waits for one, which for a *clientv3.Client with another KV takes no request.
// For another KV it takes a read, unless etcd answered a write within the last second. Then a
// write that found no connection is not unknown: nothing was sent. A KV of package leasing
// repeats writes, and may not be used.
//
// # Group commit
//
// If kv is a *clientv3.Client, puts and deletes of single keys that are made at
// the same time share a request, and so a revision. Each succeeds or fails by
// itself.
//
// Metadata can carry a caller's credentials. So only calls whose contexts carry
// equal outgoing metadata share a request. The request has that metadata, and no
// other value of any caller's context. An interceptor or
// credentials.PerRPCCredentials that takes credentials from another context value
// must refuse a context without it. Otherwise use one KV for each set of
// credentials.
//
// The KV is safe for concurrent use, as kv is. NewKV panics if kv or holder is
// nil.
func NewKV(kv clientv3.KV, holder Holder) clientv3.KV {
	if kv == nil || holder == nil {
		panic("etcdguard: NewKV needs a KV and a holder")
	}
	g := newGuard(holder)
	return &guardedKV{KV: kv, guard: g, batcher: newBatcher(g, txn.NewSender(kv))}
}

// guardedKV guards the writes of the embedded KV, and passes its reads on.
type guardedKV struct {
	clientv3.KV
	guard   *guard
	batcher *batcher
}

// Put implements clientv3.KV, guarded.
func (k *guardedKV) Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	r, err := k.Do(ctx, clientv3.OpPut(key, val, opts...))
	return r.Put(), err
}

// Delete implements clientv3.KV, guarded.
func (k *guardedKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	r, err := k.Do(ctx, clientv3.OpDelete(key, opts...))
	return r.Del(), err
}

// Compact returns ErrNotGuarded: a compaction cannot be part of a transaction.
func (k *guardedKV) Compact(context.Context, int64, ...clientv3.CompactOption) (*clientv3.CompactResponse, error) {
	return nil, fmt.Errorf("etcdguard: %w: Compact is not an operation of a transaction: call the client itself", ErrNotGuarded)
}

// Do implements clientv3.KV. It guards writes and passes reads on.
func (k *guardedKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	switch {
	case op.IsTxn():
		cmps, then, els := op.Txn()
		resp, err := k.commit(ctx, cmps, then, els)
		if err != nil {
			return clientv3.OpResponse{}, err
		}
		return resp.OpResponse(), nil
	case !op.IsPut() && !op.IsDelete():
		return k.KV.Do(ctx, op)
	}
	resp, err := k.commit(ctx, nil, []clientv3.Op{op}, nil)
	if err != nil {
		return clientv3.OpResponse{}, err
	}
	return outcomeOf(resp), nil
}

// outcomeOf returns the response to the only write of a transaction.
func outcomeOf(resp *clientv3.TxnResponse) (r clientv3.OpResponse) {
	for _, did := range resp.Responses {
		if put := did.GetResponsePut(); put != nil {
			put.Header = resp.Header
			r = (*clientv3.PutResponse)(put).OpResponse()
		}
		if del := did.GetResponseDeleteRange(); del != nil {
			del.Header = resp.Header
			r = (*clientv3.DeleteResponse)(del).OpResponse()
		}
	}
	return r
}

// Txn implements clientv3.KV, guarded. A transaction without a write is sent as
// it is.
func (k *guardedKV) Txn(ctx context.Context) clientv3.Txn {
	return txn.New(func(cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
		return k.commit(ctx, cmps, then, els)
	})
}

func (k *guardedKV) commit(ctx context.Context, cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
	if !writes(then) && !writes(els) {
		return k.KV.Txn(ctx).If(cmps...).Then(then...).Else(els...).Commit()
	}
	if err := k.guard.over(); err != nil {
		return nil, err
	}
	if err := k.guard.check(then, els); err != nil {
		return nil, err
	}
	return txn.Within(txn.Of(cmps, then, els), func(then []*pb.RequestOp) (*clientv3.TxnResponse, error) {
		return k.batcher.send(ctx, then)
	})
}

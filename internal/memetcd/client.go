package memetcd

import (
	"cmp"
	"context"
	"sync"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The kinds of requests.
const (
	Txn       = "txn"
	Range     = "range"
	Grant     = "grant"
	KeepAlive = "keep alive"
	Revoke    = "revoke"
	TTL       = "time to live"
)

// Etcd is a model that clients ask at the same time.
type Etcd struct {
	// Sent is called with each request before it is carried out, and Replied before its reply is sent. in is that of a
	// transaction, else nil. An error takes the place of the reply. They are set before the first request.
	Sent, Replied func(kind string, in *pb.TxnRequest) error

	mu    sync.Mutex
	model *Model
	ttls  map[clientv3.LeaseID]int64 // of all leases that clients were granted
}

// NewEtcd returns an etcd without keys and leases.
func NewEtcd() *Etcd {
	ignore := func(string, *pb.TxnRequest) error { return nil }
	return &Etcd{Sent: ignore, Replied: ignore, model: New(), ttls: make(map[clientv3.LeaseID]int64)}
}

// Client returns a client. It has no connection, and no watches.
func (e *Etcd) Client() *clientv3.Client {
	return &clientv3.Client{KV: kv{e: e}, Lease: leases{e: e}}
}

// With calls f with the model while no request is carried out.
func (e *Etcd) With(f func(m *Model)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(e.model)
}

// Lives reports whether there is a lease.
func (e *Etcd) Lives(id clientv3.LeaseID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.model.Lives(int64(id))
}

// EndLease ends a lease, with the keys on it.
func (e *Etcd) EndLease(id clientv3.LeaseID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.model.End(int64(id))
}

// do carries out a request of a kind on its way.
func do[R any](ctx context.Context, e *Etcd, kind string, in *pb.TxnRequest, f func() (R, error)) (none R, err error) {
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := e.Sent(kind, in); err != nil {
		return none, err
	}
	e.mu.Lock()
	resp, err := f()
	e.mu.Unlock()
	if err == nil {
		err = e.Replied(kind, in)
	}
	if err != nil {
		return none, err
	}
	return resp, nil
}

// kv is the KV of an etcd. What is not defined here, tests do not need.
type kv struct {
	clientv3.KV
	e *Etcd
}

func (k kv) Txn(ctx context.Context) clientv3.Txn {
	return txn.New(func(cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
		in := txn.Of(cmps, then, els)
		resp, err := do(ctx, k.e, Txn, in, func() (*pb.TxnResponse, error) { return k.e.model.Try(in) })
		return (*clientv3.TxnResponse)(resp), err
	})
}

// one carries out one operation.
func (k kv) one(ctx context.Context, op clientv3.Op) (*pb.TxnResponse, error) {
	kind, in := Txn, txn.Then(op)
	if op.IsGet() {
		kind = Range
	}
	return do(ctx, k.e, kind, in, func() (*pb.TxnResponse, error) { return k.e.model.Try(in) })
}

// Do carries out a read.
func (k kv) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	resp, err := k.Get(ctx, "", func(o *clientv3.Op) { *o = op })
	if err != nil {
		return clientv3.OpResponse{}, err
	}
	return resp.OpResponse(), nil
}

func (k kv) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp, err := k.one(ctx, clientv3.OpGet(key, opts...))
	if err != nil {
		return nil, err
	}
	return (*clientv3.GetResponse)(resp.Responses[0].GetResponseRange()), nil
}

func (k kv) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	resp, err := k.one(ctx, clientv3.OpDelete(key, opts...))
	if err != nil {
		return nil, err
	}
	return &clientv3.DeleteResponse{Header: resp.Header}, nil
}

// leases are those of an etcd.
type leases struct {
	clientv3.Lease
	e *Etcd
}

func (l leases) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	return do(ctx, l.e, Grant, nil, func() (*clientv3.LeaseGrantResponse, error) {
		id := clientv3.LeaseID(len(l.e.ttls) + 1)
		l.e.ttls[id] = ttl
		next, err := l.e.model.Grant(int64(id))
		l.e.model.State = next
		return &clientv3.LeaseGrantResponse{ID: id, TTL: ttl}, err
	})
}

func (l leases) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	return do(ctx, l.e, Revoke, nil, func() (*clientv3.LeaseRevokeResponse, error) {
		next, err := l.e.model.Revoke(int64(id))
		l.e.model.State = next
		return &clientv3.LeaseRevokeResponse{}, err
	})
}

// ttl is how long a lease lives. One that no client was granted has a minute.
func (l leases) ttl(id clientv3.LeaseID) int64 { return cmp.Or(l.e.ttls[id], 60) }

func (l leases) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	return do(ctx, l.e, KeepAlive, nil, func() (*clientv3.LeaseKeepAliveResponse, error) {
		if !l.e.model.Lives(int64(id)) {
			return nil, rpctypes.ErrLeaseNotFound
		}
		return &clientv3.LeaseKeepAliveResponse{
			ResponseHeader: &pb.ResponseHeader{Revision: l.e.model.Revision()}, ID: id, TTL: l.ttl(id),
		}, nil
	})
}

func (l leases) TimeToLive(ctx context.Context, id clientv3.LeaseID, _ ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	return do(ctx, l.e, TTL, nil, func() (*clientv3.LeaseTimeToLiveResponse, error) {
		if !l.e.model.Lives(int64(id)) {
			return &clientv3.LeaseTimeToLiveResponse{ID: id, TTL: -1}, nil
		}
		resp := &clientv3.LeaseTimeToLiveResponse{ID: id, TTL: l.ttl(id), GrantedTTL: l.ttl(id)}
		for _, k := range l.e.model.Under("") {
			if k.Lease == int64(id) {
				resp.Keys = append(resp.Keys, []byte(k.Name))
			}
		}
		return resp, nil
	})
}

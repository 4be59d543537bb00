package etcdclaims

import (
	"context"
	"iter"
	"time"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What is built on a client and uses its etcd, such as package locks, reaches the following by
// package core.

func init() {
	core.Provide(func(claims any) core.Client {
		c, _ := claims.(*Client)
		return built{c}
	})
}

// built is a client as package core shows it.
type built struct{ c *Client }

func (b built) Refusal() error                { return b.c.refusal() }
func (b built) CheckKey(key string) error     { return b.c.checkKey(key) }
func (b built) CheckClaimed(key string) error { return b.c.checkClaimed(key) }

func (b built) CheckTTL(ttl time.Duration) error { return b.c.cfg.checkTTL(ttl) }

func (b built) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return b.c.bounded(ctx)
}

func (b built) Closing() <-chan struct{} { return b.c.life.Open.Done() }
func (b built) Ended(err error) error    { return b.c.life.Explain(err) }
func (b built) Abandon() error           { return b.c.abandon() }
func (b built) Drain() time.Duration     { return b.c.cfg.drain(b.c.cfg.TTL) }
func (b built) Now() time.Time           { return b.c.clock.Time() }

// Go runs f until the client ends.
func (b built) Go(f func(ctx context.Context)) bool {
	return b.c.life.Go(func() { f(b.c.life.IO) })
}

// Kept returns what is kept on the client.
func (b built) Kept(name any, fresh func() any) any {
	if b.c.refusal() != nil {
		return fresh()
	}
	kept, ok := b.c.kept.Load(name)
	if !ok {
		kept, _ = b.c.kept.LoadOrStore(name, fresh())
	}
	return kept
}

func (b built) Read(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return b.c.read(ctx, ops...)
}

func (b built) Pages(ctx context.Context, prefix string, first int64) iter.Seq2[retry.Page, error] {
	return b.c.pages(ctx, prefix, first)
}

func (b built) ClearShared(ctx context.Context, key string, record *mvccpb.KeyValue) (int64, error) {
	return b.c.terms.ClearShared(ctx, key, record)
}

func (b built) HandTo(claim any, instance string) { claim.(*Claim).t.HandTo(instance) }

func (b built) Store() core.Store       { return b.c.store }
func (b built) Leases() core.Leases     { return builtLeases(b) }
func (b built) Layout() protocol.Layout { return b.c.store.Layout }

// Held returns the holder of a key as an error of a call that does not acquire.
func (b built) Held(key string, own *mvccpb.KeyValue, waiting int64) error {
	return heldFor{&HeldError{Info: b.c.info(key, own, nil, waiting)}}
}

// builtLeases are the leases of a client as package core shows them.
type builtLeases built

func (l builtLeases) Grant(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	resp, err := l.c.store.Grant(ctx, ttl)
	if err != nil {
		return clientv3.NoLease, err
	}
	return resp.ID, nil
}

func (l builtLeases) KeepAlive(ctx context.Context, id clientv3.LeaseID) error {
	_, _, err := l.c.store.KeepAlive(ctx, id, l.c.store.Timeout())
	return err
}

func (l builtLeases) Revoke(ctx context.Context, id clientv3.LeaseID) error {
	return l.c.store.Revoke(ctx, id)
}

func (l builtLeases) TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption,
) (*clientv3.LeaseTimeToLiveResponse, error) {
	return l.c.store.TimeToLive(ctx, id, opts...)
}

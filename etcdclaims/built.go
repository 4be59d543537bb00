package etcdclaims

import (
	"context"
	"iter"
	"time"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
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

func (b built) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return b.c.bounded(ctx)
}

func (b built) Closing() <-chan struct{} { return b.c.closing }
func (b built) Ended(err error) error    { return b.c.ended(err) }
func (b built) Now() time.Time           { return b.c.clock.Time() }

// Go runs f until the client ends.
func (b built) Go(f func(ctx context.Context)) bool {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if b.c.closed {
		return false
	}
	b.c.spawn(func() { f(b.c.io) })
	return true
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

func (b built) Pages(ctx context.Context, root string) iter.Seq2[retry.Page, error] {
	return b.c.pages(ctx, root, "")
}

func (b built) ClearShared(ctx context.Context, key string, record *mvccpb.KeyValue) (int64, error) {
	return b.c.clearShared(ctx, key, record)
}

func (b built) Store() core.Store   { return builtStore{b.c.store} }
func (b built) Leases() core.Leases { return builtLeases(b) }
func (b built) Layout() core.Layout { return builtLayout{&b.c.store.layout} }

// Holder reads the value in the place of a claim.
func (b built) Holder(value []byte) (core.Holder, error) {
	h, err := protocol.DecodeHolder(value)
	return core.Holder{
		Version: h.Version, Claim: h.Claim, Owner: h.Owner, Instance: h.Instance, Since: sinceOf(h),
		Attempt: h.Attempt, Kind: h.Kind, TTL: h.TTL, Epoch: h.Epoch, Slots: h.Slots,
		Preference: h.Preference,
	}, err
}

// EncodeHolder returns the value of a holder.
func (b built) EncodeHolder(h core.Holder) string {
	return protocol.Holder{
		Claim: h.Claim, Owner: h.Owner, Instance: h.Instance, Since: sinceText(h.Since),
		Attempt: h.Attempt, Kind: h.Kind, TTL: h.TTL, Epoch: h.Epoch, Slots: h.Slots,
		Preference: h.Preference,
	}.Encode()
}

// EncodeSlots returns the value of the record of a key with slots.
func (b built) EncodeSlots(n int) string { return protocol.SlotsRecord(n) }

// Sentinel reads the value of a sentinel.
func (b built) Sentinel(value []byte) (owner string, since time.Time, err error) {
	v, err := keyspace.Decode[sentinelValue]("a sentinel", value, protocol.Version)
	return v.Owner, v.Since, err
}

// Eviction reads a notice of eviction.
func (b built) Eviction(value []byte) (core.Eviction, error) {
	e, err := keyspace.Decode[protocol.Eviction]("a notice of eviction", value, protocol.Version)
	return core.Eviction{Key: e.Key, Claim: e.Claim, By: e.By, Reason: e.Reason, Suspected: e.Suspected}, err
}

// EncodeEviction returns the value of a notice of eviction.
func (b built) EncodeEviction(e core.Eviction) string {
	return encode(protocol.Eviction{Version: protocol.Version, Key: e.Key, Claim: e.Claim, By: e.By, Reason: e.Reason, Suspected: e.Suspected})
}

// Held returns the holder of a key as an error of a call that does not acquire.
func (b built) Held(key string, own *mvccpb.KeyValue, waiting int64) error {
	return heldFor{&HeldError{Info: b.c.info(key, own, nil, waiting)}}
}

// builtStore is the store of a client as package core shows it.
type builtStore struct{ *store }

func (s builtStore) Ready(ctx context.Context) error { return s.ready(ctx) }
func (s builtStore) Epoch() *txn.Epoch               { return s.epoch.Load() }
func (s builtStore) Timeout() time.Duration          { return s.timeout }

func (s builtStore) LearnEpoch(kvs []*mvccpb.KeyValue, asOf int64) error {
	return s.learnEpoch(kvs, asOf)
}

// builtLeases are the leases of a client as package core shows them.
type builtLeases built

func (l builtLeases) Grant(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	resp, err := l.c.grantLease(ctx, ttl)
	if err != nil {
		return clientv3.NoLease, err
	}
	return resp.ID, nil
}

func (l builtLeases) KeepAlive(ctx context.Context, id clientv3.LeaseID) error {
	_, err := l.c.keepAlive(ctx, id, l.c.store.timeout)
	return err
}

func (l builtLeases) Revoke(ctx context.Context, id clientv3.LeaseID) error {
	return l.c.revokeLease(ctx, id)
}

func (l builtLeases) TimeToLive(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseTimeToLiveResponse, error) {
	return l.c.timeToLive(ctx, id)
}

// builtLayout is the layout of a client as package core shows it.
type builtLayout struct{ l *protocol.Layout }

func (b builtLayout) Own(key string) string                { return b.l.Own(key) }
func (b builtLayout) Note(key string) string               { return b.l.Note(key) }
func (b builtLayout) Work(key string) string               { return b.l.Work(key) }
func (b builtLayout) Epoch() string                        { return b.l.Epoch() }
func (b builtLayout) Lines() string                        { return b.l.Lines() }
func (b builtLayout) Waiting(key string) string            { return b.l.Waiting(key) }
func (b builtLayout) Placed(place []byte) string           { return protocol.PlacedID(place) }
func (b builtLayout) Sessions() string                     { return b.l.Sessions() }
func (b builtLayout) Sentinels(instance string) string     { return b.l.Sentinels(instance) }
func (b builtLayout) Evict(instance, claim string) string  { return b.l.Eviction(instance, claim) }
func (b builtLayout) Notice(instance, claim string) string { return b.l.Notice(instance, claim) }
func (b builtLayout) Void(id string) string                { return b.l.Void(id) }
func (b builtLayout) Sharers(key string) string            { return b.l.Sharers(key) }
func (b builtLayout) SharedEnd(key string) string          { return b.l.SharersEnd(key) }

// Package core is what package etcdclaims does for the packages of this module that are built on it and
// use etcd: queues, groups and schedules, which keep keys of their own, and locks and admin, which use
// the keys of claims. Package etcdclaims provides it. It is no API for users, so no method for it is
// exported. What needs no etcd is in package attach.
package core

import (
	"context"
	"iter"
	"time"

	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Client is what a *etcdclaims.Client does for packages that are built on it. For a client that
// connects to no etcd, only Refusal, CheckKey, CheckClaimed, Drain, KV, GrantLease, RevokeLease and Kept may be called.
type Client interface {
	// KV returns the KV of the client's etcd with its requests counted: Stats and
	// Hooks.Requested include them, and an outage is noticed by them. It adds nothing else to a
	// request, so the caller sets timeouts and retries. A request that clientv3 repeats by itself
	// counts once. Compact and GetStream are not counted. KV is nil for a client without etcd.
	KV() clientv3.KV
	// GrantLease grants a lease of etcd, counted as the requests of KV are. The ttl
	// is rounded up to full seconds. The client does not renew the lease. GrantLease returns
	// the errors of clientv3, and ErrPassthrough for a client without etcd. It ends after
	// max(Config.TTL/2, 5 s). If the reply is lost, a lease without keys stays for the ttl.
	GrantLease(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error)
	// RevokeLease revokes a lease of GrantLease, counted as the requests of KV are, and with it
	// deletes the keys that are bound to it. Its errors and its end are those of GrantLease.
	RevokeLease(ctx context.Context, id clientv3.LeaseID) error

	Calls
	Keys

	// Store sends requests to etcd.
	Store() Store
	// Leases sends requests for leases to etcd.
	Leases() Leases
	// Read carries out reads at one revision, trying again while that is sensible.
	Read(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error)
	// Pages reads all keys that begin with prefix, at one revision, or at several if that is compacted
	// meanwhile. The first page has the given number of keys, and may be empty.
	Pages(ctx context.Context, prefix string, first int64) iter.Seq2[retry.Page, error]
	// ClearShared deletes the record of a shared key whose holders are all gone. It returns how many
	// are not. Without an error and with 0, the record is not as it was.
	ClearShared(ctx context.Context, key string, record *mvccpb.KeyValue) (holders int64, err error)
	// HandTo lets the release of a *etcdclaims.Claim hand the key to a caller of another client, by its
	// instance. If none is in line, the key goes to the most preferred caller (see etcdclaims.Prefer).
	HandTo(claim any, instance string)
}

// Calls is what the calls of a client have in common.
type Calls interface {
	// Refusal returns ErrNoClient unless the client was made by New or NewPassthrough.
	Refusal() error
	// CheckKey returns why a call on a key is refused, or nil.
	CheckKey(key string) error
	// CheckClaimed is CheckKey for calls that keep something in the place of a claim.
	CheckClaimed(key string) error
	// CheckTTL returns why a claim cannot have this lease time, or nil. It is for options that claims
	// get later, so that their error is that of the call that was given them.
	CheckTTL(ttl time.Duration) error
	// Bounded gives a call that does not wait for others a deadline of its own.
	Bounded(ctx context.Context) (context.Context, context.CancelFunc)
	// Closing is closed when the client is being closed. Ended adds to the error of a call that it was.
	Closing() <-chan struct{}
	Ended(err error) error
	// Abandon ends the client as the death of its process would. All claims end locally, and their
	// keys stay held until the leases lapse. After Close it returns the result of Close.
	Abandon() error
	// Drain is how long a handler may still run after its context has ended.
	Drain() time.Duration
	// Go runs f on a goroutine that Close waits for. The context of f ends with the client. Go
	// reports whether the client is open: otherwise it does not run f.
	Go(f func(ctx context.Context)) bool
	// Kept returns what is kept on the client under a name, which is what fresh returned first.
	Kept(name any, fresh func() any) any
	// Now returns the wall clock's time.
	Now() time.Time
}

var of func(claims any) Client

// Provide sets how Of finds what a client does. It is called once, before main.
func Provide(f func(claims any) Client) { of = f }

// Of returns what a *etcdclaims.Client does for the packages that are built on it. That of anything
// else, and of a nil client, refuses every call with ErrNoClient.
func Of(claims any) Client { return of(claims) }

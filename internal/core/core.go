// Package core is what package etcdclaims does for the packages of this module that keep keys of
// their own in etcd: queues, groups, schedules. Package etcdclaims provides it. It is no API for users, so
// no method for it is exported. What needs no etcd is in package attach.
package core

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Client is what a *etcdclaims.Client does for packages that are built on it.
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
}

var of func(claims any) Client

// Provide sets how Of finds what a client does. It is called once, before main.
func Provide(f func(claims any) Client) { of = f }

// Of returns what a *etcdclaims.Client does for the packages that are built on it. That of anything
// else, and of a nil client, refuses every call with ErrNoClient.
func Of(claims any) Client { return of(claims) }

package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// SessionInfo describes a session: a lease that a client renews, and that its
// claims share.
type SessionInfo struct {
	Instance string    // the client; see etcdclaims.Client.Instance
	Owner    string    // label of the client, for people
	Since    time.Time // when the session began, by the client's wall clock
	Lease    clientv3.LeaseID
	TTL      time.Duration // the lease time that etcd granted
	// Left is how long the lease lasts unless it is renewed, in full seconds, as
	// counted by etcd. A client renews when a third of the TTL has passed. Left
	// below half of the TTL means that a renewal is late, unless the session is that of a
	// Manual claim, which its caller renews.
	Left time.Duration
}

// Sessions yields the sessions of all clients under the prefix, in no particular
// order. A client without claims has no session after two of its TTLs. Leases of
// package locks and of work records are not sessions.
//
// Sessions asks etcd for the lease of each session that it yields, one by one.
// Leave the loop when there are enough. An error ends the iteration.
func Sessions(ctx context.Context, claims *etcdclaims.Client) iter.Seq2[SessionInfo, error] {
	c := of(claims)
	return func(yield func(SessionInfo, error) bool) {
		if err := c.Refusal(); err != nil {
			yield(SessionInfo{}, err)
			return
		}
		if c.claims.Passthrough() {
			return
		}
		fail := func(err error) { yield(SessionInfo{}, errtext.CallOfAll("list the sessions", err)) }
		root := c.Layout().Sessions()
		for p, err := range c.Pages(ctx, root, 512) {
			if err != nil {
				fail(err)
				return
			}
			for _, kv := range p.Kvs {
				instance, rest, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), root), "/")
				if !strings.HasPrefix(rest, "live/") || kv.Lease == 0 {
					continue // a notice to the client
				}
				s := SessionInfo{Instance: instance, Owner: "unknown", Lease: clientv3.LeaseID(kv.Lease)}
				if v, err := keyspace.Decode[protocol.Sentinel]("a sentinel", kv.Value, protocol.Version); err == nil {
					s.Owner, s.Since = v.Owner, keyspace.Time(v.Since)
				}
				live, err := c.leaseLeft(ctx, &s)
				if err != nil {
					fail(err)
					return
				}
				if live && !yield(s, nil) {
					return
				}
			}
		}
	}
}

// leaseLeft asks etcd for the lease of a session. It returns false if the session
// has ended.
func (c client) leaseLeft(ctx context.Context, s *SessionInfo) (live bool, err error) {
	ttl, err := c.Leases().TimeToLive(ctx, s.Lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) || err == nil && ttl.TTL < 0 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking for the lease of %q: %w", s.Owner, err)
	}
	s.TTL, s.Left = time.Duration(ttl.GrantedTTL)*time.Second, time.Duration(ttl.TTL)*time.Second
	return true, nil
}

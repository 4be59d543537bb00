package store

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// Grant grants a lease of full seconds. One whose reply is lost lapses.
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (*clientv3.LeaseGrantResponse, error) {
	return RoundTrip(ctx, s, RequestGrant, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return s.lease.Grant(ctx, int64(math.Ceil(ttl.Seconds())))
	})
}

// Revoke ends a lease, with all keys on it. If it fails, the lease lapses unless
// somebody renews it.
func (s *Store) Revoke(ctx context.Context, id clientv3.LeaseID) error {
	_, err := RoundTrip(ctx, s, RequestRevoke, func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) {
		return s.lease.Revoke(ctx, id)
	})
	return err
}

// TimeToLive reads how long a lease lasts. The TTL of the response is negative if
// there is no such lease.
func (s *Store) TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption,
) (*clientv3.LeaseTimeToLiveResponse, error) {
	return RoundTrip(ctx, s, RequestLeaseTTL, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return s.lease.TimeToLive(ctx, id, opts...)
	})
}

// LeaseGone reports whether there is no such lease, and with it no key that was on it. A
// lease whose time is over, and that etcd has not ended yet, is there.
func (s *Store) LeaseGone(ctx context.Context, id clientv3.LeaseID) (bool, error) {
	resp, err := s.TimeToLive(ctx, id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return true, nil
	}
	return err == nil && resp.TTL < 0 && resp.GrantedTTL == 0, err
}

// KeepAlive renews a lease, in one attempt: ctx bounds it, and limit bounds each answer that it
// waits for. It returns ErrLeaseNotFound if etcd has no such lease. clientv3's KeepAliveOnce
// would try again without a pause while etcd answers that it is unavailable. rev is a revision
// that etcd has had by then, 0 if none is known.
func (s *Store) KeepAlive(ctx context.Context, id clientv3.LeaseID, limit time.Duration) (ttl time.Duration, rev int64, err error) {
	s.requests.Add(1)
	sent := clock.Mono()
	defer func() { s.cfg.Requested(RequestKeepAlive, sent, err) }()
	ctx = txn.WithLeader(ctx)
	conn, logsIn := s.etcd.ActiveConnection(), s.etcd.Username != "" && s.etcd.Password != ""
	if logsIn && conn != nil {
		var refused bool
		if ttl, rev, refused, err = keepAliveAs(ctx, conn, id, limit); !refused {
			return ttl, rev, err
		}
	}
	if logsIn {
		limit *= 2 // for the login before the renewal
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if conn == nil {
		resp, err := s.lease.KeepAliveOnce(ctx, id)
		if err != nil {
			return 0, 0, err
		}
		return time.Duration(resp.TTL) * time.Second, resp.GetRevision(), nil
	}
	stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx, grpc.WaitForReady(true))
	if err != nil {
		return 0, 0, txn.CallError(ctx, err)
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		if _, rerr := stream.Recv(); rerr != nil {
			err = rerr // why the stream is over
		}
		return 0, 0, clientv3.ContextError(ctx, err)
	}
	resp, err := stream.Recv()
	if err != nil {
		return 0, 0, clientv3.ContextError(ctx, err)
	}
	_ = stream.CloseSend()
	return granted(resp)
}

// keepAliveAs renews a lease with the token that the connection has. clientv3 logs in before
// each stream that it opens. That is another round trip, too long for an attempt far from etcd, and
// a bcrypt for etcd. So the request is sent as one that has a single answer: on the wire that
// is a stream which the client ends behind its first message. Proxies that do not answer it do
// not pass on the users of their clients either.
//
// refused means that the token is not valid any more. clientv3 would log in again within the
// time of the attempt, which is not enough for that.
func keepAliveAs(ctx context.Context, conn *grpc.ClientConn, id clientv3.LeaseID, limit time.Duration,
) (ttl time.Duration, rev int64, refused bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var outdated atomic.Bool
	finished := grpc.OnFinish(func(err error) {
		if isTokenRefused(rpctypes.Error(err)) {
			outdated.Store(true)
			cancel()
		}
	})
	resp := new(pb.LeaseKeepAliveResponse)
	err = conn.Invoke(ctx, pb.Lease_LeaseKeepAlive_FullMethodName, &pb.LeaseKeepAliveRequest{ID: int64(id)}, resp,
		grpc.WaitForReady(true), finished)
	if err != nil {
		return 0, 0, outdated.Load(), txn.CallError(ctx, err)
	}
	ttl, rev, err = granted(resp)
	return ttl, rev, false, err
}

// granted returns the TTL of a lease that was renewed, and the revision.
func granted(resp *pb.LeaseKeepAliveResponse) (ttl time.Duration, rev int64, err error) {
	if resp.TTL <= 0 {
		return 0, 0, rpctypes.ErrLeaseNotFound
	}
	return time.Duration(resp.TTL) * time.Second, resp.Header.GetRevision(), nil
}

// isTokenRefused reports whether a request was refused because the client must log in.
func isTokenRefused(err error) bool {
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) || errors.Is(err, rpctypes.ErrUserEmpty)
}

package concurrency

import (
	"context"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// With WithMigration the session also has, under each claim, the key that etcd's package would have,
// on its own lease. The claim is taken first and given up last. So of the processes with
// this package one at a time waits for those with etcd's package, and no two wait for each other.

// besideTimeout bounds the deletion of a key of etcd's package, if its caller does not.
const besideTimeout = 5 * time.Second

// lockBeside locks the key of etcd's package under the claim. The wait ends with the claim. After an
// error the claim is released.
func (s *Session) lockBeside(ctx context.Context, claim *etcdclaims.Claim, pfx string, lock func(ctx context.Context) error) error {
	waiting, cancel := claim.Bind(ctx)
	defer cancel()
	err := lock(waiting)
	if err == nil {
		err = claim.Err()
	}
	if err == nil {
		return nil
	}
	err = errtext.Both(context.Cause(waiting), err)
	after := context.WithoutCancel(ctx)
	err = errtext.Both(err, s.unlockBeside(after, claim, pfx)) // etcd's package can leave it
	_ = claim.Release(after)
	return errtext.Call("acquire", pfx, s.expired(err))
}

// unlockBeside deletes the key of etcd's package. Once the claim is lost, another one of the session
// may be using that key. An error means that the key is still there, and the claim is not lost.
func (s *Session) unlockBeside(ctx context.Context, claim *etcdclaims.Claim, pfx string) error {
	if s.beside == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), besideTimeout)
	defer cancel()
	var unused []clientv3.Cmp
	if claim.Err() != nil {
		unused = append(unused, clientv3.Compare(clientv3.LeaseValue(s.claims.OwnKey(pfx)), "!=", s.lease))
	}
	key := fmt.Sprintf("%s/%x", pfx, int64(s.lease))
	_, err := core.Of(s.claims).KV().Txn(ctx).If(unused...).Then(clientv3.OpDelete(key)).Commit()
	if err == nil || claim.Err() != nil {
		return nil
	}
	return errtext.Call("unlock", pfx, fmt.Errorf("deleting the key of etcd's package: %w", err))
}

// proclaimBeside is Proclaim for candidates and observers with etcd's package.
func (s *Session) proclaimBeside(ctx context.Context, l *leadership, val string) error {
	if s.beside == nil {
		return nil
	}
	resp, err := l.claim.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(l.key), "=", l.rev)).
		Then(clientv3.OpPut(l.key, val, clientv3.WithLease(s.lease))).Commit()
	if err == nil && !resp.Succeeded {
		err = errtext.Call("proclaim", l.pfx, ErrElectionNotLeader)
	}
	return err
}

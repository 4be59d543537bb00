package sched

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// mostAsked is the size in bytes of a request for the ownership.
const mostAsked = 512 << 10

// askOwnership asks the owner of the term to hand the ownership over, if this process has all of its
// jobs. The request cannot be made after that term, nor twice.
func (s *Scheduler) askOwnership(ctx context.Context, term int64) error {
	h := tick.Heir{Version: valueVersion, Instance: s.claims.Instance(), Term: term}
	h.Jobs, h.Kinds = s.catalog.served()
	value := tick.Encode(h)
	if len(value) > mostAsked {
		return fmt.Errorf("the names of %d jobs have more than %d bytes", len(h.Jobs), mostAsked)
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	claim, err := s.claims.TryAcquire(ctx, tick.OpClaim(s.cfg.Group, uuid.NewString()), option.OwnKey{},
		etcdclaims.If(clientv3.Compare(clientv3.ModRevision(s.claims.OwnKey(ownerKey(s.cfg.Group))), "=", term)),
		etcdclaims.Then(clientv3.OpPut(s.keys.Heir(h.Instance), value)))
	if err != nil {
		return err
	}
	_ = claim.Release(ctx) // the acquisition made the request
	return nil
}

package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/internal/wire"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
)

// run renews the session's lease until the session or ctx ends.
func (s *session) run(ctx context.Context) {
	// The sessions of a client, opened one after the other while it claims many
	// keys, are not all to verify them at the same time ever after.
	renew := s.lease.Load().renew
	timer := time.NewTimer(renew - renew/16*time.Duration((s.n-1)%8))
	defer timer.Stop()
	for failures := 0; ; {
		select {
		case <-s.dead:
			return
		case <-ctx.Done():
			return
		case <-s.kick:
		case <-timer.C:
		}
		err := s.renew(ctx)
		g := s.lease.Load()
		age, _ := s.c.clock.Now().Since(g.t0)
		wait := g.renew - age
		if err != nil {
			// Jittered, and often enough to use a short gap in an outage, until
			// the deadline itself ends this loop.
			failures++
			wait = g.renew/40 + rand.N(min(g.renew/20<<min(failures, 3), time.Second))
			s.c.log.Debug("renewal failed", s.fields(zap.Int("failures", failures), zap.Error(err))...)
		} else {
			failures = 0
		}
		timer.Reset(max(wait, time.Millisecond))
	}
}

// renewSoon asks for a renewal without waiting for it.
func (s *session) renewSoon() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// renew extends the lease and, if all that it carries is still owned, moves the
// deadline forward. One attempt is in flight at a time, so that a reply belongs
// to its own t0.
func (s *session) renew(ctx context.Context) error {
	select {
	case <-s.renewing:
	case <-s.dead:
		return errSessionLost
	case <-ctx.Done():
		return wire.ContextError(ctx)
	}
	defer func() { s.renewing <- struct{}{} }()

	g := s.lease.Load()
	t0 := s.c.clock.Now()
	age, _ := t0.Since(g.t0)
	if age >= g.hard {
		s.enforce()
		return errSessionLost
	}
	// The attempt's timeout makes the next one take another endpoint.
	callCtx, cancel := context.WithTimeout(ctx, min(g.attempt, g.hard-age))
	defer cancel()
	ttl, err := s.c.keepAlive(callCtx, s.id)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		s.die(ReasonRevoked, nil)
		return errSessionLost
	case err != nil:
		return fmt.Errorf("renewing the lease: %w", err)
	}
	// That the lease lives says nothing of the keys (etcd-io/etcd#14758).
	verifyCtx, cancel := context.WithTimeout(ctx, g.hard-age)
	defer cancel()
	if err := s.verify(verifyCtx); err != nil {
		return fmt.Errorf("verifying claims after a renewal: %w", err)
	}
	s.adopt(t0, ttl)
	if hook := s.c.cfg.Hooks.Renewed; hook != nil {
		hook(Renewal{TTL: ttl, Margin: g.hard - age, Claims: s.size()})
	}
	return nil
}

func (s *session) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.terms)
}

// verify asks etcd for every claim of the session, and loses those that are no
// longer its own, alone. Nearly always all are: so etcd is given the conditions
// and answers with a word, in place of all values.
func (s *session) verify(ctx context.Context) error {
	s.mu.Lock()
	terms := make([]*term, len(s.terms))
	copy(terms, s.terms)
	s.mu.Unlock()
	// A session without claims asks for the epoch all the same: by that it learns
	// of a restore, after which its watch may be silent for long.
	verified := int64(0)
	var mails []*mvccpb.KeyValue
	for first := true; first || len(terms) > 0; first = false {
		n := min(len(terms), int(s.c.store.opLimit.Load())/2)
		since, waiting := s.mailSince()
		waiting = waiting && verified == 0
		in := s.allOwned(terms[:n])
		if waiting {
			in.Success = append(in.Success, s.mailOp(since))
			in.Failure = in.Success
		}
		resp, err := s.c.store.send(ctx, request{built: in})
		switch {
		case wire.IsTooManyOps(err) && n > leastOps/2:
			s.c.store.fewerOps(2 * n)
			continue
		case err != nil:
			return err
		}
		kvs := resp.Responses[0].GetResponseRange().Kvs
		if err := s.c.store.learnEpoch(kvs, resp.Header.Revision); err != nil {
			return err
		}
		if !resp.Succeeded {
			if err := s.sort(ctx, terms[:n]); err != nil {
				return err
			}
		}
		for _, t := range terms[:n] {
			t.judgeEpoch(kvs)
		}
		if verified == 0 {
			verified = resp.Header.Revision
		}
		if waiting { // a watch can be deaf
			mails = resp.Responses[1].GetResponseRange().Kvs
		}
		terms = terms[n:]
	}
	s.verified.Store(verified)
	for _, kv := range mails {
		s.c.deliver(kv)
	}
	return nil
}

// allOwned succeeds if the session owns all of the terms. Either way it reads the
// epoch, which makes etcd answer from the present: a transaction without a read
// would be answered from whatever the member knows.
func (s *session) allOwned(terms []*term) *pb.TxnRequest {
	st := s.c.store
	epoch := []*pb.RequestOp{getOp(st.epochKey)}
	in := &pb.TxnRequest{Compare: make([]*pb.Compare, 0, 2*len(terms)), Success: epoch, Failure: epoch}
	for _, t := range terms {
		own := []byte(st.layout.own(t.key))
		in.Compare = append(in.Compare, modifiedAt(own, revision(t.fence)), onLease(own, s.id))
	}
	return in
}

// mailOp reads the mail since a revision.
func (s *session) mailOp(since int64) *pb.RequestOp {
	op := rangeOp(s.c.store.layout.mails())
	op.GetRequestRange().MinModRevision = since
	return op
}

// sort reads the terms of which one at least is not the session's any more.
func (s *session) sort(ctx context.Context, terms []*term) error {
	in := &pb.TxnRequest{Success: make([]*pb.RequestOp, len(terms))}
	for i, t := range terms {
		// Not keys only: etcd 3.7 answers that from its index, which does not know
		// the lease.
		in.Success[i] = getOp([]byte(s.c.store.layout.own(t.key)))
	}
	resp, err := s.c.store.send(ctx, request{built: in})
	if err != nil {
		return err
	}
	for i, t := range terms {
		t.judge(resp.Responses[i].GetResponseRange().Kvs)
	}
	return nil
}

// renewVerified waits until the session is renewed by an attempt that starts
// now or later, trying until ctx or the session ends.
func (s *session) renewVerified(ctx context.Context) error {
	for try := 0; ; try++ {
		err := s.renew(ctx)
		if err == nil {
			return nil
		}
		if s.over() {
			return errSessionLost
		}
		if !backOff(ctx, try, s.dead) {
			if cause := wire.ContextError(ctx); cause != nil {
				return fmt.Errorf("%w (%w)", err, cause)
			}
			return err
		}
	}
}

package etcdclaims

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// verify checks in etcd that the session still has its claims, and loses those that it
// has not. Nearly always it has all: so the request has conditions, and etcd answers
// with a word instead of all values. A part of the claims can be enough, see
// rotation.go. If a condition in that part fails, all are verified.
//
// The same requests compare the keys that its waiters wait for, one condition each, and
// read their notices: a watch can be deaf, or hang with its member.
func (s *session) verify(ctx context.Context, what extent) error {
	s.mu.Lock()
	terms := make([]*term, len(s.terms))
	copy(terms, s.terms)
	s.mu.Unlock()
	if what == everything || len(terms) <= rotateAbove {
		return s.verifyThese(ctx, &check{terms: terms})
	}
	k := &check{terms: s.pick(terms), all: terms, origin: s.rotation.origin}
	err := s.verifyThese(ctx, k)
	if err == nil && k.doubtful.Load() {
		err = s.verifyThese(ctx, &check{terms: terms})
	}
	return err
}

// verifyThese verifies the terms of the check, and compares the keys that the session's
// waiters wait for.
func (s *session) verifyThese(ctx context.Context, k *check) error {
	waits := s.c.waiters.of(s)
	most := s.c.store.MaxOps() // which can fall meanwhile
	lanes := lanesOf((2*len(k.terms) + len(waits) + most - 1) / most)
	verified := make([]int64, lanes)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var once sync.Once
	var failed error // the first failure, which ends the other lanes
	for lane := range lanes {
		part := func(n, unit int) (from, to int) { // as many full requests as there can be
			units := (n + unit - 1) / unit
			return min(n, units*lane/lanes*unit), min(n, units*(lane+1)/lanes*unit)
		}
		t0, t1 := part(len(k.terms), max(1, most/2))
		w0, w1 := part(len(waits), most)
		verify := func() {
			var err error
			if verified[lane], err = s.verifySome(ctx, k, k.terms[t0:t1], waits[w0:w1], lane == 0); err != nil {
				once.Do(func() { failed = err; cancel() })
			}
		}
		if lane == lanes-1 {
			verify()
		} else {
			all.Go(verify)
		}
	}
	all.Wait()
	if failed != nil {
		return failed
	}
	s.rotation.origin = k.latest
	s.verified.Store(slices.Min(verified))
	return nil
}

// mostLanes is how many requests of one verification are under way at a time.
const mostLanes = 8

// lanesOf returns in how many parts that many requests are sent at a time. If there are many
// and etcd is far away, one after the other would take longer than a lease lasts.
func lanesOf(requests int) int { return max(1, min(requests, mostLanes)) }

// verifySome verifies some of the terms and waits. It returns a revision as of which
// they were verified. One that reads also reads what there is once for the session.
func (s *session) verifySome(ctx context.Context, k *check, terms []*term, waits []wait, reads bool) (verified int64, err error) {
	// A session without claims asks for the epoch all the same: by that it learns
	// of a restore, after which its watch may be silent for long.
	var notices []*mvccpb.KeyValue
	for first := true; first || len(terms)+len(waits) > 0; first = false {
		limit := s.c.store.MaxOps()
		n, width := fitting(terms, limit)
		m := min(len(waits), limit-width)
		since, waiting, watched := int64(0), false, false
		if reads && verified == 0 {
			since, waiting = s.c.waiters.noticesSince(s)
			watched = k.all != nil
		}
		step := s.verification(terms[:n], waits[:m])
		in := step.Build()
		if watched {
			in.Success = append(in.Success, s.readSession()...)
		}
		if waiting {
			in.Success = append(in.Success, s.readNotices(since))
		}
		in.Failure = in.Success
		resp, err := s.c.store.Send(ctx, txn.Request{In: in})
		switch {
		case txn.IsTooManyOps(err) && width+m > txn.LeastOps:
			s.c.store.FewerOps(width + m)
			continue
		case err != nil:
			return 0, err
		}
		kvs := step.Epoch((*pb.TxnResponse)(resp))
		if err := s.c.store.LearnEpoch(kvs, resp.Header.Revision); err != nil {
			return 0, err
		}
		if !resp.Succeeded {
			if err := s.reconcile(ctx, k, step, terms[:n], waits[:m]); err != nil {
				return 0, err
			}
		}
		for _, t := range terms[:n] {
			t.found(t.OfEpoch(kvs))
		}
		k.learn(resp.Header)
		if watched {
			k.compare(s, resp.Responses)
		}
		if verified == 0 {
			verified = resp.Header.Revision
		}
		if waiting {
			notices = txn.Kvs(resp, len(resp.Responses)-1)
		}
		terms, waits = terms[n:], waits[m:]
	}
	for _, kv := range notices {
		s.c.deliver(kv)
	}
	return verified, nil
}

// fitting returns how many of the terms one request can verify, and how many conditions
// that takes.
func fitting(terms []*term, limit int) (n, width int) {
	for _, t := range terms {
		more := t.Width()
		if width+more > limit {
			break
		}
		n, width = n+1, width+more
	}
	return n, width
}

// verification checks that the session owns all of the terms and that nothing has changed for those
// who wait.
func (s *session) verification(terms []*term, waits []wait) protocol.Verify {
	v := protocol.Verify{Layout: s.c.store.Layout, Held: make([]*protocol.Held, len(terms)), Waits: make([]protocol.Wait, len(waits))}
	for i, t := range terms {
		v.Held[i] = &t.Held
	}
	for i, w := range waits {
		v.Waits[i] = w.Wait
	}
	return v
}

// readNotices reads the notices since a revision.
func (s *session) readNotices(since int64) *pb.RequestOp {
	op := txn.Range(s.c.store.Layout.Notices())
	op.GetRequestRange().MinModRevision = since
	return op
}

// reconcile reads the terms and the keys that callers wait for. At least one of them
// differs from what the session knows.
func (s *session) reconcile(ctx context.Context, k *check, step protocol.Verify, terms []*term, waits []wait) error {
	resp, err := s.c.store.Send(ctx, step.Reads())
	if err != nil {
		return err
	}
	states, changed := step.Judge((*pb.TxnResponse)(resp))
	for i, t := range terms {
		t.found(states[i])
		var lost *LostError
		if errors.As(t.ended(), &lost) {
			k.doubtful.Store(true)
		}
	}
	for i, w := range waits {
		if changed[i] {
			s.c.waiters.changed(w)
		}
	}
	return nil
}

package term

import (
	"context"
	"slices"
	"sync"

	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Verify checks in etcd that a session still has its claims, and loses those that it
// has not. Nearly always it has all: so the request has conditions, and etcd answers
// with a word instead of all values. A part of the claims can be enough, see
// rotation.go. If a condition in that part fails, all are verified.
//
// The same requests compare the keys that its waiters wait for, one condition each, and
// read their notices: a watch can be deaf, or hang with its member.
func (ts *Terms) Verify(ctx context.Context, s *lease.Session, what lease.Turn) (lease.Verified, error) {
	terms := lease.MembersOf[*Term](s)
	all := &check{ts: ts, s: s, terms: terms}
	if what.All || len(terms) <= rotateAbove {
		return all.verify(ctx)
	}
	part := &check{ts: ts, s: s, terms: ts.pick(terms, what.Part), all: terms, origin: what.Origin}
	done, err := part.verify(ctx)
	if err == nil && part.doubtful.Load() {
		return all.verify(ctx)
	}
	return done, err
}

// verify verifies the terms of the check, and compares the keys that the session's
// waiters wait for.
func (k *check) verify(ctx context.Context) (done lease.Verified, failed error) {
	waits := k.ts.Waiters.Of(k.s)
	most := k.ts.Store.MaxOps() // which can fall meanwhile
	lanes := lanesOf((2*len(k.terms) + len(waits) + most - 1) / most)
	verified := make([]int64, lanes)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var once sync.Once // for the first failure, which ends the other lanes
	for lane := range lanes {
		part := func(n, unit int) (from, to int) { // as many full requests as there can be
			units := (n + unit - 1) / unit
			return min(n, units*lane/lanes*unit), min(n, units*(lane+1)/lanes*unit)
		}
		t0, t1 := part(len(k.terms), max(1, most/2))
		w0, w1 := part(len(waits), most)
		verify := func() {
			var err error
			if verified[lane], err = k.verifySome(ctx, k.terms[t0:t1], waits[w0:w1], lane == 0); err != nil {
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
		return done, failed
	}
	return lease.Verified{Rev: slices.Min(verified), Origin: k.latest}, nil
}

// mostLanes is how many requests of one verification are under way at a time.
const mostLanes = 8

// lanesOf returns in how many parts that many requests are sent at a time. If there are many
// and etcd is far away, one after the other would take longer than a lease lasts.
func lanesOf(requests int) int { return max(1, min(requests, mostLanes)) }

// verifySome verifies some of the terms and waits. It returns a revision as of which
// they were verified. One that reads also reads what there is once for the session.
func (k *check) verifySome(ctx context.Context, terms []*Term, waits []Wait, reads bool) (verified int64, err error) {
	// A session without claims asks for the epoch, if etcd may have been restored: after
	// that its watch may be silent for long.
	ts := k.ts
	var notices []*mvccpb.KeyValue
	for first := true; first || len(terms)+len(waits) > 0; first = false {
		limit := ts.Store.MaxOps()
		n, width := fitting(terms, limit)
		m := min(len(waits), limit-width)
		since, waiting, watched := int64(0), false, false
		if reads && verified == 0 {
			since, waiting = ts.Waiters.NoticesSince(k.s)
			watched = k.all != nil
		}
		step := ts.verification(terms[:n], waits[:m])
		in := step.Build()
		if watched {
			in.Success = append(in.Success, k.readSession()...)
		}
		if waiting {
			in.Success = append(in.Success, ts.readNotices(since))
		}
		in.Failure = in.Success
		resp, err := ts.Store.Send(ctx, txn.Request{In: in})
		switch {
		case txn.IsTooManyOps(err) && width+m > txn.LeastOps:
			ts.Store.FewerOps(width + m)
			continue
		case err != nil:
			return 0, err
		}
		kvs := step.Epoch((*pb.TxnResponse)(resp))
		if err := ts.Store.LearnEpoch(kvs, resp.Header.Revision); err != nil {
			return 0, err
		}
		if !resp.Succeeded {
			if err := k.reconcile(ctx, step, terms[:n], waits[:m]); err != nil {
				return 0, err
			}
		}
		for _, t := range terms[:n] {
			t.Found(t.OfEpoch(kvs))
		}
		k.learn(resp.Header)
		if watched {
			k.compare(resp.Responses)
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
		ts.Waiters.Deliver(kv)
	}
	return verified, nil
}

// fitting returns how many of the terms one request can verify, and how many conditions
// that takes.
func fitting(terms []*Term, limit int) (n, width int) {
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
func (ts *Terms) verification(terms []*Term, waits []Wait) protocol.Verify {
	v := protocol.Verify{Layout: ts.Store.Layout, Held: make([]*protocol.Held, len(terms)), Waits: make([]protocol.Wait, len(waits))}
	for i, t := range terms {
		v.Held[i] = &t.Held
	}
	for i, w := range waits {
		v.Waits[i] = w.Wait
	}
	return v
}

// readNotices reads the notices since a revision.
func (ts *Terms) readNotices(since int64) *pb.RequestOp {
	op := txn.Range(ts.Store.Layout.Notices())
	op.GetRequestRange().MinModRevision = since
	return op
}

// reconcile reads the terms and the keys that callers wait for. At least one of them
// differs from what the session knows.
func (k *check) reconcile(ctx context.Context, step protocol.Verify, terms []*Term, waits []Wait) error {
	resp, err := k.ts.Store.Send(ctx, step.Reads())
	if err != nil {
		return err
	}
	states, changed := step.Judge((*pb.TxnResponse)(resp))
	for i, t := range terms {
		t.Found(states[i])
		if t.IsLost() {
			k.doubtful.Store(true)
		}
	}
	for i, w := range waits {
		if changed[i] {
			w.Waiter.Changed(w.Wait)
		}
	}
	return nil
}

package sched

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// tenure is one term of an owner: it admits ticks. All of it happens on one
// goroutine, under the claim's guard.
type tenure struct {
	s     *Scheduler
	claim *etcdclaims.Claim
	jobs  map[string]*charge // by the digest of the name
	batch int                // steps in one transaction
	stale bool               // what is known of the jobs is in doubt

	unread bool      // something of the jobs could not be read
	loaded time.Time // when they were read last

	looked time.Time // for orphans
	late   time.Time // when the next tick that waits is too late, by the wall clock

	wall time.Time // when the clocks were read last
	mono time.Time
}

// charge is a job as the owner knows it.
type charge struct {
	job     Job
	spec    spec
	specRev int64
	high    time.Time // high-water mark
	highRev int64
	paused  bool
	at      time.Time // when it is to be looked at, zero for never
}

const (
	fullBatch = 64               // steps in one transaction: nested, each takes some of etcd's 128 operations
	nap       = 10 * time.Second // the longest sleep: a step of the wall clock is noticed after it
	clockSlip = time.Second      // by how much the clocks may disagree
	patience  = 5                // tries after which the pauses are the longest
)

func newTenure(s *Scheduler, claim *etcdclaims.Claim) *tenure {
	return &tenure{s: s, claim: claim, batch: fullBatch, stale: true}
}

// rule admits ticks until ctx ends, with the claim or the scheduler.
func (t *tenure) rule(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		t.s.watchRuns(ctx)
	}()
	defer func() { cancel(); <-watched }()
	heard := t.s.view.listen()
	defer t.s.view.deaf(heard)
	select {
	case <-t.s.view.synced:
	case <-ctx.Done():
		return
	}
	t.readClocks()
	orphans := true
	for try, doubts := 0, 0; ctx.Err() == nil; {
		err := t.round(ctx, orphans)
		if err == nil {
			orphans = false
		} else {
			if ctx.Err() != nil || t.claim.Err() != nil {
				return
			}
			t.s.log.Warn("ticks cannot be admitted; trying again", zap.Int64("fence", t.claim.Fence()), zap.Error(err))
			t.stale = true
			if errors.Is(err, errUnreadable) {
				pauseFor(ctx, patience) // it may be the first in line again
				return
			}
			pauseFor(ctx, try)
			try++
			continue
		}
		try = 0
		if t.stale {
			// Something was not as it was thought to be. Once that is to be
			// expected, more often it is news that are late.
			pauseFor(ctx, doubts)
			doubts++
			continue
		}
		doubts = 0
		timer := time.NewTimer(t.rest())
		select {
		case <-timer.C:
		case <-heard:
		case <-t.s.more:
			t.stale = true
		case <-t.s.stir:
			orphans = true
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// round does what there is to do now.
func (t *tenure) round(ctx context.Context, orphans bool) error {
	if err := t.checkClocks(ctx); err != nil {
		return err
	}
	t.seePauses()
	if t.stale || t.unread && time.Since(t.loaded) >= nap {
		if err := t.load(ctx); err != nil {
			return err
		}
	}
	var refused error
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error {
			if orphans || time.Since(t.looked) >= orphanCheck && t.s.view.any(t.s.keys.runs()) {
				return t.settleOrphans(ctx)
			}
			return nil
		},
		t.dropLate, t.answer,
	} {
		err := step(ctx)
		if err != nil && !isTooLarge(err) && !isRefusal(err) {
			return err
		}
		// What etcd will not accept however often it is asked holds up nothing else.
		refused = errors.Join(refused, err)
	}
	return errors.Join(refused, t.admit(ctx))
}

// rest is how long nothing will be due.
func (t *tenure) rest() time.Duration {
	now, d := t.s.now(), nap
	if t.s.view.any(t.s.keys.runs()) {
		d = orphanCheck - time.Since(t.looked)
	}
	for _, c := range t.jobs {
		if !c.at.IsZero() && !c.paused {
			d = min(d, c.at.Sub(now))
		}
	}
	if !t.late.IsZero() {
		d = min(d, t.late.Sub(now)+time.Millisecond)
	}
	return max(d, 0)
}

func (t *tenure) readClocks() { t.wall, t.mono = t.s.now(), time.Now() }

// checkClocks verifies the ownership if the wall clock went another way than the
// monotonic one: then this process has slept, or its clock was stepped, and what
// it believes of the past is in doubt. Admissions are guarded in any case; but
// nothing is decided on such a belief.
func (t *tenure) checkClocks(ctx context.Context) error {
	wall, mono := t.wall, t.mono
	now := time.Now()
	slip := t.s.now().Sub(wall) - now.Sub(mono)
	if slip.Abs() > clockSlip {
		t.s.log.Warn("the wall clock jumped", zap.Duration("by", slip))
		if hook := t.s.cfg.Hooks.ClockJumped; hook != nil {
			hook(slip)
		}
		owns, err := t.claim.Owns(ctx)
		if err != nil {
			return err // the clocks are compared with the old readings again
		}
		if !owns {
			return etcdclaims.ErrLost
		}
		t.stale = true
	}
	t.readClocks()
	return nil
}

// A decision is carried out in one nested transaction if its conditions
// hold.
type decision struct {
	cmps []clientv3.Cmp
	ops  []clientv3.Op
	// done is told what came of it: ok, with the replies to ops, or that the
	// conditions did not hold.
	done func(ok bool, rev int64, replies []*pb.ResponseOp)
}

// take carries out steps under the guard of the claim, many in a round trip. An
// error says that it is not known of all what became of them.
func (t *tenure) take(ctx context.Context, steps []decision) error {
	for len(steps) > 0 {
		n := min(t.batch, len(steps))
		ops := make([]clientv3.Op, n)
		for i, st := range steps[:n] {
			ops[i] = clientv3.OpTxn(st.cmps, st.ops, nil)
		}
		resp, err := t.claim.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			if isTooLarge(err) && n > 1 {
				t.batch = n / 2 // of an etcd that allows less
				continue
			}
			return err
		}
		for i, st := range steps[:n] {
			inner := resp.Responses[i].GetResponseTxn()
			t.s.rings.learn(inner.Responses)
			st.done(inner.Succeeded, resp.Header.Revision, inner.Responses)
		}
		steps = steps[n:]
	}
	return nil
}

// seePauses takes over which jobs are paused. What was paused may have a new
// high-water mark when it goes on.
func (t *tenure) seePauses() {
	for _, c := range t.jobs {
		paused := !t.s.view.get(t.s.keys.paused(c.job.Name)).gone
		if c.paused && !paused {
			t.stale = true
		}
		c.paused = paused
	}
}

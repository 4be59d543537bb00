package sched

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/lanes"
	"github.com/etcdclaims/claims/internal/oplog"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const starting = "begin ticks"

// running returns the ticks of the recorded runs that exclude a run of the tick.
func (s *Scheduler) running(r ready) (ticks []*waiter) {
	dirs := s.keys.Excluding(r)
	if !slices.ContainsFunc(dirs, func(dir string) bool { return s.view.CountIn(s.view.Dir(dir)) > 0 }) {
		return nil
	}
	for key, is := range s.view.Runs() {
		if slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(key, dir) }) {
			ticks = append(ticks, &waiter{Waiting: tick.Waiting{Ready: is.Run.Ready, Key: s.keys.Ready(r.Job, is.Run.ID)}})
		}
	}
	return ticks
}

// begin claims a run and removes its tick from the waiting ticks, in one transaction.
// It does not if an earlier one of the ticks ahead waits. If begin fails it returns no
// claim, and whether to try again later.
func (s *Scheduler) begin(ctx context.Context, claim string, w waiter, ahead []*waiter) (cl *etcdclaims.Claim, r run, value string, again bool) {
	r = s.newRun(claim, w.Ready)
	r.Admitted = w.Waiting.AdmittedAt()
	st := tick.Begin{Keys: s.keys, Tick: w.Waiting, Run: r, Value: encode(r)}
	for _, a := range ahead {
		if lanes.ByTurn(a, &w) < 0 {
			st.Ahead = append(st.Ahead, a.Key)
		}
	}
	cl, err := s.claimRun(ctx, readTime, r, st.Build())
	switch {
	case err == nil:
		s.view.Remove(w.Key, cl.Revision())
		s.view.PutRun(s.keys.Run(w.Job, w.ID), st.Value, &r, cl.Revision())
		return cl, r, st.Value, false
	case errors.Is(err, etcdclaims.ErrRefused) && s.stillWaits(ctx, st):
	case errors.Is(err, etcdclaims.ErrRefused):
		s.view.Forget(w.Key, w.Rev) // another process has begun it, or it was withdrawn
		return nil, r, "", false
	case errors.Is(err, etcdclaims.ErrHeld):
	case oplog.IsDenied(err):
		if s.outage.Denied(starting, err, zap.String("key", claim)) {
			s.deny(err)
		}
	default:
		s.outage.Fail(starting, err, zap.String("key", claim), zap.String("job", w.Job), zap.String("tick", w.ID))
	}
	return nil, r, "", true
}

// newRun returns the run of a tick that is about to begin.
func (s *Scheduler) newRun(claim string, of ready) run {
	r := run{Ready: of, Claim: claim, Run: uuid.NewString(), Owner: s.claims.Owner(), Instance: s.claims.Instance(), Began: s.now()}
	r.Epoch = max(of.Epoch, s.epoch.Load())
	return r
}

// claimRun claims a run, with what a step adds.
func (s *Scheduler) claimRun(ctx context.Context, most time.Duration, r run, in *pb.TxnRequest) (*etcdclaims.Claim, error) {
	// A stop does not cut this short: a process that knows of its begin can give the
	// tick back.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	defer cancel()
	cmps, ops, _ := txn.Operations(in)
	s.tries(r.Run)
	cl, err := s.claims.TryAcquire(ctx, r.Claim,
		option.OwnKey{}, option.Concern{Names: []string{s.keys.Concern(r.Job, r.ID, r.Parallel)}},
		etcdclaims.If(cmps...), etcdclaims.Then(ops...))
	if err != nil {
		// The claim may have been taken although the reply was lost. Then it is given up
		// in the background, and the record of a run stays whose handler was never called.
		s.begunNever(r.Run, !errors.Is(err, etcdclaims.ErrHeld))
		return nil, err
	}
	s.outage.Succeed(starting)
	s.epoch.Store(keyspace.Epoch(cl.Fence()))
	return cl, nil
}

// stillWaits reports whether a tick that was refused may begin later: another run of its
// job is recorded, or was until a moment ago. A tick that cannot be read may begin later.
func (s *Scheduler) stillWaits(ctx context.Context, st tick.Begin) bool {
	if st.Tick.Parallel {
		return false
	}
	if len(s.running(st.Tick.Ready)) > 0 {
		return true
	}
	resp, err := core.Of(s.claims).KV().Get(ctx, st.Tick.Key, clientv3.WithKeysOnly())
	return err != nil || st.MayFollow(resp.Kvs)
}

// heard handles an event about a claim of the group.
func (s *Scheduler) heard(ev etcdclaims.Event) {
	switch ev.Kind {
	case etcdclaims.Resynced:
		signal(s.rescan)
		s.retryAll()
	case etcdclaims.Freed:
		s.free(ev.Info.Key)
		if s.view.BegunUnder(ev.Info.Key, ev.Info.Revision()) {
			signal(s.rescan)
		}
	}
}

// mostFreed is how many free claims are remembered one by one.
const mostFreed = 1000

// free lets the starter try a claim again that has become free.
func (s *Scheduler) free(claim string) {
	s.mu.Lock()
	if len(s.freed) < mostFreed {
		s.freed = append(s.freed, claim)
	} else {
		s.freedAll = true
	}
	s.mu.Unlock()
	signal(s.retry)
}

// retryAll lets the starter try all claims again.
func (s *Scheduler) retryAll() {
	s.mu.Lock()
	s.freedAll = true
	s.mu.Unlock()
	signal(s.retry)
}

// takeFreed returns the claims to try again.
func (s *Scheduler) takeFreed() (claims []string, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	claims, all = s.freed, s.freedAll
	s.freed, s.freedAll = nil, false
	return claims, all
}

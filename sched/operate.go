package sched

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/pausing"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The operations below work in any process that has a scheduler of the group, also
// if it never calls Run and has no jobs. Each takes effect in etcd, at once and for
// the whole group, and records the client's Config.Owner. They do not wait for the
// owner of the group, which may be down.

// PauseOption changes what Pause does.
type PauseOption interface{ applyPause(*pausing.Length) }

type pauseOption func(*pausing.Length)

func (f pauseOption) applyPause(l *pausing.Length) { f(l) }

// For makes a pause end by itself after d: more than zero, and at most 366 days. Without For it lasts
// until Resume.
//
// The pause ends as if Resume had been called at its end: CatchUp decides about ticks after that, and
// about no tick of the pause. The owner of the group ends it, by its own clock. If there is no owner
// then, the next one does. The record of the call, see admin.Actions, has d. No call ends the pause, so
// its end has no such record.
//
// Job.PauseOnFailure does not make such a pause last longer: failures before its end count for nothing
// afterwards.
func For(d time.Duration) PauseOption {
	return pauseOption(func(l *pausing.Length) { *l = pausing.For(d) })
}

// Pause stops the admission of the job's scheduled ticks until Resume, or for some time: see [For]. The
// note why is kept with the pause. Ticks that wait and runs in progress are not affected, and
// RunNow and Backfill still work. Pause works in any process of the group, also in
// one that does not call Run.
//
// Pause replaces a pause that ends by itself, so that it lasts longer, or not as long. It does not
// replace one that lasts until Resume. Nor does Job.PauseOnFailure replace any pause. The pause that
// replaces another begins anew: JobInfo.Paused and Stats.PausedSince have the time of the last call.
//
// Errors: [ErrUnknownJob], [ErrUnchanged] if the job is paused until Resume already, and those of
// etcdclaims.Client.TryAcquire. If the error matches etcdclaims.ErrUnknown, the pause may have taken
// effect; after any other error it has not. The error of a duration that For does not allow is returned
// before any request.
func (s *Scheduler) Pause(ctx context.Context, job, why string, opts ...PauseOption) error {
	var length pausing.Length
	for _, opt := range opts {
		if opt != nil {
			opt.applyPause(&length)
		}
	}
	now := s.now()
	until, err := length.End(now)
	if err != nil {
		return errtext.Wrap(fmt.Sprintf("sched: pause job %.80q", job), err)
	}
	paused := s.keys.Paused(job)
	value := tick.Encode(pause{Version: valueVersion, By: s.claims.Owner(), Note: limitText(why), At: now, Until: until})
	act := s.act(ctx, audit.PauseJob, job, length.String(), why)
	return s.operate(ctx, act, "pause", job, func(st *jobSnapshot) ([]clientv3.Cmp, []clientv3.Op, error) {
		if st.removed() {
			return nil, nil, s.unknownJob(job)
		}
		if st.Paused != nil && st.Paused.Until.IsZero() {
			return nil, nil, fmt.Errorf("%w: the job is paused already, by %s at %s: %s",
				ErrUnchanged, st.Paused.By, st.Paused.At.Format(time.RFC3339), st.Paused.Note)
		}
		unmoved := clientv3.Compare(clientv3.ModRevision(paused), "=", st.PausedRev) // 0 of a job that is not paused
		return []clientv3.Cmp{unmoved, s.definedAs(job, st.definitionRev)}, []clientv3.Op{clientv3.OpPut(paused, value)}, nil
	})
}

// Resume ends a pause, whichever process made it. It raises the job's high-water mark
// to the current time, by this process's clock (Config.Now). The next tick is the
// first one due after that. Ticks of the pause do not count as missed, and have one record
// together; use Backfill to run them. If this clock is ahead of the owner's, the ticks in between are left out
// without a record. If it is behind, CatchUp decides about them.
//
// A pause that has ended by itself, and that no owner has ended so far, ends as of its own end.
//
// Errors: [ErrUnknownJob], [ErrUnchanged] if the job is not paused, and those of etcdclaims.Client.TryAcquire.
// If the error matches etcdclaims.ErrUnknown, Resume may have taken effect; after any
// other error it has not.
func (s *Scheduler) Resume(ctx context.Context, job string) error {
	act := s.act(ctx, audit.ResumeJob, job, "", "")
	return s.operate(ctx, act, "resume", job, func(st *jobSnapshot) ([]clientv3.Cmp, []clientv3.Op, error) {
		if st.SpecRev == 0 {
			return nil, nil, s.unknownJob(job)
		}
		if st.Paused == nil {
			return nil, nil, fmt.Errorf("%w: the job is not paused", ErrUnchanged)
		}
		schedule := jobstate.Without(s.scheduleOf(job, st), st.Reset.Decided)
		to := jobstate.EndPause(s.keys, job, schedule, *st.Paused, st.PausedRev, tick.Mark{At: st.High, Rev: st.HighRev}, s.now())
		cmps, ops, _ := txn.Operations(to.Build())
		return cmps, ops, nil
	})
}

// Cancel ends the contexts of all runs of the job in progress, with [ErrCancelled] as
// their cause. It also takes back all waiting ticks, requests of RunNow and backfills
// of the job: they do not begin after Cancel. It does not wait until the runs have
// stopped. Later scheduled ticks are not affected; Pause stops them.
//
// The owner records the ticks that were taken back. At most 20 of them have a record each,
// or Job.History - 2 if that is less: the oldest ones and the newest. Entry.Missed of the
// newest counts the ticks without a record. The note why is part of the records.
//
// Errors: [ErrUnknownJob], and those of etcdclaims.Client.TryAcquire. If the error
// matches etcdclaims.ErrUnknown, Cancel may have taken effect; after any other error it
// has not.
func (s *Scheduler) Cancel(ctx context.Context, job, why string) error {
	value := tick.Encode(cancelling{Version: valueVersion, By: s.claims.Owner(), Note: limitText(why), At: s.now()})
	act := s.act(ctx, audit.CancelJob, job, "", why)
	return s.operate(ctx, act, "cancel", job, func(st *jobSnapshot) ([]clientv3.Cmp, []clientv3.Op, error) {
		if st.SpecRev == 0 {
			return nil, nil, s.unknownJob(job)
		}
		// No condition depends on the state of the job, so a busy job cannot delay this.
		return nil, []clientv3.Op{
			clientv3.OpPut(s.keys.Cancel(job), value), clientv3.OpPut(s.keys.Withdraw(job), value),
			clientv3.OpDelete(s.keys.AsksOf(job), clientv3.WithPrefix()),
		}, nil
	})
}

// mostForgotten is how many orphaned runs one request removes, with their slots.
const mostForgotten = 20

// Forget removes the state of a job that no process has any more: its specification,
// its high-water mark, its waiting ticks, its history, and the runs whose process died.
// Such runs would stay recorded as in progress, because only an owner that has the job
// settles them.
//
// Forget does not check whether a process still has the job. If the owner has it, it
// registers the job as new within seconds, and any other process when it becomes the
// owner. Ticks that are due meanwhile, and those that waited, do not run, and no record
// counts them. RunOnStart is then due again, with a new Tick.ID, but older ticks are not.
// However, if the clock of that owner is behind, ticks that ran come due again with the
// same Tick.IDs. So stop the processes that have the job first, or deploy them without it.
//
// Errors: [ErrUnknownJob], [ErrStillRunning], and those of
// etcdclaims.Client.TryAcquire. If the error matches etcdclaims.ErrUnknown, the job may
// have been removed. After any other error, some runs of dead processes may have been
// removed if there were more than thirty, but nothing else.
func (s *Scheduler) Forget(ctx context.Context, job string) error {
	act := s.act(ctx, audit.ForgetJob, job, "", "")
	for {
		all := false
		err := s.operate(ctx, act, "forget", job, func(st *jobSnapshot) (cmps []clientv3.Cmp, ops []clientv3.Op, err error) {
			if st.definitionRev != 0 && (st.SpecRev == 0 || !st.Spec.InCode()) {
				return nil, nil, errors.New("the job is defined; remove its definition first")
			}
			if st.SpecRev == 0 && st.HighRev == 0 && len(st.Running)+len(st.Waiting)+st.Requests == 0 {
				return nil, nil, s.unknownJob(job)
			}
			k := s.keys
			cmps = append(cmps, s.definedAs(job, st.definitionRev))
			if len(st.Running) > mostForgotten {
				st.Running = st.Running[:mostForgotten]
			} else {
				all = true
			}
			for _, r := range st.Running {
				key := k.Run(job, r.ID)
				cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(s.claims.OwnKey(r.Claim)), "!=", r.Rev),
					clientv3.Compare(clientv3.ModRevision(key), "=", r.Rev))
				if ops = append(ops, txn.OpsOf(k.Frees(r.Run, r.Rev))...); !all {
					ops = append(ops, clientv3.OpDelete(key))
				}
			}
			if !all {
				return cmps, ops, nil
			}
			for _, dir := range []string{k.RunOf(job), k.Backfilling(job)} {
				// No run has begun since the state was read.
				cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(dir), "<", st.Rev+1).WithPrefix())
			}
			for _, dir := range []string{
				k.RunOf(job), k.Backfilling(job), k.ReadyOf(job), k.Backfills(job), k.AsksOf(job), k.Records(job),
				k.Stuck(job, ""), k.Stuck(job, tick.BackfillID),
			} {
				ops = append(ops, clientv3.OpDelete(dir, clientv3.WithPrefix()))
			}
			for _, key := range []string{
				k.Spec(job), k.High(job), k.Fail(job), k.Paused(job), k.Cancel(job),
				k.Newer(job), k.Withdraw(job), k.Reset(job),
			} {
				ops = append(ops, clientv3.OpDelete(key))
			}
			return cmps, ops, nil
		})
		if errors.Is(err, etcdclaims.ErrRefused) {
			// The condition that keeps failing is that of a run.
			return fmt.Errorf("%w: %w", err, ErrStillRunning)
		}
		if err != nil || all {
			return err
		}
	}
}

// operate changes the state of a job in etcd, once or not at all. The change is part of
// the acquisition of a claim of its own. Such a request cannot take effect twice, nor
// after the claim was given up. The change is computed from the current state, and
// computed again if that state has changed by the time of the request.
func (s *Scheduler) operate(ctx context.Context, act *audit.Act, what, job string,
	change func(*jobSnapshot) ([]clientv3.Cmp, []clientv3.Op, error),
) error {
	_, err := s.operateAt(ctx, act, what, job, change)
	return err
}

// act is an operator's call about a job.
func (s *Scheduler) act(ctx context.Context, verb audit.Verb, job, detail, why string) *audit.Act {
	return audit.Begin(ctx, s.claims, verb, audit.Target{Group: s.cfg.Group, Job: job, Detail: detail}, why)
}

// unknownJob returns the error for a job without a state in etcd. A job that this process
// has may only lack an owner so far.
func (s *Scheduler) unknownJob(job string) error {
	if _, ok := s.catalog.job(job); ok && !s.Passthrough() {
		return fmt.Errorf("%w in group %q so far: "+
			"this process has it, but no owner of the group has registered it; call Run", ErrUnknownJob, s.cfg.Group)
	}
	return fmt.Errorf("%w in group %q", ErrUnknownJob, s.cfg.Group)
}

// operateAt is operate. It returns the revision of the change.
func (s *Scheduler) operateAt(ctx context.Context, act *audit.Act, what, job string,
	change func(*jobSnapshot) ([]clientv3.Cmp, []clientv3.Op, error),
) (rev int64, err error) {
	return s.change(ctx, act, fmt.Sprintf("%s job %.80q", what, job), func() ([]clientv3.Cmp, []clientv3.Op, error) {
		st, err := s.read(ctx, job)
		if err != nil {
			return nil, nil, err
		}
		return change(st)
	})
}

// change is operateAt for what the function reads.
func (s *Scheduler) change(ctx context.Context, act *audit.Act, what string,
	compute func() ([]clientv3.Cmp, []clientv3.Op, error),
) (rev int64, err error) {
	fail := func(err error) (int64, error) {
		return 0, errtext.Wrap("sched: "+what, act.End(ctx, s.explained(err)))
	}
	if s.Passthrough() {
		return fail(etcdclaims.ErrPassthrough)
	}
	const tries = 10
	for try := 0; ; try++ {
		cmps, ops, err := compute()
		if err != nil {
			return fail(err)
		}
		claim, err := s.claims.TryAcquire(ctx, tick.OpClaim(s.cfg.Group, uuid.NewString()), option.OwnKey{},
			etcdclaims.If(cmps...), etcdclaims.Then(append(ops, act.Ops()...)...))
		if errors.Is(err, etcdclaims.ErrRefused) && try < tries {
			if try > 0 {
				retry.Pause(ctx, try-1)
			}
			continue
		}
		if err != nil {
			return fail(err)
		}
		_ = claim.Release(ctx) // the acquisition made the change; a key that is not free by then is freed in the background
		return claim.Revision(), act.End(ctx, nil)
	}
}

package sched

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What follows can be called in any process that has a scheduler of the group,
// also one that never calls Run and has no jobs. Each takes effect in etcd, at
// once and for the whole group, and names who did it by the client's
// Config.Owner. None waits for the owner, which may be down. Errors that match
// etcdclaims.ErrUnknown say that it may have been done; any other, that it was
// not.

// Pause stops the admission of the job's scheduled ticks until Resume, with a
// note that says why. Runs that go on, or wait, are not touched, and RunNow and
// Backfill still work.
//
// Errors: ErrUnknownJob, ErrPaused, those of etcdclaims.Client.TryAcquire.
func (s *Scheduler) Pause(ctx context.Context, job, why string) error {
	paused := s.keys.paused(job)
	value := encode(pause{Version: valueVersion, By: s.claims.Owner(), Note: limitText(why), At: s.now()})
	return s.operate(ctx, "pausing", job, func(st *jobState) ([]clientv3.Cmp, []clientv3.Op, error) {
		if st.paused != nil {
			return nil, nil, fmt.Errorf("%w: by %s at %s: %s", ErrPaused, st.paused.By, st.paused.At.Format(time.RFC3339), st.paused.Note)
		}
		return []clientv3.Cmp{absent(paused)}, []clientv3.Op{clientv3.OpPut(paused, value)}, nil
	})
}

// Resume ends a pause, by whoever: it raises the job's high-water mark to now, by
// this process's clock (Config.Now), and the next tick is the first that is due
// after it. What was due meanwhile is not missed; Backfill runs it if it is wanted.
// Where this clock is ahead of the owner's, what comes due in between is left out
// without a record; where it is behind, what was due in between is for CatchUp.
//
// Errors: ErrUnknownJob, ErrNotPaused, those of etcdclaims.Client.TryAcquire.
func (s *Scheduler) Resume(ctx context.Context, job string) error {
	return s.operate(ctx, "resuming", job, func(st *jobState) ([]clientv3.Cmp, []clientv3.Op, error) {
		if st.paused == nil {
			return nil, nil, ErrNotPaused
		}
		paused, high := s.keys.paused(job), s.keys.high(job)
		cmps := []clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(paused), "=", st.pausedRev),
			clientv3.Compare(clientv3.ModRevision(high), "=", st.highRev),
		}
		return cmps, []clientv3.Op{
			clientv3.OpDelete(paused), clientv3.OpDelete(s.keys.fail(job)),
			clientv3.OpPut(high, enc(later(st.high, s.now()))),
		}, nil
	})
}

// RunNow asks for one run of the job beside its schedule, which is not changed by
// that. It is subject to the job's Overlap. The id is that of its tick.
//
// Errors: ErrUnknownJob, those of etcdclaims.Client.TryAcquire.
func (s *Scheduler) RunNow(ctx context.Context, job string) (id string, err error) {
	a := ask{Version: valueVersion, Job: job, ID: uuid.NewString(), By: s.claims.Owner(), At: s.now()}
	return s.cfg.Group + "/" + job + "/" + manualID + a.ID, s.ask(ctx, "running", a)
}

// Backfill asks for runs of all ticks of the job's schedule from the one time up
// to, not including, the other, whether or not they were run before: the job's
// high-water mark has no part in it, and is not moved. The ticks are those of the
// owner's schedule when it comes to them.
//
// With Overlap BufferAll, which nil stands for, they run one after the other,
// the oldest first, and not while another run of the job goes on; scheduled ticks
// go before them. With Allow they run beside each other and all others. No other
// Overlap makes sense, and the job's own does not count; but a run of a backfill
// is a run of the job, and so scheduled ticks with Skip may be left out because
// of it. The id is that of the ticks, without their times.
//
// Errors: ErrUnknownJob, those of etcdclaims.Client.TryAcquire.
func (s *Scheduler) Backfill(ctx context.Context, job string, from, to time.Time, overlap Overlap) (id string, err error) {
	a := ask{
		Version: valueVersion, Job: job, ID: uuid.NewString(), By: s.claims.Owner(), At: s.now(),
		From: from.UTC().Add(-1), To: to.UTC().Add(-1),
	}
	switch overlap.(type) {
	case nil, BufferAll:
	case Allow:
		a.Parallel = true
	default:
		return "", fmt.Errorf("sched: job %.80q: a backfill with Overlap %T: want BufferAll or Allow", job, overlap)
	}
	if !from.Before(to) {
		return "", fmt.Errorf("sched: job %.80q: a backfill from %v to %v has nothing in it", job, from, to)
	}
	return s.cfg.Group + "/" + job + "/" + backfillID + a.ID, s.ask(ctx, "backfilling", a)
}

// ask leaves a request for the owner.
func (s *Scheduler) ask(ctx context.Context, what string, a ask) error {
	key := s.keys.asksOf(a.Job) + a.ID
	return s.operate(ctx, what, a.Job, func(*jobState) ([]clientv3.Cmp, []clientv3.Op, error) {
		return []clientv3.Cmp{absent(key)}, []clientv3.Op{clientv3.OpPut(key, encode(a))}, nil
	})
}

// Cancel ends the contexts of all runs of the job that have begun, with
// ErrCancelled as their cause, and takes back what waits to be run, or was asked
// for, backfills included. Of what waits the first twenty have records; one more
// counts the rest. It does not wait until the runs have stopped. Scheduled ticks
// go on; Pause stops them.
//
// Errors: ErrUnknownJob, those of etcdclaims.Client.TryAcquire.
func (s *Scheduler) Cancel(ctx context.Context, job, why string) error {
	value := encode(cancelling{Version: valueVersion, By: s.claims.Owner(), Note: limitText(why), At: s.now()})
	return s.operate(ctx, "cancelling", job, func(st *jobState) ([]clientv3.Cmp, []clientv3.Op, error) {
		waits := s.keys.readyOf(job)
		fills := s.keys.backfills(job)
		ops := append(s.withdraw(st.waiting, why),
			clientv3.OpPut(s.keys.cancel(job), value), clientv3.OpDelete(s.keys.asksOf(job), clientv3.WithPrefix()),
			clientv3.OpDelete(waits, clientv3.WithPrefix()), clientv3.OpDelete(fills, clientv3.WithPrefix()))
		// What was admitted meanwhile has no record yet.
		var cmps []clientv3.Cmp
		for _, prefix := range []string{waits, fills} {
			cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(prefix), "<", st.rev+1).WithPrefix())
		}
		return cmps, ops, nil
	})
}

// withdraw takes back ticks that wait, those of them that were not begun
// meanwhile, and records that.
func (s *Scheduler) withdraw(waiting []waiter, why string) (ops []clientv3.Op) {
	const most = 20 // that have a record each
	now := s.now()
	record := func(w waiter, more int) clientv3.Op {
		p := w.leftOut(OutcomeWithdrawn, now)
		p.Version, p.Job = valueVersion, w.Job
		p.Missed += more
		p.Error = limitText(strings.TrimPrefix(p.Error+"; taken back: "+why, "; "))
		return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(w.key), "=", w.rev)},
			[]clientv3.Op{clientv3.OpDelete(w.key), clientv3.OpPut(s.keys.entry(w.Job, p), encode(p))}, nil)
	}
	for i, w := range waiting {
		if rest := len(waiting) - i - 1; i < most {
			ops = append(ops, record(w, 0))
		} else if rest == 0 {
			ops = append(ops, record(w, i-most)) // the last is begun last
		}
	}
	return ops
}

// operate changes what etcd has of a job, exactly once or not at all: under a claim
// of its own, whose request can neither come twice nor, once it was given up, late.
// The change is made of what is there, and again if that changes meanwhile.
func (s *Scheduler) operate(ctx context.Context, what, job string, change func(*jobState) ([]clientv3.Cmp, []clientv3.Op, error)) error {
	fail := func(err error) error {
		if err != nil {
			err = fmt.Errorf("sched: %s job %.80q: %w", what, job, err)
		}
		return err
	}
	if s.Passthrough() {
		return fail(etcdclaims.ErrPassthrough)
	}
	const tries = 10
	for try := 0; ; try++ {
		st, err := s.read(ctx, job)
		if err != nil {
			return fail(err)
		}
		if st.specRev == 0 {
			return fail(ErrUnknownJob)
		}
		cmps, ops, err := change(st)
		if err != nil {
			return fail(err)
		}
		claim, err := s.claims.TryAcquire(ctx, opKey(s.cfg.Group, uuid.NewString()), etcdclaims.If(cmps...), etcdclaims.Then(ops...))
		if errors.Is(err, etcdclaims.ErrRefused) && try < tries {
			continue
		}
		if err != nil {
			return fail(err)
		}
		_ = claim.Release(context.WithoutCancel(ctx)) // it did what it was for
		return nil
	}
}

package sched

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// alarm watches the ticks of one job that has an Overdue.
type alarm struct {
	job     Job
	nominal time.Time // the tick that is watched; zero if none follows
	at      time.Time // when to look at it
	left    bool      // whether it was left to the owner when it reached its bound
	watched int64     // the last ownership, by its revision, whose owner is known to watch the job
}

// ownerTime is how long past its bound a tick is left to an owner that may not watch the
// job: it may not have the job, or have it without an Overdue.
const ownerTime = time.Minute

// watchOverdue reports overdue ticks until ctx ends. The owner of the group reports them.
// Another process does if etcd does not answer, or if the group has no owner.
func (s *Scheduler) watchOverdue(ctx context.Context) {
	alarms := newQueue(func(a, b *alarm) bool { return a.at.Before(b.at) })
	of := make(map[string]*alarm) // by the name of the job
	latest := s.now()
	for seen := -1; ctx.Err() == nil; {
		now := s.now()
		if now.Before(latest.Add(-clockSlip)) {
			putBack(of, now, alarms)
		}
		latest = now
		if jobs, generation := s.allJobs(); generation != seen {
			seen, of = generation, alarmsOf(jobs, of, now, alarms)
		}
		past := alarms.takeWhile(len(alarms.items), func(a *alarm) bool { return !a.at.After(now) })
		s.raise(ctx, past, now)
		for _, a := range past {
			if !a.nominal.IsZero() {
				alarms.set(a)
			}
		}
		d := nap
		if a, ok := alarms.first(); ok {
			d = min(d, a.at.Sub(s.now())+time.Millisecond)
		}
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// alarmsOf returns the alarms of jobs with an Overdue, by name. Those of jobs that have not
// changed are kept.
func alarmsOf(jobs []Job, old map[string]*alarm, now time.Time, queued *queue[*alarm]) map[string]*alarm {
	of := make(map[string]*alarm)
	for _, j := range jobs {
		if j.Overdue == 0 {
			continue
		}
		a := old[j.Name]
		if a == nil || !a.job.same(j) {
			if a = (&alarm{job: j}); a.follow(now.Add(-j.Overdue)) {
				queued.set(a)
			}
		}
		of[j.Name] = a
	}
	for name, a := range old {
		if of[name] != a {
			queued.drop(a)
		}
	}
	return of
}

// follow lets the alarm watch the first tick after t, and returns false if there is none.
func (a *alarm) follow(t time.Time) bool {
	if a.nominal = a.job.Schedule.Next(t); !a.nominal.After(t) {
		a.nominal = time.Time{}
		return false
	}
	a.at, a.left = a.nominal.Add(a.job.Overdue), false
	return true
}

// putBack lets alarms watch what is due now, after the clock was put back. Their ticks may be
// of the time that the clock had before, or they were to look again at such a time.
func putBack(of map[string]*alarm, now time.Time, queued *queue[*alarm]) {
	for _, a := range of {
		bound := now.Add(-a.job.Overdue)
		switch {
		case !a.nominal.IsZero() && !a.nominal.After(bound):
			a.at = now
		case !a.follow(bound):
			queued.drop(a)
			continue
		}
		queued.set(a)
	}
}

// raise looks at ticks that have reached their bound, and reports those that have not
// ended. What a process does not report, it looks at again: it may become the owner.
func (s *Scheduler) raise(ctx context.Context, past []*alarm, now time.Time) {
	if len(past) == 0 {
		return
	}
	owner, unreachable := s.ownership(ctx)
	for _, a := range past {
		watched := owner != 0 && a.watched == owner
		// A tick that was left to an owner that may not watch the job is not forgotten for a newer one.
		if !a.left || watched || unreachable != nil {
			if newest := a.job.lastOnes(a.nominal, now.Add(-a.job.Overdue), 1); len(newest) > 0 {
				a.nominal, a.left = newest[0], false
			}
		}
		others := owner != 0 && !s.owning.Load()
		if others && (watched || !a.left || now.Sub(a.nominal) < a.job.Overdue+ownerTime) || a.left && unreachable != nil {
			a.at, a.left = now.Add(nap), true
			continue
		}
		x := Explanation{Job: a.job.Name, Nominal: a.nominal}
		if unreachable == nil {
			st, err := s.late(ctx, &x, others)
			switch {
			case errors.As(err, new(unreadable)):
				x.is(FateUnknown, "not known, because the state of the job cannot be read: %v", err)
			case err != nil:
				unreachable = err // for the other jobs too
			case others && st.spec.Overdue > 0 && st.highRev > owner:
				// The owner has moved the mark of the job in this term, so it has the job.
				a.at, a.watched = now.Add(nap), owner
				continue
			}
		}
		if unreachable != nil {
			x.is(FateUnknown, "not known, because etcd cannot be read: %v", unreachable)
		}
		switch x.Fate {
		case FateOverdue, FateWaiting, FateRunning, FateUnknown:
			if ctx.Err() != nil {
				return
			}
			s.log.Warn("tick overdue", zap.String("job", x.Job), zap.String("tick", nominalID(x.Nominal)), zap.String("key", jobKey(s.cfg.Group, x.Job)),
				zap.Duration("bound", a.job.Overdue), zap.String("state", x.Text))
			if hook := s.cfg.Hooks.Overdue; hook != nil {
				hook(x)
			}
		}
		a.follow(a.nominal)
	}
}

// ownership returns the revision at which the owner of the group became that, or 0 if the
// group has no owner.
func (s *Scheduler) ownership(ctx context.Context) (rev int64, err error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTime)
	defer cancel()
	resp, err := s.claims.KV().Get(ctx, s.claims.OwnKey(ownerKey(s.cfg.Group)), clientv3.WithKeysOnly())
	if err == nil && len(resp.Kvs) > 0 {
		rev = resp.Kvs[0].ModRevision
	}
	return rev, err
}

// late explains a tick that has reached its bound, unless it has ended, and returns the
// state of its job. A job that is not registered is overdue if its owner had the time to do
// so.
func (s *Scheduler) late(ctx context.Context, x *Explanation, hadTime bool) (*jobSnapshot, error) {
	st, err := s.read(ctx, x.Job)
	if err != nil || st.highRev == 0 && !x.Nominal.After(st.definition.At) { // due before the job was defined
		return st, err
	}
	if (st.specRev != 0 || hadTime) && !s.inProgress(x, st) && x.Nominal.After(st.high) {
		s.decided(x, st, nil)
	}
	return st, nil
}

// overdue returns the nominal time of the oldest scheduled tick that is past its bound, or
// the zero Time. The next tick to be admitted is that of next.
func (st *jobSnapshot) overdue(next, now time.Time) (oldest time.Time) {
	if st.spec.Overdue == 0 {
		return
	}
	past := func(nominal time.Time) {
		if !nominal.IsZero() && now.Sub(nominal) > st.spec.Overdue && (oldest.IsZero() || nominal.Before(oldest)) {
			oldest = nominal
		}
	}
	past(next)
	for _, w := range st.waiting {
		if !isManual(w.ID) {
			past(w.Nominal)
		}
	}
	for _, r := range st.running {
		if !isManual(r.ID) {
			past(r.Nominal)
		}
	}
	return oldest
}

package sched

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// alarm watches the ticks of one job that has an Overdue.
type alarm struct {
	job     Job
	nominal time.Time // the tick that is watched; zero if no tick follows
	at      time.Time // when to look at it
	left    bool      // whether it was left to the owner when it reached its bound
	watched int64     // the last ownership, by its revision, whose owner is known to watch the job
}

const (
	// ownerTime is how long past its bound a tick is left to an owner that may not watch the
	// job: it may not have the job, or have it without an Overdue.
	ownerTime = time.Minute
	// alarmPause is the least time between two looks at the alarms.
	alarmPause = 100 * time.Millisecond
)

// watchOverdue reports overdue ticks until ctx ends. The owner of the group reports them.
// Another process does if etcd does not answer, or if the group has no owner.
func (s *Scheduler) watchOverdue(ctx context.Context) {
	changed := s.catalog.subscribe()
	defer s.catalog.unsubscribe(changed)
	of := alarmsOf(s.catalog.all(), nil, s.now()) // by the name of the job
	for latest := s.now(); ctx.Err() == nil; {
		now := s.now()
		if now.Before(latest.Add(-clockSlip)) {
			for _, a := range of {
				a.putBack(now)
			}
		}
		latest = now
		if len(s.catalog.take(changed)) > 0 {
			of = alarmsOf(s.catalog.all(), of, now)
		}
		s.raise(ctx, of, now)
		s.ends.Drop(now)
		d := nap
		for _, a := range of {
			if !a.nominal.IsZero() {
				d = min(d, justAfter(a.at, s.now()))
			}
		}
		retry.Sleep(ctx, max(d, alarmPause))
	}
}

// alarmsOf returns the alarms of jobs with an Overdue, by name. Those of jobs that have not
// changed are kept.
func alarmsOf(jobs []Job, old map[string]*alarm, now time.Time) map[string]*alarm {
	of := make(map[string]*alarm)
	for _, j := range jobs {
		a := old[j.Name]
		if j.Overdue == 0 {
			continue
		}
		if a == nil || !a.job.same(j) {
			a = &alarm{job: j}
			a.follow(now.Add(-j.Overdue))
		}
		of[j.Name] = a
	}
	return of
}

// follow lets the alarm watch the first tick after t, if there is one.
func (a *alarm) follow(t time.Time) {
	a.nominal = a.job.rules.DueAfter(t)
	a.at, a.left = a.nominal.Add(a.job.Overdue), false
}

// putBack lets the alarm watch the tick that is due, after the clock was put back: its own may be
// of the time that the clock had before.
func (a *alarm) putBack(now time.Time) {
	from := now.Add(-a.job.Overdue)
	if !a.nominal.IsZero() && !from.Before(a.nominal) {
		from = a.nominal.Add(-1)
	}
	a.follow(from)
}

// raise looks at ticks that have reached their bound, and reports those that have not
// ended. What a process does not report, it looks at again: it may become the owner.
func (s *Scheduler) raise(ctx context.Context, of map[string]*alarm, now time.Time) {
	past := slices.Collect(maps.Values(of))
	past = slices.DeleteFunc(past, func(a *alarm) bool { return a.nominal.IsZero() || a.at.After(now) })
	if len(past) == 0 {
		return
	}
	owner, unreachable := s.ownership(ctx)
	for _, a := range past {
		watched := owner != 0 && a.watched == owner
		// A tick that was left to an owner that may not watch the job is not forgotten for a newer one.
		if !a.left || watched || unreachable != nil {
			if newest := a.job.rules.LastOnes(a.nominal, now.Add(-a.job.Overdue), 1); len(newest) > 0 {
				a.nominal, a.left = newest[0], false
			}
		}
		others := owner != 0 && !s.owning.Load()
		if others && (watched || !a.left || now.Sub(a.nominal) < a.job.Overdue+ownerTime) || a.left && unreachable != nil {
			a.at, a.left = now.Add(nap), true
			continue
		}
		why := ""
		if unreachable == nil {
			st, text, err := s.late(ctx, a, others)
			switch why = text; {
			case errors.As(err, new(unreadable)):
				why = fmt.Sprintf("not known, because the state of the job cannot be read: %v", err)
			case err != nil:
				unreachable = err // for the other jobs too
			case others && st.Spec.Overdue > 0 && st.HighRev > owner:
				// The owner has moved the mark of the job in this term, so it has the job.
				a.at, a.watched = now.Add(nap), owner
				continue
			}
		}
		if unreachable != nil && !s.ends.Has(a.job.Name, a.nominal) {
			why = fmt.Sprintf("not known, because etcd cannot be read: %v", unreachable)
		}
		if ctx.Err() != nil {
			return
		}
		if why != "" {
			s.log.Warn("tick overdue", s.aboutJob(a.job.Name, zap.String("tick", tick.NominalID(a.nominal)),
				zap.Duration("bound", a.job.Overdue), zap.String("state", why))...)
			if hook := s.cfg.Hooks.Overdue; hook != nil {
				hook(a.job.Name, a.nominal, why)
			}
		}
		a.follow(a.nominal)
	}
}

// ownership returns the revision at which the owner of the group became that, or 0 if the
// group has no owner.
func (s *Scheduler) ownership(ctx context.Context) (rev int64, err error) {
	own := clientv3.OpGet(s.claims.OwnKey(ownerKey(s.cfg.Group)), clientv3.WithKeysOnly())
	resp, err := retry.Get(ctx, core.Of(s.claims).KV(), readTime, own)
	if err != nil || len(resp.Kvs) == 0 {
		return 0, err
	}
	return resp.Kvs[0].ModRevision, nil
}

// late returns the state of the job of a tick that has reached its bound, and why the tick has
// not ended: an empty text if it has. A job that is not registered is overdue if its owner had
// the time to do so.
func (s *Scheduler) late(ctx context.Context, a *alarm, hadTime bool) (st *jobSnapshot, why string, err error) {
	st, err = s.read(ctx, a.job.Name)
	if err != nil || st.HighRev == 0 && !a.nominal.After(st.definition.At) { // due before the job was defined
		return st, "", err
	}
	if st.SpecRev == 0 && !hadTime {
		return st, "", nil
	}
	st.State = st.Lift(s.now())
	if err := s.readPlaces(ctx, st, a.nominal); err != nil {
		return st, "", err
	}
	if why = st.InProgress(a.nominal); why != "" {
		return st, why, nil
	}
	if !a.nominal.After(st.High) {
		why, err = s.overtaken(ctx, a.job.Name, a.nominal, st)
	} else if text, late := s.undecided(a.job.Name, a.nominal, st); late {
		why = text
	}
	return st, why, err
}

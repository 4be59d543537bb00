package sched

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/core"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// alarm watches the ticks of one job that has an Overdue.
type alarm struct {
	job     Job
	nominal time.Time // the tick that is watched; zero if no tick follows
	at      time.Time // when to look at it
	first   bool      // whether the tick may be from before the job was registered, or decided long ago
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
			s.ends.keep(of)
			s.settleFirst(ctx, of, now, alarms)
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
			d = min(d, justAfter(a.at, s.now()))
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
				a.first = !a.nominal.After(now)
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
	if a.nominal = a.job.dueAfter(t); a.nominal.IsZero() {
		return false
	}
	a.at, a.left = a.nominal.Add(a.job.Overdue), false
	return true
}

// settleFirst drops the ticks of new alarms that are decided, or from before their jobs were
// registered: later etcd may not answer. If it does not answer now, the ticks remain watched.
func (s *Scheduler) settleFirst(ctx context.Context, of map[string]*alarm, now time.Time, queued *queue[*alarm]) {
	var names []string
	for name, a := range of {
		if a.first {
			names, a.first = append(names, name), false
		}
	}
	for some := range slices.Chunk(names, jobsPerRead) {
		all, err := s.readAll(ctx, some)
		for i, st := range all {
			a := of[some[i]]
			from := a.nominal.Add(-1)
			switch {
			case st.specRev == 0 && (st.definitionRev == 0 || !a.nominal.After(st.definition.At)):
				from = now
			case st.highRev != 0 && len(st.running)+len(st.waiting) == 0:
				from = later(from, earlier(st.high, now))
			}
			if queued.drop(a); a.follow(from) {
				queued.set(a)
			}
		}
		if err != nil && !errors.As(err, new(unreadable)) {
			return
		}
	}
}

// ends has the nominal times of the scheduled ticks whose end this process has recorded, for
// jobs with an Overdue: while etcd does not answer, nothing else shows that they ended.
type ends struct {
	mu sync.Mutex
	of map[string]map[int64]bool // by the name of the job
}

// mostEnds bounds the ends of one job. They are dropped as the alarm of the job passes them.
const mostEnds = 10_000

// add notes a record.
func (e *ends) add(j Job, p past) {
	if j.Overdue == 0 || p.Again || isManual(p.ID) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if all := e.of[j.Name]; all != nil && len(all) < mostEnds {
		all[p.Nominal.UnixNano()] = true
	}
}

// keep limits the ends to those of the jobs that have alarms.
func (e *ends) keep(alarms map[string]*alarm) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.of
	e.of = make(map[string]map[int64]bool, len(alarms))
	for name := range alarms {
		if e.of[name] = old[name]; e.of[name] == nil {
			e.of[name] = make(map[int64]bool)
		}
	}
}

// has reports whether a tick has ended.
func (e *ends) has(a *alarm) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.of[a.job.Name][a.nominal.UnixNano()]
}

// drop forgets the ends up to the tick of an alarm.
func (e *ends) drop(a *alarm) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.of[a.job.Name], func(at int64, _ bool) bool { return at <= a.nominal.UnixNano() })
}

// putBack lets alarms watch the ticks that are due now, after the clock was put back. Their
// ticks may be of the time that the clock had before, or they were to look again at such a
// time.
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
		why := ""
		if unreachable == nil {
			st, text, err := s.late(ctx, a, others)
			switch why = text; {
			case errors.As(err, new(unreadable)):
				why = fmt.Sprintf("not known, because the state of the job cannot be read: %v", err)
			case err != nil:
				unreachable = err // for the other jobs too
			case others && st.spec.Overdue > 0 && st.highRev > owner:
				// The owner has moved the mark of the job in this term, so it has the job.
				a.at, a.watched = now.Add(nap), owner
				continue
			}
		}
		if unreachable != nil && !s.ends.has(a) {
			why = fmt.Sprintf("not known, because etcd cannot be read: %v", unreachable)
		}
		if ctx.Err() != nil {
			return
		}
		if why != "" {
			job := a.job.Name
			s.log.Warn("tick overdue", zap.String("job", job), zap.String("tick", nominalID(a.nominal)), zap.String("key", jobKey(s.cfg.Group, job)),
				zap.Duration("bound", a.job.Overdue), zap.String("state", why))
			if hook := s.cfg.Hooks.Overdue; hook != nil {
				hook(job, a.nominal, why)
			}
		}
		s.ends.drop(a)
		a.follow(a.nominal)
	}
}

// ownership returns the revision at which the owner of the group became that, or 0 if the
// group has no owner.
func (s *Scheduler) ownership(ctx context.Context) (rev int64, err error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTime)
	defer cancel()
	resp, err := core.Of(s.claims).KV().Get(ctx, s.claims.OwnKey(ownerKey(s.cfg.Group)), clientv3.WithKeysOnly())
	if err == nil && len(resp.Kvs) > 0 {
		rev = resp.Kvs[0].ModRevision
	}
	return rev, err
}

// late returns the state of the job of a tick that has reached its bound, and why the tick has
// not ended: an empty text if it has. A job that is not registered is overdue if its owner had
// the time to do so.
func (s *Scheduler) late(ctx context.Context, a *alarm, hadTime bool) (st *jobSnapshot, why string, err error) {
	st, err = s.read(ctx, a.job.Name)
	if err != nil || st.highRev == 0 && !a.nominal.After(st.definition.At) { // due before the job was defined
		return st, "", err
	}
	if st.specRev == 0 && !hadTime {
		return st, "", nil
	}
	if why = st.inProgress(a.nominal); why != "" {
		return st, why, nil
	}
	if a.nominal.After(st.high) {
		if text, late := s.undecided(a.job.Name, a.nominal, st); late {
			why = text
		}
		return st, why, nil
	}
	why, err = s.overtaken(ctx, a.job.Name, a.nominal, st)
	return st, why, err
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

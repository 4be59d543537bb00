package sched

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// admissionSlack is how long after the TTL of the owner a tick that is due may be
	// undecided: a take-over, and a round of the new owner.
	admissionSlack = 5 * time.Second
	// admissionCheck is how often a process looks whether the owner decides about the ticks
	// of its jobs.
	admissionCheck = time.Minute
	// marksPerRead is how many marks one request reads.
	marksPerRead = 64
)

// groupOwner is the owner of a group, as far as another process sees it.
type groupOwner struct {
	name string        // empty if the group has no owner
	ttl  time.Duration // of its lease, or the default one if that is not known
}

// ownerRead reads the owner of a group when it is first called, and returns the same again.
type ownerRead func() (groupOwner, error)

func (s *Scheduler) ownerRead(ctx context.Context) ownerRead {
	return sync.OnceValues(func() (groupOwner, error) {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		is := groupOwner{ttl: etcdclaims.DefaultTTL}
		for i, err := range s.claims.List(ctx, ownerKey(s.cfg.Group)) {
			switch {
			case isDenied(err): // a user who may read the jobs need not read the claims
				is.name = "(not readable)"
				return is, nil
			case err != nil:
				return is, err
			case i.Key == ownerKey(s.cfg.Group):
				is.name = i.Owner
				if !i.Expires.IsZero() { // a whole lease from now
					is.ttl = time.Until(i.Expires).Round(time.Second)
				}
				return is, nil
			}
		}
		return is, nil
	})
}

// notAdmitted sets Unadmitted and Problem of a job whose next tick the owner should have
// decided about by now. A job that has another problem is left as it is.
func (st *jobSnapshot) notAdmitted(i *JobInfo, now time.Time, owner ownerRead) error {
	late := now.Sub(i.Next.Add(st.spec.Jitter)) // the least Duration for a distant year
	if i.Problem != "" || i.Next.IsZero() || late <= admissionSlack {
		return nil
	}
	is, err := owner()
	if err != nil || late-admissionSlack <= is.ttl {
		return err
	}
	i.Unadmitted = i.Next
	i.Problem = fmt.Sprintf("due since %s; the group has no owner", stamp(i.Next))
	if is.name != "" {
		i.Problem = fmt.Sprintf("due since %s; the owner %s of the group has not admitted it: it does not have the job (another service with this Config.Group, or another version), "+
			"or is busy, or its clock is behind; if no process has the job any more: claimctl sched forget -g %q %q", stamp(i.Next), is.name, i.Group, i.Job)
	}
	return nil
}

// awaited is a job of this process while another process is the owner.
type awaited struct {
	job     Job
	nominal time.Time // the tick that should be decided; zero if no tick follows
	served  int64     // the last ownership, by its revision, that has moved the mark of the job
	late    time.Time // the tick that was found to be due and undecided, or zero
	term    int64     // the ownership in which it was found
	warned  bool

	registered bool  // an owner has registered the job, now or before
	missing    int64 // the ownership in which it was found not to be registered
}

// follow lets the job await the first tick after t.
func (a *awaited) follow(t time.Time) {
	a.late, a.warned = time.Time{}, false
	a.nominal = a.job.dueAfter(t)
}

// watchAdmissions logs a warning if the owner of the group does not decide about the ticks
// of a job that this process has, until ctx ends. Such an owner may not have the job, and then
// no other process would notice.
func (s *Scheduler) watchAdmissions(ctx context.Context) {
	of := make(map[string]*awaited)
	defer s.conflict.Store(nil)
	for latest := s.now(); ctx.Err() == nil; {
		now := s.now()
		if now.Before(latest.Add(-clockSlip)) {
			of = make(map[string]*awaited) // the clock was ahead, and so are their ticks
		}
		latest = now
		jobs, _ := s.allJobs()
		old := of
		of = make(map[string]*awaited, len(jobs))
		for _, j := range jobs {
			a := old[j.Name]
			if a == nil || !a.job.same(j) {
				a = &awaited{job: j}
				a.follow(now)
			}
			of[j.Name] = a
		}
		if err := s.checkAdmissions(ctx, of, now); err != nil {
			s.log.Debug("admissions not checked", zap.Error(err)) // the client logs an outage
		} else if err := s.checkConflict(ctx, of); err != nil {
			s.log.Debug("owner's jobs not checked", zap.Error(err))
		}
		retry.Sleep(ctx, admissionCheck)
	}
}

// checkAdmissions looks at the jobs whose ticks should be decided by now. A job that the
// owner has decided about is not read again in the same ownership.
func (s *Scheduler) checkAdmissions(ctx context.Context, of map[string]*awaited, now time.Time) error {
	var some []*awaited
	for _, a := range of {
		past := !a.nominal.IsZero() && now.Sub(a.nominal.Add(a.job.Jitter)) > admissionSlack
		if past && a.job.problem == "" && (a.warned || !s.owning.Load()) {
			some = append(some, a)
		}
	}
	if len(some) == 0 {
		return nil
	}
	owner, err := s.ownership(ctx)
	if err != nil || owner == 0 {
		return err
	}
	some = slices.DeleteFunc(some, func(a *awaited) bool {
		served := a.served == owner && !a.warned
		if served {
			a.follow(now)
		}
		return served
	})
	read := s.ownerRead(ctx)
	high := func(a *awaited) clientv3.Op { return clientv3.OpGet(s.keys.high(a.job.Name)) }
	return s.readEach(ctx, some, high, func(a *awaited, got *pb.RangeResponse) error {
		return s.checkAdmission(ctx, a, markOf(got), owner, now, read)
	})
}

// readEach reads a key of each of the jobs, of many by one request, and passes on what it got. It
// asks for fewer at a time if etcd allows fewer.
func (s *Scheduler) readEach(ctx context.Context, of []*awaited, key func(*awaited) clientv3.Op,
	do func(*awaited, *pb.RangeResponse) error,
) error {
	for size := marksPerRead; len(of) > 0; {
		some := of[:min(size, len(of))]
		var ops txn.Ops
		reads := make([]txn.Op, len(some))
		for i, a := range some {
			reads[i] = ops.Add(key(a))
		}
		limited, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTime)
		resp, err := core.Of(s.claims).KV().Txn(limited).Then(ops...).Commit()
		cancel()
		if isTooLarge(err) && size > 1 {
			size /= 2
			continue
		}
		if err != nil {
			return err
		}
		reply := txn.ReplyIn(resp)
		for i, a := range some {
			if err := do(a, reply.Range(reads[i])); err != nil {
				return err
			}
		}
		of = of[len(some):]
	}
	return nil
}

// mark is a high-water mark as it was read.
type mark struct {
	high time.Time
	rev  int64 // 0 if the job has no mark
}

// markOf returns the mark in the reply to a read of it.
func markOf(got *pb.RangeResponse) (m mark) {
	for _, kv := range got.Kvs {
		var err error
		m.rev = kv.ModRevision
		if m.high, err = dec(kv.Value); err != nil {
			m.rev = 0 // checkAdmission finds that the job cannot be read
		}
	}
	return m
}

// checkAdmission looks at one job. It warns once if the same owner leaves the same tick
// undecided from one look to the next: an owner that has just begun, or was just cut off from
// etcd, is given the time.
func (s *Scheduler) checkAdmission(ctx context.Context, a *awaited, m mark, owner int64, now time.Time, read ownerRead) error {
	if m.rev > owner {
		a.served = owner
	}
	awaits := later(a.nominal, a.late)
	if m.rev != 0 && !m.high.Before(awaits) {
		if a.warned {
			s.log.Info("ticks admitted again", s.aboutJob(a.job.Name, zap.Time("since", a.late))...)
		}
		a.follow(later(m.high, now))
		return nil
	}
	st, err := s.read(ctx, a.job.Name)
	if errors.As(err, new(unreadable)) {
		return nil // the owner logs it
	}
	if err != nil {
		return err
	}
	i := s.info(a.job.Name, st)
	if st.specRev == 0 { // the owner has not registered the job
		i.Next, st.spec.Jitter = a.nominal, a.job.Jitter
	}
	if err := st.notAdmitted(&i, now, read); err != nil || a.warned {
		return err
	}
	switch {
	case i.Unadmitted.IsZero():
		a.late = time.Time{}
	case a.late != i.Unadmitted || a.term != owner:
		a.late, a.term = i.Unadmitted, owner
	default:
		a.warned = true
		s.log.Warn("ticks not admitted", s.aboutJob(a.job.Name, zap.String("tick", nominalID(a.late)), zap.String("problem", i.Problem))...)
	}
	return nil
}

// aboutJob returns the log fields that identify a job, and further ones.
func (s *Scheduler) aboutJob(job string, more ...zap.Field) []zap.Field {
	return append([]zap.Field{zap.String("job", job), zap.String("key", jobKey(s.cfg.Group, job))}, more...)
}

package sched

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// conflictCheck is how often a process looks whether the owner runs its jobs.
	conflictCheck = time.Minute
	// firstCheck is when it first does: the owner has had time to register its jobs, and this process is in line.
	firstCheck = time.Second
	// mostNamed is how many jobs a problem names.
	mostNamed = 8
)

// Problems returns what keeps jobs of this process from running, one text for each problem. It is
// empty while the owner runs all of these jobs, and while Run is not in progress. Problems does
// no I/O: Run looks each minute.
//
// There is one kind of problem: another process owns the group, and does not run jobs that were
// added in this process. Usually it is another service with the same Config.Group, or another
// version of this one, as during a deployment. Otherwise that process is busy, or its clock is
// behind. The log has a warning each minute until that ends.
// JobInfo.Problem describes the problems of single jobs.
func (s *Scheduler) Problems() []string {
	if text := s.conflict.Load(); text != nil {
		return []string{*text}
	}
	return nil
}

// awaited is a job of this process while another process is the owner.
type awaited struct {
	job        Job
	since      time.Time // the ticks up to here are decided
	registered bool      // whether an owner has registered the job, now or before
	served     int64     // the last ownership, by its revision, that has moved the mark of the job
	suspect    int64     // the ownership in which the job was last found not to be run
	asked      int64     // the last ownership that this process has asked to be handed over, for this job
	elected    int64     // how many ownerships this process had had before it had the job
}

// watchConflict notes and logs which jobs of this process the owner of the group does not run,
// until ctx ends. Such an owner may not have the job, and then no other process would notice.
func (s *Scheduler) watchConflict(ctx context.Context) {
	of := make(map[string]*awaited)
	defer s.conflict.Store(nil)
	for retry.Sleep(ctx, firstCheck); ctx.Err() == nil; retry.Sleep(ctx, conflictCheck) {
		now, elected := s.now(), s.elected.Load()
		old := of
		of = make(map[string]*awaited, len(old))
		for _, j := range s.catalog.all() {
			a := old[j.Name]
			if a == nil || !a.job.same(j) {
				a = &awaited{job: j, since: now, elected: elected}
			}
			if now.Before(a.since) { // the clock was ahead
				a.since = now
			}
			of[j.Name] = a
		}
		if err := s.checkConflict(ctx, of, now); err != nil {
			s.log.Debug("owner's jobs not checked", zap.Error(err)) // the client logs an outage
		}
	}
}

func (s *Scheduler) checkConflict(ctx context.Context, of map[string]*awaited, now time.Time) error {
	read := s.ownerRead(ctx)
	names, err := s.notRun(ctx, of, now, read)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		if s.conflict.Swap(nil) != nil {
			s.log.Info("jobs of this process owned again", zap.String("key", ownerKey(s.cfg.Group)))
		}
		return nil
	}
	owner, err := read()
	if err != nil {
		return err
	}
	if owner.name == "" { // it has just gone: the next one is given its time
		s.conflict.Store(nil)
		return nil
	}
	slices.Sort(names)
	named := names[:min(len(names), mostNamed)]
	text := fmt.Sprintf("the owner %s of group %q does not run %d jobs of this process: %s; it does not have them, as another "+
		"service or version (give each service its own Config.Group), or is busy, or its clock is behind",
		owner.name, s.cfg.Group, len(names), strings.Join(named, ", "))
	s.conflict.Store(&text)
	s.log.Warn("jobs not run by the owner of the group; give each service its own Config.Group",
		zap.String("key", ownerKey(s.cfg.Group)), zap.String("owner", owner.name), zap.Int("count", len(names)), zap.Strings("jobs", named))
	return nil
}

// notRun returns the jobs of this process that the owner does not run: from one look to the next
// it has not registered them, or leaves a tick undecided. A job whose mark the owner has moved is
// not looked at again in the same ownership.
func (s *Scheduler) notRun(ctx context.Context, of map[string]*awaited, now time.Time, read ownerRead) (names []string, err error) {
	if s.owning.Load() {
		return nil, nil
	}
	term, err := s.ownership(ctx)
	if err != nil || term == 0 {
		return nil, err
	}
	var doubtful []string
	var lacked []*awaited
	for name, a := range of {
		next := a.job.rules.DueAfter(a.since)
		due := !next.IsZero() && now.Sub(next.Add(a.job.Jitter)) > jobstate.Slack
		// Inspect reports definitions that no owner has taken up, or can run.
		if a.served != term && (due && a.job.problem == "" || !a.registered && a.job.defined == 0) {
			doubtful = append(doubtful, name)
		}
	}
	if len(doubtful) == 0 {
		return nil, nil
	}
	moved, err := retry.Get(ctx, core.Of(s.claims).KV(), readTime,
		clientv3.OpGet(s.keys.Highs(), clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithMinModRev(term+1)))
	if err != nil {
		return nil, err
	}
	marks := byDigest(s.keys.Highs(), moved.Kvs)
	doubtful = slices.DeleteFunc(doubtful, func(name string) bool {
		_, served := marks[keyspace.Digest(name)]
		if a := of[name]; served {
			a.served, a.registered, a.since = term, true, now
		}
		return served
	})
	for some := range slices.Chunk(doubtful, jobsPerRead) {
		infos, unread, err := s.inspect(ctx, read, some...)
		if err != nil {
			return nil, err
		}
		for _, name := range some {
			a, at := of[name], slices.IndexFunc(infos, func(i JobInfo) bool { return i.Job == name })
			switch {
			case at < 0 && unread != nil: // the owner logs it
			case at >= 0 && infos[at].Unadmitted.IsZero():
				a.registered, a.suspect = true, 0
				if next := infos[at].Next; next.IsZero() || next.After(now) {
					a.since = now
				}
			default:
				if a.suspect == term {
					names = append(names, name)
				}
				a.suspect = term
				if a.job.defined == 0 && a.asked != term && a.elected == s.elected.Load() {
					lacked = append(lacked, a)
				}
			}
		}
	}
	if len(lacked) > 0 {
		if err := s.askOwnership(ctx, term); err != nil { // it asks again at the next look
			s.log.Debug("ownership not asked for", zap.Error(err))
			return names, nil
		}
	}
	for _, a := range lacked {
		a.asked = term
	}
	return names, nil
}

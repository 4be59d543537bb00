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
// There are two kinds of problems, both of a process that does not own the group. The log has a
// warning each minute until they end. JobInfo.Problem describes the problems of single jobs.
//
//   - The owner does not run jobs that were added in this process. Usually it is another
//     service with the same Config.Group, or another version of this one, as during a
//     deployment. Otherwise that process is busy, or its clock is behind.
//   - Another version of jobs that were added in this process is registered, by the owner or by one
//     before it: their Schedule or their Revision differs. The text has both versions. While a new
//     version is deployed, the processes of the old one have this problem until they end. If new
//     ones have it for longer, end those of the old one.
func (s *Scheduler) Problems() []string {
	if texts := s.conflict.Load(); texts != nil {
		return slices.Clone(*texts)
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
	compared   int64     // the last ownership in which the version of the job was compared with the owner's
	differs    bool      // whether they differed then
	versions   string    // both, if they differed
	agreed     int64     // the ownership in which they agreed twice
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
	term := int64(0) // of another process
	if !s.owning.Load() {
		var err error
		if term, err = s.ownership(ctx); err != nil {
			return err
		}
	}
	read := s.ownerRead(ctx)
	var lacked, differ []string
	if term != 0 {
		var err error
		if lacked, err = s.notRun(ctx, of, now, term, read); err != nil {
			return err
		}
		if differ, err = s.otherVersions(ctx, of, term); err != nil {
			return err
		}
		differ = slices.DeleteFunc(differ, func(name string) bool { return slices.Contains(lacked, name) })
	}
	if len(lacked)+len(differ) == 0 {
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
	var problems []string
	report := func(names []string, event, does, why string) {
		if len(names) == 0 {
			return
		}
		slices.Sort(names)
		named := names[:min(len(names), mostNamed)]
		var texts []string
		for _, name := range named {
			texts = append(texts, strings.TrimSpace(name+" "+of[name].versions))
		}
		problem := fmt.Sprintf("the owner %s of group %q does not run %s%d jobs of this process: %s; %s",
			owner.name, s.cfg.Group, does, len(names), strings.Join(texts, ", "), why)
		problems = append(problems, problem)
		s.log.Warn(event, zap.String("key", ownerKey(s.cfg.Group)), zap.String("owner", owner.name),
			zap.Int("count", len(names)), zap.Strings("jobs", named), zap.String("problem", problem))
	}
	report(lacked, "jobs not run by the owner of the group", "",
		"it does not have them, as another service or version (give each service its own Config.Group), "+
			"or is busy, or its clock is behind")
	report(differ, "jobs registered in another version", "this version of ",
		"end the processes of the older version, if no deployment does so")
	s.conflict.Store(&problems)
	return nil
}

// notRun returns the jobs of this process that the owner does not run: from one look to the next
// it has not registered them, or leaves a tick undecided. A job whose mark the owner has moved is
// not looked at again in the same ownership.
func (s *Scheduler) notRun(
	ctx context.Context, of map[string]*awaited, now time.Time, term int64, read ownerRead,
) (names []string, err error) {
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

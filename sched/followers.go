package sched

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/retry"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// follower is a definition that runs after another job.
type follower struct {
	before  string // the other job
	version int64
}

// followers are the definitions that run after other jobs, by name.
type followers map[string]follower

// setFollower takes over a definition. One that runs after no job is dropped.
func (s *Scheduler) setFollower(name string, is follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if is.before == "" {
		delete(s.followers, name)
	} else {
		s.followers[name] = is
	}
}

// definedFollowers returns the definitions that run after a job, with their versions. While
// this process does not know all of them, as in its first moments and while it stops, they
// are read from etcd. A job in code of this process has precedence over a definition of its
// name.
func (s *Scheduler) definedFollowers(ctx context.Context, job string) (map[string]int64, error) {
	s.mu.Lock()
	found, known := s.pick(s.followers, job), s.followersKnown.Load()
	s.mu.Unlock()
	if known {
		return found, nil
	}
	resp, err := retry.Get(ctx, core.Of(s.claims).KV(), readTime,
		clientv3.OpGet(s.keys.AllDefined(), clientv3.WithPrefix()))
	if err != nil {
		return nil, err
	}
	all := make(followers)
	for _, kv := range resp.Kvs {
		if n, err := decode[notice](string(kv.Key), kv.Value); err == nil && n.After != "" {
			all[n.Job] = follower{before: n.After, version: kv.ModRevision}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pick(all, job), nil
}

// pick returns those that run after a job. The mutex is held.
func (s *Scheduler) pick(all followers, job string) map[string]int64 {
	var found map[string]int64
	for name, f := range all {
		if _, inCode := s.jobs[name]; f.before != job || inCode {
			continue
		}
		if circle := circleFrom(name, f.before, func(job string) string { return s.beforeOf(all, job) }); circle != nil {
			s.log.Error("tick not requested: the jobs run after each other in a circle", zap.String("job", name), zap.Strings("circle", circle))
			continue
		}
		if found == nil {
			found = make(map[string]int64)
		}
		found[name] = f.version
	}
	return found
}

// beforeOf returns the job that a job runs after, or an empty text. The mutex is held.
func (s *Scheduler) beforeOf(all followers, job string) string {
	if j, inCode := s.jobs[job]; inCode {
		before, _ := j.Schedule.(after)
		return string(before)
	}
	return all[job].before
}

// circleFrom returns the jobs from the job back to itself if it would run after itself.
func circleFrom(job, before string, beforeOf func(string) string) []string {
	path := []string{job}
	seen := map[string]bool{}
	for at := before; at != "" && !seen[at]; at = beforeOf(at) {
		seen[at] = true
		path = append(path, at)
		if at == job {
			return path
		}
	}
	return nil
}

// checkAfter returns an error if the job would run after itself, or if too many jobs run
// after the other one. Its conditions are that no definition has changed since.
func (s *Scheduler) checkAfter(ctx context.Context, d Definition) ([]clientv3.Cmp, error) {
	if d.After == "" {
		return nil, nil
	}
	specs, notices, rev, err := s.readJobs(ctx)
	if err != nil {
		return nil, err
	}
	before := make(map[string]string)
	for _, kv := range notices {
		// Jobs whose values cannot be read do not run.
		if n, err := decode[notice](string(kv.Key), kv.Value); err == nil {
			before[n.Job] = n.After
		}
	}
	for _, kv := range specs {
		if sp, err := decode[spec](string(kv.Key), kv.Value); err == nil && sp.InCode() {
			before[sp.Job], _ = sp.Before()
		}
	}
	delete(before, d.Name)
	if circle := circleFrom(d.Name, d.After, func(job string) string { return before[job] }); circle != nil {
		return nil, fmt.Errorf("the job would run after itself: %.500s", strings.Join(circle, " after "))
	}
	n := 0
	for is := range maps.Values(before) {
		if is == d.After {
			n++
		}
	}
	if n >= mostAfter {
		return nil, fmt.Errorf("%d jobs run after %q already, which is the limit", n, d.After)
	}
	unchanged := clientv3.Compare(clientv3.ModRevision(s.keys.AllDefined()), "<", rev+1).WithPrefix()
	return []clientv3.Cmp{unchanged}, nil
}

// readBefore sets unknownBefore of the definitions that run after a job that is neither defined
// nor registered from code.
func (s *Scheduler) readBefore(ctx context.Context, all []*jobSnapshot) error {
	var names []string
	for _, st := range all {
		if checkName(st.definition.After) == nil {
			names = append(names, st.definition.After)
		}
	}
	if len(names) == 0 {
		return nil
	}
	before, err := s.readAll(ctx, names)
	if err != nil {
		return err
	}
	for i, name := range names {
		b := before[i]
		for _, st := range all {
			if st.definition.After == name { // one of a later version is of a job that exists
				st.unknownBefore = b.err == nil && b.definitionRev == 0 && (b.SpecRev == 0 || !b.Spec.InCode())
			}
		}
	}
	return nil
}

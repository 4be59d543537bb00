package sched

import (
	"context"
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// mostNamed is how many jobs a problem names.
const mostNamed = 8

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

// checkConflict notes and logs which jobs of this process the owner of the group does not have.
func (s *Scheduler) checkConflict(ctx context.Context, of map[string]*awaited) error {
	names, err := s.unowned(ctx, of)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		if s.conflict.Swap(nil) != nil {
			s.log.Info("jobs of this process owned again", zap.String("key", ownerKey(s.cfg.Group)))
		}
		return nil
	}
	owner, err := s.ownerRead(ctx)()
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

// unowned returns the jobs of this process that the owner does not have: those whose ticks it
// leaves undecided, and those that it has not registered from one look to the next.
func (s *Scheduler) unowned(ctx context.Context, of map[string]*awaited) (names []string, err error) {
	if s.owning.Load() {
		return nil, nil
	}
	var unknown []*awaited
	for name, a := range of {
		switch {
		case a.warned:
			names = append(names, name)
		case !a.registered && a.job.defined == 0: // Inspect reports definitions that no owner has taken up
			unknown = append(unknown, a)
		}
	}
	if len(unknown) == 0 {
		return names, nil
	}
	owner, err := s.ownership(ctx)
	if err != nil || owner == 0 {
		return names, err
	}
	spec := func(a *awaited) clientv3.Op {
		return clientv3.OpGet(s.keys.spec(a.job.Name), clientv3.WithCountOnly())
	}
	err = s.readEach(ctx, unknown, spec, func(a *awaited, got *pb.RangeResponse) error {
		a.registered = got.Count > 0 // an owner has registered it once
		return nil
	})
	if err != nil {
		return names, err
	}
	for _, a := range unknown {
		if !a.registered && a.missing == owner {
			names = append(names, a.job.Name)
		}
		a.missing = owner
	}
	return names, nil
}

package sched

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/tick"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// checkAfter returns an error if the job would run after itself, or if too many jobs run
// after another one. Its conditions are that no definition has changed since.
func (s *Scheduler) checkAfter(ctx context.Context, d definitionValue) ([]clientv3.Cmp, error) {
	f := d.Following
	if len(f.Jobs()) == 0 {
		return nil, nil
	}
	specs, notices, rev, err := s.readJobs(ctx)
	if err != nil {
		return nil, err
	}
	before := make(map[string]tick.Following)
	for _, kv := range notices {
		// Jobs whose values cannot be read do not run.
		if n, err := decode[notice](string(kv.Key), kv.Value); err == nil {
			before[n.Job] = n.Following
		}
	}
	for _, kv := range specs {
		if sp, err := decode[spec](string(kv.Key), kv.Value); err == nil && sp.InCode() {
			before[sp.Job] = sp.Following
		}
	}
	delete(before, d.Name)
	beforeOf := func(job string) []string { f := before[job]; return f.Jobs() }
	if circle := circleFrom(d.Name, f.Jobs(), beforeOf); circle != nil {
		return nil, fmt.Errorf("the job would run after itself: %.500s", strings.Join(circle, " after "))
	}
	for _, other := range f.Jobs() {
		n := 0
		for _, is := range before {
			if is.Has(other) {
				n++
			}
		}
		if n >= mostAfter {
			return nil, fmt.Errorf("%d jobs run after %q already, which is the limit", n, other)
		}
	}
	unchanged := clientv3.Compare(clientv3.ModRevision(s.keys.AllDefined()), "<", rev+1).WithPrefix()
	return []clientv3.Cmp{unchanged}, nil
}

// readBefore sets unknownBefore of the definitions that run after a job that is neither defined
// nor registered from code.
func (s *Scheduler) readBefore(ctx context.Context, all []*jobSnapshot) error {
	unknown := make(map[string]bool)
	for _, st := range all {
		for _, name := range st.definition.Jobs() {
			if checkName(name) == nil {
				unknown[name] = false
			}
		}
	}
	for names := range slices.Chunk(slices.Sorted(maps.Keys(unknown)), jobsPerRead) {
		before, err := s.readAll(ctx, names)
		if err != nil {
			return err
		}
		for i, name := range names { // one of a later version is of a job that exists
			b := before[i]
			unknown[name] = b.err == nil && b.definitionRev == 0 && (b.SpecRev == 0 || !b.Spec.InCode())
		}
	}
	for _, st := range all {
		for _, name := range st.definition.Jobs() {
			if unknown[name] {
				st.unknownBefore = name
			}
		}
	}
	return nil
}

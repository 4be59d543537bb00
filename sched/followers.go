package sched

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

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
	for _, is := range before {
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

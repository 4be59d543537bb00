package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/ical"
)

// mostGroups is how many groups are named at most; each costs a request.
const mostGroups = 50

// printJobs lists the jobs of a group. If there are none, it names the groups that there are.
func (a *app) printJobs(ctx context.Context, claims *etcdclaims.Client, _ []string) error {
	s, err := newScheduler(ctx, claims, a.group)
	if err != nil {
		return err
	}
	empty := true
	counted := mapped(s.Jobs(ctx), func(i sched.JobInfo) jobView {
		empty = false
		return viewJob(i)
	})
	if err := printList(a, jobColumns, counted); err != nil || !empty {
		return err
	}
	groups, err := someGroups(ctx, claims)
	if len(groups) > 0 {
		a.remark(fmt.Sprintf("group %q has no jobs; choose with -g from: %s", a.group, strings.Join(groups, ", ")), groups...)
	}
	return err
}

// someGroups returns the names of groups that have jobs, sorted.
func someGroups(ctx context.Context, claims *etcdclaims.Client) ([]string, error) {
	groups, _, err := explain.First(sched.Groups(ctx, claims), mostGroups)
	slices.Sort(groups)
	return groups, err
}

// newScheduler returns the group, without running any of its jobs. Without a name it names the
// groups that there are.
func newScheduler(ctx context.Context, claims *etcdclaims.Client, group string) (*sched.Scheduler, error) {
	if group == "" {
		groups, err := someGroups(ctx, claims)
		switch {
		case err != nil && len(groups) > 0:
			return nil, usageError("choose a group with -g (sched.Config.Group) from: %s; others cannot be read: %w", strings.Join(groups, ", "), err)
		case err != nil:
			return nil, usageError("choose a group with -g (sched.Config.Group); the groups cannot be listed: %w", err)
		case len(groups) == 0:
			return nil, usageError("choose a group with -g (sched.Config.Group); no group has jobs")
		}
		return nil, usageError("choose a group with -g (sched.Config.Group) from: %s", strings.Join(groups, ", "))
	}
	s, err := sched.New(claims, sched.Config{Group: group, ICal: ical.ParseText})
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return s, nil
}

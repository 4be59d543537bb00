package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/ical"
)

// mostGroups is how many groups are named at most; each costs a request.
const mostGroups = 50

// printJobs lists the jobs of a group. If there are none, it names the groups that there are.
func (a *app) printJobs(ctx context.Context, claims *etcdclaims.Client, group string) error {
	s, err := sched.New(claims, sched.Config{Group: group, ICal: ical.ParseText})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	empty := true
	counted := func(yield func(jobView, error) bool) {
		for i, err := range s.Jobs(ctx) {
			empty = false
			if !yield(viewJob(i), err) {
				return
			}
		}
	}
	if err := printList(a, jobHeader, counted); err != nil || !empty {
		return err
	}
	var groups []string
	for name, err := range sched.Groups(ctx, claims) {
		if err != nil {
			return err
		}
		if groups = append(groups, name); len(groups) == mostGroups {
			break
		}
	}
	if len(groups) > 0 {
		slices.Sort(groups)
		a.remark(fmt.Sprintf("group %q has no jobs; choose with -g from: %s", group, strings.Join(groups, ", ")), groups...)
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/ical"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mostGroups is how many groups are named at most; each costs a request.
const mostGroups = 50

func (a *app) listJobsCommand() *cobra.Command {
	jobs := a.command(spec{
		use: "jobs", alias: "ls", table: allJobColumns, short: "List the jobs of a group",
		long: `List the jobs of a group. Without -g, or if the group has none, the groups that have
jobs are named on the standard error.`,
		flags: func(flags *pflag.FlagSet) {
			flags.BoolVarP(&a.allGroups, "all-groups", "A", false, "the jobs of all groups")
		},
		check: func([]string) error {
			return usageIf(a.allGroups && a.group != "", "sched jobs: -A does not go with -g")
		},
		run: a.printJobs,
	})
	jobs.Args = noJob
	return jobs
}

// printJobs lists the jobs of a group. If there are none, it names the groups that there are.
func (a *app) printJobs(ctx context.Context, claims *etcdclaims.Client, _ []string) error {
	if a.allGroups {
		return printList(a, allJobColumns, allJobs(ctx, claims))
	}
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

// allJobs yields the jobs of all groups.
func allJobs(ctx context.Context, claims *etcdclaims.Client) iter.Seq2[jobView, error] {
	return func(yield func(jobView, error) bool) {
		for group, err := range sched.Groups(ctx, claims) {
			jobs := sequence[jobView](nil, err)
			if err == nil {
				jobs = jobsOf(ctx, claims, group)
			}
			for v, err := range jobs {
				if !yield(v, err) {
					return
				}
			}
		}
	}
}

func jobsOf(ctx context.Context, claims *etcdclaims.Client, group string) iter.Seq2[jobView, error] {
	s, err := newScheduler(ctx, claims, group)
	if err != nil {
		return sequence[jobView](nil, err)
	}
	return mapped(s.Jobs(ctx), viewJob)
}

// completeJobs completes the jobs of the group, or of all groups.
func (a *app) completeJobs(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.completeFrom(cmd, args, typed, func(ctx context.Context, claims *etcdclaims.Client) iter.Seq2[string, error] {
		jobs := allJobs(ctx, claims)
		if a.group != "" {
			jobs = jobsOf(ctx, claims, a.group)
		}
		return mapped(jobs, jobView.name)
	})
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
			return nil, usageError("choose a group with -g (sched.Config.Group) from: %s; others cannot be read: %w",
				strings.Join(groups, ", "), err)
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

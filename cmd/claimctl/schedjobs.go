package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/sched"
)

// mostGroups is how many groups are named at most; each costs a request.
const mostGroups = 50

// printJobs lists the jobs of a group. If there are none, it names the groups that there are.
func (a *app) printJobs(ctx context.Context, claims *etcdclaims.Client, group string) error {
	s, err := sched.New(claims, sched.Config{Group: group})
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
		a.otherGroups(group, groups)
	}
	return nil
}

// otherGroups prints the groups that have jobs to the standard error, as JSON where the output
// is JSON.
func (a *app) otherGroups(group string, groups []string) {
	note := fmt.Sprintf("group %q has no jobs; choose with -g from: %s", group, strings.Join(groups, ", "))
	if a.format == formatJSON || a.format == formatLines {
		if b, err := json.Marshal(struct {
			Note   string   `json:"note"`
			Groups []string `json:"groups"`
		}{note, groups}); err == nil {
			_, _ = fmt.Fprintf(a.err, "%s\n", b)
			return
		}
	}
	_, _ = fmt.Fprintf(a.err, "claimctl: %s\n", clean(note))
}

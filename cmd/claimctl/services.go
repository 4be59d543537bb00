package main

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/sched"
)

// services looks for what people must decide about in queues and schedules.
func (d *doctor) services(ctx context.Context, claims *etcdclaims.Client) {
	ctx, cancel := context.WithTimeout(ctx, d.commandTimeout)
	defer cancel()
	d.queues(ctx, claims)
	d.groups(ctx, claims)
}

func (d *doctor) queues(ctx context.Context, claims *etcdclaims.Client) {
	const most = 50
	seen, well := 0, true
	for name, err := range queue.Active(ctx, claims) {
		var stats queue.Stats
		if err == nil {
			err = d.inQueue(ctx, claims, name, func(q *queue.Queue) error {
				stats, err = q.Stats(ctx)
				return err
			})
		}
		if isDenied(err) {
			return // see permissions
		}
		if err != nil {
			d.add(levelWarning, "queues", "see claimctl queue stats", "cannot be read: %v", err)
			return
		}
		if stats.Dead > 0 {
			well = false
			d.add(levelWarning, "queues", fmt.Sprintf("%[1]s queue dead ls%[2]s, mend the cause, %[1]s queue dead redrive%[2]s ID", d.claimctl(), arguments(name)), "%q has %d dead items", name, stats.Dead)
		}
		if !stats.Paused.At.IsZero() {
			well = false
			d.add(levelWarning, "queues", d.claimctl()+" queue resume"+arguments(name), "%q is paused %s", name, viewStats(name, stats).Paused)
		}
		if seen++; seen == most {
			break
		}
	}
	if well {
		d.ok("queues", "%d active, without dead items and pauses", seen)
	}
}

// groups looks at the jobs of each group, and whether a process runs them.
func (d *doctor) groups(ctx context.Context, claims *etcdclaims.Client) {
	const most = 50
	groups, jobs, well := 0, 0, true
	for group, err := range sched.Groups(ctx, claims) {
		if groups == most {
			break
		}
		if err == nil {
			groups++
			var n int
			var fit bool
			n, fit, err = d.group(ctx, claims, group)
			jobs, well = jobs+n, well && fit
		}
		if isDenied(err) {
			return // see permissions
		}
		if err != nil {
			d.add(levelWarning, "jobs", "see claimctl sched jobs", "cannot be read: %v", err)
			return
		}
	}
	if well {
		d.ok("jobs", "%d in %d groups, none paused", jobs, groups)
	}
}

// group counts the jobs of a group, and reports whether they can run.
func (d *doctor) group(ctx context.Context, claims *etcdclaims.Client, name string) (jobs int, well bool, err error) {
	s, err := sched.New(claims, sched.Config{Group: name})
	if err != nil {
		return 0, false, err
	}
	well = true
	for job, err := range s.Jobs(ctx) {
		if err != nil {
			return jobs, false, err
		}
		if job.Problem != "" && job.Version != 0 {
			well = false
			d.add(levelWarning, "jobs", fmt.Sprintf("%s sched show -g %s%s", d.claimctl(), quoted(name), arguments(job.Job)), "%q of group %q: %s", job.Job, name, job.Problem)
		}
		if jobs++; job.Paused != nil {
			well = false
			d.add(levelWarning, "jobs", fmt.Sprintf("%s sched resume -g %s%s", d.claimctl(), quoted(name), arguments(job.Job)), "%q of group %q is paused %s", job.Job, name, viewJob(job).Paused)
		}
	}
	owner, err := claims.Lookup(ctx, "sched/"+name+"/owner")
	if err == nil && !owner.Held && jobs > 0 {
		well = false
		d.add(levelWarning, "jobs", fmt.Sprintf("start a process that runs the Scheduler, or forget the jobs: %s sched forget -g %s JOB", d.claimctl(), quoted(name)),
			"no process runs group %q, which has %d jobs", name, jobs)
	}
	return jobs, well, err
}

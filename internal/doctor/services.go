package doctor

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/sched"
)

// queues looks at the first queues.
func (e *Examination) queues(ctx context.Context) {
	const most = 100
	seen, well, unread := 0, true, ""
	for name, err := range queue.Names(ctx, e.Claims) {
		if seen == most {
			unread = others
			break
		}
		var stats queue.Stats
		if err == nil {
			stats, err = e.queueStats(ctx, name)
		}
		if isDenied(err) {
			e.unread("queues")
			return
		}
		if err != nil {
			e.Add(Warning, "queues", "see claimctl queue stats", "cannot be read: %v", err)
			return
		}
		if stats.Dead > 0 {
			well = false
			remedy := fmt.Sprintf("%[1]s queue dead ls%[2]s, mend the cause, %[1]s queue dead redrive%[2]s ID", e.Commands.Claimctl, Arguments(name))
			if stats.Dead > 1 {
				remedy += fmt.Sprintf(", or %s queue dead redrive-all%s", e.Commands.Claimctl, Arguments(name))
			}
			e.Add(Warning, "queues", remedy, "%q has %s", name, count(int(stats.Dead), "dead item", "dead items"))
		}
		if !stats.Paused.At.IsZero() {
			well = false
			e.Add(Warning, "queues", e.Commands.Claimctl+" queue resume"+Arguments(name), "%q is paused %s", name, Paused(stats.Paused.By, stats.Paused.At, stats.Paused.Why))
		}
		seen++
	}
	if well {
		e.Judge("queues", unread, "%d, without dead items and pauses", seen)
	}
}

func (e *Examination) queueStats(ctx context.Context, name string) (queue.Stats, error) {
	q, err := queue.Open(ctx, e.Claims, name)
	if err != nil {
		return queue.Stats{}, err
	}
	defer func() { _ = q.Close(ctx) }() // it has no items
	return q.Stats(ctx)
}

// groups looks at the jobs of each group, and whether a process runs them.
func (e *Examination) groups(ctx context.Context) {
	const most = 50
	groups, jobs, well, unread := 0, 0, true, ""
	for group, err := range sched.Groups(ctx, e.Claims) {
		if groups == most {
			unread = others
			break
		}
		if err == nil {
			groups++
			var n int
			var fit bool
			n, fit, err = e.group(ctx, group)
			jobs, well = jobs+n, well && fit
		}
		if isDenied(err) {
			e.unread("jobs")
			return
		}
		if err != nil {
			e.Add(Warning, "jobs", "see claimctl sched jobs -g GROUP", "cannot be read: %v", err)
			return
		}
	}
	if well {
		e.Judge("jobs", unread, "%d in %s, none paused", jobs, count(groups, "group", "groups"))
	}
}

// group counts the jobs of a group, and reports whether they can run.
func (e *Examination) group(ctx context.Context, name string) (jobs int, well bool, err error) {
	s, err := sched.New(e.Claims, sched.Config{Group: name, ICal: e.ICal})
	if err != nil {
		return 0, false, err
	}
	owner, unread := e.Claims.Lookup(ctx, "sched/"+name+"/owner")
	well = true
	for job, err := range s.Jobs(ctx) {
		if err != nil {
			return jobs, false, err
		}
		show := fmt.Sprintf("%s sched show -g %s%s", e.Commands.Claimctl, Quoted(name), Arguments(job.Job))
		unadmitted := !job.Unadmitted.IsZero()
		if job.Ahead > 0 {
			well = false
			e.Add(Warning, "jobs", fmt.Sprintf("look at the clocks, and then: %s sched reset -g %s%s",
				e.Commands.Claimctl, Quoted(name), Arguments(job.Job)),
				"%q of group %q: %s", job.Job, name, job.Problem)
		}
		if job.Problem != "" && job.Version != 0 && !unadmitted && job.Ahead == 0 {
			well = false
			requests := ""
			if job.Requests > 0 {
				requests = "; " + count(job.Requests, "request waits", "requests wait")
			}
			e.Add(Warning, "jobs", show, "%q of group %q: %s%s", job.Job, name, job.Problem, requests)
		}
		if unadmitted && owner.Held { // without an owner there is one finding for the group
			well = false
			e.Add(Warning, "jobs", fmt.Sprintf("restart the owner with the job, or, if it is obsolete: %s sched forget -g %s%s", e.Commands.Claimctl, Quoted(name), Arguments(job.Job)),
				"%q of group %q: %s", job.Job, name, job.Problem)
		}
		if !job.Overdue.IsZero() && job.Ahead == 0 {
			well = false
			e.Add(Warning, "jobs", show, "%q of group %q is overdue: its tick of %s has not ended", job.Job, name, Stamp(job.Overdue))
		}
		if jobs++; job.Paused != nil {
			well = false
			e.Add(Warning, "jobs", fmt.Sprintf("%s sched resume -g %s%s", e.Commands.Claimctl, Quoted(name), Arguments(job.Job)), "%q of group %q is paused %s", job.Job, name, Paused(job.Paused.By, job.Paused.At, job.Paused.Note))
		}
	}
	if unread == nil && !owner.Held && jobs > 0 {
		well = false
		e.Add(Warning, "jobs", fmt.Sprintf("start a process that runs the Scheduler, or forget the jobs: %s sched forget -g %s JOB", e.Commands.Claimctl, Quoted(name)),
			"no process runs group %q, which has %s", name, count(jobs, "job", "jobs"))
	}
	return jobs, well, unread
}

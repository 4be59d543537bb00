package doctor

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/sched"
)

// queues looks at the first queues.
func (e *Examination) queues(ctx context.Context) {
	of := source{"queues", Warning, "see claimctl queue stats", "cannot be read", 100}
	seen, unread, well := each(ctx, e, of, queue.Names(ctx, e.Claims), func(name string) error {
		stats, err := e.queueStats(ctx, name)
		if err != nil {
			return err
		}
		if stats.Dead > 0 {
			remedy := fmt.Sprintf("%[1]s queue dead ls%[2]s, mend the cause, %[1]s queue dead redrive%[2]s ID",
				e.Commands.Claimctl, explain.Arguments(name))
			if stats.Dead > 1 {
				remedy += fmt.Sprintf(", or %s queue dead redrive-all%s", e.Commands.Claimctl, explain.Arguments(name))
			}
			e.Add(Warning, "queues", remedy, "%q has %s", name, count(int(stats.Dead), "dead item", "dead items"))
		}
		if p := stats.Paused; !p.At.IsZero() {
			e.Add(Warning, "queues", e.Commands.Claimctl+" queue resume"+explain.Arguments(name),
				"%q is paused %s", name, explain.Paused(p.By, p.At, p.Why))
		}
		return nil
	})
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
	jobs := 0
	of := source{"jobs", Warning, "see claimctl sched jobs -g GROUP", "cannot be read", 50}
	groups, unread, well := each(ctx, e, of, sched.Groups(ctx, e.Claims), func(group string) error {
		n, err := e.group(ctx, group)
		jobs += n
		return err
	})
	if well {
		e.Judge("jobs", unread, "%d in %s, none paused", jobs, count(groups, "group", "groups"))
	}
}

// group reports the jobs of a group that cannot run, and returns how many jobs there are.
func (e *Examination) group(ctx context.Context, name string) (jobs int, unread error) {
	s, err := sched.New(e.Claims, sched.Config{Group: name, ICal: e.ICal})
	if err != nil {
		return 0, err
	}
	owner, unknown := e.Claims.Lookup(ctx, "sched/"+name+"/owner")
	for job, err := range s.Jobs(ctx) {
		if err != nil { // those behind it may be readable
			unread = errtext.Both(unread, err)
			continue
		}
		jobs++
		e.job(name, job, owner.Held)
	}
	if unknown == nil && !owner.Held && jobs > 0 {
		e.Add(Warning, "jobs", fmt.Sprintf("start a process that runs the Scheduler, or forget the jobs: "+
			"%s sched forget -g %s JOB", e.Commands.Claimctl, explain.Quoted(name)),
			"no process runs group %q, which has %s", name, count(jobs, "job", "jobs"))
	}
	return jobs, errtext.Both(unknown, unread)
}

// job reports why a job of a group cannot run. Without an owner of the group there is one finding
// for all ticks that are not admitted.
func (e *Examination) job(group string, job sched.JobInfo, owned bool) {
	command := func(verb string) string {
		return fmt.Sprintf("%s sched %s -g %s%s", e.Commands.Claimctl, verb, explain.Quoted(group), explain.Arguments(job.Job))
	}
	add := func(remedy, format string, args ...any) {
		e.Add(Warning, "jobs", remedy, "%q of group %q%s", job.Job, group, fmt.Sprintf(format, args...))
	}
	switch unadmitted := !job.Unadmitted.IsZero(); {
	case job.Ahead > 0:
		add("look at the clocks, and then: "+command("reset"), ": %s", job.Problem)
	case unadmitted && owned:
		add("restart the owner with the job, or, if it is obsolete: "+command("forget"), ": %s", job.Problem)
	case !unadmitted && job.Problem != "" && job.Version != 0:
		requests := ""
		if job.Requests > 0 {
			requests = "; " + count(job.Requests, "request waits", "requests wait")
		}
		add(command("show"), ": %s%s", job.Problem, requests)
	}
	if !job.Overdue.IsZero() && job.Ahead == 0 {
		add(command("show"), " is overdue: its tick of %s has not ended", explain.Stamp(job.Overdue))
	}
	if job.Paused != nil {
		add(command("resume"), " is paused %s", explain.Paused(job.Paused.By, job.Paused.At, job.Paused.Note))
	}
}

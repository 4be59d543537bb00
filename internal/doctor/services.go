package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/sched"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// queues looks at the first queues.
func (e *Examination) queues(ctx context.Context) {
	of := source{"queues", Warning, "see claimctl queue stats", "cannot be read", 100}
	seen, unread, well := each(ctx, e, of, queue.Names(ctx, e.Claims), func(name string) error {
		q, err := queue.Open(ctx, e.Claims, name)
		if err != nil {
			return err
		}
		defer func() { _ = q.Close(ctx) }() // it has no items
		stats, err := q.Stats(ctx)
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

// work looks for records that somebody must look at.
func (e *Examination) work(ctx context.Context) {
	type kind struct {
		state work.State
		once  bool // at most once
	}
	found := map[kind][]string{}
	works, err := work.New(e.Claims, work.Config{})
	if err != nil {
		e.Add(Error, "work", "see the client", "cannot be listed: %v", err)
		return
	}
	of := source{"work", Error, "see the permissions", "cannot be listed", e.Limit}
	read, unread, ok := each(ctx, e, of, works.Records(ctx, ""), func(r work.Record) error {
		is := kind{r.State, r.AtMostOnce}
		found[is] = append(found[is], r.Key)
		return nil
	})
	if !ok {
		return
	}
	more := ""
	if unread != "" {
		more = " or more"
	}
	before := len(e.Findings)
	onPurpose := fmt.Sprintf("%[1]s work show KEY, and find out whether the effect happened. "+
		"If not: %[1]s work retry KEY; if so: %[1]s work forget KEY, or leave it", e.Commands.Claimctl)
	for _, sick := range []struct {
		kind
		is, remedy string
	}{
		{kind{work.StateOrphaned, false}, "orphaned, their owners died", fmt.Sprintf(
			"see that a process begins them again; %s work ls --state orphaned", e.Commands.Claimctl)},
		{kind{work.StateOrphaned, true}, "orphaned and at most once, which no caller begins again", onPurpose},
		{kind{work.StateDead, false}, "dead, after their last attempt", fmt.Sprintf(
			"%[1]s work show KEY, mend the cause, %[1]s work retry KEY", e.Commands.Claimctl)},
		{kind{work.StateDead, true}, "dead and at most once", onPurpose},
		{kind{work.StateUnreadable, false}, "unreadable", "a newer version or another program wrote them: do not delete them before you know"},
	} {
		if keys := found[sick.kind]; len(keys) > 0 {
			e.Add(Warning, "work", sick.remedy, "%d %s: %s", len(keys), sick.is, several(keys))
		}
	}
	if len(e.Findings) == before {
		e.Judge("work", unread, "%s%s, none of those read is orphaned or dead", count(read, "record", "records"), more)
	}
}

// partitionGroups looks for partitions that no member owns, and for members that are not there.
func (e *Examination) partitionGroups(ctx context.Context) {
	failed := 0
	var suspects []suspect
	members := map[string]int{} // of groups with suspects
	of := source{"groups", Warning, "see claimctl group ls", "cannot be read", 50}
	seen, unread, ok := each(ctx, e, of, group.Names(ctx, e.Claims), func(name string) error {
		found, n, unread, err := e.readGroup(ctx, name)
		failed += unread
		if len(found) > 0 {
			members[name] = n
			suspects = append(suspects, found...)
		}
		return err
	}) // after an error, what looks wrong in the others is still reported
	suspects, unconfirmed := confirm(ctx, suspects, func(ctx context.Context) (again []suspect, err error) {
		for name := range members {
			found, _, unread, err := e.readGroup(ctx, name)
			if err != nil {
				return nil, err
			}
			failed += unread
			again = append(again, found...)
		}
		return again, nil
	})
	for name, n := range members {
		e.accuse(name, n, suspects, unconfirmed)
	}
	if unread == "" {
		unread = unreadLeases(failed)
	}
	if ok && len(suspects) == 0 {
		e.Judge("groups", unread, "%s of partitions, without partitions that nobody owns", count(seen, "group", "groups"))
	}
}

// readGroup returns what looks wrong in a group, the number of members that are there, and the
// number of their leases that could not be read.
func (e *Examination) readGroup(ctx context.Context, name string) (found []suspect, members, unread int, err error) {
	g, err := explain.ReadPartitionGroup(ctx, e.Claims, name)
	if err != nil && !errors.Is(err, group.ErrNoGroup) { // one that was removed meanwhile is empty
		return nil, 0, 0, err
	}
	leases := map[clientv3.LeaseID]bool{}
	for _, m := range g.Members {
		if m.Instance != "" && m.Evicted == nil {
			members++
			leases[m.Lease] = true
		}
	}
	gone, unread := e.goneLeases(ctx, leases)
	for _, m := range g.Members {
		if m.Instance != "" && (gone[m.Lease] || m.Lease == clientv3.NoLease) {
			found = append(found, suspect{name + " ghost", fmt.Sprint(m.Name, m.Lease), m.Name})
		}
	}
	for partition, target := range g.Plan.Target {
		isAway := func(m group.MemberInfo) bool { return m.Name == target && m.Instance == "" } // nobody is to claim its partitions
		if members == 0 || g.Assigned.Owners[partition].Reserved != "" || target == "" ||
			g.Holder(partition).Held || slices.ContainsFunc(g.Assigned.Members, isAway) {
			continue
		}
		number := fmt.Sprintf("%05d", partition)
		found = append(found,
			suspect{name + " free", number + target, number}, suspect{name + " target", number + target, target})
	}
	return found, members, unread, nil
}

// accuse reports what both readings of a group have found.
func (e *Examination) accuse(name string, members int, suspects []suspect, unconfirmed string) {
	free, ghosts := namesOf(suspects, name+" free"), namesOf(suspects, name+" ghost")
	if len(free) > 0 {
		targets := namesOf(suspects, name+" target")
		slices.Sort(targets)
		remedy := fmt.Sprintf("%[1]s group show%[2]s; look at the log of the member that is to have them, "+
			"and if it cannot claim: %[1]s group evict%[2]s MEMBER --reason WHY", e.Commands.Claimctl, explain.Arguments(name))
		e.Add(Warning, "groups", remedy, "group %q has %s, and nobody owns %s: %s, which %s is to have%s",
			name, count(members, "member", "members"), count(len(free), "partition", "partitions"),
			several(free), several(slices.Compact(targets)), unconfirmed)
	}
	if len(ghosts) > 0 {
		slices.Sort(ghosts)
		e.Add(Warning, "groups", fmt.Sprintf("etcd should have deleted the entry with its lease: "+
			"%[1]s group evict%[2]s --reason ghost --for 1s", e.Commands.Claimctl, explain.Arguments(name, ghosts[0])),
			"members of group %q whose lease is gone: %s%s", name, several(ghosts), unconfirmed)
	}
}

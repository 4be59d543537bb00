package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/sched"
)

// jobGroup is the jobs of a group, and whether a process runs them.
type jobGroup struct {
	name  string
	jobs  []sched.JobInfo
	owned bool
}

// groups looks at the jobs of each group, and whether a process runs them. A group whose owner is
// being elected has callers in line for it, or an owner a moment later.
func (e *Examination) groups(ctx context.Context) {
	var all []jobGroup
	var suspects []suspect
	jobs, before := 0, len(e.Findings)
	of := source{"jobs", Warning, "cannot be read", 50}
	_, unread, well := each(ctx, e, of, sched.Groups(ctx, e.Claims), func(name string) error {
		g, err := e.readJobs(ctx, name)
		all, jobs = append(all, g), jobs+len(g.jobs)
		if !g.owned && len(g.jobs) > 0 {
			suspects = append(suspects, suspect{"ownerless", name, name})
		}
		return err
	})
	suspects, unconfirmed := confirmEach(ctx, suspects, func(ctx context.Context, s suspect) (bool, error) {
		owned, err := e.isOwned(ctx, s.name)
		return !owned, err
	})
	for _, g := range all {
		owned := !slices.Contains(namesOf(suspects, "ownerless"), g.name)
		e.pausedTogether(g)
		var overdue []string
		for _, job := range g.jobs {
			e.job(g.name, job, owned)
			if !job.Overdue.IsZero() && job.Ahead == 0 {
				overdue = append(overdue, job.Job)
			}
		}
		if !owned {
			late := ""
			if len(overdue) > 0 {
				late = "; overdue: " + several(overdue)
			}
			e.Add(Warning, "jobs", "start a process that runs the Scheduler, or forget jobs that are obsolete",
				"no process runs group %q, which has %s%s%s", g.name, errtext.Count(len(g.jobs), "job", "jobs"), late, unconfirmed,
			).run(e.claimctl("sched jobs -g " + explain.Quoted(g.name)))
		}
	}
	if well && len(e.Findings) == before {
		e.judge("jobs", unread, "%d in %s, none paused for long", jobs, errtext.Count(len(all), "group", "groups"))
	}
}

// isOwned reports whether a group has an owner, or callers in line to be it. If it cannot be read,
// that is not known, and no finding.
func (e *Examination) isOwned(ctx context.Context, group string) (bool, error) {
	owner, err := e.Claims.Lookup(ctx, "sched/"+group+"/owner")
	return err != nil || owner.Held || owner.Waiting > 0, err
}

// readJobs reads the jobs of a group. Jobs that cannot be read hide no others.
func (e *Examination) readJobs(ctx context.Context, name string) (g jobGroup, unread error) {
	g.name = name
	s, err := sched.New(e.Claims, sched.Config{Group: name, ICal: e.ICal})
	if err != nil {
		return g, err
	}
	for job, err := range s.Jobs(ctx) {
		if err != nil {
			unread = errtext.Both(unread, err)
			continue
		}
		g.jobs = append(g.jobs, job)
	}
	g.owned, err = e.isOwned(ctx, name)
	return g, errtext.Both(err, unread)
}

// job reports why a job of a group cannot run. Without an owner of the group there is one finding
// for all ticks that are not admitted.
func (e *Examination) job(group string, job sched.JobInfo, owned bool) {
	add := func(l Level, remedy string, verbs []string, format string, args ...any) *Finding {
		f := e.Add(l, "jobs", remedy, "%q of group %q%s", job.Job, group, fmt.Sprintf(format, args...))
		for _, verb := range verbs {
			f.run(e.claimctl("sched "+verb+" -g "+explain.Quoted(group), job.Job))
		}
		return f
	}
	const look = "see its definition and its runs"
	show := []string{"show"}
	switch unadmitted := !job.Unadmitted.IsZero(); {
	case job.Ahead > 0:
		add(Warning, "look at the clocks, and then put back the mark", []string{"show", "reset"}, ": %s", job.Problem).trouble = mistimed
	case unadmitted && owned:
		f := add(Warning, "restart the owner with the job, or forget it if it is obsolete", []string{"show", "forget"}, ": %s", job.Problem)
		f.trouble = mistimed
	case !unadmitted && job.Problem != "" && job.Version != 0:
		requests := ""
		if job.Requests > 0 {
			requests = "; " + errtext.Count(job.Requests, "request waits", "requests wait")
		}
		add(Warning, look, show, ": %s%s", job.Problem, requests)
	}
	if !job.Overdue.IsZero() && job.Ahead == 0 && owned {
		add(Warning, look, show, " is overdue: its tick of %s has not ended", explain.Stamp(job.Overdue)).trouble = mistimed
	}
	if p := job.Paused; p != nil && p.Scope == "" && !endsSoon(p.Until) {
		add(pauseLevel(p.At), "resume it, unless it is paused on purpose", []string{"resume"},
			" is paused %s", p.Text())
	}
}

// pausedTogether reports the pauses of a group and of its tags that jobs have.
func (e *Examination) pausedTogether(g jobGroup) {
	seen := make(map[string]bool)
	for _, job := range g.jobs {
		p := job.Paused
		if p == nil || p.Scope == "" || seen[p.Scope] || endsSoon(p.Until) {
			continue
		}
		seen[p.Scope] = true
		which := " --all"
		if tag, is := strings.CutPrefix(p.Scope, "tag "); is {
			which = " --tag " + explain.Quoted(tag)
		}
		e.Add(pauseLevel(p.At), "jobs", "resume them, unless they are paused on purpose", "jobs of group %q are paused %s", g.name, p.Text()).
			run(e.claimctl("sched resume -g " + explain.Quoted(g.name) + which))
	}
}

// longPause is how long a pause may last: after that it may be forgotten.
const longPause = 24 * time.Hour

// pauseLevel judges how long something is paused.
func pauseLevel(since time.Time) Level {
	if now := (clock.Clock{}).Time(); now.Sub(since) > longPause {
		return Warning
	}
	return Note
}

// endsSoon reports whether a pause ends by itself within the day. Nobody has to think of it.
func endsSoon(until time.Time) bool {
	return !until.IsZero() && until.Sub((clock.Clock{}).Time()) <= longPause
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
	of := source{"work", Error, "cannot be listed", e.Limit}
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
	before, orphaned := len(e.Findings), kind{work.StateOrphaned, false}
	keys, unconfirmed := e.stillOrphaned(ctx, works, found[orphaned])
	found[orphaned] = keys
	const findOut = "find out whether the effect happened; if not, retry it; otherwise leave it"
	for _, sick := range []struct {
		kind
		is, remedy string
		verbs      []string
	}{
		{orphaned, "orphaned, their owners died", "see that a process begins them again", []string{"show"}},
		{kind{work.StateOrphaned, true}, "orphaned and at most once, which no caller begins again", findOut, []string{"show", "retry"}},
		{kind{work.StateDead, false}, "dead, after their last attempt", "mend the cause, and retry them", []string{"show", "retry"}},
		{kind{work.StateDead, true}, "dead and at most once", findOut, []string{"show", "retry"}},
		{kind{work.StateUnreadable, false}, "unreadable", "a newer version or another program wrote them: do not delete them before you know", nil},
	} {
		keys := found[sick.kind]
		if len(keys) == 0 {
			continue
		}
		f := e.Add(Warning, "work", sick.remedy, "%d %s: %s", len(keys), sick.is, several(keys))
		if sick.kind == orphaned {
			f.Detail += unconfirmed
		}
		for _, verb := range sick.verbs {
			f.run(e.claimctl("work "+verb, keys[0]))
		}
	}
	if len(e.Findings) == before {
		e.judge("work", unread, "%s%s, none of those read is orphaned or dead", errtext.Count(read, "record", "records"), more)
	}
}

// stillOrphaned returns the keys of work that no caller begins within a moment. More than a few are
// not read again.
func (e *Examination) stillOrphaned(ctx context.Context, works *work.Runner, keys []string) ([]string, string) {
	const few = 20
	if len(keys) > few {
		return keys, ""
	}
	var suspects []suspect
	for _, key := range keys {
		suspects = append(suspects, suspect{"orphaned", key, key})
	}
	suspects, unconfirmed := confirmEach(ctx, suspects, func(ctx context.Context, s suspect) (bool, error) {
		r, ok, err := works.Record(ctx, s.name)
		return ok && r.State == work.StateOrphaned, err
	})
	return namesOf(suspects, "orphaned"), unconfirmed
}

// partitionGroups looks for partitions that no member owns.
func (e *Examination) partitionGroups(ctx context.Context) {
	var suspects []suspect
	members := map[string]int{} // of groups with suspects
	of := source{"groups", Warning, "cannot be read", 50}
	seen, unread, ok := each(ctx, e, of, group.Names(ctx, e.Claims), func(name string) error {
		found, n, err := e.readGroup(ctx, name)
		if len(found) > 0 {
			members[name] = n
			suspects = append(suspects, found...)
		}
		return err
	}) // after an error, what looks wrong in the others is still reported
	suspects, unconfirmed := confirm(ctx, suspects, func(ctx context.Context) (again []suspect, err error) {
		for name := range members {
			found, _, err := e.readGroup(ctx, name)
			if err != nil {
				return nil, err
			}
			again = append(again, found...)
		}
		return again, nil
	})
	for name, n := range members {
		e.accuse(name, n, suspects, unconfirmed)
	}
	if ok && len(suspects) == 0 {
		e.judge("groups", unread, "%s of partitions, without partitions that nobody owns", errtext.Count(seen, "group", "groups"))
	}
}

// readGroup returns what looks wrong in a group, and the number of members that are there.
func (e *Examination) readGroup(ctx context.Context, name string) (found []suspect, members int, err error) {
	g, err := explain.ReadPartitionGroup(ctx, e.Claims, name)
	if err != nil && !errors.Is(err, group.ErrNoGroup) { // one that was removed meanwhile is empty
		return nil, 0, err
	}
	for _, m := range g.Members {
		if m.Instance != "" && m.Evicted == nil {
			members++
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
	return found, members, nil
}

// accuse reports what both readings of a group have found.
func (e *Examination) accuse(name string, members int, suspects []suspect, unconfirmed string) {
	free, targets := namesOf(suspects, name+" free"), namesOf(suspects, name+" target")
	if len(free) == 0 {
		return
	}
	slices.Sort(targets)
	e.Add(Warning, "groups", "look at the log of the member that is to have them, and evict it if it cannot claim or has ended",
		"group %q has %s, and nobody owns %s: %s, which %s is to have%s",
		name, errtext.Count(members, "member", "members"), errtext.Count(len(free), "partition", "partitions"),
		several(free), several(slices.Compact(targets)), unconfirmed,
	).run(e.claimctl("group show", name), e.claimctl("group evict --reason 'cannot claim'", name, targets[0]))
}

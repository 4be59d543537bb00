package explain

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/sched"
)

// Near returns the commands of claimctl that show keys, queues and jobs whose names are like one
// that is not known, the nearest first. Lists that cannot be read have none, and of long ones only
// the beginning is read.
func Near(ctx context.Context, claims *etcdclaims.Client, name string) (commands []string) {
	type near struct {
		command  string
		distance int
	}
	var all []near
	const mostNames, mostGroups = 2000, 5
	add := func(is, command string) {
		if distance, alike := likeness(name, is); alike {
			all = append(all, near{command + Arguments(is), distance})
		}
	}
	held, _, _ := First(claims.List(ctx, ""), mostNames)
	for _, i := range held {
		add(i.Key, "explain")
	}
	queues, _, _ := First(queue.Names(ctx, claims), mostNames)
	for _, is := range queues {
		add(is, "queue stats")
	}
	groups, _, _ := First(sched.Groups(ctx, claims), mostGroups)
	for _, group := range groups {
		s, err := sched.New(claims, sched.Config{Group: group})
		if err != nil {
			continue
		}
		jobs, _, _ := First(s.Jobs(ctx), mostNames)
		for _, job := range jobs {
			add(job.Job, "sched show -g "+Quoted(group))
		}
	}
	slices.SortStableFunc(all, func(a, b near) int { return cmp.Compare(a.distance, b.distance) })
	for _, n := range all {
		commands = append(commands, n.command)
	}
	return commands
}

// likeness returns how far two names are from each other, and whether one may be meant by the other.
func likeness(a, b string) (distance int, is bool) {
	a, b = strings.ToLower(a), strings.ToLower(b)
	distance = edits(a, b)
	return distance, distance <= (len(a)+2)/3 || strings.Contains(b, a) || len(b) > 2 && strings.Contains(a, b)
}

// edits returns how many characters must be added, removed or replaced to make one text of the other.
func edits(a, b string) int {
	last := []rune(b)
	row := make([]int, len(last)+1)
	for i := range row {
		row[i] = i
	}
	for i, r := range []rune(a) {
		before := row[0]
		row[0] = i + 1
		for j, s := range last {
			replaced := before
			if r != s {
				replaced++
			}
			before, row[j+1] = row[j+1], min(replaced, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(last)]
}

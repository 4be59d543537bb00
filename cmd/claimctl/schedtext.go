package main

import (
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/sched"
)

// jobText returns the state of a job for people: its fields, which can have several lines.
func jobText(i sched.JobInfo) []string {
	out := []string{fmt.Sprintf("%s/%s: %s", i.Group, i.Job, i.Schedule)}
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf("  "+format, args...)) }
	if i.Version != 0 {
		add("defined: kind %s, version %d", i.Kind, i.Version)
	}
	if i.Problem != "" {
		add("problem: %s", i.Problem)
	}
	switch {
	case i.Paused != nil:
		add("paused %s", i.Paused.Text())
	case i.Ended:
		add("next: none, the schedule has ended")
	case i.Next.IsZero():
		add("next: not known, or never")
	default:
		add("next: %s", explain.Stamp(i.Next))
	}
	if !i.Overdue.IsZero() {
		add("overdue: the tick of %s", explain.Stamp(i.Overdue))
	}
	for _, r := range i.Running {
		add("running: %s attempt %d by %s since %s", r.ID, r.Attempt, r.Owner, explain.Stamp(r.Began))
	}
	for _, w := range i.Waiting {
		again := ""
		if !w.After.IsZero() {
			again = fmt.Sprintf(" for attempt %d at %s: %s", w.Attempt, explain.Stamp(w.After), w.Note)
		}
		add("waiting: %s%s", w.ID, again)
	}
	if i.Requests > 0 {
		add("requests: %d wait for the owner", i.Requests)
	}
	if i.Last != nil {
		add("last: %s", entryText(*i.Last))
	}
	return out
}

// entryText returns the record of a tick for people, one line.
func entryText(e sched.Entry) string {
	text := fmt.Sprintf("%s %-11s %s", explain.Stamp(e.Ended), e.Outcome, e.ID)
	if !e.Began.IsZero() {
		text += fmt.Sprintf(" attempt %d, fence %d, %v by %s", e.Attempt, e.Fence, e.Ended.Sub(e.Began).Round(time.Millisecond), e.Owner)
	}
	switch {
	case e.Outcome == sched.OutcomePaused:
		text += ", one record for " + errtext.Count(e.Missed, "tick", "ticks")
	case e.Missed > 0:
		text += fmt.Sprintf(", %d missed", e.Missed)
	}
	if e.Error != "" {
		text += ": " + e.Error
	}
	if e.Again {
		text += "; tried again"
	}
	return text
}

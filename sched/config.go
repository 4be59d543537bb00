package sched

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
	"go.uber.org/zap"
)

// Config configures a Scheduler. Only Group is required.
type Config struct {
	// Group names the processes that share an owner. Processes that run the same
	// jobs have the same group; those of another service have another. Two services with one
	// group and one prefix keep each other from running: only the owner's jobs run.
	// Required: UTF-8 of 1 to 200 bytes, without control characters or slashes.
	Group string
	// Spread lets every process of the group run the ticks that the owner admits, so
	// that one process is not the bottleneck. One process runs each tick. Jobs must
	// then be added in all processes. Spread delays the start of a run by a few
	// milliseconds. By default the owner runs all ticks.
	Spread bool
	// Suspectable lets the next process in line take the ownership over in about half a
	// second if the owner does not answer: see etcdclaims.Suspectable for its cost. All
	// that an owner writes is fenced. The runs that the dead process had are not touched by
	// that: they are lost when its leases end. Set it in all processes.
	Suspectable bool
	// Labels are what Job.RunsOn asks for, such as "gpu" or "zone-a". At most 16. While Run is in
	// progress, other processes read them in etcd to explain why a tick waits. They can miss some:
	// see Job.RunsOn. Default: none.
	Labels []string
	// Limit is the greatest number of runs at a time in this process. See Job.Limits for all
	// processes. Further ticks wait in etcd, where another process can take them if Spread is
	// set. They begin in the order of Job.Priority, and then oldest first. In a passthrough
	// scheduler they wait in memory, and Job.Priority has no effect. Zero means no limit.
	Limit int
	// Grace is how late a tick can be admitted, after the time at which it should
	// start, before the CatchUp policy SkipMissed treats it as missed. It must cover the
	// time of an admission while etcd has a leader. Default: 1 s.
	Grace time.Duration
	// Now returns the wall clock time, which determines the ticks that are due.
	// Mutual exclusion does not depend on it. The clock can be wrong, and can be
	// stepped, but must run at the speed of time: otherwise it looks as if it were
	// stepped again and again, and ticks come late. Default: the machine's clock.
	Now func() time.Time
	// Logger receives events that no caller would otherwise see, each with the keys
	// that it is about. Warnings: ownership lost, runs lost or failed, ticks missed,
	// jobs of this process that another owner does not run or runs in another version (each
	// minute), and requests that fail though etcd answers others. Outages of etcd are logged by
	// the client, to etcdclaims.Config.Logger. Info: ticks that a policy
	// skipped, ownership acquired, jobs registered. Default: the Logger of the client.
	Logger *zap.Logger
	// ICal parses the iCalendar texts of definitions (CalendarData.ICal). Use
	// ical.ParseText of package sched/ical, which links two more libraries. The argument
	// zone is the zone of dates, and of times that name no zone. Set it in all processes
	// that run or define jobs with such texts. The calendar needs a String method that
	// identifies its content. ICal must be safe for concurrent use. By default no such
	// text can be parsed.
	ICal func(text, zone string) (calendar.Calendar, error)
	// Middleware wraps the handler of each tick that this process runs. The first is the
	// outermost. What it does counts as part of the run: a panic in it fails the tick. Default:
	// none.
	Middleware []Middleware
	// Hooks are functions to call on events of this process. Default: none.
	Hooks Hooks
}

// Handler does the work of one tick; see Job.Handler.
type Handler func(ctx context.Context, t Tick) error

// Middleware returns a handler that calls next. The example reports runs to a monitor.
type Middleware func(next Handler) Handler

// Hooks are functions that a Scheduler calls on events of this process. Nil
// functions are not called. A hook is called on the goroutine of the event and must
// not block: the hooks of an owner delay all ticks.
type Hooks struct {
	// Asked is called by RunNow and Backfill with the context of the caller. The result
	// becomes the Trace of the requested ticks. A result of more than 64 bytes is
	// dropped.
	Asked func(ctx context.Context) (trace string)
	// Elected is called when this process has become the owner of the group.
	Elected func(fence int64)
	// Deposed is called when this process is no longer the owner. The error is nil if
	// the process gave up the ownership.
	Deposed func(fence int64, err error)
	// Began is called before a handler is called.
	Began func(Tick)
	// Finished is called when a run of this process has ended. The outcome can be
	// OutcomeAbandoned.
	Finished func(Entry)
	// Left is called in the owner when it has recorded that a tick was not run, or
	// that a run was lost. Ticks that Latest or All give up for newer ones have no record:
	// Tick.Missed of Began, and Entry.Missed, count them. If a tick is withdrawn or
	// replaced just before its handler is called, the process that began it records that and calls Left.
	Left func(Entry)
	// Overdue is called when a tick of a job has not ended by its Job.Overdue. Why is a sentence
	// for people, as that of Explain: the tick is not admitted, waits or is running, or etcd cannot
	// be read. Of the processes that have called Run and have the job with an
	// Overdue, these call it:
	//
	//   - The owner of the group, if there is one.
	//   - Each of them, if the group has no owner or etcd cannot be read.
	//   - Each of them, one minute after the bound, if the job that the owner registered
	//     has no Overdue, or if the owner has not moved the job's high-water mark since it
	//     became the owner. Such an owner may not have the job.
	//
	// If the owner changes, Overdue can be called again for the same tick. If several ticks
	// reach the bound before Overdue is called, for example while the process is
	// suspended, it is called for the newest. It is called on a goroutine of its own, so
	// it delays only other calls of Overdue.
	Overdue func(job string, nominal time.Time, why string)
	// ClockJumped is called when the wall clock and the monotonic clock have diverged
	// by more than a second since they were last read. That happens when the wall
	// clock is stepped, and when the machine was suspended. No tick is admitted until
	// the ownership is verified.
	ClockJumped func(by time.Duration)
	// Running is called when Run begins. The returned function is called when Run
	// returns, if it is not nil.
	Running func(*Scheduler) (returned func())
}

func (cfg Config) withDefaults() (Config, error) {
	if cfg.Group == "" {
		return cfg, errors.New("sched: config: Group is required: it names the service whose processes run these jobs, " +
			"and no other service under the prefix may have it")
	}
	cfg.Grace = cmp.Or(cfg.Grace, time.Second)
	err := checkName(cfg.Group)
	if err == nil && strings.Contains(cfg.Group, "/") {
		err = errors.New("must not contain a slash")
	}
	switch {
	case err != nil:
		return cfg, fmt.Errorf("sched: config: Group %.80q %w", cfg.Group, err)
	case cfg.Limit < 0:
		return cfg, fmt.Errorf("sched: config: Limit %d must not be negative", cfg.Limit)
	case cfg.Grace < 0:
		return cfg, fmt.Errorf("sched: config: Grace %v must not be negative", cfg.Grace)
	}
	if err := checkLabels("Labels", cfg.Labels); err != nil {
		return cfg, fmt.Errorf("sched: config: %w", err)
	}
	cfg.Labels = append([]string{}, cfg.Labels...) // not nil, so that others know that there are none
	return cfg, nil
}

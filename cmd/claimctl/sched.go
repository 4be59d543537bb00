package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"github.com/etcdclaims/claims/sched/ical"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// jobView is a job of a group as it is shown.
type jobView struct {
	Group    string     `json:"group" col:"GROUP"`
	Job      string     `json:"job" col:"JOB"`
	Schedule string     `json:"schedule"`
	After    string     `json:"after,omitempty"`                       // the jobs that it runs after
	Kind     string     `json:"kind,omitempty" col:"KIND"`             // of a job that is defined in etcd
	Problem  string     `json:"problem,omitempty" col:"PROBLEM,short"` // why it does not run as defined
	Next     time.Time  `json:"next,omitzero"`
	Over     bool       `json:"ended,omitempty"`  // no tick follows
	Overdue  time.Time  `json:"overdue,omitzero"` // the oldest tick past its bound
	Paused   string     `json:"paused,omitempty" col:"PAUSED,short"`
	Resumes  time.Time  `json:"pausedUntil,omitzero"` // by itself
	Running  int        `json:"running" col:"RUNNING"`
	Waiting  int        `json:"waiting"`
	Requests int        `json:"requests,omitempty"` // that wait for the owner
	Last     *entryView `json:"last,omitempty"`

	Short string `json:"-" col:"SCHEDULE"`
	Due   string `json:"-" col:"NEXT"`    // Next, or Overdue
	Queue string `json:"-" col:"WAITING"` // Waiting and Requests
	Ended string `json:"-" col:"LAST"`    // outcome and tick of Last
}

const jobColumns = "JOB,NEXT,PROBLEM,PAUSED,LAST,RUNNING,WAITING,SCHEDULE,KIND"

const allJobColumns = "GROUP," + jobColumns

func viewJob(i sched.JobInfo) jobView {
	v := jobView{
		Group: i.Group, Job: i.Job, Schedule: i.Schedule, After: i.After, Kind: i.Kind, Problem: i.Problem,
		Next: i.Next.UTC(), Over: i.Ended, Overdue: i.Overdue.UTC(), Running: len(i.Running), Waiting: len(i.Waiting), Requests: i.Requests,
		Short: shortSchedule(i.Schedule), Due: explain.Stamp(i.Next), Queue: column{}.number(int64(len(i.Waiting))),
	}
	if v.Over {
		v.Due = "ended"
	}
	if !v.Overdue.IsZero() {
		v.Due = "overdue since " + explain.Stamp(v.Overdue)
	}
	if v.Requests > 0 {
		v.Queue = fmt.Sprintf("%d, %d requested", v.Waiting, v.Requests)
	}
	if i.Paused != nil {
		v.Paused, v.Resumes = i.Paused.Text(), i.Paused.Until.UTC()
	}
	if i.Last != nil {
		v.Last = new(viewEntry(*i.Last))
		v.Ended = v.Last.Outcome + " " + v.Last.Tick
	}
	return v
}

func (v jobView) name() string { return v.Job }

// shortSchedule leaves out what the text of each cron schedule has: the default policies for
// clock changes, and second 0. What remains is the same schedule.
func shortSchedule(text string) string {
	if !strings.HasPrefix(text, "TZ=") {
		return text
	}
	cron, _, _ := strings.Cut(text, " EXCEPT ")
	cron, _, _ = strings.Cut(cron, " ONLY ")
	words := slices.DeleteFunc(strings.Fields(cron), func(word string) bool {
		return word == "GAP=fire" || word == "FOLD=first"
	})
	second := slices.IndexFunc(words, func(word string) bool { return !strings.Contains(word, "=") })
	if second >= 0 && len(words)-second == 6 && words[second] == "0" {
		words = slices.Delete(words, second, second+1)
	}
	return strings.Join(words, " ") + text[len(cron):]
}

// entryView is the record of one tick.
type entryView struct {
	ID      string    `json:"id"`
	Origin  string    `json:"origin,omitempty"` // manual, backfill, start or after; empty for a tick of the schedule
	Outcome string    `json:"outcome" col:"OUTCOME"`
	Nominal time.Time `json:"nominal,omitzero"`
	Began   time.Time `json:"began,omitzero" col:"BEGAN"`
	Ended   time.Time `json:"ended,omitzero" col:"ENDED"`
	Attempt int       `json:"attempt,omitempty"`
	Again   bool      `json:"again,omitempty"` // the tick has another attempt
	Missed  int       `json:"missed,omitempty" col:"GIVEN UP"`
	Fence   int64     `json:"fence,string"`
	Owner   string    `json:"owner,omitempty" col:"OWNER"`
	Error   string    `json:"error,omitempty" col:"ERROR,short"`

	// Tick is Nominal and Origin: a run that was requested can have the same nominal time as a
	// tick of the schedule.
	Tick  string `json:"-" col:"TICK"`
	Tries string `json:"-" col:"ATTEMPT"` // Attempt and Again
}

const entryColumns = "TICK,OUTCOME,ATTEMPT,GIVEN UP,ERROR,OWNER,BEGAN,ENDED"

func viewEntry(e sched.Entry) entryView {
	v := entryView{
		ID: e.ID, Origin: origin(e), Outcome: string(e.Outcome),
		Nominal: e.Nominal.UTC(), Began: e.Began.UTC(), Ended: e.Ended.UTC(),
		Attempt: e.Attempt, Again: e.Again, Missed: e.Missed, Fence: e.Fence, Owner: e.Owner, Error: e.Error,
	}
	v.Tick = strings.TrimSpace(explain.Stamp(v.Nominal) + " " + v.Origin)
	if v.Tries = (column{}).number(int64(e.Attempt)); e.Again {
		v.Tries += ", again"
	}
	return v
}

// origin returns what a tick comes from, if that is not the schedule: RunNow, Backfill,
// RunOnStart, or the end of another job. It is the first part of the tick's id.
func origin(e sched.Entry) string {
	id := strings.TrimPrefix(e.ID, e.Group+"/"+e.Job+"/")
	if from, _, found := strings.Cut(id, "/"); found {
		return from
	}
	return ""
}

// instantView is one instant at which a job will be due.
type instantView struct {
	Nominal time.Time `json:"nominal" col:"NOMINAL"`
}

// noJob refuses an argument that is probably meant as a group.
func noJob(_ *cobra.Command, args []string) error {
	name := append(args, "")[0]
	return usageIf(len(args) > 0, "sched jobs takes no argument; -g %s lists the jobs of the group %q",
		explain.Quoted(name), name)
}

// jobsCommand makes a command about the jobs of a group.
func (a *app) jobsCommand(s spec, f func(ctx context.Context, s *sched.Scheduler, args []string) error) *cobra.Command {
	return a.command(on(s, func(ctx context.Context, claims *etcdclaims.Client, _ []string) (*sched.Scheduler, error) {
		return newScheduler(ctx, claims, a.group)
	}, f))
}

// jobCommand makes a command about one job.
func (a *app) jobCommand(s spec, f func(ctx context.Context, s *sched.Scheduler, job string) error) *cobra.Command {
	s.use, s.least, s.most, s.names = s.use+" JOB", 1, 1, a.completeJobs
	return a.jobsCommand(s, func(ctx context.Context, s *sched.Scheduler, args []string) error { return f(ctx, s, args[0]) })
}

func (a *app) schedCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "sched", GroupID: groupRepair, Short: "Show and repair scheduled jobs"}
	cmd.PersistentFlags().StringVarP(&a.group, "group", "g", "", "group of the jobs (sched.Config.Group); required")
	_ = cmd.RegisterFlagCompletionFunc("group", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return a.completeFrom(cmd, nil, typed, sched.Groups)
	}) // it fails for unknown flags only
	cmd.AddCommand(
		a.listJobsCommand(),
		a.jobCommand(spec{
			use: "show", short: "Show a job",
		}, func(ctx context.Context, s *sched.Scheduler, job string) error {
			i, err := s.Inspect(ctx, job)
			if err != nil {
				return err
			}
			return printOne(a, viewJob(i), func(w io.Writer) {
				for _, field := range jobText(i) {
					paragraph(w, 4, field)
				}
			})
		}),
		a.jobCommand(spec{
			use: "history", table: entryColumns, short: "Show the last ticks of a job, newest first",
		}, func(ctx context.Context, s *sched.Scheduler, job string) error {
			if _, err := s.Inspect(ctx, job); err != nil {
				return err
			}
			return printList(a, entryColumns, mapped(s.History(ctx, job), viewEntry))
		}),
		a.nextCommand(),
		a.pauseJobCommand(),
		a.resumeJobCommand(),
		a.runJobCommand(),
		a.jobCommand(spec{
			use: "cancel", short: "End the runs of a job, and take back what waits",
		}, func(ctx context.Context, s *sched.Scheduler, job string) error {
			done := doneView{Done: "cancelled", Group: a.group, Job: job, Reason: a.reason}
			return a.done(s.Cancel(ctx, job, a.reason), done, "cancelled the runs of %q", job)
		}),
		a.backfillCommand(), a.forgetCommand(), a.resetCommand(), a.schedExplainCommand(),
		a.applyCommand(),
		a.jobsCommand(spec{
			use: "export [JOB...]", names: a.completeJobs, most: math.MaxInt,
			short: "Print job definitions as JSON that apply reads; by default all of the group",
		}, a.export),
		a.jobCommand(spec{
			use: "undefine", short: "Remove the definition of a job; forget removes its state",
		}, func(ctx context.Context, s *sched.Scheduler, job string) error {
			done := doneView{Done: "undefined", Group: a.group, Job: job}
			return a.done(s.Undefine(ctx, job, sched.AnyVersion), done, "removed the definition of %q", job)
		}))
	return cmd
}

// jobsPaused are the flags of what is paused: a job, all jobs of the group, or those with a tag.
type jobsPaused struct {
	all bool
	tag string
}

func (p *jobsPaused) flag(flags *pflag.FlagSet) {
	flags.BoolVar(&p.all, "all", false, "all jobs of the group, also later ones")
	flags.StringVar(&p.tag, "tag", "", "the jobs with this tag, also later ones")
}

// check returns a usage error unless one of a job, --all and --tag is given.
func (p *jobsPaused) check(args []string) error {
	n := len(args)
	for _, is := range []bool{p.all, p.tag != ""} {
		if is {
			n++
		}
	}
	return usageIf(n != 1, "name a job, or give one of --all and --tag")
}

// text names what is paused.
func (p *jobsPaused) text(group string, args []string) string {
	switch {
	case p.all:
		return "all jobs of " + explain.Quoted(group)
	case p.tag != "":
		return "the jobs with the tag " + explain.Quoted(p.tag)
	}
	return strconv.Quote(args[0])
}

func (a *app) pauseJobCommand() *cobra.Command {
	var length pauseLength
	var of jobsPaused
	return a.jobsCommand(spec{
		use: "pause [JOB]", most: 1, names: a.completeJobs, short: "Admit no more ticks of a job until resume, or for some time",
		flags: func(flags *pflag.FlagSet) { length.flag(flags); of.flag(flags) },
		check: func(args []string) error {
			why := length.wrong()
			if err := usageIf(why != "", "%s", why); err != nil {
				return err
			}
			return of.check(args)
		},
	}, func(ctx context.Context, s *sched.Scheduler, args []string) (err error) {
		var opts []sched.PauseOption
		if length.isSet() {
			opts = append(opts, sched.For(length.d))
		}
		done := doneView{Done: "paused", Group: a.group, Tag: of.tag, Reason: a.reason}
		switch {
		case of.all:
			err = s.PauseGroup(ctx, a.reason, opts...)
		case of.tag != "":
			err = s.PauseTag(ctx, of.tag, a.reason, opts...)
		default:
			done.Job = args[0]
			err = s.Pause(ctx, done.Job, a.reason, opts...)
		}
		if err == nil && length.isSet() && done.Job != "" {
			if i, err := s.Inspect(ctx, done.Job); err == nil && i.Paused != nil { // the job is paused, also if its end cannot be read
				done.Until = i.Paused.Until.UTC()
			}
		}
		return a.done(err, done, "paused %s%s", of.text(a.group, args), untilText(done.Until))
	})
}

func (a *app) resumeJobCommand() *cobra.Command {
	var of jobsPaused
	return a.jobsCommand(spec{
		use: "resume [JOB]", most: 1, names: a.completeJobs, short: "End a pause; its ticks are not made up for",
		flags: of.flag, check: of.check,
	}, func(ctx context.Context, s *sched.Scheduler, args []string) (err error) {
		done := doneView{Done: "resumed", Group: a.group, Tag: of.tag}
		switch {
		case of.all:
			err = s.ResumeGroup(ctx)
		case of.tag != "":
			err = s.ResumeTag(ctx, of.tag)
		default:
			done.Job = args[0]
			err = s.Resume(ctx, done.Job)
		}
		return a.done(err, done, "resumed %s", of.text(a.group, args))
	})
}

func (a *app) nextCommand() *cobra.Command {
	var count int
	return a.jobCommand(spec{
		use: "next", table: "NOMINAL", short: "Show when a job is due next",
		flags: func(flags *pflag.FlagSet) { flags.IntVarP(&count, "count", "n", 10, "how many instants") },
		check: func([]string) error {
			return usageIf(count < 1 || count > 10_000, "next: --count must be from 1 to 10000")
		},
	}, func(ctx context.Context, s *sched.Scheduler, job string) error {
		i, err := s.Inspect(ctx, job)
		if err != nil {
			return err
		}
		if i.Paused != nil {
			return fmt.Errorf("next of %q: the job is paused %s", job, viewJob(i).Paused)
		}
		schedule, err := scheduleOf(ctx, s, i)
		if err != nil {
			return fmt.Errorf("next of %q: %w", job, err)
		}
		from := time.Now()
		if i.High.After(from) {
			from = i.High
		}
		// Ticks after a mark that was put back can be decided, at most 100: the scheduler leaves them out.
		left, next := i.Upcoming(count+100), upcoming(schedule, from, count+100)
		next = slices.DeleteFunc(next, func(v instantView) bool {
			return len(left) > 0 && !v.Nominal.After(left[len(left)-1]) && !slices.ContainsFunc(left, v.Nominal.Equal)
		})
		return printList(a, "NOMINAL", sequence(next[:min(count, len(next))]))
	})
}

// scheduleOf returns the schedule of a job.
func scheduleOf(ctx context.Context, s *sched.Scheduler, i sched.JobInfo) (calendar.Schedule, error) {
	if i.After != "" {
		return nil, fmt.Errorf("the job runs after %q, and has no ticks of its own", i.After)
	}
	schedule, err := calendar.Cron(i.Schedule)
	switch {
	case err == nil:
		return schedule, nil
	case i.Version == 0:
		return nil, fmt.Errorf("the schedule %q is known to the processes of the job only", i.Schedule)
	}
	d, err := s.Definition(ctx, i.Job)
	if err != nil {
		return nil, err
	}
	return d.ParseSchedule(ical.ParseText)
}

// upcoming returns the next instants of a schedule.
func upcoming(s calendar.Schedule, from time.Time, count int) []instantView {
	var all []instantView
	for t := s.Next(from); !t.IsZero() && t.After(from) && len(all) < count; t = s.Next(t) {
		all, from = append(all, instantView{t.UTC()}), t
	}
	return all
}

package main

import (
	"context"
	"strconv"

	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/sched"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

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

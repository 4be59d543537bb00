package sched

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Job is something to do at each tick of a schedule, once across the fleet.
type Job struct {
	// Name tells the job from others of its group: UTF-8 of 1 to 200 bytes
	// without control characters. What is known of a job in etcd is known by its
	// name: under another it is another job.
	Name string
	// Schedule says when the job is due: [Every], [Cron], or one of somebody
	// else's.
	Schedule Schedule
	// Handler does the job. Its context ends when the scheduler stops, when the
	// run's claim is lost, at Timeout, and when the run is cancelled; the handler
	// then has a drain (etcdclaims.Config.Drain) to return in, and is shut out by
	// its fence after that. An error, or a panic, makes the run failed; it is not
	// tried again by that. It is called from many goroutines if Overlap allows.
	Handler func(ctx context.Context, t Tick) error

	// Revision tells one version of the job's schedule from the next, beside the
	// schedule's own text. When either changes, what was due under the old one is
	// not caught up with, and RunOnStart is due once more. It must be given for a
	// schedule that is no fmt.Stringer, since nothing else would tell that it
	// changed. Default: none.
	Revision string
	// CatchUp says what happens to ticks that were missed. Default: Latest.
	CatchUp CatchUp
	// Overlap says what happens to a tick while a run goes on. Default: Skip.
	Overlap Overlap
	// Delivery says what happens to a run whose process died. Default:
	// AtMostOnce.
	Delivery Delivery
	// MaxAttempts is how often AtLeastOnce begins a tick, so that one which kills
	// each process that runs it does not do so for ever. Default: 3.
	MaxAttempts int
	// StartDeadline is how late, after its nominal time, a tick may start: after
	// that it is not run, and recorded as late. Jitter counts. Below 10 s a
	// take-over can use it up. Default: no limit.
	StartDeadline time.Duration
	// Jitter spreads starts: each is later than nominal by less than this, and
	// always before the next nominal time, by a hash of job and time. It is no
	// part of a tick's identity. Default: none.
	Jitter time.Duration
	// Timeout ends the handler's context, with context.DeadlineExceeded, when it
	// has run for so long. Default: no limit.
	Timeout time.Duration
	// RunOnStart makes the job due once when it is registered, and again with
	// each new revision of it: not with each process, and not with each owner.
	RunOnStart bool
	// PauseOnFailure pauses the job when so many of its runs have failed in a
	// row. Default: never.
	PauseOnFailure int
	// History is how many records of ticks are kept. Default: 20.
	History int
}

const (
	mostNameBytes      = 200
	mostHistory        = 1000
	defaultHistory     = 20
	defaultMaxAttempts = 3
)

// withDefaults returns the job with its gaps filled, or what is wrong with it.
func (j Job) withDefaults() (Job, error) {
	fail := func(format string, args ...any) (Job, error) {
		return Job{}, fmt.Errorf("sched: job %.80q: %w", j.Name, fmt.Errorf(format, args...))
	}
	if err := checkName(j.Name); err != nil {
		return fail("its Name %w", err)
	}
	if j.CatchUp == nil {
		j.CatchUp = Latest{}
	}
	if j.Overlap == nil {
		j.Overlap = Skip{}
	}
	if j.MaxAttempts == 0 {
		j.MaxAttempts = defaultMaxAttempts
	}
	if j.History == 0 {
		j.History = defaultHistory
	}
	if _, err := j.CatchUp.catchUp(); err != nil {
		return fail("%w", err)
	}
	if _, err := j.Overlap.overlap(); err != nil {
		return fail("%w", err)
	}
	_, named := j.Schedule.(fmt.Stringer)
	switch {
	case j.Schedule == nil:
		return fail("it has no Schedule")
	case j.Handler == nil:
		return fail("it has no Handler")
	case !named && j.Revision == "":
		return fail("its Schedule %T has no String method, so that nothing tells when it changes: give a Revision", j.Schedule)
	case int(j.Delivery) < 0 || int(j.Delivery) >= len(deliveryNames):
		return fail("Delivery(%d) is none", int(j.Delivery))
	case j.MaxAttempts < 0 || j.PauseOnFailure < 0:
		return fail("MaxAttempts %d and PauseOnFailure %d must not be negative", j.MaxAttempts, j.PauseOnFailure)
	case j.StartDeadline < 0 || j.Jitter < 0 || j.Timeout < 0:
		return fail("StartDeadline %v, Jitter %v and Timeout %v must not be negative", j.StartDeadline, j.Jitter, j.Timeout)
	case j.StartDeadline > 0 && j.Jitter >= j.StartDeadline:
		return fail("Jitter %v can use up the StartDeadline %v: some ticks would never start", j.Jitter, j.StartDeadline)
	case j.History < 1 || j.History > mostHistory:
		return fail("History %d: want 1 to %d", j.History, mostHistory)
	}
	return j, nil
}

// checkName says what is wrong with the name of a job or a group.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > mostNameBytes:
		return fmt.Errorf("has %d bytes, the limit is %d", len(name), mostNameBytes)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("is not UTF-8 without control characters")
	}
	return nil
}

// text is the schedule, for people.
func (j Job) text() string {
	if s, ok := j.Schedule.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", j.Schedule)
}

// hash tells one revision of the job from another.
func (j Job) hash() string {
	sum := sha256.Sum256([]byte(j.text() + "\n" + j.Revision))
	return hex.EncodeToString(sum[:8])
}

// actual is when the tick with the nominal time starts.
func (j Job) actual(nominal time.Time) time.Time {
	if j.Jitter == 0 {
		return nominal
	}
	return nominal.Add(jitter(j.Name, nominal, j.Jitter, j.Schedule.Next(nominal)))
}

// parallel reports whether runs of the job may go on beside each other; else they
// share one claim.
func (j Job) parallel() bool {
	_, allow := j.Overlap.(Allow)
	return allow
}

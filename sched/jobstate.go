package sched

import (
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/internal/lanes"
	"github.com/etcdclaims/claims/internal/live"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"go.uber.org/zap"
)

// jobState is the owner's copy of a job's state.
type jobState struct {
	job      Job
	id       string // digest of the name
	spec     spec
	specRev  int64
	high     time.Time // high-water mark
	highRev  int64
	failures tick.Counted
	paused   bool
	pause    pause             // zero if the job is not paused, or if it cannot be read
	pauseRev int64             // its revision
	resume   *tick.Resume      // how the current pause ends, once it is over and that is computed; else nil
	halt     *tick.Halt        // the pause of the group or of a tag that the job has; nil without one
	leftOut  time.Time         // up to when ticks are left out because of such pauses
	decided  jobstate.Instants // ticks after the mark that are decided, oldest first: ResetMark has put the mark back
	at       time.Time         // when the job is due next; zero for never

	changing bool       // whether its registration is pending
	broken   bool       // whether its state cannot be read
	held     bool       // whether it cannot be read which ticks after the mark are decided
	single   bool       // whether to decide about one tick at a time
	refused  bool       // whether its tick could not begin at once
	planning bool       // whether the planner is making its plan
	plan     *tick.Plan // made by the planner for the current mark; nil if there is none
	readAt   time.Time  // when to read the job again, by the monotonic clock; zero if its state is not in doubt
	doubts   int        // how many decisions in a row were refused
}

// sooner reports whether the job is due before another.
func (c *jobState) sooner(o *jobState) bool { return c.at.Before(o.at) }

// from returns up to when all ticks are decided, or left out.
func (c *jobState) from() time.Time { return tick.Later(c.high, c.leftOut) }

// isPaused reports whether no tick of the job is admitted.
func (c *jobState) isPaused() bool { return c.paused || c.halt != nil }

func (c *jobState) mark() tick.Mark { return tick.Mark{At: c.high, Rev: c.highRev} }

// registered reports whether ticks of the job may be admitted.
func (c *jobState) registered() bool { return c.highRev != 0 && !c.changing && c.job.problem == "" }

// runnable returns a job that this process can run, or nil.
func (l *leadership) runnable(id string) *jobState {
	if c := l.jobs[id]; c != nil && c.job.problem == "" {
		return c
	}
	return nil
}

// jobWaiting holds the waiting ticks of one job.
type jobWaiting struct {
	line      lanes.Line     // without backfills
	backfills map[string]int // the number of waiting ticks, by the id of the request
	keys      map[string]*waiter
}

// doubt schedules a job to be read again after a decision was refused. One refusal is
// normal. Several in a row mean that events arrive late, so the owner backs off.
func (l *leadership) doubt(c *jobState) {
	c.plan = nil
	c.readAt = clock.Mono()
	if c.doubts > 0 {
		c.readAt = c.readAt.Add(retry.Delay(c.doubts - 1))
	}
	c.doubts++
	l.place(c)
}

// place moves a job to its queue after its state has changed.
func (l *leadership) place(c *jobState) {
	l.due.Drop(c)
	l.doubtful.Drop(c)
	l.pausing.Drop(c)
	switch {
	case l.jobs[c.id] != c:
	case !c.readAt.IsZero():
		l.doubtful.Set(c)
	case c.planning || c.held || !c.registered():
	case c.paused && !c.pause.Until.IsZero():
		l.pausing.Set(c)
	case c.isPaused() || c.at.IsZero():
	default:
		l.due.Set(c)
	}
}

// schedule computes when the job is due next.
func (l *leadership) schedule(c *jobState) {
	c.at = c.planned().Next(c.from())
	l.place(c)
}

// absorb takes over the changes since the last round.
func (l *leadership) absorb() {
	l.inbox.Work()
	for key, is := range l.view.Take(l.feed) {
		job, backfill := l.view.JobOf(key)
		switch l.view.Kind(key) {
		case live.KindHalt:
			l.heard[key] = is
		case live.KindPaused:
			l.hearPause(job, key, is)
		case live.KindWithdraw:
			l.hearWithdrawal(job, is)
		case live.KindAsk:
			l.hearRequest(key, is)
		case live.KindHeir:
			l.heirs[key] = is
		case live.KindReset:
			l.hearReset(job)
		case live.KindReady:
			l.hearWaiter(job, backfill, key, is)
		}
	}
}

// hearPause takes over whether a job is paused. A job that was resumed may have a new
// high-water mark.
func (l *leadership) hearPause(job, key string, is live.KV) {
	delete(l.pauses, job)
	if p, err := decode[pause](key, []byte(is.Value)); !is.Gone && err == nil {
		l.pauses[job] = p
	}
	c := l.jobs[job]
	if c == nil || is.Gone && !c.paused {
		return
	}
	if c.setPause(key, is); !c.paused {
		c.doubts = 0
		l.doubt(c)
		return
	}
	l.serve(c) // a pause that was over is longer now
	l.place(c)
}

// setPause notes whether the job is paused, and how. A pause that cannot be read has no end.
func (c *jobState) setPause(key string, is live.KV) {
	c.paused, c.pause, c.pauseRev, c.resume = !is.Gone, pause{}, is.Rev, nil
	if p, err := decode[pause](key, []byte(is.Value)); c.paused && err == nil {
		c.pause = p
	}
}

func (l *leadership) hearWaiter(job string, backfill bool, key string, is live.KV) {
	all := l.waiting[job]
	if all == nil {
		all = &jobWaiting{line: lanes.Line{Order: lanes.ByTime}, backfills: make(map[string]int), keys: make(map[string]*waiter)}
		l.waiting[job] = all
	}
	if old := all.keys[key]; old != nil {
		delete(all.keys, key)
		l.late.Drop(old)
		if backfill {
			all.backfills[tick.FillOf(old.ID)]--
			l.roomFor(job, tick.FillOf(old.ID))
		} else {
			all.line.Remove(old)
		}
	}
	if is.Ready == nil {
		if len(all.keys) == 0 {
			delete(l.waiting, job)
		}
		return
	}
	w := &waiter{Waiting: tick.Waiting{Ready: *is.Ready, Key: key, Rev: is.Rev}}
	all.keys[key] = w
	if backfill {
		all.backfills[tick.FillOf(w.ID)]++
	} else {
		all.line.Add(w)
	}
	l.watchDeadline(l.runnable(job), w)
	if wd, ok := l.withdrawn[job]; ok && w.Rev < wd.Rev {
		wd.due = true
		l.withdrawn[job] = wd
	}
}

// watchDeadline queues a tick by its StartDeadline.
func (l *leadership) watchDeadline(c *jobState, w *waiter) {
	if c == nil || c.job.StartDeadline == 0 || tick.IsManual(w.ID) {
		return
	}
	w.Deadline = w.Nominal.Add(c.job.StartDeadline)
	l.late.Set(w)
}

// planned returns what decides about the ticks of the job, with the schedule by which they are admitted.
func (c *jobState) planned() tick.Job {
	for len(c.decided) > 0 && !c.decided[0].After(c.high) {
		c.decided = c.decided[1:]
	}
	rules := c.job.rules
	rules.Schedule = jobstate.Without(rules.Schedule, c.decided)
	return rules
}

// readReset takes over which ticks after the mark are decided. A value that cannot be read may
// be of any tick, so it holds all ticks of the job, as a pause does.
func (l *leadership) readReset(c *jobState) {
	key := l.keys.Reset(c.job.Name)
	is := l.view.Get(key)
	c.decided, c.held = nil, false
	if is.Gone {
		return
	}
	value, err := decode[resetting](key, []byte(is.Value))
	if c.decided, c.held = value.Decided, err != nil; err != nil {
		l.log.Error("ticks held: it cannot be read which ones are decided", zap.String("etcd_key", key), zap.Error(err))
	}
}

// hearReset reads a job again whose mark was put back.
func (l *leadership) hearReset(job string) {
	if c := l.jobs[job]; c != nil {
		c.doubts = 0
		l.doubt(c)
	}
}

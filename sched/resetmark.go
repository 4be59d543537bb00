package sched

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/tick"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// mostDecided is how many ticks after a mark that was put back can be decided.
const mostDecided = 100

// ResetMark puts back the high-water mark of a job that is ahead of the clock, to the present
// by the clock of this process. It returns the new mark. The ticks that the mark had passed
// over come due at their times. The note why is stored.
//
// No tick runs twice by that: ticks that have a record, wait or run are left out when they come
// due. If there are more than 100 of them, the mark is put back less far. All other
// ticks must be known not to have run: a record of a later tick counts them as missed, or
// they are from before the registration of the job. If the history is too short to show
// that, ResetMark returns [ErrMayRepeat]. With mayRepeat it resets the mark all the same, and
// ticks without a record can run again, with the same Tick.ID.
//
// ResetMark relies on the clock of this process for how far the mark goes back, and not for
// which ticks run again. It must know the schedule; see [JobInfo].
//
// Errors: [ErrUnknownJob], [ErrUnchanged] if the mark is not ahead of the clock or all ticks up to
// it are decided, [ErrMayRepeat], and those of etcdclaims.Client.TryAcquire. If the error matches
// etcdclaims.ErrUnknown, ResetMark may have taken effect; after any other error it has not.
func (s *Scheduler) ResetMark(ctx context.Context, job, why string, mayRepeat bool) (to time.Time, err error) {
	var is markReset
	by := cancelling{Version: valueVersion, By: s.claims.Owner(), Note: limitText(why), At: s.now()}
	err = s.operate(ctx, "reset the mark of", job, func(st *jobSnapshot) (_ []clientv3.Cmp, _ []clientv3.Op, err error) {
		if is, err = s.planReset(ctx, job, st); err != nil {
			return nil, nil, err
		}
		if is.mayRepeat && !mayRepeat {
			return nil, nil, fmt.Errorf("%w: the history does not show what became of the ticks between %s and %s; "+
				"raise History, or permit that they run again", ErrMayRepeat, stamp(is.to), stamp(is.from))
		}
		high := s.keys.High(job)
		unmoved := clientv3.Compare(clientv3.ModRevision(high), "=", st.highRev)
		return []clientv3.Cmp{unmoved, s.definedAs(job, st.definitionRev)}, []clientv3.Op{
			clientv3.OpPut(high, keyspace.Instant(is.to)),
			clientv3.OpPut(s.keys.Reset(job), encode(resetting{by, is.decided})),
		}, nil
	})
	if err != nil {
		return time.Time{}, err
	}
	s.log.Warn("high-water mark put back",
		s.aboutJob(job, zap.Time("from", is.from), zap.Time("to", is.to), zap.Int("decided", len(is.decided)),
			zap.Bool("may repeat", is.mayRepeat))...)
	return is.to, nil
}

// markReset is how far a mark can go back.
type markReset struct {
	from, to  time.Time
	decided   instants // the ticks after to that are decided, oldest first
	mayRepeat bool     // whether another tick after to may have run
}

// settled is a scheduled tick that is decided, as a record or a live key shows.
type settled struct {
	at     time.Time
	missed int  // the ticks before it that are known to have been given up
	whole  bool // whether it is itself one of those
}

// planReset computes how far the mark of a job can go back.
func (s *Scheduler) planReset(ctx context.Context, job string, st *jobSnapshot) (is markReset, err error) {
	now := s.now()
	if st.removed() || st.highRev == 0 {
		return is, s.unknownJob(job)
	}
	schedule := s.scheduleOf(job, st)
	switch {
	case st.resetErr != nil:
		return is, st.resetErr
	case !st.high.After(now):
		return is, fmt.Errorf("%w: the high-water mark is not ahead of the clock: it is %s", ErrUnchanged, stamp(st.high))
	case schedule == nil:
		return is, errors.New("this process does not know the schedule of the job")
	}
	if _, follows := schedule.(after); follows {
		return is, errors.New("it runs after another job, and its mark has no effect")
	}
	j := Job{Schedule: without(schedule, st.reset.Decided)}
	all, err := s.settledTicks(ctx, job, st, now)
	if err != nil {
		return is, err
	}
	for _, nominal := range st.reset.Decided {
		if nominal.After(now) {
			is.decided = append(is.decided, nominal)
		}
	}
	// Between two settled ticks nothing ran if the later one counts all of them as missed.
	var doubt time.Time // up to which a tick may have run
	prev := later(now, earlier(st.spec.Born, st.high))
	for _, t := range append(all, settled{at: st.high, whole: true}) {
		to := t.at
		if !t.whole {
			to = to.Add(-1)
			if has(j.Schedule, t.at) {
				is.decided = append(is.decided, t.at)
			}
		}
		if n := j.count(prev, to); n > t.missed || n >= tick.CountMost {
			doubt = to
		}
		prev = later(prev, t.at)
	}
	slices.SortFunc(is.decided, time.Time.Compare)
	is.from, is.to = st.high, now
	if most := len(is.decided) - mostDecided; most > 0 {
		is.to, is.decided = is.decided[most-1], is.decided[most:]
	}
	left := Job{Schedule: without(schedule, is.decided)}
	if next := left.dueAfter(is.to); next.IsZero() || next.After(st.high) {
		return is, fmt.Errorf("%w: all ticks until the high-water mark %s are decided", ErrUnchanged, stamp(st.high))
	}
	is.mayRepeat = doubt.After(is.to)
	return is, nil
}

// settledTicks returns the decided ticks after now and up to the mark, oldest first. The history is read
// after the state, so that a tick that ends in between is found.
func (s *Scheduler) settledTicks(ctx context.Context, job string, st *jobSnapshot, now time.Time) ([]settled, error) {
	at := make(map[time.Time]settled)
	add := func(id string, nominal time.Time, admitted int64, missed int, whole bool) {
		if isManual(id) || !nominal.After(now) || nominal.After(st.high) {
			return
		}
		if !nominal.After(st.spec.Since) || admitted < st.resetRev {
			missed = 0 // it counts ticks of another schedule, or of before the mark was put back
		}
		nominal = nominal.UTC()
		was, known := at[nominal]
		at[nominal] = settled{nominal, max(missed, was.missed), whole && (!known || was.whole)}
	}
	for _, w := range st.waiting {
		add(w.ID, w.Nominal, w.value().AdmittedAt(), w.Missed, false)
	}
	for _, r := range st.running {
		add(r.ID, r.Nominal, r.Admitted, r.Missed, false)
	}
	records, err := s.records(ctx, job)
	if err != nil {
		return nil, err
	}
	for _, e := range records {
		switch e.Outcome {
		case OutcomeMissed, OutcomePaused:
			add(e.id, e.Nominal, e.Admitted, e.Missed, true)
		case OutcomeCancelled: // its Missed can count ticks that were admitted
			add(e.id, e.Nominal, e.Admitted, 0, false)
		default:
			add(e.id, e.Nominal, e.Admitted, e.Missed, false)
		}
	}
	all := make([]settled, 0, len(at))
	for _, t := range at {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b settled) int { return a.at.Compare(b.at) })
	return all, nil
}

// planned returns the job with the schedule by which ticks are admitted.
func (c *jobState) planned() Job {
	for len(c.decided) > 0 && !c.decided[0].After(c.high) {
		c.decided = c.decided[1:]
	}
	j := c.job
	j.Schedule = without(j.Schedule, c.decided)
	return j
}

// readReset takes over which ticks after the mark are decided. A value that cannot be read may
// be of any tick, so it holds all ticks of the job, as a pause does.
func (l *leadership) readReset(c *jobState) {
	key := l.s.keys.Reset(c.job.Name)
	is := l.s.view.Get(key)
	c.decided, c.held = nil, false
	if is.Gone {
		return
	}
	value, err := decode[resetting](key, []byte(is.Value))
	if c.decided, c.held = value.Decided, err != nil; err != nil {
		l.s.log.Error("ticks held: it cannot be read which ones are decided", zap.String("etcd_key", key), zap.Error(err))
	}
}

// hearReset reads a job again whose mark was put back.
func (l *leadership) hearReset(job string) {
	if c := l.jobs[job]; c != nil {
		c.doubts = 0
		l.doubt(c)
	}
}

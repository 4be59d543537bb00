package sched

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/keyspace"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// MarkReset describes what ResetMark did.
type MarkReset struct {
	From, To time.Time // the high-water mark before and after
	// Skips are the ticks after To that are decided already. They have a SkipTick each.
	Skips []time.Time
	// MayRepeat is whether a tick after To may run a second time, which the caller permitted.
	MayRepeat bool
}

// ResetMark puts back the high-water mark of a job that is ahead of the clock, to the present
// by the clock of this process. The ticks that the mark had passed over come due at their
// times. The note why is stored.
//
// No tick runs twice by that: ticks that have a record, wait or run are skipped when they come due,
// as by SkipTick. If there are more than 100 skips, the mark is put back less far. All other
// ticks must be known not to have run: a record of a later tick counts them as missed, or
// they are from before the registration of the job. If the history is too short to show
// that, ResetMark returns [ErrMayRepeat]. With mayRepeat it resets the mark all the same, and
// ticks without a record can run again, with the same Tick.ID.
//
// ResetMark relies on the clock of this process for how far the mark goes back, and not for
// which ticks run again. It must know the schedule; see [JobInfo].
//
// Errors: [ErrUnknownJob], [ErrNotAhead], [ErrMayRepeat], [ErrDecided] if all ticks until the
// mark are decided, and those of etcdclaims.Client.TryAcquire. If the error matches
// etcdclaims.ErrUnknown, ResetMark may have taken effect; after any other error it has not.
func (s *Scheduler) ResetMark(ctx context.Context, job, why string, mayRepeat bool) (MarkReset, error) {
	var is MarkReset
	by := cancelling{Version: valueVersion, By: s.claims.Owner(), Note: limitText(why), At: s.now()}
	err := s.operate(ctx, "reset the mark of", job, func(st *jobSnapshot) (_ []clientv3.Cmp, ops []clientv3.Op, err error) {
		if is, err = s.planReset(ctx, job, st); err != nil {
			return nil, nil, err
		}
		if is.MayRepeat && !mayRepeat {
			return nil, nil, fmt.Errorf("%w: the history does not show what became of the ticks between %s and %s; "+
				"raise History, or permit that they run again", ErrMayRepeat, stamp(is.To), stamp(is.From))
		}
		for _, nominal := range is.Skips {
			note := "decided before the mark was put back from " + stamp(st.high)
			k := skipping{Version: valueVersion, Job: job, Nominal: nominal, By: by.By, Note: note, At: by.At}
			ops = append(ops, clientv3.OpPut(s.keys.skipsOf(job)+nominalID(nominal), encode(k)))
		}
		ops = append(ops, clientv3.OpPut(s.keys.high(job), keyspace.Instant(is.To)), clientv3.OpPut(s.keys.reset(job), encode(by)))
		return append(s.marked(st), s.definedAs(job, st.definitionRev)), ops, nil
	})
	if err != nil {
		return MarkReset{}, err
	}
	s.log.Warn("high-water mark put back",
		s.aboutJob(job, zap.Time("from", is.From), zap.Time("to", is.To), zap.Int("skips", len(is.Skips)),
			zap.Bool("may repeat", is.MayRepeat))...)
	return is, nil
}

// settled is a scheduled tick that is decided, as a record or a live key shows.
type settled struct {
	at     time.Time
	missed int  // the ticks before it that are known to have been given up
	whole  bool // whether it is itself one of those
}

// planReset computes how far the mark of a job can go back.
func (s *Scheduler) planReset(ctx context.Context, job string, st *jobSnapshot) (is MarkReset, err error) {
	now := s.now()
	if st.removed() || st.highRev == 0 {
		return is, s.unknownJob(job)
	}
	schedule := s.scheduleOf(job, st)
	switch {
	case st.skipsErr != nil:
		return is, st.skipsErr
	case !st.high.After(now):
		return is, fmt.Errorf("%w: it is %s", ErrNotAhead, stamp(st.high))
	case schedule == nil:
		return is, errors.New("this process does not know the schedule of the job")
	}
	if _, follows := schedule.(after); follows {
		return is, errors.New("it runs after another job, and its mark has no effect")
	}
	j := Job{Schedule: without(schedule, st.skipped)}
	all, err := s.settledTicks(ctx, job, st, now)
	if err != nil {
		return is, err
	}
	// Between two settled ticks nothing ran if the later one counts all of them as missed.
	var doubt time.Time // up to which a tick may have run
	prev := later(now, earlier(st.spec.Born, st.high))
	for _, t := range append(all, settled{at: st.high, whole: true}) {
		to := t.at
		if !t.whole {
			to = to.Add(-1)
			if has(j.Schedule, t.at) {
				is.Skips = append(is.Skips, t.at)
			}
		}
		if n := j.count(prev, to); n > t.missed || n >= countMost {
			doubt = to
		}
		prev = later(prev, t.at)
	}
	is.From, is.To = st.high, now
	if most := max(0, mostSkips-len(st.skips)); len(is.Skips) > most {
		is.To = is.Skips[len(is.Skips)-most-1]
		is.Skips = is.Skips[len(is.Skips)-most:]
	}
	for len(is.Skips) > 0 && j.dueAfter(is.To).Equal(is.Skips[0]) {
		is.To, is.Skips = is.Skips[0], is.Skips[1:]
	}
	if next := j.dueAfter(is.To); next.IsZero() || next.After(st.high) {
		return is, fmt.Errorf("%w: all ticks until %s are", ErrDecided, stamp(st.high))
	}
	is.MayRepeat = doubt.After(is.To)
	return is, nil
}

// settledTicks returns the decided ticks after now and up to the mark, oldest first. The history is read
// after the state, so that a tick that ends in between is found.
func (s *Scheduler) settledTicks(ctx context.Context, job string, st *jobSnapshot, now time.Time) ([]settled, error) {
	at := make(map[time.Time]settled)
	// After the mark was put back, or for another schedule, a record counts other ticks.
	reading, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTime)
	defer cancel()
	reset, err := core.Of(s.claims).KV().Get(reading, s.keys.reset(job), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	since := int64(0)
	for _, kv := range reset.Kvs {
		if kv.ModRevision <= st.rev { // a later one has moved the mark, and the plan is made anew
			since = kv.ModRevision
		}
	}
	add := func(id string, nominal time.Time, admitted int64, missed int, whole bool) {
		if isManual(id) || !nominal.After(now) || nominal.After(st.high) {
			return
		}
		if !nominal.After(st.spec.Since) || since != 0 && admitted < since {
			missed = 0
		}
		nominal = nominal.UTC()
		was, known := at[nominal]
		at[nominal] = settled{nominal, max(missed, was.missed), whole && (!known || was.whole)}
	}
	for _, w := range st.waiting {
		add(w.ID, w.Nominal, w.admitted(), w.Missed, false)
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
		case OutcomeWithdrawn: // its Missed counts ticks that were admitted
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

// hearReset reads a job again whose mark was put back.
func (l *leadership) hearReset(job string) {
	if c := l.jobs[job]; c != nil {
		c.doubts = 0
		l.doubt(c)
	}
}

package sched

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/tick"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

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
	var is jobstate.Reset
	by := cancelling{Version: valueVersion, By: s.claims.Owner(), Note: limitText(why), At: s.now()}
	act := s.act(ctx, audit.ResetJob, job, "", why)
	err = s.operate(ctx, act, "reset the mark of", job, func(st *jobSnapshot) (_ []clientv3.Cmp, _ []clientv3.Op, err error) {
		if is, err = s.planReset(ctx, job, st); err != nil {
			return nil, nil, err
		}
		if is.MayRepeat && !mayRepeat {
			return nil, nil, fmt.Errorf("%w: the history does not show what became of the ticks between %s and %s; "+
				"raise History, or permit that they run again", ErrMayRepeat, stamp(is.To), stamp(is.From))
		}
		high := s.keys.High(job)
		unmoved := clientv3.Compare(clientv3.ModRevision(high), "=", st.HighRev)
		return []clientv3.Cmp{unmoved, s.definedAs(job, st.definitionRev)}, []clientv3.Op{
			clientv3.OpPut(high, keyspace.Instant(is.To)),
			clientv3.OpPut(s.keys.Reset(job), tick.Encode(resetting{Cancelling: by, Decided: is.Decided})),
		}, nil
	})
	if err != nil {
		return time.Time{}, err
	}
	s.log.Warn("high-water mark put back",
		s.aboutJob(job, zap.Time("from", is.From), zap.Time("to", is.To), zap.Int("decided", len(is.Decided)),
			zap.Bool("may repeat", is.MayRepeat))...)
	return is.To, nil
}

// planReset computes how far the mark of a job can go back.
func (s *Scheduler) planReset(ctx context.Context, job string, st *jobSnapshot) (is jobstate.Reset, err error) {
	now := s.now()
	if st.removed() || st.HighRev == 0 {
		return is, s.unknownJob(job)
	}
	schedule := s.scheduleOf(job, st)
	_, follows := schedule.(after)
	switch {
	case st.ResetErr != nil:
		return is, st.ResetErr
	case !st.High.After(now):
		return is, fmt.Errorf("%w: the high-water mark is not ahead of the clock: it is %s", ErrUnchanged, stamp(st.High))
	case schedule == nil:
		return is, errors.New("this process does not know the schedule of the job")
	case follows:
		return is, errors.New("it runs after another job, and its mark has no effect")
	}
	records, err := s.records(ctx, job)
	if err != nil {
		return is, err
	}
	is, any := st.PlanReset(schedule, records, now)
	if !any {
		return is, fmt.Errorf("%w: all ticks until the high-water mark %s are decided", ErrUnchanged, stamp(st.High))
	}
	return is, nil
}

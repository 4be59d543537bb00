package jobstate

import (
	"time"

	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/sched/calendar"
)

// EndPause returns the step that ends a pause of a job now, or at its own end if that has passed: the
// ticks that came due since then are missed, and not paused. The ticks of the pause have one record.
// The schedule has no ticks that are decided. It is nil if it is not known, and the ticks then have no
// record.
func EndPause(k tick.Keys, job string, schedule calendar.Schedule, p tick.Pause, rev int64, mark tick.Mark, now time.Time) tick.Resume {
	end := now
	if p.Over(now) {
		end = p.Until
	}
	to := tick.Resume{Keys: k, Job: job, PauseRev: rev, Mark: mark, To: tick.Later(mark.At, end)}
	if schedule == nil {
		return to
	}
	j := tick.Job{Schedule: schedule}
	if last := j.LastOnes(mark.At, to.To, 1); len(last) > 0 {
		to.Past = &tick.Past{
			Version: tick.Version,
			Job:     job,
			ID:      tick.NominalID(last[0]),
			Outcome: paused,
			Nominal: last[0],
			Missed:  j.Count(mark.At, to.To),
			Ended:   now,
			Error:   tick.LimitText(p.Text()),
		}
	}
	return to
}

// Lift returns the state as it is for those who look at it. A pause that is over counts as none, also if
// no owner has resumed the job so far: the mark is then where the owner will put it.
func (st State) Lift(now time.Time) State {
	to := st.Halts.LeftOut(now)
	if p := st.Paused; p != nil && p.Over(now) {
		st.Paused, to = nil, tick.Later(to, p.Until)
	}
	if h := st.Halts.Active(now); h != nil && st.Paused == nil {
		st.Paused, st.Halted = &h.Pause, h
	}
	if st.HighRev != 0 {
		st.High = tick.Later(st.High, to)
	}
	return st
}

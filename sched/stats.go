package sched

import "time"

// Stats describes what this process does for its group now.
type Stats struct {
	// Owner reports whether this process is the owner of the group as far as it knows;
	// see [Scheduler.IsOwner].
	Owner bool
	// Running is how many runs this process has.
	Running int
	// NextDue is when the next tick should start that the owner has not admitted: its
	// nominal time plus its jitter. If it is in the past, a tick is overdue: the owner is
	// busy, etcd does not answer, or the clock was put back. It is zero if no tick
	// follows, and if this process is not the owner. Paused jobs, and jobs whose state
	// the owner is reading, do not count.
	NextDue time.Time
	// PausedSince is since when a job of the group is paused, of several the one that was
	// paused first. It is zero if none is paused, and if this process is not the owner.
	PausedSince time.Time
}

// Stats returns the state of this process. It does no I/O.
func (s *Scheduler) Stats() Stats {
	st := Stats{Owner: s.owning.Load(), Running: int(s.running.Load())}
	if at := s.nextDue.Load(); at != nil {
		st.NextDue = *at
	}
	if at := s.pausedAt.Load(); at != nil {
		st.PausedSince = *at
	}
	return st
}

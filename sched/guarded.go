package sched

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.uber.org/zap"
)

// guarded is a schedule of another package, or one with a calendar of a function. A panic
// of it would end the owner of the group, and then each process that becomes the owner. So
// the job has no further tick instead, until the owner asks again or another owner begins.
type guarded struct {
	calendar.Schedule
	told func(panicked any)
}

// guard returns a schedule of the job that does not panic.
func (s *Scheduler) guard(job string, schedule calendar.Schedule) calendar.Schedule {
	switch schedule.(type) {
	case tick.Counter, after: // of this module
		return schedule
	}
	var once sync.Once
	return guarded{schedule, func(panicked any) {
		once.Do(func() {
			s.log.Error("schedule panicked; the job has no further tick", zap.String("job", job), zap.Any("panic", panicked), zap.ByteString("stack", debug.Stack()))
		})
	}}
}

// Next returns the zero Time if the schedule panics.
func (g guarded) Next(t time.Time) (next time.Time) {
	defer func() {
		if p := recover(); p != nil {
			g.told(p)
			next = time.Time{}
		}
	}()
	return g.Schedule.Next(t)
}

// String returns the text of the schedule.
func (g guarded) String() string { return scheduleText(g.Schedule) }

// scheduleText returns a schedule as text.
func scheduleText(s calendar.Schedule) string {
	if s, ok := s.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", s)
}

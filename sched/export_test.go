package sched

import (
	"context"
	"time"
)

// InLocation is In for zones that no tz database has.
func InLocation(loc *time.Location) CronOption {
	return cronOption(func(c *wallClock) error {
		c.zone = loc
		return nil
	})
}

// Waiting is where ticks are that wait to be begun.
func Waiting(prefix, group string) string { return newKeys(prefix, group).readies() }

// Asks is where requests are left for the owner.
func Asks(prefix, group string) string { return newKeys(prefix, group).asks() }

// Postponed returns how many claims are remembered to be tried again, of one that
// nothing waits for any more.
func (s *Scheduler) Postponed(ctx context.Context) int {
	s.owning.Store(true)
	defer s.owning.Store(false)
	b := s.newBeginner(ctx)
	b.again["run/1"] = wait{at: time.Now().Add(time.Hour)}
	b.look(ctx)
	return len(b.again)
}

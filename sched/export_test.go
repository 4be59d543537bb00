package sched

import "time"

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

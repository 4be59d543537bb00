package calendar

import "time"

// InLocation is In for zones that no tz database has.
func InLocation(loc *time.Location) CronOption {
	return cronOption(func(c *wallClock) error {
		c.zone = loc
		return nil
	})
}

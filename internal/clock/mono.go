package clock

import "time"

// Mono returns an instant by which a process measures how much time passes. Compare it with
// others of Mono alone: its time of day is not that of a Clock, so it must not be stored, sent
// or shown. The time for which the machine slept does not count; see Reading.
func Mono() time.Time { return time.Now() }

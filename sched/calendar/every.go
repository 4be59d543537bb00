package calendar

import (
	"fmt"
	"slices"
	"time"
)

// everyError is the prefix of the errors of Every.
const everyError = "calendar: every: "

// Every returns the schedule of all instants phase + k*period after the Unix
// epoch, 1 January 1970 00:00 UTC, for all integers k. It depends on neither the
// process nor the machine. Every(time.Hour, 5*time.Minute) is due five minutes
// after each full hour of UTC. A phase of -5 minutes means five minutes before.
// A period of 24 hours is a day of UTC, without leap seconds or clock changes.
//
// Period and phase must be whole milliseconds, and the period at least one
// millisecond; otherwise Every returns an error. The phase is reduced modulo the
// period.
func Every(period, phase time.Duration) (Schedule, error) {
	switch {
	case period < time.Millisecond:
		return nil, fmt.Errorf(everyError+"period %v is below 1ms", period)
	case period%time.Millisecond != 0:
		return nil, fmt.Errorf(everyError+"period %v is not a whole number of milliseconds", period)
	case phase%time.Millisecond != 0:
		return nil, fmt.Errorf(everyError+"phase %v is not a whole number of milliseconds", phase)
	}
	p := period.Milliseconds()
	return interval{period: p, phase: modulo(phase.Milliseconds(), p)}, nil
}

// An interval is the schedule of Every, in milliseconds of Unix time. A Duration
// in nanoseconds could not reach every instant between the bounds.
type interval struct {
	period int64
	phase  int64 // 0 <= phase < period
}

// Next returns the first instant after t.
func (i interval) Next(t time.Time) time.Time {
	next := i.at(i.last(clamp(t)) + 1)
	if next.Unix() >= horizon {
		return time.Time{}
	}
	return next
}

// String returns "@every <period>", or "@every <period> +<phase>".
func (i interval) String() string {
	s := "@every " + milliseconds(i.period).String()
	if i.phase != 0 {
		s += " +" + milliseconds(i.phase).String()
	}
	return s
}

// Count returns how many instants are after from and not after to, at most limit.
// It takes constant time.
func (i interval) Count(from, to time.Time, limit int) int {
	n := i.last(clamp(to)) - i.last(clamp(from))
	return int(max(min(n, int64(limit)), 0))
}

// Newest returns the newest instants after from and not after to, at most limit of
// them, oldest first. It takes time in proportion to limit.
func (i interval) Newest(from, to time.Time, limit int) []time.Time {
	first, last := i.last(clamp(from)), i.last(clamp(to))
	if last-first > int64(max(limit, 0)) {
		from = i.at(last - int64(max(limit, 0)))
	}
	return slices.Collect(Between(i, from, to))
}

// last returns the number k of the last instant that is not after t.
func (i interval) last(t time.Time) int64 {
	ms := t.UnixMilli() - i.phase // the time within a millisecond changes nothing
	return (ms - modulo(ms, i.period)) / i.period
}

// at returns the instant with the number k.
func (i interval) at(k int64) time.Time {
	return time.UnixMilli(i.phase + k*i.period).UTC()
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// modulo returns the remainder of n divided by m, which must be positive. The
// remainder is never negative.
func modulo(n, m int64) int64 {
	return (n%m + m) % m
}

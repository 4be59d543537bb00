package sched

import (
	"fmt"
	"time"
)

// Every returns the schedule of all instants phase + k*period after the Unix
// epoch, 1 January 1970 00:00 UTC, for all integers k. So Every(time.Hour,
// 5*time.Minute) is due five minutes after each full hour of UTC, whenever and
// wherever it was made; a phase of -5 minutes means five minutes before. UTC as
// computers count it has no leap seconds and no changes of clocks: a day is 24
// hours.
//
// Both must be whole milliseconds, and the period at least one: anything else
// is an error. Only what is left of the phase after division by the period
// matters.
func Every(period, phase time.Duration) (Schedule, error) {
	switch {
	case period < time.Millisecond:
		return nil, fmt.Errorf("sched: every: period %v is below 1ms", period)
	case period%time.Millisecond != 0:
		return nil, fmt.Errorf("sched: every: period %v is not a whole number of milliseconds", period)
	case phase%time.Millisecond != 0:
		return nil, fmt.Errorf("sched: every: phase %v is not a whole number of milliseconds", phase)
	}
	p := period.Milliseconds()
	return interval{period: p, phase: modulo(phase.Milliseconds(), p)}, nil
}

// An interval is what Every returns, in milliseconds of Unix time: those can
// count every instant that a Duration of nanoseconds could not reach.
type interval struct {
	period int64
	phase  int64 // 0 <= phase < period
}

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

// last returns the k of the last instant that is not after t.
func (i interval) last(t time.Time) int64 {
	ms := t.UnixMilli() - i.phase // the time within a millisecond changes nothing
	return (ms - modulo(ms, i.period)) / i.period
}

// at returns the instant with the number k.
func (i interval) at(k int64) time.Time {
	return time.UnixMilli(i.phase + k*i.period).UTC()
}

// count returns how many instants are after from and not after to, which must
// not be before from for that.
func (i interval) count(from, to time.Time) int64 {
	return i.last(clamp(to)) - i.last(clamp(from))
}

// skip returns the n-th instant after t.
func (i interval) skip(t time.Time, n int64) time.Time {
	return i.at(i.last(clamp(t)) + n)
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// modulo is what is left of n after division by positive m: never negative.
func modulo(n, m int64) int64 {
	return (n%m + m) % m
}

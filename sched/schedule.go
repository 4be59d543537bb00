package sched

import (
	"iter"
	"time"
)

// Schedule says when something is due. Those of robfig/cron v3 and of River fit,
// with two things to know: they follow their own rules where clocks are changed,
// and their fixed intervals count from t, so that replicas agree on them only
// by luck. Use [Every] for those.
type Schedule interface {
	// Next returns the first instant after t that is due, never t itself, and
	// the zero Time if there is none. It must depend on nothing but t, and be
	// safe for concurrent use.
	Next(t time.Time) time.Time
}

// Bounds of all instants, in seconds of Unix time. The calendar repeats every
// 400 years, so what is not due from 2000 to 2399 is never due.
const (
	beginning int64 = -62135596800 // 1 January of year 1, 00:00:00 UTC: the zero Time, which is never due
	horizon   int64 = 13569465600  // 1 January 2400, 00:00:00 UTC, which is not due either
)

// Must returns s, or panics with err. It is for schedules that stand in the
// source:
//
//	var nightly = sched.Must(sched.Cron("30 2 * * *", sched.In("Europe/Berlin")))
func Must(s Schedule, err error) Schedule {
	if err != nil {
		panic(err)
	}
	return s
}

// Between yields what is due after from and not after to, oldest first. It ends
// early if a schedule of somebody else's goes back in time.
func Between(s Schedule, from, to time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		last := from
		for t := s.Next(last); t.After(last) && !t.After(to); t = s.Next(last) {
			if !yield(t) {
				return
			}
			last = t
		}
	}
}

// newest returns the newest instants of Between(s, from, to), at most limit of
// them, oldest first, and how many older ones it dropped. It holds no more than
// limit at a time. For Every it takes time in proportion to limit; any other
// schedule is asked for each instant, dropped or not.
func newest(s Schedule, from, to time.Time, limit int) (kept []time.Time, dropped int64) {
	limit = max(limit, 0)
	if every, ok := s.(interval); ok {
		if n := every.count(from, to); n > int64(limit) {
			dropped = n - int64(limit)
			from = every.skip(from, dropped)
		}
	}
	oldest := 0 // once kept is full it is a ring
	for t := range Between(s, from, to) {
		switch {
		case len(kept) < limit:
			kept = append(kept, t)
			continue
		case limit > 0:
			kept[oldest] = t
			oldest = (oldest + 1) % limit
		}
		dropped++
	}
	return append(kept[oldest:len(kept):len(kept)], kept[:oldest]...), dropped
}

// clamp returns t, or the nearest time within the bounds: nothing is due
// between the two.
func clamp(t time.Time) time.Time {
	switch sec := t.Unix(); { // unlike the methods that compare, right for every Time
	case sec < beginning:
		return time.Time{}
	case sec >= horizon:
		return time.Unix(horizon-1, 1e9-1)
	}
	return t
}

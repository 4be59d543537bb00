package sched

import "time"

const (
	day int64 = 24 * 60 * 60 // seconds

	// reach bounds how far apart two instants can be at which clocks of one zone
	// show the same time, in seconds: offsets are less than 26 hours.
	reach int64 = 2 * 26 * 60 * 60

	// forever is when a span ends that does not: later than any search looks.
	forever = horizon + 2*reach
)

// A span is a stretch of time, from start to before end, in which the offset of
// a zone does not change. All are in seconds: start and end of Unix time, the
// offset what the wall clock is ahead of UTC. A wall-clock time is counted as
// Unix time would be if the clock showed UTC.
type span struct {
	start, end, offset int64
}

// shows reports whether the wall clock shows w during the span.
func (s span) shows(w int64) bool { return s.start <= w-s.offset && w-s.offset < s.end }

// spans are consecutive spans of a zone, found as they are asked for. Two
// neighbours may have the same offset.
type spans struct {
	zone  *time.Location
	start int64
	found []span
}

func (z *spans) at(i int) span {
	for len(z.found) <= i {
		start := z.start
		if n := len(z.found); n > 0 {
			start = z.found[n-1].end
		}
		z.found = append(z.found, spanFrom(z.zone, start))
	}
	return z.found[i]
}

// spanFrom returns a span that begins at start, which need not be where the
// offset changed.
func spanFrom(zone *time.Location, start int64) span {
	t := time.Unix(start, 0).In(zone)
	_, offset := t.Zone()
	end := forever
	// The begin of the bounds is not used: it can be the begin of a year.
	if _, bound := t.ZoneBounds(); !bound.IsZero() {
		end = bound.Unix()
	}
	if end <= start {
		// Beyond the table of a zone, bounds are those of a year of 365 days. No
		// rule changes clocks at the end of a year.
		end = start - modulo(start, day) + day
	}
	return span{start: start, end: end, offset: int64(offset)}
}

// earlier and later report whether the wall clock shows w in another span before,
// or after, the i-th: one that shows w itself, or one that begins with a gap
// that leaves w out.

func (z *spans) earlier(i int, w int64) bool {
	for from := z.nearest(i, w) - reach; i > 0 && z.at(i).start > from; i-- {
		if z.at(i - 1).shows(w) {
			return true
		}
	}
	return false
}

func (z *spans) later(i int, w int64) bool {
	for to := z.nearest(i, w) + reach; z.at(i).end < to; i++ {
		if z.at(i + 1).shows(w) {
			return true
		}
	}
	return false
}

// nearest returns the instant of the i-th span that is nearest to when its
// clock would show w.
func (z *spans) nearest(i int, w int64) int64 {
	return max(w-z.at(i).offset, z.at(i).start)
}

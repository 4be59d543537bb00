package calendar

import "time"

const (
	day int64 = 24 * 60 * 60 // seconds

	// reach is an upper bound, in seconds, for the distance between two instants
	// at which the clock of one zone shows the same time. Offsets are less than 26
	// hours.
	reach int64 = 2 * 26 * 60 * 60

	// forever is the end of a span that never ends. No search looks that far.
	forever = horizon + 2*reach
)

// A span is the time from start until just before end, during which the offset of
// a zone is constant. Start and end are seconds of Unix time. The offset is the
// number of seconds by which the wall clock is ahead of UTC. A wall-clock time is
// the Unix time at which a clock of UTC would show the same.
type span struct {
	start, end, offset int64
}

// shows reports whether the wall clock shows w during the span.
func (s span) shows(w int64) bool { return s.start <= w-s.offset && w-s.offset < s.end }

// spans are consecutive spans of a zone, computed on demand. Two neighbours may
// have the same offset.
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

// spanFrom returns the span that begins at start. The offset need not have changed
// at start.
func spanFrom(zone *time.Location, start int64) span {
	t := time.Unix(start, 0).In(zone)
	_, offset := t.Zone()
	end := forever
	// Only the end of the bounds is used. Their start is unreliable: it can be the
	// start of a year.
	if _, bound := t.ZoneBounds(); !bound.IsZero() {
		end = bound.Unix()
	}
	if end <= start {
		// Beyond the table of a zone, ZoneBounds assumes years of 365 days. Its end
		// is then wrong on the last day of a leap year. No rule changes clocks there,
		// so the span can end with the day.
		end = start - modulo(start, day) + day
	}
	return span{start: start, end: end, offset: int64(offset)}
}

// earlier and later report whether the wall clock shows w in a span before, or
// after, the i-th span. The i-th span either shows w itself, or begins with a gap
// that skips w.

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

// nearest returns the instant at which the clock of the i-th span shows w, or the
// start of the span if that is later.
func (z *spans) nearest(i int, w int64) int64 {
	return max(w-z.at(i).offset, z.at(i).start)
}

package calendar

import "time"

// Next searches the spans in order. Within a span the wall clock is a plain count
// of seconds, and each time that it shows is one instant.
func (c *cron) Next(t time.Time) time.Time {
	from := clamp(t).Unix() + 1
	// Start early enough to know every time that the clock showed within reach of from.
	s := search{cron: c, spans: spans{zone: c.zone, start: from - reach}, answer: -1}
	for i := 0; s.at(i).start < horizon; i++ {
		if s.at(i).end <= from {
			continue
		}
		if due, ok := s.first(i, from); ok && due < horizon {
			return time.Unix(due, 0).UTC()
		}
	}
	return time.Time{}
}

// A search looks for one instant, or counts instants.
type search struct {
	*cron
	spans
	asked, answer int64 // the last call of cron.match: its argument and its result
}

// first returns the first due instant of the i-th span that is not before from.
func (s *search) first(i int, from int64) (due int64, ok bool) {
	now := s.at(i)
	if now.start >= from && s.makesUp(i) {
		return now.start, true
	}
	w := s.match(max(from, now.start) + now.offset)
	for ; w < now.end+now.offset; w = s.match(w + 1) {
		if s.takes(i, w) {
			return w - now.offset, true
		}
	}
	return 0, false
}

// makesUp reports whether the i-th span begins with a gap that skipped a matching
// time, so that the start of the span is due instead.
func (s *search) makesUp(i int) bool {
	if s.repeats() || s.gap != GapFire || i == 0 {
		return false
	}
	now := s.at(i)
	gap, end := now.start+s.at(i-1).offset, now.start+now.offset
	if gap >= end {
		return false
	}
	for w := s.match(gap); w < end; w = s.match(w + 1) {
		// A clock that was put forward and back within reach may show w in another span.
		if !s.earlier(i, w) && !s.later(i, w) {
			return true
		}
	}
	return false
}

// takes reports whether the matching time w is due when the clock shows it in the
// i-th span.
func (s *search) takes(i int, w int64) bool {
	switch {
	case s.repeats() || s.fold == FoldBoth:
		return true
	case s.fold == FoldFirst:
		return !s.earlier(i, w)
	default:
		return !s.later(i, w)
	}
}

// match calls cron.match, unless the last call already answers.
func (s *search) match(w int64) int64 {
	if w < s.asked || w > s.answer {
		s.asked, s.answer = w, s.cron.match(w)
	}
	return s.answer
}

// match returns the first matching wall-clock time that is not before w, or a time
// after the horizon.
func (c *cron) match(w int64) int64 {
	sec := modulo(w, day)
	today := (w - sec) / day
	next := c.days.from(today, c.month.set, c.years)
	if next == today {
		if sec, ok := c.inDay(int(sec)); ok {
			return today*day + int64(sec)
		}
		next = c.days.from(today+1, c.month.set, c.years)
	}
	sec0, _ := c.inDay(0)
	return next*day + int64(sec0)
}

// inDay returns the first matching second of a day that is not before sec.
func (c *cron) inDay(sec int) (first int, ok bool) {
	h, m, s := sec/3600, sec/60%60, sec%60
	if c.hour.has(h) {
		if c.minute.has(m) {
			if s = c.second.from(s); s < 60 {
				return h*3600 + m*60 + s, true
			}
		}
		if m = c.minute.from(m + 1); m < 60 {
			return h*3600 + m*60 + c.second.from(0), true
		}
	}
	if h = c.hour.from(h + 1); h < 24 {
		return h*3600 + c.minute.from(0)*60 + c.second.from(0), true
	}
	return 0, false
}

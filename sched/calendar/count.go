package calendar

import (
	"math/bits"
	"time"
)

// Count returns how many instants are after from and not after to, at most limit.
// It adds up whole days. It counts one by one only near clock changes.
func (c *cron) Count(from, to time.Time, limit int) int {
	start, end := clamp(from).Unix()+1, min(clamp(to).Unix()+1, horizon) // the first second, and the first beyond
	s := search{cron: c, spans: spans{zone: c.zone, start: start - reach}, answer: -1}
	if end <= start {
		return 0
	}
	n := 0
	for i := 0; n < limit && s.at(i).start < end; i++ {
		if s.at(i).end > start {
			n += s.countIn(i, start, end, limit-n)
		}
	}
	return min(n, max(limit, 0))
}

// countIn counts the instants of the i-th span from start to before end, up to
// limit or a few more.
func (s *search) countIn(i int, start, end int64, limit int) int {
	now := s.at(i)
	n := 0
	if now.start >= start && s.makesUp(i) {
		n++
	}
	// The same bounds as wall-clock times.
	first, last := max(start, now.start)+now.offset, min(end, now.end)+now.offset
	if s.makesUpAt(i, first, start) {
		first++ // counted above, and due once only
	}
	// No other span within reach shows a time from sure to before unsure.
	sure, unsure := first, last
	if !s.repeats() && s.fold != FoldBoth {
		sure, unsure = s.onlyHere(i, first, last)
	}
	one := func(from, to int64) {
		for w := s.match(from); w < to && n < limit; w = s.match(w + 1) {
			if s.takes(i, w) {
				n++
			}
		}
	}
	if sure >= unsure {
		one(first, last)
		return n
	}
	one(first, sure)
	if n < limit {
		n += s.countWall(sure, unsure, limit-n)
	}
	one(unsure, last)
	return n
}

// makesUpAt reports whether the wall-clock time w is the start of the i-th span, and
// that start is due for the times of a gap.
func (s *search) makesUpAt(i int, w, start int64) bool {
	now := s.at(i)
	return w == now.start+now.offset && now.start >= start && s.makesUp(i)
}

// onlyHere narrows the wall-clock times of the i-th span, from first to before
// last, to those that no other span within reach shows.
func (s *search) onlyHere(i int, first, last int64) (from, to int64) {
	from, to = first, last
	now := s.at(i)
	for k := i - 1; k >= 0 && s.at(k).end > now.start-reach; k-- {
		from = max(from, s.at(k).end+s.at(k).offset)
	}
	for k := i + 1; s.at(k).start < min(now.end, horizon)+reach; k++ {
		to = min(to, s.at(k).start+s.at(k).offset)
		if s.at(k).end >= forever {
			break
		}
	}
	return min(from, last), max(to, min(from, last))
}

// countWall counts the matching wall-clock times from from to before to, up to
// limit or a few more.
func (c *cron) countWall(from, to int64, limit int) int {
	n := 0
	today := c.days.from(floorDay(from), c.month.set, c.years)
	for n < limit && today*day < to {
		n += c.before(to-today*day) - c.before(from-today*day)
		today = c.days.from(today+1, c.month.set, c.years)
	}
	return n
}

func floorDay(w int64) int64 { return (w - modulo(w, day)) / day }

// before counts the matching times of a day before the given second.
func (c *cron) before(second int64) int {
	size := func(s set) int { return bits.OnesCount64(uint64(s)) }
	below := func(s set, n int) int { return size(s & (1<<n - 1)) }
	perMinute := size(c.second.set)
	perHour := size(c.minute.set) * perMinute
	switch {
	case second <= 0:
		return 0
	case second >= day:
		return size(c.hour.set) * perHour
	}
	h, m, s := int(second/3600), int(second/60%60), int(second%60)
	n := below(c.hour.set, h) * perHour
	if c.hour.has(h) {
		n += below(c.minute.set, m) * perMinute
		if c.minute.has(m) {
			n += below(c.second.set, s)
		}
	}
	return n
}

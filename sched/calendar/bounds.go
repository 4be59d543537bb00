package calendar

import (
	"errors"
	"fmt"
	"time"
)

// At returns the schedule of one instant. Its text is "@at " and the instant in RFC 3339, which
// [Cron] parses. At returns an error if t is outside the years 1 to 2399.
func At(t time.Time) (Schedule, error) {
	if sec := t.Unix(); sec <= beginning || sec >= horizon {
		return nil, fmt.Errorf("calendar: at: %v is not within the years 1 to 2399", t)
	}
	return once{t.UTC().Round(0)}, nil
}

// once is the schedule of At.
type once struct{ at time.Time }

func (o once) Next(t time.Time) time.Time {
	if t.Before(o.at) {
		return o.at
	}
	return time.Time{}
}

// Count returns how many instants are after from and not after to, at most limit.
func (o once) Count(from, to time.Time, limit int) int {
	if from.Before(o.at) && !to.Before(o.at) {
		return min(limit, 1)
	}
	return 0
}

func (o once) String() string { return "@at " + o.at.Format(time.RFC3339Nano) }

// Bounds limit a schedule; see [Bound].
type Bounds struct {
	Start time.Time // no instant is before Start; zero means no limit
	End   time.Time // no instant is after End; zero means no limit
	// Runs is how many instants there are at most, from Start on: 1 to 1,000. It needs a
	// Start, so that all processes count the same instants. Zero means no limit.
	Runs int
}

const mostRuns = 1000

// Bound returns the instants of s within the bounds. An instant that equals Start or End is
// one of them. Runs counts the instants of s after the calendars of [Except] and [Only], and no
// runs of a job: it is the same in each process, and an instant that nothing ran counts.
//
// Bound returns an error if the bounds are invalid, or if s has no instant within them. The
// text of the schedule, if s has one, changes when the bounds do. [Cron] cannot parse it.
func Bound(s Schedule, b Bounds) (Schedule, error) {
	fail := func(format string, args ...any) (Schedule, error) {
		return nil, fmt.Errorf("calendar: bounds: "+format, args...)
	}
	b.Start, b.End = b.Start.UTC().Round(0), b.End.UTC().Round(0)
	switch {
	case s == nil:
		return nil, errors.New("calendar: bounds: the schedule is nil")
	case b.Runs < 0 || b.Runs > mostRuns:
		return fail("Runs %d is out of range; want 1 to %d, or 0 for no limit", b.Runs, mostRuns)
	case b.Runs > 0 && b.Start.IsZero():
		return fail("Runs needs a Start, from which it counts")
	case !b.End.IsZero() && b.End.Before(b.Start):
		return fail("the End %s is before the Start %s", b.End.Format(time.RFC3339), b.Start.Format(time.RFC3339))
	}
	p := period{start: b.Start, end: b.End, text: b.text()}
	within := filter(s, p, true)
	from, last, n := b.Start, time.Time{}, 0
	if !from.IsZero() {
		from = from.Add(-1)
	}
	for t := range Between(within, from, time.Unix(horizon, 0)) {
		if last, n = t, n+1; n >= b.Runs {
			break
		}
	}
	if n == 0 {
		return fail("the schedule has no instant within them: %s", p.text)
	}
	if b.Runs > 0 {
		p.end = last
	}
	return filter(s, p, true), nil
}

func (b Bounds) text() string {
	text := "period("
	if !b.Start.IsZero() {
		text += b.Start.Format(time.RFC3339Nano)
	}
	text += ".."
	if !b.End.IsZero() {
		text += b.End.Format(time.RFC3339Nano)
	}
	if b.Runs > 0 {
		text += fmt.Sprintf(", %d runs", b.Runs)
	}
	return text + ")"
}

// period is the calendar of the instants from start to end, both included. A zero end is
// never.
type period struct {
	start, end time.Time
	text       string
}

// Covers implements Calendar.
func (p period) Covers(t time.Time) (bool, time.Time) {
	switch {
	case t.Before(p.start):
		return false, p.start
	case p.end.IsZero():
		return true, time.Time{}
	case t.After(p.end):
		return false, time.Time{}
	}
	return true, p.end.Add(1)
}

func (p period) String() string { return p.text }

package jobstate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/sched/calendar"
)

// Stamp returns a time as texts for people have it.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Outcomes of which no step of package tick knows.
const (
	paused      tick.Outcome = "paused"
	interrupted tick.Outcome = "interrupted"
)

// Explains reports whether the id is that of a tick of the schedule, or of its backfill.
func Explains(id string) bool { return !tick.IsManual(id) || tick.IsBackfill(id) }

// InProgress explains a tick that waits or runs. It returns an empty text of any other.
func (st State) InProgress(nominal time.Time) string {
	of := func(r tick.Ready) bool { return r.Nominal.Equal(nominal) && Explains(r.ID) }
	for _, r := range st.Running {
		if of(r.Ready) {
			return fmt.Sprintf("running since %s by %s, attempt %d", Stamp(r.Began), r.Owner, r.Attempt)
		}
	}
	for _, w := range st.Waiting {
		switch {
		case !of(w.Ready):
		case w.Attempt > 1:
			return fmt.Sprintf("waits for attempt %d, not before %s: %s", w.Attempt, Stamp(w.After), w.Note)
		default:
			return strings.Join(append([]string{fmt.Sprintf("admitted, and waits to begin: %d runs of the job are in progress",
				len(st.Running))}, st.Places...), "; ")
		}
	}
	return ""
}

// Undecided explains a tick without a record that neither waits nor runs. It returns an empty text
// if the mark has passed the tick since. Late reports whether the tick should have been admitted.
// The schedule is nil if it is not known. Problem is why the job does not run, or empty.
func (st State) Undecided(nominal, now time.Time, schedule calendar.Schedule, problem string) (text string, late bool) {
	switch {
	case st.Reset.Decided.Have(nominal):
		text = fmt.Sprintf("decided, and not run again: the mark was put back by %s at %s", st.Reset.By, Stamp(st.Reset.At))
		if st.Reset.Note != "" {
			text += ": " + st.Reset.Note
		}
		return text, false
	case schedule != nil && !Has(schedule, nominal):
		why := "has no tick at this instant"
		if Has(Whole(schedule), nominal) {
			why = "has a calendar, or a start or an end, that leaves this instant out"
		}
		return fmt.Sprintf("not due: the schedule %s %s; the next one is at %s", st.Spec.Schedule, why, Stamp(schedule.Next(nominal))), false
	case nominal.After(st.High) && nominal.After(now):
		return fmt.Sprintf("not due yet: in %v", nominal.Sub(now).Round(time.Second)), false
	case nominal.After(st.High) && st.Paused != nil:
		return "not admitted: the job is " + st.pausedText(), false
	case nominal.After(st.High):
		if problem == "" {
			problem = "the group has no owner, its owner does not have the job or is busy, or its clock is behind"
		}
		return fmt.Sprintf("due for %v and not admitted: %s", now.Sub(nominal).Round(time.Second), problem), true
	case nominal.Before(st.Spec.Since):
		return fmt.Sprintf("before the schedule %s was registered at %s", st.Spec.Schedule, Stamp(st.Spec.Since)), false
	}
	return "", false
}

// pausedText describes the pause of a job that is paused.
func (st State) pausedText() string {
	if st.Halted != nil {
		return st.Halted.Text()
	}
	return st.Paused.Text()
}

// InPause explains a tick without a record that came due in a pause of many jobs. It returns an empty text of
// any other.
func (st State) InPause(nominal, now time.Time) string {
	h := st.Halts.At(nominal, now)
	if h == nil {
		return ""
	}
	return fmt.Sprintf("not run: the job was %s, which ended at %s", h.Text(), Stamp(h.End(now)))
}

// Why has the reason of each outcome whose record has none.
var Why = map[tick.Outcome]string{
	tick.OK:      "the handler returned nil",
	tick.Skipped: "another run of the job was in progress or waited, or a newer tick came due, and its Overlap leaves such ticks out",
	tick.Late:    "it had not begun by its StartDeadline",
	tick.Missed:  "no owner admitted it in time, and CatchUp leaves such ticks out",
	tick.Lost:    "its process died, or its claim was lost, before the run ended",
	paused:       "the job was paused",
	interrupted:  "its scheduler stopped, or its claim was in doubt",
}

// Explain explains a tick that has the record.
func Explain(p tick.Past) string {
	text := string(p.Outcome)
	if p.Outcome.Bad() && !p.Again {
		text += " for good, with no attempt left"
	}
	if p.Attempt > 0 {
		text += fmt.Sprintf(", attempt %d by %s from %s to %s", p.Attempt, p.Owner, Stamp(p.Began), Stamp(p.Ended))
	} else {
		text += fmt.Sprintf(", recorded at %s", Stamp(p.Ended))
	}
	return text + ": " + cmp.Or(p.Error, Why[p.Outcome])
}

// GivenUp explains a tick that a later record counts, with the word of that record. It returns an
// empty text if no record counts the tick. The records are in order, the newest first.
func GivenUp(nominal time.Time, schedule calendar.Schedule, records []tick.Past) string {
	for _, p := range slices.Backward(records) {
		if p.Missed == 0 || !p.Nominal.After(nominal) || tick.IsManual(p.ID) {
			continue
		}
		to, itself := p.Nominal.Add(-1), p.Outcome == tick.Missed || p.Outcome == paused
		if itself {
			to = p.Nominal // the record counts its own tick too
		}
		if schedule != nil && (tick.Job{Schedule: schedule}).Count(nominal.Add(-1), to) > p.Missed {
			continue
		}
		if itself {
			return fmt.Sprintf("%s, one of %d ticks that one record counts, until %s: %s",
				p.Outcome, p.Missed, Stamp(p.Nominal), cmp.Or(p.Error, Why[p.Outcome]))
		}
		return fmt.Sprintf("missed, one of %d ticks that came due while no owner could admit them: CatchUp went on with the tick of %s",
			p.Missed, Stamp(p.Nominal))
	}
	return ""
}

// Overdue returns the nominal time of the oldest scheduled tick that is past its bound, or
// the zero Time. The next tick to be admitted is that of next.
func (st State) Overdue(next, now time.Time) (oldest time.Time) {
	undone := []tick.Ready{{Nominal: next}}
	for _, w := range st.Waiting {
		undone = append(undone, w.Ready)
	}
	for _, r := range st.Running {
		undone = append(undone, r.Ready)
	}
	for _, r := range undone {
		past := st.Spec.Overdue > 0 && now.Sub(r.Nominal) > st.Spec.Overdue && !r.Nominal.IsZero() && !tick.IsManual(r.ID)
		if past && (oldest.IsZero() || r.Nominal.Before(oldest)) {
			oldest = r.Nominal
		}
	}
	return oldest
}

package jobstate

import (
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
)

// A pause ends now, or at its own end if that has passed. The mark never goes back, and one record has
// the ticks of the pause.
func TestEndPause(t *testing.T) {
	t.Parallel()
	half := 30 * time.Second
	for name, c := range map[string]struct {
		high, until, now, to time.Time
		missed               int // ticks of the pause, 0 for no record
	}{
		"until somebody resumes":        {high: minute(1), now: minute(3).Add(half), to: minute(3).Add(half), missed: 2},
		"resumed before its end":        {high: minute(1), until: minute(9), now: minute(3).Add(half), to: minute(3).Add(half), missed: 2},
		"at its end":                    {high: minute(1), until: minute(4), now: minute(4), to: minute(4), missed: 3},
		"long after its end":            {high: minute(1), until: minute(3), now: minute(60), to: minute(3), missed: 2},
		"no tick in it":                 {high: minute(1), until: minute(1).Add(half), now: minute(2), to: minute(1).Add(half)},
		"its end is before the mark":    {high: minute(5), until: minute(3), now: minute(6), to: minute(5)},
		"the clock is before the mark":  {high: minute(5), now: minute(3), to: minute(5)},
		"the clock is before its begin": {high: minute(5), until: minute(9), now: minute(3), to: minute(5)},
	} {
		p := tick.Pause{By: "ada", Note: "why", At: minute(1), Until: c.until}
		step := EndPause(tick.KeysUnder("/"), "j", minutely, p, 7, tick.Mark{At: c.high, Rev: 5}, c.now)
		if !step.To.Equal(c.to) || step.PauseRev != 7 || step.Mark.Rev != 5 || step.Job != "j" {
			t.Errorf("%s: %+v", name, step)
		}
		switch past := step.Past; {
		case past == nil:
			if c.missed != 0 {
				t.Errorf("%s: no record", name)
			}
		case past.Missed != c.missed || past.Outcome != paused || past.Nominal.After(c.to) || !past.Ended.Equal(c.now),
			!strings.HasPrefix(past.Error, "paused by ada since 2026-03-01T12:01:00Z"), !strings.HasSuffix(past.Error, ": why"),
			strings.Contains(past.Error, " until 2026") == c.until.IsZero():
			t.Errorf("%s: %+v", name, past)
		}
		unknown := EndPause(tick.KeysUnder("/"), "j", nil, p, 7, tick.Mark{At: c.high, Rev: 5}, c.now)
		if unknown.Past != nil || !unknown.To.Equal(c.to) {
			t.Errorf("%s, with a schedule that is not known: %+v", name, unknown)
		}
	}
}

// A reader of a job does not see a pause that is over, and sees the mark where the owner will put it.
func TestLift(t *testing.T) {
	t.Parallel()
	of := func(until time.Time) State {
		return State{High: minute(1), HighRev: 3, Paused: &tick.Pause{By: "ada", Until: until}, Spec: Spec{Since: minute(-60)}}
	}
	if st := of(minute(5)).Lift(minute(4)); st.Paused == nil || !st.High.Equal(minute(1)) {
		t.Errorf("not over: %+v", st)
	}
	if st := of(time.Time{}).Lift(minute(4)); st.Paused == nil {
		t.Error("one without an end is over")
	}
	st := of(minute(5)).Lift(minute(7))
	if st.Paused != nil || !st.High.Equal(minute(5)) {
		t.Errorf("over: %+v", st)
	}
	if text, late := st.Undecided(minute(6), minute(7), minutely, ""); !late || !strings.Contains(text, "due for 1m0s and not admitted") {
		t.Errorf("a tick after the end: %q, late: %t", text, late)
	}
	if text, late := of(minute(9)).Undecided(minute(6), minute(7), minutely, ""); late || !strings.Contains(text, "paused by ada since") ||
		!strings.Contains(text, "until 2026-03-01T12:09:00Z") {
		t.Errorf("a tick of the pause: %q, late: %t", text, late)
	}
	before := of(minute(5))
	if before.High = minute(6); !before.Lift(minute(7)).High.Equal(minute(6)) {
		t.Error("the mark goes back")
	}
	if st := (State{Paused: &tick.Pause{Until: minute(5)}}).Lift(minute(7)); st.Paused != nil || !st.High.IsZero() {
		t.Errorf("of a job that no owner has registered: %+v", st)
	}
}

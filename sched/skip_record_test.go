package sched_test

import (
	"strings"
	"testing"

	"github.com/etcdclaims/claims/sched"
)

// A skipped tick has a record of its own, so it is not one of those that another record
// counts. Explain knows that.
func TestExplainBesideASkip(t *testing.T) {
	caseInFleet(t, "missed", func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		n := f.start(0)
		f.until("00:01:30")
		n.stop()
		noErr(t, f.console().SkipTick(t.Context(), "a", clock("00:03:00"), ""))
		f.until("00:05:30")
		f.start(0)
		f.until("00:06:30")
		f.wantHistory("a", "ok 00:01:00", "ok 00:05:00", "skipped 00:03:00", "ok 00:06:00")
		for at, want := range map[string]sched.Fate{"00:02:00": sched.FateMissed, "00:03:00": sched.FateDone, "00:04:00": sched.FateMissed} {
			if x, err := f.console().Explain(t.Context(), "a", clock(at)); err != nil || x.Fate != want {
				t.Errorf("%s: %v, %v, %v", at, x.Fate, x, err)
			}
		}
	})
	caseInFleet(t, "paused", func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		f.start(0)
		f.until("00:01:30")
		noErr(t, f.console().Pause(t.Context(), "a", ""))
		noErr(t, f.console().SkipTick(t.Context(), "a", clock("00:03:00"), ""))
		f.until("00:04:30")
		noErr(t, f.console().Resume(t.Context(), "a"))
		f.until("00:05:30")
		for at, want := range map[string]sched.Fate{"00:02:00": sched.FatePaused, "00:03:00": sched.FateDone} {
			if x, err := f.console().Explain(t.Context(), "a", clock(at)); err != nil || x.Fate != want {
				t.Errorf("%s: %v, %v, %v", at, x.Fate, x, err)
			}
		}
	})
}

// A tick that is skipped and comes due in a pause has one record, and the record of the
// pause does not count it.
func TestSkipInAPause(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		f.start(0)
		f.until("00:00:30")
		op := f.console()
		noErr(t, op.Pause(t.Context(), "a", ""))
		noErr(t, op.SkipTick(t.Context(), "a", clock("00:01:00"), ""))
		noErr(t, op.SkipTick(t.Context(), "a", clock("00:04:00"), ""))
		f.until("00:01:30")
		noErr(t, op.Resume(t.Context(), "a")) // nothing but a skipped tick came due
		f.until("00:01:45")
		noErr(t, op.Pause(t.Context(), "a", ""))
		f.until("00:04:30")
		noErr(t, op.Resume(t.Context(), "a"))
		f.until("00:04:50")
		var got []string
		for _, e := range f.entries("a") {
			got = append(got, strings.TrimSpace(string(e.Outcome)+" "+e.Nominal.Format("15:04")+strings.Repeat(" and others", max(0, e.Missed-1))))
		}
		if want := "skipped 00:01, paused 00:03 and others, skipped 00:04"; strings.Join(got, ", ") != want {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

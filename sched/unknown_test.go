package sched_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
)

// A job is renamed while its process dies in a run. The new owner does not have the job, and
// settles the run: soon if it is not begun again, and after a deployment's time otherwise. The
// job's problem names what removes it.
func TestRunOfAJobThatNobodyHas(t *testing.T) {
	t.Parallel()
	for _, delivery := range []sched.Guarantee{sched.AtMostOnce, sched.AtLeastOnce} {
		caseInFleet(t, fmt.Sprint(delivery), func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "old name", Schedule: minutely, Guarantee: delivery, History: 500}, 24*time.Hour)
			old := f.start(0)
			f.until("00:01:30")
			logs := f.logged()
			f.jobs = nil
			f.do(sched.Job{Name: "new name", Schedule: minutely}, 0)
			f.start(0)
			old.kill()
			runs := func(at string, want int) sched.JobInfo {
				t.Helper()
				f.until(at)
				i := f.inspect("old name")
				if len(i.Running) != want {
					t.Errorf("at %s: %d run, want %d", at, len(i.Running), want)
				}
				return i
			}
			runs("00:02:00", 1)
			lost := "00:03:30"
			if delivery == sched.AtLeastOnce {
				runs("00:11:00", 1)
				lost = "00:13:00"
			}
			i := runs(lost, 0)
			if i.Last == nil || i.Last.Outcome != sched.OutcomeLost ||
				!strings.Contains(i.Last.Error, `claimctl sched forget -g "default" "old name"`) {
				t.Errorf("the run ended as %+v", i.Last)
			}
			if !strings.Contains(i.Problem, `claimctl sched forget -g "default" "old name"`) {
				t.Errorf("the problem is %q", i.Problem)
			}
			if n := logs.FilterMessage("run lost").Len(); n != 1 {
				t.Errorf("%d lines say that the run was lost", n)
			}
			noErr(t, f.console().Forget(t.Context(), "old name"))
		})
	}
}

package sched_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// After a clock was ahead, the records that are written last are kept and come first.
func TestHistoryAfterAClockAhead(t *testing.T) {
	for _, limit := range []int{5, 70} {
		caseInFleet(t, fmt.Sprint(limit), func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely, History: limit, Overlap: sched.Allow{}}, 0)
			runs := func(n int) {
				for range n {
					_, err := f.console().RunNow(t.Context(), "a")
					noErr(t, err)
					time.Sleep(time.Second)
				}
			}
			n := f.start(24 * time.Hour)
			f.until("00:00:10")
			runs(80)
			n.skew.Store(0)
			at := time.Now()
			runs(4)
			all := f.entries("a")
			if len(all) != limit {
				t.Errorf("%d records, want %d", len(all), limit)
			}
			for i, e := range all {
				if newest := i >= limit-4; e.Ended.Before(at.Add(time.Minute)) != newest {
					t.Errorf("record %d of %d was written at %v", i, len(all), e.Ended)
				}
			}
			if last := f.inspect("a").Last; last == nil || last.ID != all[len(all)-1].ID {
				t.Errorf("last %v", last)
			}
			runs(90)
			for _, e := range f.entries("a")[limit-min(limit, 64):] {
				if e.Ended.After(time.Now()) {
					t.Errorf("a record of the clock that was ahead is left: %v", e)
				}
			}
		})
	}
}

// A history returns to its limit also if replies come late, are lost, or go to several processes.
func TestHistoryAfterLateReplies(t *testing.T) {
	rounds := 4
	if testetcd.Long() {
		rounds = 10
	}
	for _, nodes := range []int{1, 3} {
		caseInFleet(t, fmt.Sprint(nodes), func(t *testing.T, f *fleet) {
			f.cfg.Spread = nodes > 1
			f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(time.Second, 0)), History: 5, Overlap: sched.Allow{}}, 300*time.Millisecond)
			f.until("00:00:10.5")
			for range nodes {
				f.start(0)
			}
			for i := range rounds {
				for n := range 6 * nodes {
					late := claimtest.Fault{On: claimtest.Other, Times: 1, DelayReply: time.Duration(500+700*(n%4)) * time.Millisecond}
					if n%6 == i%6 {
						late = claimtest.Fault{On: claimtest.Other, Times: 1, LoseReply: true}
					}
					f.nodes[n%nodes].host.Inject(late)
					time.Sleep(1700 * time.Millisecond)
				}
				f.until(fmt.Sprintf("00:%02d:%02d.5", 2*i+1, 3*i))
				noErr(t, f.console().Pause(t.Context(), "a", "quiet"))
				time.Sleep(20 * time.Second)
				if n := len(f.under("/past/")); n > 5 {
					t.Errorf("%d records, want 5", n)
				}
				noErr(t, f.console().Resume(t.Context(), "a"))
			}
		})
	}
}

// Old records are removed as the next one is written, up to the number that History keeps.
func TestHistoryFor(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.do(sched.Job{Name: "a", Schedule: minutely, HistoryFor: 150 * time.Second}, 0)
		f.do(sched.Job{Name: "few", Schedule: minutely, HistoryFor: time.Hour, History: 2}, 0)
		f.start(0)
		f.until("00:00:30")
		d := report("d")
		d.HistoryFor = 90 * time.Second
		f.define(d)
		f.until("00:10:30")
		f.wantHistory("a", "ok 00:08:00", "ok 00:09:00", "ok 00:10:00")
		f.wantHistory("few", "ok 00:09:00", "ok 00:10:00")
		f.wantHistory("d", "ok 00:09:00", "ok 00:10:00")
		x, err := f.console().Explain(t.Context(), "a", clock("00:02:00"))
		if noErr(t, err); x != "not known: the job keeps records for 2m30s" {
			t.Error(x)
		}
		noErr(t, f.console().Pause(t.Context(), "a", ""))
		f.until("01:00:30")
		f.wantHistory("a", "ok 00:08:00", "ok 00:09:00", "ok 00:10:00")
	})
}

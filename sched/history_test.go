package sched_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
)

// A history returns to its limit also if replies come late, are lost, or go to several processes.
func TestHistoryAfterLateReplies(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		caseInFleet(t, fmt.Sprint(nodes), func(t *testing.T, f *fleet) {
			f.cfg.Spread = nodes > 1
			f.do(sched.Job{Name: "a", Schedule: sched.Must(sched.Every(time.Second, 0)), History: 5, Overlap: sched.Allow{}}, 300*time.Millisecond)
			f.until("00:00:10.5")
			for range nodes {
				f.start(0)
			}
			for i := range 10 {
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

package sched_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
)

// rarely is due at midnight only.
var rarely = sched.Must(sched.Every(24*time.Hour, 0))

// Several that are asked for at once are decided about one after the other.
func TestRunNowThreeTimes(t *testing.T) {
	for _, tt := range []struct {
		overlap     sched.Overlap
		least, most int // that run to their end: more if the first is begun before the second is decided about
	}{
		{sched.Skip{}, 1, 1},
		{sched.BufferOne{}, 1, 2},
		{sched.BufferAll{Max: 1}, 1, 2},
		{sched.CancelRunning{}, 1, 1},
		{sched.Allow{}, 3, 3},
	} {
		t.Run(fmt.Sprintf("%T", tt.overlap), func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				f.do(sched.Job{Name: "a", Schedule: rarely, Overlap: tt.overlap}, 20*time.Second)
				f.do(sched.Job{Name: "b", Schedule: minutely}, 0)
				n := f.start(0)
				f.until("00:00:10")
				n.stop()
				for range 3 {
					time.Sleep(time.Millisecond)
					noErr(t, second(f.console().RunNow(t.Context(), "a")))
				}
				f.start(0)
				f.until("00:03:30")
				done, got := 0, f.entries("a")
				for _, e := range got {
					if e.Outcome == sched.OutcomeOK {
						done++
					}
				}
				if done < tt.least || done > tt.most || len(got) != 3 {
					t.Errorf("%v, want %d to %d ok of 3", got, tt.least, tt.most)
				}
				f.ledger.want(t, "b", "00:01:00", "00:02:00", "00:03:00")
			})
		})
	}
}

// A request that etcd will never accept keeps no tick of any job from its time.
func TestAskThatIsTooLarge(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		f.start(0)
		f.until("00:01:30")
		// Encoded again it is six times as long.
		ask := `{"v":1,"job":"a","id":"x","at":"2000-01-01T00:01:00Z","by":"` + strings.Repeat("<", 400_000) + `"}`
		noErr(t, second(f.etcd.Put(t.Context(), sched.Asks(prefix, "default")+"x", ask)))
		f.until("00:03:30")
		f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00")
	})
}

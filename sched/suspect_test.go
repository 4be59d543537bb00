package sched_test

import (
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
)

// An owner that dies is replaced long before its lease ends, and no tick is run twice.
func TestSuspectableOwner(t *testing.T) {
	t.Parallel()
	inFleet(t, func(t *testing.T, f *fleet) {
		elected := make(chan time.Time, 10)
		f.cfg.Suspectable = true
		f.cfg.Hooks.Elected = func(int64) { elected <- time.Now() }
		f.do(sched.Job{Name: "a", Schedule: minutely}, 10*time.Second)
		n := f.start(0)
		f.until("00:00:30")
		f.start(0)
		f.until("00:02:30")
		<-elected
		if len(elected) > 0 {
			t.Fatal("the owner was replaced though it lives")
		}
		died := time.Now()
		n.kill()
		f.until("00:02:32")
		if len(elected) != 1 {
			t.Fatalf("%d processes were elected within two seconds", len(elected))
		}
		if took := (<-elected).Sub(died); took > time.Second {
			t.Errorf("the next owner is elected after %v", took)
		}
		f.until("00:05:30")
		f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00", "00:04:00", "00:05:00")
	})
}

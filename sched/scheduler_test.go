package sched_test

import (
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
)

func TestSmoke(t *testing.T) {
	inFleet(t, func(f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: sched.Must(sched.Every(time.Minute, 0))}, 5*time.Millisecond)
		for range 3 {
			f.start(0)
		}
		time.Sleep(10*time.Minute + 30*time.Second)
		f.ledger.once(t)
		for _, d := range f.ledger.all("a") {
			t.Log(d, d.Fence, d.Until)
		}
		for _, k := range f.under("") {
			t.Log(k)
		}
	})
}

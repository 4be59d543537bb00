package sched_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/sched"
)

// Run waits for one drain, however many handlers do not return.
func TestDrainOfManyHandlers(t *testing.T) {
	forty := func(end chan struct{}) (jobs []sched.Job) {
		for i := range 40 {
			jobs = append(jobs, sched.Job{Name: fmt.Sprint("job", i), Schedule: minutely, Handler: func(context.Context, sched.Tick) error { <-end; return nil }})
		}
		return jobs
	}
	check := func(t *testing.T, stopped time.Time, err error) {
		t.Helper()
		wantErr(t, err, "handlers of 40 runs did not return")
		if took := time.Since(stopped); took > 6*time.Second {
			t.Errorf("Run returned after %v", took)
		}
	}
	caseInFleet(t, "etcd", func(t *testing.T, f *fleet) {
		end := make(chan struct{})
		f.jobs = forty(end)
		n := f.start(0)
		f.until("00:01:05")
		stopped := time.Now()
		n.stop()
		check(t, stopped, n.err)
		close(end)
		time.Sleep(time.Minute)
	})
	t.Run("passthrough", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			end := make(chan struct{})
			s, err := sched.New(without(t), sched.Config{Group: "default"})
			noErr(t, err)
			for _, j := range forty(end) {
				noErr(t, s.Add(j))
			}
			stopped := clock("00:01:05")
			ctx, cancel := context.WithDeadline(t.Context(), stopped)
			defer cancel()
			check(t, stopped, s.Run(ctx))
			close(end)
		})
	})
}

package doctor

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// A job that the owner of its group does not have is a finding. Without an owner there is one
// finding for the whole group.
func TestJobsOfAnOwnerWithoutThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		run := func(d time.Duration, names ...string) {
			claims := claimtest.NewClient(t, server.Host(t), etcdclaims.Config{Owner: "w"})
			s, err := sched.New(claims, sched.Config{Group: "billing"})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				err := s.Add(sched.Job{Name: name, Schedule: calendar.Must(calendar.Every(10*time.Second, 0)), Handler: func(context.Context, sched.Tick) error { return nil }})
				if err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		}
		e := &Examination{
			Claims: claimtest.NewClient(t, server.Host(t), etcdclaims.Config{Owner: "reader"}), Commands: Commands{Claimctl: "claimctl"},
			Limit: 100, Leases: 100, Patience: 5 * time.Second, Answer: 2 * time.Second,
		}
		run(time.Minute, "slow", "other")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			run(time.Minute, "other")
		}()
		time.Sleep(50 * time.Second)
		e.groups(t.Context())
		e.has(t, Warning, "jobs", `"slow" of group "billing": due since 2000-01-01T00:01:10Z; the owner w of the group has not admitted it`)
		commands := []string{"claimctl sched show -g billing slow", "claimctl sched forget -g billing slow"}
		if len(e.Findings) != 1 || !slices.Equal(e.Findings[0].Commands, commands) {
			t.Errorf("%+v", e.Findings)
		}
		<-ended
		time.Sleep(time.Minute)
		e.Findings = nil
		e.groups(t.Context())
		e.has(t, Warning, "jobs", `no process runs group "billing"`)
		if len(e.Findings) != 1 {
			t.Errorf("%+v", e.Findings)
		}
	})
}

// A mark that is ahead of the clock is one finding, with the command that mends it.
func TestJobsAheadOfTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		claims := claimtest.NewClient(t, server.Host(t), etcdclaims.Config{Owner: "w"})
		s, err := sched.New(claims, sched.Config{Group: "billing", Now: func() time.Time { return time.Now().Add(2 * time.Hour) }})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Add(sched.Job{
			Name: "fast", Overdue: time.Minute, Schedule: calendar.Must(calendar.Every(time.Minute, 0)),
			Handler: func(context.Context, sched.Tick) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(5 * time.Minute)
		e := &Examination{
			Claims: claimtest.NewClient(t, server.Host(t), etcdclaims.Config{Owner: "reader"}), Commands: Commands{Claimctl: "claimctl"},
			Limit: 100, Leases: 100, Patience: 5 * time.Second, Answer: 2 * time.Second,
		}
		e.groups(t.Context())
		e.has(t, Warning, "jobs", `"fast" of group "billing": the high-water mark 2000-01-01T02:05:00Z is ahead of the clock by `)
		if len(e.Findings) != 1 || !slices.Equal(e.Findings[0].Commands, []string{"claimctl sched show -g billing fast", "claimctl sched reset -g billing fast"}) {
			t.Errorf("%+v", e.Findings)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// While an owner is elected, callers are in line for it: no finding.
func TestOwnerBeingElected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := examineVirtually(t)
		s, err := sched.New(e.Claims, sched.Config{Group: "billing"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Add(sched.Job{
			Name: "j", Schedule: calendar.Must(calendar.Every(time.Hour, 0)),
			Handler: func(context.Context, sched.Tick) error { return nil },
		}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		time.AfterFunc(patience/2, func() {
			if _, err := e.etcd().Put(t.Context(), e.Claims.OwnKey("sched/billing/owner"), `{"v":1,"owner":"w"}`); err != nil {
				t.Error(err)
			}
		})
		e.groups(t.Context())
		e.has(t, OK, "jobs", "1 in 1 group, none paused for long")
		if took := time.Since(begun); took < patience {
			t.Errorf("it was not read again: it took %s", took)
		}
	})
}

// Work that another process begins a moment later is not orphaned.
func TestWorkBegunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := examineVirtually(t)
		ctx := t.Context()
		for _, key := range []string{"begun", "left"} {
			if _, err := testwork.Of(e.Claims).TryBegin(ctx, key); err != nil {
				t.Fatal(err)
			}
			if _, err := e.etcd().Delete(ctx, e.Claims.OwnKey(key)); err != nil { // as when its lease ends
				t.Fatal(err)
			}
		}
		time.AfterFunc(patience/2, func() {
			if _, err := testwork.Of(e.Claims).TryBegin(ctx, "begun"); err != nil {
				t.Error(err)
			}
		})
		e.work(ctx)
		e.has(t, Warning, "work", "1 orphaned, their owners died: left")
	})
}

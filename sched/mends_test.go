package sched_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// A passthrough scheduler keeps to the Limit, and begins the oldest ticks first.
func TestPassthroughLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		s, err := sched.New(without(t), sched.Config{Group: "default", Limit: 1})
		noErr(t, err)
		for i := range 5 {
			noErr(t, s.Add(sched.Job{
				Name: fmt.Sprint(i), Schedule: calendar.Must(calendar.Every(time.Minute, time.Duration(5-i)*time.Second)), Overlap: sched.BufferAll{},
				Handler: l.record("me", func(context.Context, sched.Tick) error { time.Sleep(15 * time.Second); return nil }),
			}))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		noErr(t, s.Run(ctx))
		all := l.all("")
		if most := atMost(all); most != 1 || len(all) < 30 {
			t.Errorf("%d runs, %d at once", len(all), most)
		}
		if !slices.IsSortedFunc(all, func(a, b deed) int { return a.Nominal.Compare(b.Nominal) }) {
			t.Errorf("not the oldest first: %v", all)
		}
	})
}

// With a Limit the oldest ticks begin first, whichever their job.
func TestOldestFirst(t *testing.T) {
	for _, overlap := range []sched.Overlap{sched.BufferAll{}, sched.Allow{}} {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.cfg.Limit = 1
			for i := range 20 {
				f.do(sched.Job{Name: fmt.Sprint(i), Schedule: calendar.Must(calendar.Every(time.Minute, time.Duration(20-i)*time.Second)), Overlap: overlap}, 10*time.Second)
			}
			f.start(0)
			f.until("00:10:00")
			all := f.ledger.all("")
			if most := atMost(all); most != 1 || len(all) < 40 {
				t.Errorf("%d runs, %d at once", len(all), most)
			}
			if !slices.IsSortedFunc(all, func(a, b deed) int { return a.Nominal.Compare(b.Nominal) }) {
				t.Errorf("%T: not the oldest first: %v", overlap, all)
			}
		})
	}
}

// Backfill refuses years that JSON cannot write.
func TestFarYears(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: rarely}, 0)
		f.start(0)
		f.until("00:00:10")
		epoch := time.Unix(0, 0)
		for _, tt := range []struct{ from, to time.Time }{
			{epoch, time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)},
			{epoch, time.Unix(1<<60, 0)},
			{time.Unix(-1<<60, 0), epoch},
			{time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC), epoch},
			{epoch, time.Date(9999, 12, 31, 23, 30, 0, 0, time.FixedZone("", -3600))},
		} {
			if _, err := f.console().Backfill(t.Context(), "a", tt.from, tt.to, nil); err == nil || !strings.Contains(err.Error(), "1 to 9999") {
				t.Errorf("from %v to %v: %v", tt.from, tt.to, err)
			}
		}
		noErr(t, second(f.console().Backfill(t.Context(), "a", time.Time{}, time.Time{}.Add(72*time.Hour), nil)))
		noErr(t, second(f.console().Backfill(t.Context(), "a", time.Date(2399, 12, 30, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), nil)))
		f.until("00:00:20")
		if n := len(f.ledger.all("a")); n != 4 {
			t.Errorf("%d runs", n)
		}
	})
}

// Cancel is not held up by a backfill whose ticks come and go, and nothing of it
// begins afterwards.
func TestCancelBesideBackfill(t *testing.T) {
	for _, overlap := range []sched.Overlap{sched.BufferAll{}, sched.Allow{}} {
		for _, spread := range []bool{false, true} {
			caseInFleet(t, fmt.Sprintf("%T spread %v", overlap, spread), func(t *testing.T, f *fleet) {
				f.cfg.Spread, f.cfg.Limit = spread, 20 // in virtual time nothing else limits it
				f.do(sched.Job{Name: "a", Schedule: minutely, History: 5}, 200*time.Millisecond)
				f.start(0)
				f.start(0)
				f.until("00:00:10")
				rounds := 2
				if testing.Short() {
					rounds = 1
				}
				for range rounds {
					noErr(t, second(f.console().Backfill(t.Context(), "a", time.Now().AddDate(-1, 0, 0), time.Now(), overlap)))
					time.Sleep(2 * time.Second)
					noErr(t, f.console().Cancel(t.Context(), "a", "enough"))
					cancelled := time.Now()
					time.Sleep(time.Second)
					all := f.ledger.all("a")
					if len(all) == 0 || all[len(all)-1].From.After(cancelled) {
						t.Errorf("%T: cancelled at %v, %d runs, the last %v", overlap, cancelled, len(all), all[len(all)-1])
					}
					if i := f.inspect("a"); len(i.Waiting)+len(i.Running) > 0 {
						t.Errorf("%T: %v are left", overlap, i)
					}
					left := func() int { return len(f.under("/ready/")) + len(f.under("/ask/")) }
					for waited := 0; left() > 0 && waited < 10; waited++ { // the owner records them in its turn
						time.Sleep(time.Second)
					}
					if n := left(); n > 0 {
						t.Errorf("%T: %d keys are left", overlap, n)
					}
				}
			})
		}
	}
}

// Cancel without an owner takes effect at once: what waited is begun by nobody, and
// recorded by the next owner, as many records as the job keeps.
func TestCancelWithinHistory(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(time.Second, 0)), History: 5, Overlap: sched.BufferAll{}}, time.Hour)
		f.start(0)
		for range 5 {
			time.Sleep(50 * time.Second)
			noErr(t, f.console().Cancel(t.Context(), "a", "x"))
		}
		time.Sleep(2500 * time.Millisecond) // the end of the cancelled run and the Cancel do not know each other's records
		f.owner().stop()
		noErr(t, f.console().Cancel(t.Context(), "a", "nobody is there"))
		if i := f.inspect("a"); len(i.Waiting) != 0 {
			t.Errorf("%d wait", len(i.Waiting))
		}
		before := f.ledger.all("a")
		noErr(t, f.console().Pause(t.Context(), "a", ""))
		f.start(0)
		time.Sleep(time.Minute)
		if all := f.ledger.all("a"); len(all) != len(before) {
			t.Errorf("%d were begun that were cancelled", len(all)-len(before))
		}
		if n := len(f.under("/past/")); n > 5 {
			t.Errorf("%d records: %v", n, f.under("/past/"))
		}
	})
}

// Forget removes what is left of a job that no process has any more: runs that died,
// too, but none that goes on.
func TestForget(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, time.Second)
		f.do(sched.Job{
			Name: "b", Schedule: calendar.Must(calendar.Every(time.Second, 0)), Overlap: sched.Allow{},
			Limits: map[string]int{"1": 1000, "2": 1000, "3": 1000, "4": 1000},
		}, time.Hour)
		f.until("00:00:10")
		old := f.start(0)
		f.until("00:01:10")
		s := f.console()
		wantIs(t, s.Forget(t.Context(), "b"), sched.ErrStillRunning)
		wantIs(t, s.Forget(t.Context(), "c"), sched.ErrUnknownJob)
		noErr(t, s.Pause(t.Context(), "b", ""))
		noErr(t, s.Cancel(t.Context(), "a", ""))
		f.jobs = f.jobs[:1]
		f.start(0)
		f.until("00:01:20")
		old.kill()
		f.until("00:02:00") // soon after their claims have ended
		if i := f.inspect("b"); len(i.Running) < 50 {
			t.Errorf("%d run: this tests nothing", len(i.Running))
		}
		for _, of := range []string{"J/1", "J.backfill/backfill/1"} { // notes that their runs have left
			noErr(t, second(f.etcd.Put(t.Context(), f.keyOf("b", "now/stuck/"+of), `{"v":1,"job":"b"}`)))
		}
		noErr(t, s.Forget(t.Context(), "b"))
		f.until("00:10:00")
		for _, k := range f.under("") {
			if strings.Contains(k.value, `"job":"b"`) {
				t.Errorf("left: %s %s", k.name, k.value)
			}
		}
		wantIs(t, s.Forget(t.Context(), "b"), sched.ErrUnknownJob)
		_, err := s.Inspect(t.Context(), "b")
		wantIs(t, err, sched.ErrUnknownJob)
		f.until("00:10:30")
		noErr(t, s.Forget(t.Context(), "a")) // an owner has it, and makes it a new job when it is due
		f.until("00:12:30")
		f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00", "00:04:00", "00:05:00", "00:06:00", "00:07:00", "00:08:00", "00:09:00",
			"00:10:00", "00:12:00")
		if i := f.inspect("a"); i.Since.Format("15:04") != "00:11" {
			t.Errorf("%+v", i)
		}
	})
}

// logged lets a scheduler's log be read.
func (f *fleet) logged() *observer.ObservedLogs {
	core, logs := observer.New(zapcore.InfoLevel)
	f.cfg.Logger = zap.New(core)
	return logs
}

// What is as it should be is no warning, and each line names its keys.
func TestLog(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		logs := f.logged()
		f.do(sched.Job{Name: "slow", Schedule: minutely}, 90*time.Second)
		f.do(sched.Job{Name: "bad", Schedule: minutely, PauseOnFailure: 2, Handler: func(context.Context, sched.Tick) error { return errors.New("no disk") }}, 0)
		f.do(sched.Job{Name: "deaf", Schedule: calendar.Must(calendar.Every(time.Hour, time.Minute)), Timeout: 10 * time.Second, Handler: func(context.Context, sched.Tick) error {
			time.Sleep(2 * time.Minute)
			return nil
		}}, 0)
		n := f.start(0)
		f.until("00:04:30")
		f.server.Delete(t, "/p/own/sched/default/owner")
		f.until("00:05:30")
		for message, want := range map[string]struct {
			level zapcore.Level
			n     int
			about string
		}{
			"group ownership acquired":                         {zapcore.InfoLevel, 2, "owner"},
			"group ownership lost":                             {zapcore.WarnLevel, 1, "owner"},
			"tick skipped":                                     {zapcore.InfoLevel, 2, "slow"},
			"run ended with an error":                          {zapcore.WarnLevel, 2, "bad"},
			"job paused: too many of its runs failed in a row": {zapcore.WarnLevel, 1, "bad"},
			"handler did not return after its context ended":   {zapcore.WarnLevel, 1, "deaf"},
			"run lost": {zapcore.WarnLevel, 1, "deaf"},
		} {
			found := logs.FilterMessage(message).All()
			if len(found) != want.n {
				t.Errorf("%s: %d lines, want %d", message, len(found), want.n)
			}
			for _, line := range found {
				fields := line.ContextMap()
				key, _ := fields["key"].(string)
				if line.Level != want.level || fields["group"] != "default" || key == "" || fields["job"] != want.about && !strings.Contains(key, want.about) {
					t.Errorf("%s at level %v: %v", message, line.Level, fields)
				}
			}
		}
		n.stop()
	})
}

// Run returns what etcd says if it does not permit what a scheduler needs: at once,
// or a little after the permission was taken away.
func TestPermissionDenied(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for leases of six seconds")
	}
	t.Parallel()
	server := testetcd.Start(t, testetcd.NoSync())
	plain, ctx := server.Client(t), t.Context()
	for _, user := range []string{"root", "worker", "nobody"} {
		noErr(t, second(plain.UserAdd(ctx, user, "secret")))
	}
	noErr(t, second(plain.UserGrantRole(ctx, "root", "root")))
	noErr(t, second(plain.RoleAdd(ctx, "worker")))
	noErr(t, second(plain.RoleGrantPermission(ctx, "worker", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))))
	noErr(t, second(plain.UserGrantRole(ctx, "worker", "worker")))
	noErr(t, second(plain.AuthEnable(ctx)))
	as := func(user string) *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints(), Username: user, Password: "secret", Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
		noErr(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	run := func(user string) (*atomic.Int64, chan error) {
		claims, err := etcdclaims.New(as(user), etcdclaims.Config{Prefix: prefix, TTL: 6 * time.Second})
		noErr(t, err)
		t.Cleanup(func() { _ = claims.Close(context.Background()) })
		s, err := sched.New(claims, sched.Config{Group: "default"})
		noErr(t, err)
		var ran atomic.Int64
		noErr(t, s.Add(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(100*time.Millisecond, 0)), Handler: func(context.Context, sched.Tick) error { ran.Add(1); return nil }}))
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		return &ran, done
	}
	ended := func(done chan error) {
		select {
		case err := <-done:
			if !errors.Is(err, rpctypes.ErrPermissionDenied) || !errors.Is(err, etcdclaims.ErrPermissionDenied) || !strings.Contains(err.Error(), `group "default"`) {
				t.Errorf("%v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("it goes on")
		}
	}
	_, done := run("nobody")
	ended(done)
	ran, done := run("worker")
	for ran.Load() < 3 {
		time.Sleep(10 * time.Millisecond)
	}
	noErr(t, second(as("root").UserRevokeRole(ctx, "worker", "worker")))
	ended(done)
}

// coded is an error by code. It has no text if it is nil, as a nil pointer in an error is
// not a nil error.
type coded struct{ code string }

func (c *coded) Error() string { return "code " + c.code }

// An error that cannot be printed fails its run, and not the process.
func TestErrorThatPanics(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, Handler: func(_ context.Context, tick sched.Tick) error {
			var failed *coded
			if tick.Nominal.Minute() > 1 {
				failed = &coded{"42"}
			}
			return failed
		}}, 0)
		f.start(0)
		f.until("00:02:30")
		all := f.entries("a")
		if len(all) != 2 || all[0].Outcome != sched.OutcomeFailed || !strings.Contains(all[0].Error, "nil") || all[1].Error != "code 42" {
			t.Errorf("%v", all)
		}
	})
}

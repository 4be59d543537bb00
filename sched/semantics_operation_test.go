package sched_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// The thirty semantics, twenty-three to thirty: operations and promises.

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A pause is kept in etcd, with who and why; what was due meanwhile is not missed.
func TestSemantic23PauseResume(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, CatchUp: sched.All{}, Overlap: sched.BufferAll{}}, 0)
		f.start(0)
		f.start(0)
		f.until("00:01:30")
		noErr(t, f.console().Pause(t.Context(), "a", "the disk is full"))
		wantIs(t, f.console().Pause(t.Context(), "a", "again"), sched.ErrUnchanged)
		f.until("00:03:30")
		f.owner().stop() // outlives its owner
		f.until("00:05:30")
		if p := f.inspect("a").Paused; p == nil || p.By != "operator" || p.Note != "the disk is full" || p.At.IsZero() || !f.inspect("a").Next.IsZero() {
			t.Errorf("%+v", p)
		}
		noErr(t, f.console().Resume(t.Context(), "a"))
		wantIs(t, f.console().Resume(t.Context(), "a"), sched.ErrUnchanged)
		f.until("00:07:30")
		f.ledger.want(t, "a", "00:01:00", "00:06:00", "00:07:00")
		for _, d := range f.ledger.all("a") {
			if d.Missed != 0 {
				t.Errorf("%v was told of %d missed", d, d.Missed)
			}
		}
		wantIs(t, f.console().Pause(t.Context(), "b", ""), sched.ErrUnknownJob)

		// A job that this process has, and that no owner has registered, is another case.
		s := f.console()
		says := func(want string) {
			t.Helper()
			_, err := s.RunNow(t.Context(), "b")
			wantIs(t, err, sched.ErrUnknownJob)
			if !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%q, want %q", err, want)
			}
		}
		says(`sched: run job "b": no such job in group "default"`)
		noErr(t, s.Add(sched.Job{Name: "b", Schedule: minutely, Handler: func(context.Context, sched.Tick) error { return nil }}))
		says(`sched: run job "b": no such job in group "default" so far: this process has it, but no owner`)
	})
	t.Run("on failure", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely, PauseOnFailure: 3, Handler: func(_ context.Context, tick sched.Tick) error {
				if m := tick.Nominal.Minute(); m == 3 || m == 8 {
					return nil
				}
				return errors.New("no disk")
			}}, 0)
			f.start(0)
			f.until("00:09:30")
			f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00", "00:04:00", "00:05:00", "00:06:00")
			p := f.inspect("a").Paused
			if p == nil || p.By != "sched" || !strings.Contains(p.Note, "3 runs failed in a row") || !strings.Contains(p.Note, "no disk") {
				t.Errorf("%+v", p)
			}
			noErr(t, f.console().Resume(t.Context(), "a"))
			f.until("00:11:30")
			f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00", "00:04:00", "00:05:00", "00:06:00", "00:10:00", "00:11:00")
			if n := f.inspect("a").Failures; n != 2 {
				t.Errorf("%d failures", n)
			}
		})
	})
}

// A run that is asked for is beside the schedule.
func TestSemantic24RunNow(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(5*time.Minute, 0))}, 10*time.Second)
		f.start(0)
		f.start(0)
		f.until("00:01:00")
		before := f.inspect("a")
		id, err := f.console().RunNow(t.Context(), "a")
		noErr(t, err)
		f.until("00:01:05")
		if i := f.inspect("a"); i.High != before.High || i.Next != before.Next || len(i.Running) != 1 || i.Running[0].ID != id {
			t.Errorf("%+v, then %+v", before, i)
		}
		_, err = f.console().RunNow(t.Context(), "a") // while it runs: Skip
		noErr(t, err)
		f.until("00:02:00")
		deeds := f.ledger.all("a")
		if len(deeds) != 1 || deeds[0].ID() != id || !deeds[0].Manual || !strings.HasPrefix(id, "default/a/manual/") {
			t.Errorf("%v, want %s", deeds, id)
		}
		if got := f.entries("a"); len(got) != 2 || got[0].Outcome != sched.OutcomeSkipped || got[1].Outcome != sched.OutcomeOK || got[1].ID != id {
			t.Errorf("%v", got)
		}
		noErr(t, f.console().Pause(t.Context(), "a", ""))
		_, err = f.console().RunNow(t.Context(), "a")
		noErr(t, err)
		f.until("00:03:00")
		if n := len(f.ledger.all("a")); n != 2 {
			t.Errorf("%d runs; a pause is of the schedule", n)
		}
		noErr(t, f.console().Resume(t.Context(), "a"))
		f.until("00:05:30")
		if d := f.ledger.all("a"); len(d) != 3 || d[2].Nominal.Format(time.TimeOnly) != "00:05:00" {
			t.Errorf("%v", d)
		}
	})
}

// The expression @reboot is RunOnStart, and due at no other time.
func TestReboot(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Cron("@reboot"))}, 0)
		for range 3 {
			f.start(0)
			time.Sleep(10 * time.Minute)
			f.owner().stop()
		}
		if d := f.ledger.all("a"); len(d) != 1 || !strings.HasPrefix(d[0].ID(), "default/a/start/") {
			t.Fatalf("%v", d)
		}
	})
}

// RunOnStart is once for each revision of the job, and not for each process or
// owner.
func TestSemantic25RunOnStart(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		hourly := calendar.Must(calendar.Every(time.Hour, 0))
		version := func(rev string) {
			f.jobs = nil
			f.do(sched.Job{Name: "a", Schedule: hourly, RunOnStart: true, Revision: rev}, 0)
		}
		version("1")
		f.start(0)
		f.start(0)
		for range 3 {
			time.Sleep(time.Minute)
			f.start(0)
			time.Sleep(time.Minute)
			f.owner().stop()
		}
		if d := f.ledger.all("a"); len(d) != 1 || !d[0].Manual || !strings.HasPrefix(d[0].ID(), "default/a/start/") {
			t.Fatalf("%v", d)
		}
		version("2")
		f.start(0)
		for f.owner() == nil || f.owner() != f.nodes[len(f.nodes)-1] {
			time.Sleep(time.Minute)
			if o := f.owner(); o != nil && o != f.nodes[len(f.nodes)-1] {
				o.stop()
			}
		}
		time.Sleep(time.Minute)
		if d := f.ledger.all("a"); len(d) != 2 {
			t.Fatalf("%v", d)
		}
		version("1") // a deployment that is rolled back
		f.start(0)
		f.nodes[len(f.nodes)-2].stop()
		time.Sleep(time.Minute)
		if d := f.ledger.all("a"); len(d) != 2 {
			t.Errorf("%v", d)
		}
	})
}

// A schedule that changes begins anew: the mark is raised to that time.
func TestSemantic26ScheduleChange(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, CatchUp: sched.All{}, Overlap: sched.BufferAll{}}, 0)
		first := f.start(0)
		f.until("00:02:30")
		first.stop()
		f.until("00:10:20")
		f.jobs = nil
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(time.Minute, 30*time.Second)), CatchUp: sched.All{}, Overlap: sched.BufferAll{}}, 0)
		second := f.start(0)
		f.until("00:11:45")
		f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:10:30", "00:11:30")
		second.stop()
		// The policies are no part of what a schedule is.
		f.jobs[0].CatchUp, f.jobs[0].Timeout = sched.Latest{}, time.Minute
		f.until("00:12:45")
		f.start(0)
		f.until("00:13:45")
		f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:10:30", "00:11:30", "00:12:30", "00:13:30")
		if i := f.inspect("a"); i.CatchUp != "latest" || i.Since.Format("15:04") != "00:10" || i.Schedule != "@every 1m0s +30s" {
			t.Errorf("%+v", i)
		}
	})
}

// The last records of a job are kept, as many as it says.
func TestSemantic27History(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.cfg.Spread = true
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(time.Second, 0)), History: 7, Overlap: sched.Allow{}}, 100*time.Millisecond)
		f.do(sched.Job{Name: "b", Schedule: calendar.Must(calendar.Every(time.Second, 0)), History: 3}, 3500*time.Millisecond)
		for range 3 {
			f.start(0)
		}
		f.until("00:02:00.500")
		for job, want := range map[string]int{"a": 7, "b": 3} {
			entries := f.entries(job)
			if len(entries) < want || len(entries) > want+4 {
				t.Errorf("%s has %d records, want %d", job, len(entries), want)
			}
			for _, e := range entries {
				if e.Job != job || e.Ended.Before(time.Now().Add(-15*time.Second)) || e.Outcome == "" || e.Nominal.IsZero() || e.ID == "" {
					t.Errorf("%+v", e)
				}
				if e.Outcome == sched.OutcomeOK && (e.Fence == 0 || e.Owner == "" || e.Instance == "" || e.Attempt != 1 || e.Began.IsZero()) {
					t.Errorf("%+v", e)
				}
			}
		}
		if last := f.inspect("a").Last; last == nil || last.Outcome != sched.OutcomeOK {
			t.Errorf("%v", last)
		}
	})
}

// As many records are kept whatever the Overlap, where nothing is ever left out.
func TestHistoryIsTrimmed(t *testing.T) {
	for _, overlap := range overlaps {
		caseInFleet(t, fmt.Sprintf("%T", overlap), func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(10*time.Second, 0)), History: 3, Overlap: overlap}, time.Second)
			f.start(0)
			ticks := 20 + someOf(80)
			time.Sleep(time.Duration(ticks)*10*time.Second + 5*time.Second)
			if n := len(f.ledger.all("a")); n != ticks {
				t.Errorf("%T: %d runs, want %d", overlap, n, ticks)
			}
			if n := len(f.under("/past/")); n < 3 || n > 4 {
				t.Errorf("%T: %d records, want 3", overlap, n)
			}
		})
	}
}

// While it cannot be known who the owner is, nothing is run.
func TestSemantic28FailClosed(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		n := f.start(0)
		f.until("00:01:30")
		n.host.Inject(claimtest.Fault{Times: -1, Code: codes.Unavailable})
		f.until("00:20:30")
		f.ledger.want(t, "a", "00:01:00")
		n.host.RemoveFaults()
		f.until("00:22:30")
		f.ledger.want(t, "a", "00:01:00", "00:20:00", "00:21:00", "00:22:00")
		n.host.Inject(claimtest.Fault{Times: -1, LoseReply: true}) // etcd does it all, and tells nobody
		f.until("00:40:30")
		n.host.RemoveFaults()
		f.until("00:45:30")
		f.ledger.once(t)
		if d := f.ledger.all("a"); d[len(d)-1].Nominal.Format(time.TimeOnly) != "00:45:00" {
			t.Errorf("%v", d)
		}
	})
}

// Who an owner is does not depend on names: two processes with one label exclude
// each other.
func TestSemantic29OwnerIdentity(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 5*time.Millisecond)
		f.label = "web-1"
		for range 3 {
			f.start(0)
		}
		f.until("00:05:30")
		f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00", "00:04:00", "00:05:00")
		owners := 0
		for _, n := range f.nodes {
			if n.sched.IsOwner() {
				owners++
			}
		}
		if owners != 1 {
			t.Errorf("%d owners", owners)
		}
	})
}

// What no fence protects is given the tick's id, which is the same for each of its
// attempts; what a fence protects refuses the earlier one.
func TestSemantic30Contract(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(5*time.Minute, 0)), Guarantee: sched.AtLeastOnce}, 10*time.Second)
		f.start(0)
		f.start(0)
		f.until("00:05:05")
		dead := f.owner()
		dead.kill()
		f.until("00:06:00")
		deeds := f.ledger.all("a")
		if len(deeds) != 2 || deeds[0].ID() != deeds[1].ID() || deeds[0].Attempt != 1 || deeds[1].Attempt != 2 {
			t.Fatalf("%v", deeds)
		}
		for i, want := range []bool{false, false} {
			ok, err := f.nodes[0].claims.Owns(t.Context(), deeds[i].Token)
			if n := f.nodes[1]; n != dead {
				ok, err = n.claims.Owns(t.Context(), deeds[i].Token)
			}
			if err != nil || ok != want {
				t.Errorf("%v owns: %v, %v", deeds[i], ok, err)
			}
		}
	})
}

// Cancel ends what runs and takes back what waits.
func TestCancel(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: sched.BufferAll{}}, time.Hour)
		f.start(0)
		f.until("00:03:30")
		_, err := f.console().Backfill(t.Context(), "a", time.Now().Add(-time.Hour), time.Now(), nil)
		noErr(t, err)
		f.until("00:03:35")
		noErr(t, f.console().Cancel(t.Context(), "a", "enough"))
		f.until("00:03:40")
		if i := f.inspect("a"); len(i.Running)+len(i.Waiting) != 0 {
			t.Errorf("%+v", i)
		}
		f.until("00:04:30")
		f.ledger.want(t, "a", "00:01:00", "00:04:00")
		wantIs(t, f.ledger.all("a")[0].Err, sched.ErrCancelled)
		got := f.entries("a")
		withdrawn := 0
		for _, e := range got {
			if e.Outcome == "cancelled" && e.Attempt == 0 {
				withdrawn += 1 + e.Missed
				if e.Admitted == 0 || e.Attempt != 0 || !strings.Contains(e.Error, "enough") {
					t.Errorf("%+v", e)
				}
			}
		}
		if withdrawn != 2+32 || len(got) > 30 || !slices.Contains(f.history("a"), "cancelled 00:01:00") {
			t.Errorf("%d withdrawn: %v", withdrawn, got)
		}
	})
	t.Run("asked for", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: rarely}, 0)
			n := f.start(0)
			f.until("00:00:10")
			n.stop()
			for range 200 {
				noErr(t, second(f.console().RunNow(t.Context(), "a")))
			}
			noErr(t, f.console().Cancel(t.Context(), "a", ""))
			if n := len(f.under("/ask/")); n != 0 {
				t.Errorf("%d are left", n)
			}
		})
	})
}

// An operation whose reply is lost is done once; one that comes late, not at all.
func TestOperationsUnderFaults(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(time.Hour, 0))}, 0)
		f.start(0)
		host := f.server.Host(t)
		s, err := sched.New(claimtest.NewClient(t, host, etcdclaims.Config{Prefix: prefix, Owner: "console", TTL: ttl}), sched.Config{Group: "default"})
		noErr(t, err)
		time.Sleep(time.Second)
		host.Inject(claimtest.Fault{On: steps.Take, LoseReply: true})
		_, err = s.RunNow(t.Context(), "a")
		noErr(t, err)
		time.Sleep(10 * time.Second)
		if n := len(f.ledger.all("a")); n != 1 {
			t.Errorf("%d runs", n)
		}
		hold := make(chan struct{})
		host.Inject(claimtest.Fault{On: steps.Take, Hold: hold})
		host.Inject(claimtest.Fault{On: steps.Resolve, Times: -1, LoseRequest: true})
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = s.RunNow(short, "a")
		wantIs(t, err, etcdclaims.ErrUnknown)
		host.RemoveFaults()
		time.Sleep(30 * time.Second) // it is made void
		close(hold)
		time.Sleep(30 * time.Second)
		if n := len(f.ledger.all("a")); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

// The jobs of a group are listed in etcd, for any process.
func TestJobs(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "b", Schedule: calendar.Must(calendar.Cron("TZ=Europe/Berlin 30 2 * * *")), Jitter: time.Minute}, 0)
		f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: sched.Allow{}, Guarantee: sched.AtLeastOnce}, 0)
		f.start(0)
		f.until("00:01:30")
		var names []string
		for i, err := range f.console().Jobs(t.Context()) {
			noErr(t, err)
			names = append(names, i.Job)
			if i.Next.IsZero() || i.Group != "default" {
				t.Errorf("%+v", i)
			}
		}
		if !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("%v", names)
		}
		if i := f.inspect("b"); i.Next.Format("15:04") != "01:30" {
			t.Errorf("%v", i)
		}
		_, err := f.console().Inspect(t.Context(), "c")
		wantIs(t, err, sched.ErrUnknownJob)
		resp, err := f.etcd.Get(t.Context(), prefix+"sched/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		noErr(t, err)
		if resp.Count != 5 { // two specs, two marks, one record
			t.Errorf("%d keys", resp.Count)
		}
	})
}

// A registration that cannot be read hides no other job. It is one error, also if the job is
// defined, and so known by its name.
func TestJobsBesideUnreadableOnes(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		for _, name := range []string{"a", "b", "c"} {
			f.do(sched.Job{Name: name, Schedule: minutely}, 0)
		}
		f.start(0)
		f.until("00:00:10")
		f.define(report("d"))
		f.until("00:00:20")
		for _, job := range []string{"a", "b", "d"} {
			noErr(t, second(f.etcd.Put(t.Context(), f.keyOf(job, "spec/J"), `{"v":99}`)))
		}
		var names []string
		failed := 0
		for i, err := range f.console().Jobs(t.Context()) {
			if err == nil {
				names = append(names, i.Job)
			} else if failed++; !strings.Contains(err.Error(), "/spec/") {
				t.Error(err)
			}
		}
		if !slices.Equal(names, []string{"c"}) || failed != 3 {
			t.Errorf("%v, and %d errors", names, failed)
		}
	})
}

// Jobs reads many jobs by one request. Jobs that are forgotten meanwhile are left out.
func TestJobsOfLargeGroup(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		const jobs = 40
		for i := range jobs {
			f.do(sched.Job{Name: fmt.Sprintf("job-%02d", i), Schedule: calendar.Must(calendar.Cron("30 2 * * *"))}, 0)
		}
		n := f.start(0)
		f.until("00:01:00")
		n.stop()
		host := f.server.Host(t)
		claims := claimtest.NewClient(t, host, etcdclaims.Config{Prefix: prefix, Owner: "reader", TTL: ttl})
		s, err := sched.New(claims, f.cfg)
		noErr(t, err)
		var names []string
		for i, err := range s.Jobs(t.Context()) {
			noErr(t, err)
			if names = append(names, i.Job); len(names) == 1 {
				noErr(t, f.console().Forget(t.Context(), "job-39"))
			}
			if i.Next.IsZero() || i.Job != fmt.Sprintf("job-%02d", len(names)-1) {
				t.Errorf("%d: %+v", len(names), i)
			}
		}
		if len(names) != jobs-1 {
			t.Errorf("%d jobs", len(names))
		}
		if sent := len(host.Sent(claimtest.Every)); sent == 0 || sent > 6 {
			t.Errorf("%d requests for %d jobs", sent, jobs)
		}
	})
}

// What cannot be read of one job is said, and keeps no other from its ticks; who
// can read nothing leaves the group to others.
func TestUnreadableJob(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		f.do(sched.Job{Name: "b", Schedule: minutely}, 0)
		n := f.start(0)
		f.until("00:01:30")
		n.stop()
		spec := f.under("/spec/")
		spoil := func(k key, value string) { noErr(t, second(f.etcd.Put(t.Context(), k.name, value))) }
		bad, good := "a", "b"
		if strings.Contains(spec[0].value, `"job":"b"`) {
			bad, good = good, bad
		}
		spoil(spec[0], `{"v":2}`)
		f.start(0)
		f.until("00:03:30")
		f.ledger.want(t, good, "00:01:00", "00:02:00", "00:03:00")
		f.ledger.want(t, bad, "00:01:00")
		spoil(spec[0], spec[0].value) // it is read again now and then
		f.until("00:04:30")
		f.ledger.want(t, bad, "00:01:00", "00:03:00", "00:04:00")
		for _, k := range spec {
			spoil(k, "{")
		}
		f.owner().stop()
		first := f.start(0)
		f.jobs = nil
		f.do(sched.Job{Name: "c", Schedule: minutely}, 0)
		f.start(0)
		f.until("00:06:30")
		if first.sched.IsOwner() || len(f.ledger.all("c")) == 0 {
			t.Errorf("it stays the owner; c ran at %v", f.ledger.nominals("c"))
		}
	})
}

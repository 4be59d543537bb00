package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

func TestWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, a := t.Context(), w.client("a")
	if out := w.ok("work", "ls", "-o", "json"); out != "[]\n" {
		t.Errorf("of nothing: %q", out)
	}
	job, err := testwork.Of(a).TryBegin(ctx, "k")
	w.noErr(err)
	w.fails(exitBusy, "held by a", "work", "retry", "k")
	_, err = job.Fail(ctx, etcdclaims.Permanent(errors.New("disk full")))
	w.noErr(err)
	if got := as[[]workView](w, "work", "ls", "--state", "dead,orphaned"); len(got) != 1 || got[0].Error != "disk full" || got[0].State != "dead" {
		t.Errorf("%+v", got)
	}
	if out := w.ok("work", "show", "k"); !strings.Contains(out, "disk full") {
		t.Errorf("show: %s", out)
	}
	w.fails(exitUsage, "not one of", "work", "ls", "--state", "gone")
	w.fails(exitFailure, "nothing is recorded", "work", "show", "never")
	w.ok("work", "retry", "k")
	if got := as[workView](w, "work", "show", "k"); got.State != "free" {
		t.Errorf("%+v", got)
	}
	w.fails(exitFailure, "", "work", "forget", "k", "--state", "dead", "--yes")
	w.ok("work", "forget", "k", "--yes")
	if got := as[[]workView](w, "work", "ls"); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestSched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := sched.New(w.client("a"), sched.Config{Group: "billing"})
	w.noErr(err)
	ran := make(chan string, 10)
	w.noErr(s.Add(sched.Job{
		Name: "invoices", Schedule: calendar.Must(calendar.Cron("30 2 1 1 *")),
		Handler: func(_ context.Context, tick sched.Tick) error { ran <- tick.ID(); return nil },
	}))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	g := []string{"-g", "billing"}
	on := func(args ...string) []string { return append(append([]string{"sched"}, args...), g...) }
	eventually(t, "the job is registered", func() bool {
		r := w.ctl(append(on("jobs"), "-o", "name")...)
		return r.out == "invoices\n"
	})
	w.namesGroups("billing")
	w.ok(on("pause", "invoices", "--why", "audit")...)
	w.fails(exitFailure, "paused", on("next", "invoices")...)
	if got := as[[]jobView](w, on("jobs")...); len(got) != 1 || !strings.Contains(got[0].Paused, "audit") || !got[0].Next.IsZero() {
		t.Errorf("%+v", got)
	}
	w.ok(on("resume", "invoices")...)
	w.fails(exitFailure, "not paused", on("resume", "invoices")...)
	for _, length := range []string{"0s", "-1h", "8784h0m1s"} {
		w.fails(exitUsage, "pause --for "+length, on("pause", "invoices", "--for="+length)...)
	}
	w.finds(w.ok(on("pause", "invoices", "--for", "2h")...), `paused "invoices" until 20`)
	shown := as[doneView](w, on("pause", "invoices", "--for", "3h", "--reason", "migration")...)
	got := as[[]jobView](w, on("jobs")...)
	if !shown.Until.Equal(got[0].Resumes) {
		t.Errorf("paused until %v, which is stored as %v", shown.Until, got[0].Resumes)
	}
	if left := time.Until(got[0].Resumes); left > 3*time.Hour || left < 3*time.Hour-time.Minute ||
		!strings.Contains(got[0].Paused, " until "+explain.Stamp(got[0].Resumes)+": migration") {
		t.Errorf("%+v", got)
	}
	w.finds(w.ok(on("show", "invoices")...), "paused by ", " until 20")
	if last := as[[]actionView](w, "audit")[0]; last.Detail != "for 3h0m0s" || last.Why != "migration" {
		t.Errorf("%+v", last)
	}
	w.ok(on("resume", "invoices")...)
	w.fails(exitUsage, "name a job, or give one of --all and --tag", on("pause", "invoices", "--all")...)
	w.fails(exitUsage, "name a job, or give one of --all and --tag", on("resume")...)
	w.finds(w.ok(on("pause", "--all", "--why", "freeze")...), "paused all jobs of billing")
	w.finds(w.ok(on("show", "invoices")...), "paused with the group by ", ": freeze")
	w.ok(on("pause", "--tag", "db", "--for", "1h")...)
	if last := as[[]actionView](w, "audit")[0]; last.Detail != "tag db for 1h0m0s" || last.Verb != "sched pause" {
		t.Errorf("%+v", last)
	}
	w.ok(on("resume", "--all")...)
	w.ok(on("resume", "--tag", "db")...)
	w.fails(exitFailure, "tag db is not paused", on("resume", "--tag", "db")...)
	if got := as[[]instantView](w, on("next", "invoices", "-n", "3")...); len(got) != 3 || got[0].Nominal.Minute() != 30 || got[2].Nominal.Year() != got[0].Nominal.Year()+2 {
		t.Errorf("%+v", got)
	}
	next := as[[]instantView](w, on("next", "invoices", "-n", "2")...)
	if r := w.ok(on("explain", "invoices", explain.Stamp(next[0].Nominal))...); !strings.Contains(r, "not due yet") {
		t.Error(r)
	}
	w.fails(exitFailure, "no such job", on("explain", "nothing", explain.Stamp(next[0].Nominal))...)
	w.fails(exitUsage, "INSTANT", on("explain", "invoices", "tomorrow")...)
	w.ok(on("run", "invoices")...)
	<-ran
	eventually(t, "the run is recorded", func() bool {
		got := as[[]entryView](w, on("history", "invoices")...)
		return len(got) == 1 && got[0].Outcome == "ok"
	})
	w.ok(on("backfill", "invoices", "--from", "2024-01-01T00:00:00Z", "--to", "2025-12-31T00:00:00Z")...)
	<-ran
	<-ran
	w.ok(on("cancel", "invoices")...)
	w.ok(on("show", "invoices")...)
	w.fails(exitUsage, "--from", on("backfill", "invoices")...)
	w.fails(exitFailure, "no such job", on("run", "nothing")...)
	w.fails(exitFailure, "no such job", on("history", "nothing")...)
	cancel()
	w.noErr(<-done)
	w.ok(on("forget", "invoices", "--yes")...)
	if got := as[[]jobView](w, on("jobs")...); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// namesGroups wants that sched jobs of a group without jobs names the others on the standard error,
// and that what scripts read stays as it is.
func (w *world) namesGroups(group string) {
	w.Helper()
	w.fails(exitUsage, "choose a group with -g (sched.Config.Group) from: "+group, "sched", "jobs", "-g", "")
	w.fails(exitUsage, "choose a group with -g (sched.Config.Group) from: "+group, "sched", "show", "-g", "", "invoices")
	w.fails(exitUsage, `sched jobs takes no argument; -g `+group+` lists the jobs of the group "`+group+`"`, "sched", "jobs", group)
	for _, g := range []string{"default", "typo"} {
		want := "claimctl: group \"" + g + "\" has no jobs; choose with -g from: " + group + "\n"
		if r := w.ctl("sched", "jobs", "-g", g); r.code != 0 || r.err != want {
			w.Errorf("%+v, want %q", r, want)
		}
		r := w.ctl("sched", "jobs", "-g", g, "-o", "json")
		var note struct {
			Note   string
			Groups []string
		}
		if err := json.Unmarshal([]byte(r.err), &note); err != nil || r.code != 0 || r.out != "[]\n" || note.Note == "" || !slices.Equal(note.Groups, []string{group}) {
			w.Errorf("%+v: %v", r, err)
		}
	}
}

func TestQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	w.fails(exitFailure, "no such queue", "queue", "stats", "mail")
	q, err := queue.New(w.client("a"), queue.Config{Name: "mail", HigherFirst: true, MaxTaken: 7})
	w.noErr(err)
	defer func() { w.noErr(q.Close(context.Background())) }()
	for _, id := range []string{"x", "y"} {
		_, err = q.Enqueue(ctx, queue.NewItem([]byte("to "+id), queue.ID(id)))
		w.noErr(err)
	}
	batch, err := q.TryClaim(ctx, 1)
	w.noErr(err)
	w.noErr(batch.Deliveries[0].Discard(ctx, "no such address"))
	var stats queueStats
	w.noErr(json.Unmarshal([]byte(w.ok("queue", "stats", "mail", "-o", "json")), &stats))
	if stats.Ready != 1 || stats.Dead != 1 || time.Since(stats.OldestReady) > time.Hour {
		t.Errorf("%+v", stats)
	}
	if out := w.ok("queue", "ls", "-o", "name"); out != "mail\n" {
		t.Errorf("ls: %q", out)
	}
	dead := as[[]itemView](w, "queue", "dead", "ls", "mail")
	if len(dead) != 1 || dead[0].Where != "dead" || !strings.Contains(dead[0].Why, "no such address") {
		t.Fatalf("%+v", dead)
	}
	if out := w.ok("queue", "show", "mail", dead[0].ID); !strings.Contains(out, "to "+dead[0].ID) {
		t.Errorf("show: %s", out)
	}
	w.fails(exitFailure, "no such item", "queue", "dead", "redrive", "mail", "z")
	w.ok("queue", "dead", "redrive", "mail", dead[0].ID)
	w.ok("queue", "dead", "redrive-all", "mail")
	if got := as[[]itemView](w, "queue", "waiting", "mail"); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	w.ok("queue", "pause", "mail", "--why", "audit")
	if out := w.ok("queue", "stats", "mail"); !strings.Contains(out, "by operator") || !strings.Contains(out, "audit") {
		t.Errorf("stats: %s", out)
	}
	w.fails(exitUsage, "pause --for 0s", "queue", "pause", "mail", "--for", "0s")
	w.fails(exitFailure, "paused already", "queue", "pause", "mail", "--for", "1h")
	w.ok("queue", "resume", "mail")
	for _, length := range []string{"1h", "2h"} {
		w.finds(w.ok("queue", "pause", "mail", "--for", length, "--reason", "migration"), `paused "mail" until 20`)
	}
	shown := as[doneView](w, "queue", "pause", "mail", "--for", "2h", "--reason", "migration")
	st := as[queueStats](w, "queue", "stats", "mail")
	if !shown.Until.Equal(st.Resumes) {
		t.Errorf("paused until %v, which is stored as %v", shown.Until, st.Resumes)
	}
	if left := time.Until(st.Resumes); left > 2*time.Hour || left < 2*time.Hour-time.Minute ||
		!strings.Contains(st.Paused, " until "+explain.Stamp(st.Resumes)+": migration") {
		t.Errorf("%+v", st)
	}
	w.ok("queue", "resume", "mail")
	w.ok("queue", "cancel", "mail", "x", "--yes")
	if out := w.ok("queue", "taken", "mail", "-o", "json"); out != "[]\n" {
		t.Errorf("taken: %q", out)
	}
}

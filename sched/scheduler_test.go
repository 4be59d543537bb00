package sched_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/sched"
)

func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		cfg  sched.Config
		says string
	}{
		{sched.Config{}, "Group is required: it names the service whose processes run these jobs"},
		{sched.Config{Group: "a/b"}, "slash"},
		{sched.Config{Group: "a\n"}, "control characters"},
		{sched.Config{Group: strings.Repeat("x", 201)}, "201 bytes"},
		{sched.Config{Group: "default", Limit: -1}, "Limit -1"},
		{sched.Config{Group: "default", Grace: -1}, "Grace -1ns"},
	} {
		_, err := sched.New(without(t), tt.cfg)
		if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.HasPrefix(err.Error(), "sched: config: ") {
			t.Errorf("%v, want %q", err, tt.says)
		}
	}
	s, err := sched.New(without(t), sched.Config{Group: "default"})
	noErr(t, err)
	good := sched.Job{Name: "a", Schedule: minutely, Handler: nothing}
	noErr(t, s.Add(good))
	for says, change := range map[string]func(*sched.Job){
		"was added before":               func(*sched.Job) {},
		"is empty":                       func(j *sched.Job) { j.Name = "" },
		"201 bytes":                      func(j *sched.Job) { j.Name = strings.Repeat("x", 201) },
		"control characters":             func(j *sched.Job) { j.Name = "\x00" },
		"ends with /after":               func(j *sched.Job) { j.Name = "a/after" }, // Tick.ID is unique in the cluster
		"no Schedule":                    func(j *sched.Job) { j.Schedule = nil },
		"no Handler":                     func(j *sched.Job) { j.Handler = nil },
		"Guarantee(7)":                   func(j *sched.Job) { j.Guarantee = 7 },
		"MaxStarts -1 is negative":       func(j *sched.Job) { j.MaxStarts = -1 },
		"PauseOnFailure -1 is negative":  func(j *sched.Job) { j.PauseOnFailure = -1 },
		"Timeout -1ns is negative":       func(j *sched.Job) { j.Timeout = -1 },
		"StartDeadline -1ns is negative": func(j *sched.Job) { j.StartDeadline = -1 },
		"can use up":                     func(j *sched.Job) { j.StartDeadline, j.Jitter = time.Second, time.Second },
		"History 1001":                   func(j *sched.Job) { j.History = 1001 },
		"All{Max: -1":                    func(j *sched.Job) { j.CatchUp = sched.All{Max: -1} },
		"Window: -1ns":                   func(j *sched.Job) { j.CatchUp = sched.All{Window: -1} },
		"the Overlap skip would":         func(j *sched.Job) { j.CatchUp = sched.All{Max: 2} },
		"the Overlap buffer-one would":   func(j *sched.Job) { j.CatchUp, j.Overlap = sched.All{}, sched.BufferOne{} },
		"the Overlap cancel-running":     func(j *sched.Job) { j.CatchUp, j.Overlap = sched.All{}, sched.CancelRunning{} },
		"lets only 99 wait":              func(j *sched.Job) { j.CatchUp, j.Overlap = sched.All{}, sched.BufferAll{Max: 99} },
		"BufferAll{Max: -1":              func(j *sched.Job) { j.Overlap = sched.BufferAll{Max: -1} },
	} {
		j := good
		change(&j)
		if err := s.Add(j); err == nil || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), "sched: add job ") {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// Without etcd the jobs run in this process, with the same policies.
func TestPassthrough(t *testing.T) {
	for _, tt := range []struct {
		overlap sched.Overlap
		want    []string
	}{
		{nil, []string{"00:01:00", "00:04:00"}},
		{sched.BufferOne{}, []string{"00:01:00", "00:02:00"}},
		{sched.BufferAll{Max: 1}, []string{"00:01:00", "00:02:00"}},
		{sched.Allow{}, []string{"00:01:00", "00:02:00", "00:03:00", "00:04:00", "00:05:00"}},
		{sched.CancelRunning{}, []string{"00:01:00", "00:02:00", "00:03:00", "00:04:00", "00:05:00"}},
	} {
		t.Run(fmt.Sprintf("%T", tt.overlap), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := sched.New(without(t), sched.Config{Group: "default"})
				noErr(t, err)
				var l ledger
				time.Sleep(time.Second)
				noErr(t, s.Add(sched.Job{Name: "a", Schedule: minutely, Overlap: tt.overlap, RunOnStart: true, Handler: l.record("me", func(ctx context.Context, tick sched.Tick) error {
					if tick.Manual {
						return nil
					}
					select {
					case <-time.After(150 * time.Second):
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				})}))
				ctx, cancel := context.WithTimeout(t.Context(), 309*time.Second)
				defer cancel()
				noErr(t, s.Run(ctx))
				if !s.Passthrough() || s.IsOwner() {
					t.Error("it is no passthrough scheduler")
				}
				deeds := l.all("a")
				var got []string
				for _, d := range deeds[1:] {
					got = append(got, d.Nominal.Format(time.TimeOnly))
					if d.Fence != 0 || d.Token.Fence != 0 || d.Admitted != 0 {
						t.Errorf("%+v", d)
					}
				}
				if !deeds[0].Manual || !slices.Equal(got, tt.want) {
					t.Errorf("ran at %v, want %v", got, tt.want)
				}
				wantIs(t, deeds[len(deeds)-1].Err, sched.ErrStopped)
				wantIs(t, s.Pause(t.Context(), "a", ""), etcdclaims.ErrPassthrough)
				i, err := s.Inspect(t.Context(), "a")
				if err != nil || i.Next.IsZero() {
					t.Errorf("%+v, %v", i, err)
				}
			})
		})
	}
}

// When it is stopped, a scheduler gives up the ownership at once, tells its
// handlers, and waits for them.
func TestStop(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "kind", Schedule: minutely, Guarantee: sched.AtLeastOnce, Handler: func(ctx context.Context, tick sched.Tick) error {
			if tick.Attempt > 1 {
				return nil
			}
			<-ctx.Done()
			time.Sleep(2 * time.Second)
			return context.Cause(ctx)
		}}, 0)
		f.do(sched.Job{Name: "rude", Schedule: minutely, Handler: func(_ context.Context, tick sched.Tick) error {
			if tick.Nominal.Format("15:04") == "00:01" {
				time.Sleep(10 * time.Minute)
			}
			return nil
		}}, 0)
		f.start(0)
		f.start(0)
		f.until("00:01:59.500")
		old := f.owner()
		from := time.Now()
		go old.stop()
		f.until("00:02:01")
		if o := f.owner(); o == old || o == nil {
			t.Error("there is no new owner")
		}
		<-old.ended
		if took := time.Since(from); took < 2*time.Second || took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if old.err == nil || !strings.Contains(old.err.Error(), "rude") || strings.Contains(old.err.Error(), "kind") {
			t.Errorf("%v", old.err)
		}
		f.until("00:04:30")
		if d := f.ledger.all("kind"); len(d) < 2 || d[1].Attempt != 2 || d[1].Nominal != d[0].Nominal || d[1].From.Before(d[0].Until) {
			t.Errorf("%v", d)
		}
		if got := f.history("rude"); !slices.Contains(got, "lost 00:01:00") {
			t.Errorf("%v", got)
		}
		f.until("00:12:00")
	})
}

func TestRunErrors(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		n := f.start(0)
		f.until("00:01:30")
		if err := n.sched.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "is running already") {
			t.Errorf("a second Run: %v", err)
		}
		noErr(t, n.claims.Close(t.Context()))
		<-n.ended
		wantIs(t, n.err, etcdclaims.ErrClosed)
	})
}

// Timeout, and errors that are no failures of the handler.
func TestOutcomes(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, Timeout: 10 * time.Second, Handler: func(ctx context.Context, tick sched.Tick) error {
			switch tick.Nominal.Minute() {
			case 1:
				<-ctx.Done()
				return ctx.Err()
			case 2:
				return errors.New("boom")
			case 3:
				time.Sleep(time.Minute - time.Second) // deaf
			}
			return nil
		}}, 0)
		f.start(0)
		f.until("00:05:30")
		want := []string{"timeout 00:01:00", "failed 00:02:00", "timeout 00:03:00", "ok 00:04:00", "ok 00:05:00"}
		if got := f.history("a"); !slices.Equal(got, want) {
			t.Errorf("%v", got)
		}
		if deaf := f.entries("a")[2]; !strings.Contains(deaf.Error, "did not return after its Timeout of 10s") || deaf.Fence == 0 {
			t.Errorf("%+v", deaf)
		}
		if keys := f.under("/stuck/"); len(keys) != 0 {
			t.Errorf("left over: %v", keys)
		}
	})
}

// Jobs can be added while it runs, and a mark that is deleted is made anew.
func TestAddWhileRunning(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		n := f.start(0)
		f.until("00:01:30")
		noErr(t, n.sched.Add(sched.Job{Name: "b", Schedule: minutely, Handler: f.ledger.record(n.name, nothing)}))
		f.until("00:02:30")
		f.ledger.want(t, "b", "00:02:00")
		n.skew.Store(int64(-24 * 365 * time.Hour)) // and the mark is far ahead
		f.until("00:03:30")
		f.ledger.want(t, "b", "00:02:00")
		for _, k := range f.under("/high/") {
			f.server.Delete(t, k.name)
		}
		n.host.Break()
		f.server.Delete(t, testclaims.Key(prefix, "sched/default/owner"))
		f.until("00:05:30")
		if d := f.ledger.all("b"); len(d) < 3 || d[2].Nominal.Year() != 1999 {
			t.Errorf("%v", d)
		}
	})
}

// With Spread all processes run ticks, each as many as its limit allows.
func TestSpread(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.cfg.Spread, f.cfg.Limit = true, 4
		for i := range 12 {
			f.do(sched.Job{Name: fmt.Sprint("job", i), Schedule: minutely, Overlap: sched.BufferOne{}}, 10*time.Second)
		}
		for range 3 {
			f.start(0)
		}
		f.until("00:10:55")
		f.ledger.once(t)
		by := map[string]int{}
		for _, d := range f.ledger.all("") {
			by[d.By]++
			if late := d.From.Sub(d.Nominal); late > 100*time.Millisecond {
				t.Errorf("%v began %v late", d, late)
			}
		}
		for _, n := range f.nodes {
			if by[n.name] != 40 {
				t.Errorf("%v, want 40 for each", by)
			}
			var own []deed
			for _, d := range f.ledger.all("") {
				if d.By == n.name {
					own = append(own, d)
				}
			}
			if most := atMost(own); most > 4 {
				t.Errorf("%s had %d at once", n.name, most)
			}
		}
	})
}

// Etcd may allow few operations in a transaction.
func TestFewOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t, testclaims.MaxTxnOps(48))
		f := &fleet{T: t, server: server, etcd: server.Etcd(t), ledger: &ledger{}, cfg: sched.Config{Group: "default"}}
		for i := range 200 {
			f.do(sched.Job{Name: fmt.Sprint("job", i), Schedule: minutely}, 0)
		}
		n := f.start(0)
		f.until("00:01:30")
		n.host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 20 * time.Millisecond}) // they come while the first is read
		for i := range 40 {                                                                               // too few to read all jobs, too many for one request
			noErr(t, n.sched.Add(sched.Job{
				Name: fmt.Sprint("late", i), Schedule: minutely,
				Handler: f.ledger.record(n.name, func(context.Context, sched.Tick) error { return nil }),
			}))
		}
		f.until("00:03:30")
		if n := len(f.ledger.all("")); n != 600+80 {
			t.Errorf("%d runs", n)
		}
		f.audit()
	})
}

// A process that is stopped while it begins a tick leaves it to the next, not
// begun.
func TestStopDuringBegin(t *testing.T) {
	for _, late := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 20 * time.Millisecond} {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
			n := f.start(0)
			f.until("00:00:30")
			f.start(0)
			f.until("00:00:59.9")
			n.host.Inject(claimtest.Fault{On: steps.Take, Times: 1, DelayReply: 50 * time.Millisecond})
			f.until("00:01:00")
			time.Sleep(late)
			n.stop()
			f.until("00:01:50")
			f.ledger.want(t, "a", "00:01:00")
			if got := f.history("a"); !slices.Equal(got, []string{"ok 00:01:00"}) {
				t.Errorf("stopped %v after the tick: %v", late, got)
			}
		})
	}
}

// While versions of a program differ in a job's Overlap, the owner's counts for
// the runs of all.
func TestOverlapIsTheOwners(t *testing.T) {
	for _, tt := range []struct {
		owner, other sched.Overlap
		want         int
	}{{sched.BufferAll{}, sched.Allow{}, 1}, {sched.Allow{}, sched.BufferAll{}, 3}} {
		caseInFleet(t, fmt.Sprintf("%T", tt.owner), func(t *testing.T, f *fleet) {
			f.cfg.Spread = true
			f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: tt.owner}, 170*time.Second)
			owner := f.start(0)
			f.until("00:00:10")
			// So that others are first to begin a tick.
			owner.host.Inject(claimtest.Fault{On: steps.Take, Times: -1, DelayRequest: 20 * time.Millisecond})
			f.jobs[0].Overlap = tt.other
			for range 3 {
				f.start(0)
			}
			f.until("00:00:20")
			for range 3 {
				noErr(t, second(f.console().RunNow(t.Context(), "a")))
			}
			f.until("00:06:30")
			deeds := f.ledger.all("a")
			if n := atMost(deeds); n < tt.want || tt.want == 1 && n > 1 {
				t.Errorf("%T: %d at once, want %d: %v", tt.owner, n, tt.want, deeds)
			}
			if !slices.ContainsFunc(deeds, func(d deed) bool { return d.By != "node0" }) {
				t.Error("the owner ran all: this tests nothing")
			}
		})
	}
}

// A claim that was held when a tick wanted it is not remembered for longer than
// the tick waits: with Allow each has a key of its own.
func TestHeldClaimsAreForgotten(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		if n := f.console().Postponed(t.Context()); n != 0 {
			t.Errorf("%d", n)
		}
	})
}

// Whose claim was taken away before it knew of it called no handler: its tick is
// begun again, though it may run at most once.
func TestClaimTakenBeforeItWasKnown(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		n := f.start(0)
		f.until("00:00:59.9")
		n.host.Inject(claimtest.Fault{On: steps.Take, Times: 1, LoseReply: true})
		n.host.Inject(claimtest.Fault{On: steps.Resolve, Times: 1, DelayRequest: time.Second})
		f.until("00:01:00.5")
		f.server.Delete(t, testclaims.Key(prefix, "sched/default/job/a"))
		f.until("00:01:50")
		f.ledger.want(t, "a", "00:01:00")
		if got := f.history("a"); !slices.Equal(got, []string{"ok 00:01:00"}) {
			t.Errorf("%v", got)
		}
	})
}

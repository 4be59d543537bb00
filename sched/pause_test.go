package sched_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"google.golang.org/grpc/codes"
)

// eachTick is a job that runs each tick that was missed.
func eachTick(name string) sched.Job {
	return sched.Job{Name: name, Schedule: minutely, CatchUp: sched.All{}, Overlap: sched.BufferAll{}}
}

// A pause ends by itself, as if somebody had resumed the job at its end.
func TestPauseEndsByItself(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(eachTick("a"), 0)
		f.start(0)
		f.start(0)
		f.until("00:01:30")
		noErr(t, f.console().Pause(t.Context(), "a", "INC-311", sched.For(2*time.Minute)))
		f.until("00:02:30")
		p := f.inspect("a").Paused
		if p == nil || p.By != "operator" || p.Note != "INC-311" || !p.At.Equal(clock("00:01:30")) || !p.Until.Equal(clock("00:03:30")) {
			t.Errorf("%+v", p)
		}
		x, err := f.console().Explain(t.Context(), "a", clock("00:02:00"))
		if noErr(t, err); x != "not admitted: the job is paused by operator since 2000-01-01T00:01:30Z until 2000-01-01T00:03:30Z: INC-311" {
			t.Error(x)
		}
		if at := f.owner().sched.Stats().PausedSince; !at.Equal(clock("00:01:30")) {
			t.Errorf("paused since %v", at)
		}
		f.until("00:03:30.1")
		if len(f.under("/paused/")) != 0 || f.inspect("a").Paused != nil || !f.owner().sched.Stats().PausedSince.IsZero() {
			t.Error("the pause is left")
		}
		wantIs(t, f.console().Resume(t.Context(), "a"), sched.ErrUnchanged)
		f.until("00:05:30")
		f.ledger.want(t, "a", "00:01:00", "00:04:00", "00:05:00")
		f.wantHistory("a", "ok 00:01:00", "paused 00:03:00", "ok 00:04:00", "ok 00:05:00")
		e := f.entries("a")[1]
		if e.Missed != 2 || !e.Ended.Equal(clock("00:03:30")) || !strings.Contains(e.Error, "until 2000-01-01T00:03:30Z: INC-311") {
			t.Errorf("%+v", e)
		}
	})
}

// The next owner ends a pause that ended while there was none. Ticks after its end were missed, and those
// of the pause were not. To those who look meanwhile, the job is not paused.
func TestPauseEndsWithoutOwner(t *testing.T) {
	for _, name := range []string{"stopped", "killed"} {
		caseInFleet(t, name, func(t *testing.T, f *fleet) {
			f.do(eachTick("a"), 0)
			n := f.start(0)
			f.until("00:01:30")
			noErr(t, f.console().Pause(t.Context(), "a", "", sched.For(2*time.Minute)))
			if f.until("00:02:30"); name == "killed" {
				n.kill()
			} else {
				n.stop()
			}
			f.until("00:05:30")
			i := f.inspect("a")
			if i.Paused != nil || !i.High.Equal(clock("00:03:30")) || !i.Next.Equal(clock("00:04:00")) || i.Unadmitted.IsZero() {
				t.Errorf("%+v", i)
			}
			for at, want := range map[string]string{
				"00:03:00": "did not run, and no record says why", "00:04:00": "due for 1m30s and not admitted",
			} {
				if x, err := f.console().Explain(t.Context(), "a", clock(at)); err != nil || !strings.HasPrefix(x, want) {
					t.Errorf("%s: %s, %v", at, x, err)
				}
			}
			f.start(0)
			f.until("00:06:30")
			f.ledger.want(t, "a", "00:01:00", "00:04:00", "00:05:00", "00:06:00")
			f.wantHistory("a", "ok 00:01:00", "paused 00:03:00", "ok 00:04:00", "ok 00:05:00", "ok 00:06:00")
		})
	}
	caseInFleet(t, "resumed by hand", func(t *testing.T, f *fleet) {
		f.do(eachTick("a"), 0)
		n := f.start(0)
		f.until("00:01:30")
		noErr(t, f.console().Pause(t.Context(), "a", "", sched.For(2*time.Minute)))
		n.stop()
		f.until("00:05:30")
		noErr(t, f.console().Resume(t.Context(), "a"))
		f.start(0)
		f.until("00:06:30")
		f.ledger.want(t, "a", "00:01:00", "00:04:00", "00:05:00", "00:06:00")
	})
	// More jobs than the owner resumes in one round. The last one that it resumes has the oldest request.
	caseInFleet(t, "after another job", func(t *testing.T, f *fleet) {
		const jobs = 66
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		for i := range jobs {
			f.do(sched.Job{Name: fmt.Sprintf("b%02d", i), Schedule: sched.After(fmt.Sprintf("a%d", i/32))}, 0)
		}
		n := f.start(0)
		f.until("00:01:30")
		for i := range jobs {
			length := 2*time.Minute + time.Duration(i)*time.Millisecond
			noErr(t, f.console().Pause(t.Context(), fmt.Sprintf("b%02d", i), "", sched.For(length)))
		}
		n.stop()
		f.until("00:05:30")
		root, _, _ := strings.Cut(f.under("/now/paused/")[0].name, "paused/")
		for i := range jobs {
			job, at := fmt.Sprintf("b%02d", i), clock("00:05:00").Add(-time.Duration(i)*time.Second)
			text := fmt.Sprintf(`{"v":1,"job":%q,"id":"1","by":"a%d","at":%q,"after":"%d-5","defined":"0"}`,
				job, i/32, at.Format(time.RFC3339), at.Unix())
			noErr(t, second(f.etcd.Put(f.Context(), fmt.Sprintf("%sask/%s/1", root, keyspace.Digest(job)), text)))
		}
		f.start(0)
		f.until("00:06:30")
		for i := range jobs {
			at := clock("00:05:00").Add(-time.Duration(i) * time.Second)
			f.wantHistory(fmt.Sprintf("b%02d", i), "ok "+at.Format(time.TimeOnly))
		}
	})
}

// A pause that ends by itself is replaced by another. One that lasts until Resume is not.
func TestPauseAgain(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		f.start(0)
		pause := func(at string, opts ...sched.PauseOption) error {
			f.until(at)
			return f.console().Pause(t.Context(), "a", at, opts...)
		}
		noErr(t, pause("00:00:30", sched.For(2*time.Minute)))
		noErr(t, pause("00:01:30", sched.For(5*time.Minute))) // longer: until 00:06:30
		noErr(t, pause("00:03:30", sched.For(time.Minute)))   // and not as long: until 00:04:30
		if p := f.inspect("a").Paused; p == nil || p.Note != "00:03:30" || !p.Until.Equal(clock("00:04:30")) {
			t.Errorf("%+v", p)
		}
		noErr(t, pause("00:05:30", sched.For(time.Minute)))
		noErr(t, pause("00:05:45"))
		wantIs(t, pause("00:06:15"), sched.ErrUnchanged)
		wantIs(t, pause("00:06:20", sched.For(time.Minute)), sched.ErrUnchanged)
		f.until("00:09:30")
		if p := f.inspect("a").Paused; p == nil || !p.Until.IsZero() || p.Note != "00:05:45" {
			t.Errorf("%+v", p)
		}
		noErr(t, f.console().Resume(t.Context(), "a"))
		f.until("00:10:30")
		f.ledger.want(t, "a", "00:05:00", "00:10:00")
		f.wantHistory("a", "paused 00:04:00", "ok 00:05:00", "paused 00:09:00", "ok 00:10:00")
	})
}

// What a person does at the instant at which a pause ends takes effect once, before or after that.
func TestPauseAtItsEnd(t *testing.T) {
	for name, act := range map[string]func(ctx context.Context, s *sched.Scheduler) error{
		"resumed": func(ctx context.Context, s *sched.Scheduler) error { return s.Resume(ctx, "a") },
		"again": func(ctx context.Context, s *sched.Scheduler) error {
			return s.Pause(ctx, "a", "", sched.For(2*time.Minute))
		},
		"forever": func(ctx context.Context, s *sched.Scheduler) error { return s.Pause(ctx, "a", "") },
	} {
		for _, early := range []time.Duration{0, 5 * time.Millisecond, 10 * time.Millisecond} {
			caseInFleet(t, fmt.Sprint(name, " ", early), func(t *testing.T, f *fleet) {
				f.do(eachTick("a"), 0)
				n := f.start(0)
				f.until("00:01:30")
				noErr(t, f.console().Pause(t.Context(), "a", "", sched.For(2*time.Minute)))
				n.slows()
				f.until("00:03:29.980")
				time.Sleep(20*time.Millisecond - early)
				if err := act(t.Context(), f.console()); err != nil && (name != "resumed" || !errors.Is(err, sched.ErrUnchanged)) {
					t.Error(err)
				}
				f.until("00:04:30")
				want := []string{"00:01:00", "00:04:00", "00:06:00"}
				if p := f.inspect("a").Paused; name != "resumed" {
					want = slices.Delete(want, 1, 2)
					if p == nil || p.Until.IsZero() != (name == "forever") {
						t.Errorf("%+v", p)
					}
				}
				f.until("00:05:40")
				if name == "forever" {
					noErr(t, f.console().Resume(t.Context(), "a"))
				} else if name == "resumed" {
					want = slices.Insert(want, 2, "00:05:00")
				}
				f.until("00:06:30")
				f.ledger.want(t, "a", want...)
				paused := 0
				for _, e := range f.entries("a") {
					if e.Outcome == sched.OutcomePaused {
						paused += e.Missed
					}
				}
				if ran := len(want); paused+ran != 6 {
					t.Errorf("%d ticks ran and %d were paused, of 6", ran, paused)
				}
			})
		}
	}
}

// Whatever becomes of the owner's request, the pause ends once.
func TestPauseEndsUnderFaults(t *testing.T) {
	for name, fault := range map[string]claimtest.Fault{
		"request lost": {LoseRequest: true},
		"reply lost":   {LoseReply: true},
		"unavailable":  {LoseReply: true, Code: codes.Unavailable},
		"late":         {DelayRequest: 3 * time.Second},
		"told late":    {DelayReply: 3 * time.Second},
	} {
		caseInFleet(t, name, func(t *testing.T, f *fleet) {
			f.do(eachTick("a"), 0)
			f.start(0)
			f.start(0)
			f.until("00:01:30")
			noErr(t, f.console().Pause(t.Context(), "a", "", sched.For(2*time.Minute)))
			f.until("00:03:29")
			fault.On, fault.Times = claimtest.Other, 1
			hit := f.owner().host.Inject(fault)
			f.until("00:05:30")
			if hit.Hits() != 1 {
				t.Error("the request of the owner had no fault")
			}
			f.ledger.want(t, "a", "00:01:00", "00:04:00", "00:05:00")
			f.wantHistory("a", "ok 00:01:00", "paused 00:03:00", "ok 00:04:00", "ok 00:05:00")
		})
	}
}

// The clock of the owner decides when a pause ends, as it decides which ticks are due.
func TestPauseAndClockSteps(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		n := f.start(0)
		f.until("00:00:30")
		noErr(t, f.console().Pause(t.Context(), "a", "", sched.For(2*time.Minute)))
		f.until("00:01:10")
		n.skew.Store(int64(-5 * time.Minute))
		f.until("00:04:10")
		if len(f.under("/paused/")) != 1 {
			t.Error("the pause has ended before the clock of the owner was at its end")
		}
		n.skew.Store(0)
		f.until("00:05:30") // the clocks are compared within ten seconds
		f.ledger.want(t, "a", "00:04:00", "00:05:00")
		noErr(t, f.console().Pause(t.Context(), "a", "", sched.For(10*time.Minute))) // until 00:15:30
		f.until("00:05:40")
		n.skew.Store(int64(11 * time.Minute)) // past the end, and before the next tick
		f.until("00:05:55")
		n.skew.Store(0)
		f.until("00:06:30")
		if i := f.inspect("a"); i.Paused != nil || !i.High.Equal(clock("00:16:00")) {
			t.Errorf("%+v", i)
		}
	})
}

// Of a schedule whose ticks can only be counted one by one, a pause ends as well.
func TestPauseOfSlowSchedule(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: oneByOne{minutely}, Revision: "1"}, 0)
		f.start(0)
		f.until("00:00:30")
		noErr(t, f.console().Pause(t.Context(), "a", "", sched.For(5*time.Minute)))
		f.until("00:06:30")
		f.wantHistory("a", "paused 00:05:00", "ok 00:06:00")
		if e := f.entries("a"); e[0].Missed != 5 {
			t.Errorf("%+v", e[0])
		}
	})
}

// The pause of a job after another, which has no ticks to count, ends in the round in which it is over.
func TestPauseOfJobAfterAnotherCountsFast(t *testing.T) {
	t.Parallel()
	if !(tick.Job{Schedule: sched.After("a")}).CountsFast() {
		t.Error("its ticks are counted one by one")
	}
}

// oneByOne hides all of a schedule but Next.
type oneByOne struct{ calendar.Schedule }

// What was planned before a pause decides about no tick of it.
func TestPauseWhilePlanning(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		job := eachTick("a")
		slow := &slowOnce{Schedule: minutely, at: clock("00:03:00")}
		job.Schedule, job.Revision = slow, "1"
		f.do(job, 0)
		n := f.start(0)
		f.until("00:01:30")
		n.stop()
		f.until("00:06:30")
		slow.armed.Store(true)
		f.start(0)
		f.until("00:06:35")
		if slow.armed.Load() {
			t.Error("nothing is planned")
		}
		noErr(t, f.console().Pause(t.Context(), "a", "", sched.For(2*time.Minute)))
		f.until("00:09:30")
		f.wantHistory("a", "ok 00:01:00", "paused 00:08:00", "ok 00:09:00")
	})
}

// slowOnce is oneByOne that takes ten seconds for the instant after one, once it is armed.
type slowOnce struct {
	calendar.Schedule
	at    time.Time
	armed atomic.Bool
}

func (s *slowOnce) Next(t time.Time) time.Time {
	if t.Equal(s.at) && s.armed.CompareAndSwap(true, false) {
		time.Sleep(10 * time.Second)
	}
	return s.Schedule.Next(t)
}

// Pause ignores a nil option.
func TestPauseWithNilOption(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		f.start(0)
		f.until("00:00:30")
		noErr(t, f.console().Pause(t.Context(), "a", "", nil, sched.For(time.Minute), nil))
		if p := f.inspect("a").Paused; p == nil || !p.Until.Equal(clock("00:01:30")) {
			t.Errorf("%+v", p)
		}
	})
}

// No pause has a length that nobody means, and no request is sent for one.
func TestPauseForTooLong(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		host := f.server.Host(t)
		s, err := sched.New(claimtest.NewClient(t, host, etcdclaims.Config{Prefix: prefix, TTL: ttl}), f.cfg)
		noErr(t, err)
		sent := host.Inject(claimtest.Fault{Times: -1, DelayRequest: time.Millisecond})
		for _, d := range []time.Duration{0, -1, -time.Hour, 366*24*time.Hour + 1, math.MaxInt64, math.MinInt64} {
			err := s.Pause(t.Context(), "a", "", sched.For(d))
			if err == nil || err.Error() != fmt.Sprintf(`sched: pause job "a": for %v: want more than 0s and at most 8784h0m0s`, d) {
				t.Errorf("%v: %v", d, err)
			}
		}
		if sent.Hits() != 0 {
			t.Errorf("%d requests", sent.Hits())
		}
	})
}

// A job is paused for the time of a migration, and starts again by itself.
func ExampleScheduler_Pause() {
	ctx := context.Background()
	claims, stop, err := exampleClient("/example-pause/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	registered := make(chan struct{}, 1)
	scheduler, err := sched.New(claims, sched.Config{Group: "default"})
	if err == nil {
		err = scheduler.Add(sched.Job{
			Name: "invoices", Schedule: calendar.Must(calendar.Cron("30 2 * * *")), RunOnStart: true,
			Handler: func(context.Context, sched.Tick) error { registered <- struct{}{}; return nil },
		})
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	running, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- scheduler.Run(running) }()
	<-registered
	err = scheduler.Pause(ctx, "invoices", "migration, INC-311", sched.For(2*time.Hour))
	info, inspecting := scheduler.Inspect(ctx, "invoices")
	if p := info.Paused; p != nil {
		fmt.Println("paused for", p.Until.Sub(p.At)) // or until Resume
	}
	end()
	if err = errors.Join(err, inspecting, <-ended); err != nil {
		fmt.Println(err)
	}
	// Output:
	// paused for 2h0m0s
}

package sched_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// leaps lets the clock of the owner be ahead by two hours for some time, from 00:05:10 on.
func (f *fleet) leaps(until string) {
	f.until("00:00:10")
	f.start(0)
	time.Sleep(time.Second)
	f.start(0)
	f.until("00:05:10")
	n := f.owner()
	n.skew.Store(int64(2 * time.Hour))
	f.until(until)
	n.skew.Store(0)
	f.wasReset = true
}

// A mark that is ahead of the clock is a problem, and ticks that it passes over are overdue.
func TestMarkAheadIsReported(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		core, logs := observer.New(zap.WarnLevel)
		f.cfg.Logger = zap.New(core)
		var alarms, wrong atomic.Int64
		f.cfg.Hooks.Overdue = func(_ string, _ time.Time, why string) {
			if alarms.Add(1); !strings.HasPrefix(why, "not run: ") || !strings.Contains(why, "is ahead of the clock by") {
				wrong.Add(1)
			}
		}
		f.do(sched.Job{Name: "a", Schedule: minutely, History: 500, Overdue: 5 * time.Minute}, 0)
		f.do(sched.Job{Name: "daily", Schedule: calendar.Must(calendar.Every(24*time.Hour, 0)), Overdue: 5 * time.Minute}, 0)
		f.leaps("00:06:10")
		alarms.Store(0) // by the clock that was ahead
		wrong.Store(0)
		f.until("00:10:30") // the ticks before the leap ran: none is overdue
		if i := f.inspect("a"); alarms.Load() != 0 || !i.Overdue.IsZero() || i.Ahead == 0 ||
			!strings.Contains(i.Problem, "is ahead of the clock by 1h5") {
			t.Errorf("%d alarms, overdue %v, ahead %v, problem %q", alarms.Load(), i.Overdue, i.Ahead, i.Problem)
		}
		f.until("00:20:30")
		i := f.inspect("a")
		if want := time.Date(2000, 1, 1, 0, 15, 0, 0, time.UTC); !i.Overdue.Equal(want) ||
			!strings.Contains(i.Problem, "the high-water mark") {
			t.Errorf("%v", i)
		}
		if n := alarms.Load(); n < 8 || n > 12 || wrong.Load() != 0 {
			t.Errorf("%d alarms of about ten ticks, %d wrong", n, wrong.Load())
		}
		if logs.FilterMessage("high-water mark ahead of the clock; no tick is due before it; reset the mark").Len() == 0 {
			t.Error("not logged")
		}
		if i := f.inspect("daily"); i.Ahead != 0 || i.Problem != "" {
			t.Errorf("of a job that loses no tick: %+v", i)
		}
		f.until("02:10:30")
		if i := f.inspect("a"); i.Ahead != 0 || i.Problem != "" {
			t.Errorf("later: %+v", i)
		}
	})
}

// resets puts back the mark of a job, by an operator whose clock is right.
func (f *fleet) resets(job string, mayRepeat bool) (to time.Time) {
	f.Helper()
	to, err := f.console().ResetMark(f.Context(), job, "INC-7", mayRepeat)
	noErr(f.T, err)
	return to
}

// After a reset the ticks that were passed over run at their times. Those that ran early do not
// run again.
func TestResetMark(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, History: 5}, 0)
		f.leaps("00:06:10")
		f.until("01:00:30")
		before := f.ledger.all("a")
		to := f.resets("a", false)
		early := slices.DeleteFunc(slices.Clone(before), func(d deed) bool { return !d.Nominal.After(to) })
		if len(early) == 0 || to.Format(time.TimeOnly) != "01:00:30" {
			t.Errorf("to %v; %v ran early", to, early)
		}
		f.until("01:00:31")
		i := f.inspect("a")
		if n := len(i.Upcoming(80)); i.Problem != "" || i.Next.Format(time.TimeOnly) != "01:01:00" || n != 80 {
			t.Errorf("%d are upcoming: %v", n, i)
		}
		for _, at := range i.Upcoming(80) {
			if slices.ContainsFunc(early, func(d deed) bool { return d.Nominal.Equal(at) }) {
				t.Errorf("the tick of %v ran early, and is upcoming", at)
			}
		}
		f.until("02:20:30")
		if n, want := len(f.ledger.all("a"))-len(before), 80-len(early); n != want { // the audit finds a tick that ran twice
			t.Errorf("%d ticks ran after the reset, want %d", n, want)
		}
		if _, err := f.console().ResetMark(t.Context(), "a", "", true); !errors.Is(err, sched.ErrUnchanged) {
			t.Errorf("again: %v", err)
		}
		if _, err := f.console().ResetMark(t.Context(), "b", "", true); !errors.Is(err, sched.ErrUnknownJob) {
			t.Errorf("another: %v", err)
		}
	})
}

// A second reset remembers the ticks that ran before the first one, whose records are gone. They
// are neither run again nor overdue.
func TestResetMarkTwice(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var got alarms
		f.cfg.Hooks.Overdue = got.hook
		f.do(sched.Job{Name: "a", Schedule: minutely, History: 5, Overdue: 20 * time.Second}, 0)
		f.leaps("00:06:10") // 02:05 and 02:06 run
		f.until("00:30:30")
		f.resets("a", false)
		f.until("00:40:10")
		n := f.owner()
		n.skew.Store(int64(time.Hour))
		f.until("00:41:10") // 01:40 and 01:41 run
		n.skew.Store(0)
		f.until("00:50:30")
		f.resets("a", false)
		f.until("02:04:30")
		before := len(f.ledger.all("a"))
		got.take()
		f.until("02:06:50")
		got.want(t, "ticks that ran early", "")
		if x, err := f.console().Explain(t.Context(), "a", clock("02:05:00")); err != nil || !strings.Contains(x, "not run again: the mark was put back by operator") {
			t.Errorf("%v, %v", x, err)
		}
		f.until("02:08:30") // the audit finds a tick that ran twice
		if got := f.ledger.nominals("a")[before:]; !slices.Equal(got, []string{"02:07:00", "02:08:00"}) {
			t.Errorf("%v", got)
		}
	})
}

// A reset by a newer version holds the ticks of its job, also those of the next owner, and is
// reported as a problem: any of them may have run.
func TestUnreadableResetHoldsTicks(t *testing.T) {
	t.Parallel()
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "bad", Schedule: minutely, CatchUp: sched.All{Max: 10}, Overlap: sched.BufferAll{Max: 10}}, 0)
		f.do(sched.Job{Name: "good", Schedule: minutely}, 0)
		f.start(0)
		f.start(0)
		f.until("00:01:30")
		key := f.keyOf("bad", "now/reset/J")
		noErr(t, second(f.etcd.Put(t.Context(), key, `{"v":2,"ticks":["00:03:00"]}`)))
		f.until("00:02:30")
		f.owner().stop()
		f.until("00:03:30")
		f.ledger.want(t, "bad", "00:01:00")
		f.ledger.want(t, "good", "00:01:00", "00:02:00", "00:03:00")
		if i := f.inspect("bad"); !strings.Contains(i.Problem, "cannot be read which ones are decided") || !strings.Contains(i.Problem, key) {
			t.Errorf("problem %q", i.Problem)
		}
		if x, err := f.console().Explain(t.Context(), "bad", clock("00:02:00")); err != nil || !strings.Contains(x, "cannot be read which ones") {
			t.Errorf("%v, %v", x, err)
		}
		if _, err := f.console().ResetMark(t.Context(), "bad", "", true); err == nil || errors.Is(err, sched.ErrUnchanged) {
			t.Errorf("%v", err)
		}
		noErr(t, second(f.etcd.Delete(t.Context(), key)))
		f.until("00:04:30")
		f.ledger.want(t, "bad", "00:01:00", "00:02:00", "00:03:00", "00:04:00")
		if i := f.inspect("bad"); i.Problem != "" {
			t.Errorf("problem %q", i.Problem)
		}
	})
}

// If the records of ticks that ran early are gone, a reset is refused, unless the caller
// permits that ticks repeat. If all of them have records and ran, there is nothing to put back.
func TestResetMarkThatMayRepeat(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		all := sched.All{Max: 200}
		f.do(sched.Job{Name: "short", Schedule: minutely, History: 5, CatchUp: all, Overlap: sched.BufferAll{Max: 200}}, 0)
		f.do(sched.Job{Name: "long", Schedule: minutely, History: 500, CatchUp: all, Overlap: sched.BufferAll{Max: 200}}, 0)
		f.leaps("00:06:10")
		f.until("01:00:30")
		before := len(f.ledger.all("short"))
		if _, err := f.console().ResetMark(t.Context(), "long", "", false); !errors.Is(err, sched.ErrUnchanged) {
			t.Errorf("of ticks that all ran: %v", err)
		}
		if to, err := f.console().ResetMark(t.Context(), "short", "", false); !errors.Is(err, sched.ErrMayRepeat) || !to.IsZero() {
			t.Errorf("%v, %v", to, err)
		}
		if to := f.resets("short", true); to.Format(time.TimeOnly) != "01:00:30" {
			t.Errorf("%v", to)
		}
		f.until("01:10:30")
		if n := len(f.ledger.all("short")) - before; n != 10 {
			t.Errorf("%d ticks ran: %v", n, f.ledger.nominals("short")[before:])
		}
		f.ledger = &ledger{} // they have run twice, as was permitted
	})
}

// A job that was registered while the clock was ahead has run no tick, and loses none.
func TestResetMarkOfNewJob(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.wasReset = true
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		f.until("00:00:10")
		n := f.start(2 * time.Hour)
		f.until("00:00:20")
		n.stop()
		f.start(0)
		f.until("00:10:30")
		f.resets("a", false)
		f.until("00:13:30")
		f.ledger.want(t, "a", "00:11:00", "00:12:00", "00:13:00")
	})
}

// A reset beside an admission and another reset, whose requests or replies are lost or late: one
// reset takes effect, and no tick runs twice.
func TestResetMarkInTheMidst(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.wasReset = true
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(time.Second, 0)), History: 1000, Overlap: sched.Allow{}}, 0)
		f.until("00:00:10")
		f.start(0)
		time.Sleep(time.Second)
		f.start(0)
		host := f.server.Host(t)
		operator, err := sched.New(claimtest.NewClient(t, host, etcdclaims.Config{Prefix: prefix, Owner: "another", TTL: ttl}), f.cfg)
		noErr(t, err)
		faults, rounds := 0, 8
		if testetcd.Long() {
			rounds = 20
		}
		for i := range rounds {
			f.until(fmt.Sprintf("00:%02d:00", 6+i))
			n := f.owner()
			n.skew.Store(int64(time.Hour - time.Duration(i)*2*time.Minute)) // the ticks that ran early before are after this mark
			time.Sleep(2 * time.Second)
			n.skew.Store(0)
			time.Sleep(time.Duration(i) * 37 * time.Millisecond)
			fault := []claimtest.Fault{{LoseRequest: true}, {LoseReply: true}, {DelayRequest: 3 * time.Second}, {DelayReply: 3 * time.Second}}[i%4]
			fault.On = claimtest.Acquire
			lossy := host.Inject(fault)
			var errs [2]error
			var wg sync.WaitGroup
			for who, s := range []*sched.Scheduler{f.console(), operator} {
				wg.Go(func() { _, errs[who] = s.ResetMark(f.Context(), "a", "", false) })
			}
			wg.Wait()
			if lossy.Hits() > 0 { // otherwise the other reset was first
				faults++
			}
			if done, other := errs[0], errs[1]; !(done == nil && errors.Is(other, sched.ErrUnchanged)) &&
				!(other == nil && errors.Is(done, sched.ErrUnchanged)) {
				t.Errorf("round %d: %v, %v", i, done, other)
			}
			if i := f.inspect("a"); i.Ahead != 0 {
				t.Errorf("%v", i)
			}
		}
		time.Sleep(time.Minute)
		if faults < rounds/4 {
			t.Errorf("requests were lost or late in %d rounds", faults)
		}
	})
}

// A reset that another one comes before, after the first read of the state, finds that the mark is
// not ahead any more. It does not take the ticks of before for such as may have run.
func TestResetMarkBesideAnother(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, History: 5}, 0)
		f.leaps("00:06:10")
		f.until("01:00:30")
		host := f.server.Host(t)
		operator, err := sched.New(claimtest.NewClient(t, host, etcdclaims.Config{Prefix: prefix, Owner: "another", TTL: ttl}), f.cfg)
		noErr(t, err)
		late := host.Inject(claimtest.Fault{On: claimtest.Range, DelayRequest: 2 * time.Second})
		second := make(chan error, 1)
		go func() {
			_, err := operator.ResetMark(f.Context(), "a", "", false)
			second <- err
		}()
		time.Sleep(time.Second)
		if late.Hits() != 1 {
			t.Fatalf("%d reads were late", late.Hits())
		}
		f.resets("a", false)
		if err := <-second; !errors.Is(err, sched.ErrUnchanged) {
			t.Errorf("the second reset: %v", err)
		}
	})
}

// An owner whose watch is silent does not use the mark of before the reset.
func TestResetMarkOfDeafOwner(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, History: 5}, 0)
		f.until("00:00:10")
		n := f.start(0)
		deaf := n.deafens()
		f.until("00:05:10")
		n.skew.Store(int64(2 * time.Hour))
		f.until("00:06:10")
		n.skew.Store(0)
		f.wasReset = true
		deaf.Store(true)
		f.until("01:00:30")
		f.resets("a", false)
		f.until("01:02:30")
		if got := f.ledger.nominals("a"); got[len(got)-1] != "01:02:00" || got[len(got)-2] != "01:01:00" {
			t.Errorf("%v", got)
		}
	})
}

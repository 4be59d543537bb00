package sched_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
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
		f.cfg.Hooks.Overdue = func(x sched.Explanation) {
			if alarms.Add(1); x.Fate != sched.FateOverdue || !strings.Contains(x.Text, "is ahead of the clock by") {
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
			!strings.Contains(i.String(), "problem: the high-water mark") {
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
func (f *fleet) resets(job string, mayRepeat bool) sched.MarkReset {
	f.Helper()
	is, err := f.console().ResetMark(f.Context(), job, "INC-7", mayRepeat)
	noErr(f.T, err)
	return is
}

// After a reset the ticks that were passed over run at their times. Those that ran early do not
// run again.
func TestResetMark(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, History: 5}, 0)
		f.leaps("00:06:10")
		f.until("01:00:30")
		before := len(f.ledger.all("a"))
		is := f.resets("a", false)
		if len(is.Skips) == 0 || is.MayRepeat || is.To.Format(time.TimeOnly) != "01:00:30" || is.From.Format(time.TimeOnly) < "02:05:00" {
			t.Errorf("%+v", is)
		}
		f.until("01:00:31")
		if i := f.inspect("a"); i.Problem != "" || i.Next.Format(time.TimeOnly) != "01:01:00" || len(i.Skips) != len(is.Skips) {
			t.Errorf("%v", i)
		}
		f.until("02:20:30")
		if n, want := len(f.ledger.all("a"))-before, 80-len(is.Skips); n != want { // the audit finds a tick that ran twice
			t.Errorf("%d ticks ran after the reset, want %d", n, want)
		}
		if _, err := f.console().ResetMark(t.Context(), "a", "", true); !errors.Is(err, sched.ErrNotAhead) {
			t.Errorf("again: %v", err)
		}
		if _, err := f.console().ResetMark(t.Context(), "b", "", true); !errors.Is(err, sched.ErrUnknownJob) {
			t.Errorf("another: %v", err)
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
		if _, err := f.console().ResetMark(t.Context(), "long", "", false); !errors.Is(err, sched.ErrDecided) {
			t.Errorf("of ticks that all ran: %v", err)
		}
		if is, err := f.console().ResetMark(t.Context(), "short", "", false); !errors.Is(err, sched.ErrMayRepeat) || !is.To.IsZero() {
			t.Errorf("%+v, %v", is, err)
		}
		is := f.resets("short", true)
		if !is.MayRepeat || is.To.Format(time.TimeOnly) != "01:00:30" {
			t.Errorf("%+v", is)
		}
		f.until("01:10:30")
		want := 10
		for _, nominal := range is.Skips {
			if nominal.Before(time.Now()) {
				want--
			}
		}
		if n := len(f.ledger.all("short")) - before; n != want {
			t.Errorf("%d ticks ran, want %d: %v; skips %v", n, want, f.ledger.nominals("short")[before:], is.Skips)
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
		if is := f.resets("a", false); is.MayRepeat || len(is.Skips) != 0 {
			t.Errorf("%+v", is)
		}
		f.until("00:13:30")
		f.ledger.want(t, "a", "00:11:00", "00:12:00", "00:13:00")
	})
}

// A reset beside an admission, a SkipTick or another reset, whose requests or replies are lost or
// late: one reset takes effect, and no tick runs twice, nor one that was skipped.
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
		skipped := make(map[string]bool)
		for i := range 20 {
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
			wg.Go(func() {
				time.Sleep(time.Duration(i%3) * time.Millisecond)
				at := time.Now().Add(20 * time.Second).Truncate(time.Second)
				switch err := f.console().SkipTick(f.Context(), "a", at, ""); {
				case err == nil:
					skipped[at.Format(time.TimeOnly)] = true
				case !errors.Is(err, sched.ErrDecided): // before the reset
					t.Errorf("round %d: skip: %v", i, err)
				}
			})
			wg.Wait()
			if lossy.Hits() == 0 {
				t.Errorf("round %d: no request was lost or late", i)
			}
			if done, other := errs[0], errs[1]; !(done == nil && errors.Is(other, sched.ErrNotAhead)) &&
				!(other == nil && errors.Is(done, sched.ErrNotAhead)) {
				t.Errorf("round %d: %v, %v", i, done, other)
			}
			if i := f.inspect("a"); i.Ahead != 0 {
				t.Errorf("%v", i)
			}
		}
		time.Sleep(time.Minute)
		if len(skipped) == 0 {
			t.Error("no tick was skipped")
		}
		for _, at := range f.ledger.nominals("a") {
			if skipped[at] {
				t.Errorf("the tick of %s ran, and was skipped", at)
			}
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
		if err := <-second; !errors.Is(err, sched.ErrNotAhead) {
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

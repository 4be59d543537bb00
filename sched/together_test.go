package sched_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// crowd is how many jobs are due at the same instant.
const crowd = 200

// crowded adds that many jobs, whose runs take so long.
func (f *fleet) crowded(takes time.Duration, of sched.Job) {
	of.Schedule = minutely
	for i := range crowd {
		of.Name = fmt.Sprint("job", i)
		f.do(of, takes)
	}
}

// missing starts a process, lets ticks be missed from 00:00:01.5 on for so long, and starts
// another one, whose requests it counts.
func (f *fleet) missing(d time.Duration) *claimtest.Injection {
	f.Helper()
	n := f.start(0)
	f.until("00:00:01.5")
	n.stop()
	time.Sleep(d)
	return f.start(0).slows()
}

// Ticks that are due at the same instant share the round trips in which they are admitted,
// begin, end, and give up their claims.
func TestTicksShareRoundTrips(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.crowded(0, sched.Job{})
		n := f.start(0)
		requests := n.slows()
		f.until("00:00:59")
		before := requests.Hits()
		time.Sleep(3 * time.Second)
		sent := requests.Hits() - before
		for _, j := range f.jobs {
			if got := f.history(j.Name); len(got) != 1 || got[0] != "ok 00:01:00" {
				t.Errorf("%s: %v", j.Name, got)
			}
		}
		if limit := crowd * 3 / 10; sent == 0 || sent > limit {
			t.Errorf("%d requests for %d ticks, want at most %d", sent, crowd, limit)
		}
	})
}

// The same is true of a backlog of one job whose runs do not exclude each other, also while
// its history is trimmed. If they count failures together, each ends in a round trip of its own.
func TestTicksOfOneJobShareRoundTrips(t *testing.T) {
	for name, test := range map[string]struct {
		history, pause int
		share          bool
	}{"long history": {2 * crowd, 0, true}, "short history": {5, 0, true}, "may pause": {2 * crowd, 3, false}} {
		caseInFleet(t, name, func(t *testing.T, f *fleet) {
			f.do(sched.Job{
				Name: "job", Schedule: calendar.Must(calendar.Every(time.Second, 0)), CatchUp: sched.All{Max: 2 * crowd}, Overlap: sched.Allow{},
				History: test.history, PauseOnFailure: test.pause,
			}, 0)
			requests := f.missing(crowd * time.Second)
			f.until("00:03:25.5")
			if limit, sent := crowd*4/10, requests.Hits(); sent == 0 || sent > limit == test.share {
				t.Errorf("%d requests for %d ticks; at most %d: %v", sent, crowd, limit, test.share)
			}
			ran := 0
			for _, d := range f.ledger.all("job") {
				if d.Err == nil && !d.Until.IsZero() {
					ran++
				}
			}
			if ran < crowd+3 {
				t.Errorf("%d ticks were run", ran)
			}
			// The round that follows removes one that is too much.
			if got, want := len(f.history("job")), min(ran, test.history); got < want || got > want+1 {
				t.Errorf("%d records of %d runs", got, ran)
			}
		})
	}
}

// Runs of one job that fail at the same time count their failures one after the other, without
// trying in vain, until the job is paused.
func TestFailuresAtTheSameTime(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		const most = 50
		f.do(sched.Job{
			Name: "job", Schedule: calendar.Must(calendar.Every(time.Second, 0)), CatchUp: sched.All{Max: crowd}, Overlap: sched.Allow{}, History: crowd,
			PauseOnFailure: most, Handler: func(context.Context, sched.Tick) error { return errors.New("on purpose") },
		}, 0)
		requests := f.missing(most * time.Second)
		time.Sleep(4 * time.Second)
		if failed, sent := len(f.history("job")), requests.Hits(); failed < most || sent > 6*failed {
			t.Errorf("%d requests, and %d runs have failed", sent, failed)
		}
		if f.inspect("job").Paused == nil {
			t.Error("the job is not paused")
		}
	})
}

// Runs that began in one round trip have one revision. When their process dies, the next
// owner settles each of them.
func TestRunsThatBeganTogether(t *testing.T) {
	for _, delivery := range []sched.Guarantee{sched.AtMostOnce, sched.AtLeastOnce} {
		caseInFleet(t, delivery.String(), func(t *testing.T, f *fleet) {
			f.crowded(20*time.Second, sched.Job{Guarantee: delivery})
			dies := f.start(0)
			dies.slows()
			f.until("00:00:55")
			f.start(0)
			f.until("00:01:05")
			at := map[int64]int{}
			for _, run := range f.under("/now/run/") {
				at[run.rev]++
			}
			if len(at) == 0 || len(at) > crowd/8 {
				t.Fatalf("the runs began at %d revisions", len(at))
			}
			dies.kill()
			f.until("00:01:55")
			for _, j := range f.jobs {
				got := f.history(j.Name)
				want := []string{"lost 00:01:00"}
				if delivery == sched.AtLeastOnce {
					want = []string{"ok 00:01:00"}
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s: %v, want %v", j.Name, got, want)
				}
			}
			if left := f.under("/now/run/"); len(left) > 0 {
				t.Errorf("%d runs are left", len(left))
			}
		})
	}
}

package sched_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// alarms collects what Hooks.Overdue receives.
type alarms struct {
	mu  sync.Mutex
	all []alarm
}

type alarm struct {
	job     string
	nominal time.Time
	why     string
}

func (a *alarms) hook(job string, nominal time.Time, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, alarm{job, nominal, why})
}

// fateOf returns in one word why a tick is overdue.
func fateOf(why string) string {
	for start, word := range map[string]string{
		"due for ": "overdue", "not run: ": "overdue", "waits for ": "waiting", "admitted, and waits ": "waiting",
		"running since ": "running", "not known, ": "unknown",
	} {
		if strings.HasPrefix(why, start) {
			return word
		}
	}
	return why
}

func (a *alarms) take() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for _, x := range a.all {
		out = append(out, x.nominal.Format("15:04")+" "+fateOf(x.why))
	}
	a.all = nil
	return strings.Join(out, ", ")
}

func (a *alarms) want(t *testing.T, when, want string) {
	t.Helper()
	if got := a.take(); got != want {
		t.Errorf("%s: alarms %q, want %q", when, got, want)
	}
}

// A tick that has not ended by its bound is reported once, by the owner.
func TestOverdue(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var got alarms
		f.cfg.Hooks.Overdue = got.hook
		var takes atomic.Int64
		takes.Store(int64(5 * time.Second))
		f.do(sched.Job{Name: "a", Schedule: tenMinutely, Overdue: time.Minute, Handler: func(ctx context.Context, _ sched.Tick) error {
			select {
			case <-time.After(time.Duration(takes.Load())):
			case <-ctx.Done():
			}
			return nil
		}}, 0)
		f.do(sched.Job{Name: "b", Schedule: tenMinutely, Overdue: time.Minute, Handler: failing(1, time.Second), Retry: sched.Retry{Max: 1, Backoff: 5 * time.Minute}}, 0)
		f.start(0)
		f.start(0)
		f.until("00:11:30")
		got.want(t, "another attempt is to come", "00:10 waiting")
		if i := f.inspect("b"); i.Overdue != clock("00:10:00") {
			t.Errorf("%v", i)
		}
		f.until("00:19:00")
		noErr(t, f.console().Pause(t.Context(), "b", ""))
		takes.Store(int64(2 * time.Minute))
		f.until("00:21:30")
		got.want(t, "a long run, and a pause", "00:20 running")
		if i := f.inspect("a"); i.Overdue != clock("00:20:00") {
			t.Errorf("%v", i)
		}
		f.until("00:25:00")
		if i := f.inspect("a"); !i.Overdue.IsZero() {
			t.Errorf("%v", i)
		}
		noErr(t, f.console().Pause(t.Context(), "a", ""))
		f.until("00:35:00")
		got.want(t, "a pause", "")
	})
}

// While etcd cannot be read, or has no owner of the group, each process reports.
func TestOverdueInOutage(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var got alarms
		f.cfg.Hooks.Overdue = got.hook
		f.do(sched.Job{Name: "a", Schedule: tenMinutely, Overdue: time.Minute}, 0)
		f.start(0)
		f.start(0)
		f.until("00:09:00")
		for _, n := range f.nodes {
			n.host.Inject(claimtest.Fault{Times: -1, Code: codes.Unavailable})
		}
		f.until("00:12:00")
		got.want(t, "etcd is unreachable", "00:10 unknown, 00:10 unknown")
		for _, n := range f.nodes {
			n.host.RemoveFaults()
		}
		f.until("00:21:30")
		got.want(t, "etcd is back", "")
		for _, n := range f.nodes {
			n.host.Inject(claimtest.Fault{On: steps.Enqueue, Times: -1, Code: codes.Unavailable})
			n.host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, Code: codes.Unavailable})
			n.host.Inject(claimtest.Fault{On: steps.Take, Times: -1, Code: codes.Unavailable})
			n.host.Inject(claimtest.Fault{On: steps.Advance, Times: -1, Code: codes.Unavailable})
			n.host.Inject(claimtest.Fault{On: claimtest.Grant, Times: -1, Code: codes.Unavailable})
		}
		f.until("00:31:30")
		got.want(t, "no owner", "00:30 overdue, 00:30 overdue")
	})
}

// Each process reports the ticks of a job that the owner does not have, or has without an
// Overdue. It does so a minute later, and once for each tick.
func TestOverdueUnwatched(t *testing.T) {
	for _, c := range []struct {
		owner sched.Job // what the owner has
		takes time.Duration
		want  string
	}{
		{sched.Job{Name: "b", Schedule: tenMinutely}, 0, "00:01 overdue, 00:02 overdue, 00:03 overdue"},
		{sched.Job{Name: "a", Schedule: minutely, Overlap: sched.Allow{}}, time.Hour, "00:01 running, 00:02 running, 00:03 running"},
		{sched.Job{Name: "a", Schedule: minutely, Overlap: sched.Allow{}, Overdue: 30 * time.Second}, time.Hour, "00:02 running, 00:03 running, 00:04 running"},
		{sched.Job{Name: "a", Schedule: minutely}, time.Second, ""},
	} {
		inFleet(t, func(t *testing.T, f *fleet) {
			var got alarms
			f.cfg.Hooks.Overdue = got.hook
			f.do(c.owner, c.takes)
			f.start(0)
			f.until("00:00:30")
			f.jobs = nil
			f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: sched.Allow{}, Overdue: 30 * time.Second}, c.takes)
			f.start(0)
			f.until("00:01:40")
			got.take()
			f.until("00:04:35")
			got.want(t, fmt.Sprintf("the owner has %s, Overdue %v, runs take %v", c.owner.Name, c.owner.Overdue, c.takes), c.want)
		})
	}
}

// A tick that the old owner did not report is reported by the next one.
func TestOverdueAtTakeOver(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var got alarms
		f.cfg.Hooks.Overdue = got.hook
		f.do(sched.Job{Name: "a", Schedule: tenMinutely, Overdue: 10 * time.Second, Guarantee: sched.AtLeastOnce}, time.Minute)
		f.start(0)
		f.start(0)
		f.until("00:10:05")
		f.owner().kill()
		f.until("00:10:29")
		first := got.take() // the killed process cannot read etcd
		f.until("00:11:00")
		if all := first + "; " + got.take(); !strings.Contains(all, "00:10 running") && !strings.Contains(all, "00:10 waiting") {
			t.Errorf("alarms: %s", all)
		}
	})
}

// Explain says of each instant what became of it.
func TestExplain(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, History: 8, Retry: sched.Retry{Max: 1, Backoff: 8 * time.Second}, Handler: func(ctx context.Context, tick sched.Tick) error {
			time.Sleep(10 * time.Second)
			if m := tick.Nominal.Minute(); m == 2 {
				return errNoDisk
			}
			return nil
		}}, 0)
		n := f.start(0)
		want := func(at, start, text string) {
			t.Helper()
			x, err := f.console().Explain(t.Context(), "a", clock(at))
			noErr(t, err)
			if !strings.HasPrefix(x, start) || !strings.Contains(x, text) || strings.ContainsAny(x, "\n") {
				t.Errorf("%s: %s; want %q ... %q", at, x, start, text)
			}
		}
		f.until("00:01:05")
		want("00:00:00", "before the schedule ", "registered at 2000-01-01T00:00:0")
		want("00:01:00", "running since ", "by node0, attempt 1")
		want("00:02:00", "not due yet: ", "in 55s")
		want("00:02:30", "not due: the schedule ", "the next one is at 2000-01-01T00:03:00Z")
		f.until("00:01:30")
		want("00:01:00", "ok, ", "ok, attempt 1 by node0 from ")
		f.until("00:02:12")
		want("00:02:00", "waits for ", "attempt 2, not before")
		f.until("00:02:50")
		want("00:02:00", "failed for good, ", "no attempt left, attempt 2 by node0")
		f.until("00:03:30")
		noErr(t, f.console().Pause(t.Context(), "a", "no power"))
		f.until("00:05:30")
		want("00:05:00", "not admitted: the job is paused ", "by operator since")
		noErr(t, f.console().Resume(t.Context(), "a"))
		want("00:04:00", "paused, ", "paused, one of 2 ticks that one record counts, until 2000-01-01T00:05:00Z: paused by operator")
		want("00:05:00", "paused, recorded at ", "paused by operator")
		f.until("00:06:30")
		n.stop()
		f.until("00:09:30")
		want("00:08:00", "due for ", "due for 1m30s and not admitted")
		f.start(0)
		f.until("00:09:50")
		want("00:07:00", "missed, ", "one of 2 ticks that came due while no owner could admit them: CatchUp went on with the tick of 2000-01-01T00:09:00Z")
		f.until("00:30:30")
		want("00:06:00", "not known: ", "keeps 8 records")
		_, err := f.console().Explain(t.Context(), "b", clock("00:06:00"))
		wantIs(t, err, sched.ErrUnknownJob)
		noErr(t, second(f.console().Backfill(t.Context(), "a", clock("00:07:00"), clock("00:07:01"), nil)))
		f.until("00:31:55")
		want("00:07:00", "ok, ", "ok, attempt 1")
	})
}

// exampleClient returns a client for an example, and a function that closes it.
func exampleClient(prefix string) (claims *etcdclaims.Client, stop func(), err error) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints()})
	if err != nil {
		return nil, nil, err
	}
	claims, err = etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix, Owner: "ada"})
	return claims, func() { _ = errors.Join(claims.Close(context.Background()), etcd.Close()) }, err
}

func ExampleScheduler_Explain() {
	ctx := context.Background()
	claims, stop, err := exampleClient("/example-explain/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	ran := make(chan struct{}, 1)
	scheduler, err := sched.New(claims, sched.Config{Group: "default"})
	if err == nil {
		err = scheduler.Add(sched.Job{
			Name: "invoices", Schedule: calendar.Must(calendar.Cron("30 2 * * *")), RunOnStart: true,
			Handler: func(context.Context, sched.Tick) error { ran <- struct{}{}; return nil },
		})
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	running, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- scheduler.Run(running) }()
	<-ran // the job is registered
	noon := time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)
	x, err := scheduler.Explain(ctx, "invoices", noon)
	fmt.Println(x)
	end()
	if err = errors.Join(err, <-ended); err != nil {
		fmt.Println(err)
	}
	// Output:
	// not due: the schedule TZ=UTC GAP=fire FOLD=first 0 30 2 * * * has no tick at this instant; the next one is at 2030-03-02T02:30:00Z
}

// A job whose state cannot be read causes no alarms of other jobs, and hides none in a list.
func TestOverdueBesideUnreadable(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var got alarms
		f.cfg.Hooks.Overdue = got.hook
		for i := range 6 {
			f.do(sched.Job{Name: fmt.Sprint("job", i), Schedule: tenMinutely, Overdue: time.Minute}, time.Second)
		}
		f.start(0)
		f.until("00:05:00")
		// A newer version of the program counts failures in another way.
		dir, _, _ := strings.Cut(f.under("/spec/")[0].name, "/spec/")
		noErr(t, second(f.etcd.Put(t.Context(), dir+"/fail/"+keyspace.Digest("job0"), `{"v":9,"inARow":1}`)))
		f.until("00:15:00")
		got.mu.Lock()
		defer got.mu.Unlock()
		if len(got.all) != 1 || got.all[0].job != "job0" {
			t.Errorf("alarms %v", got.all)
		}
		listed, failed := 0, 0
		for _, err := range f.console().Jobs(t.Context()) {
			if listed++; err != nil {
				failed++
			}
		}
		if listed != 6 || failed != 1 {
			t.Errorf("%d jobs listed, %d with an error", listed, failed)
		}
	})
}

// A process whose clock was ahead for a moment raises alarms again.
func TestOverdueAfterWrongClock(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var got alarms
		f.cfg.Hooks.Overdue = got.hook
		f.do(sched.Job{Name: "a", Schedule: minutely, Overdue: 10 * time.Second, Overlap: sched.Allow{}}, 20*time.Second)
		first := f.start(0)
		f.until("00:00:30")
		other := f.start(0)
		f.until("00:01:30")
		other.skew.Store(int64(24 * time.Hour))
		f.until("00:02:30")
		other.skew.Store(0)
		f.until("00:03:30")
		first.stop()
		f.until("00:03:50")
		if f.owner() != other {
			t.Fatal("the other process is not the owner")
		}
		got.take()
		f.until("00:05:50")
		got.want(t, "each run takes 20 s", "00:04 running, 00:05 running")
	})
}

package sched_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"google.golang.org/grpc/codes"
)

// A job after another runs once for each success of that, with its nominal time.
func TestAfter(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely, Retry: sched.Retry{Max: 1}, Handler: func(_ context.Context, tick sched.Tick) error {
			time.Sleep(5 * time.Second)
			if m := tick.Nominal.Minute(); m == 2 || m == 3 && tick.Attempt == 1 {
				return errNoDisk
			}
			return nil
		}}, 0)
		f.do(sched.Job{Name: "b", Schedule: sched.After("a"), Overlap: sched.BufferAll{}}, time.Second)
		f.do(sched.Job{Name: "c", Schedule: sched.After("b"), Overlap: sched.BufferAll{}}, 0)
		f.start(0)
		f.start(0)
		f.until("00:03:30")
		f.ledger.want(t, "b", "00:01:00", "00:03:00")
		f.ledger.want(t, "c", "00:01:00", "00:03:00")
		for i, d := range f.ledger.all("b") {
			if d.Manual || d.ID() != "default/b/after/"+d.Nominal.Format(time.RFC3339) || d.From.Before(f.ledger.all("a")[3*i].Until) {
				t.Errorf("%v", d)
			}
		}
		x, err := f.console().Explain(t.Context(), "b", clock("00:02:00"))
		if noErr(t, err); !strings.Contains(x, "not due: the job runs when a has succeeded") {
			t.Errorf("%v", x)
		}
		if x, err = f.console().Explain(t.Context(), "b", clock("00:03:00")); err != nil || !strings.HasPrefix(x, "ok, attempt 1") {
			t.Errorf("%v, %v", x, err)
		}
		noErr(t, f.console().Pause(t.Context(), "b", ""))
		f.until("00:04:30")
		noErr(t, f.console().Resume(t.Context(), "b"))
		noErr(t, second(f.console().Backfill(t.Context(), "a", clock("00:01:00"), clock("00:01:01"), nil)))
		if _, err := f.console().Backfill(t.Context(), "b", clock("00:01:00"), clock("00:02:00"), nil); err == nil || !strings.Contains(err.Error(), `it runs after "a"`) {
			t.Errorf("a backfill of what follows another job: %v", err)
		}
		f.until("00:04:50")
		f.wantHistory("b", "ok 00:01:00", "ok 00:03:00", "skipped 00:04:00", "ok 00:01:00")
		f.ledger.want(t, "c", "00:01:00", "00:03:00", "00:01:00")
	})
}

// A success and the tick after it are one change, whatever is lost or dies in between.
func TestAfterUnderFaults(t *testing.T) {
	for _, fault := range []claimtest.Fault{
		{On: claimtest.Other, LoseReply: true, Times: 2},
		{On: claimtest.Other, LoseRequest: true, Times: 2},
		{On: claimtest.Other, LoseReply: true, Code: codes.Unavailable, Times: 3},
		{}, // the process is killed
	} {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.cfg.Spread = true
			f.do(sched.Job{Name: "a", Schedule: tenMinutely}, time.Second)
			f.do(sched.Job{Name: "b", Schedule: sched.After("a")}, 100*time.Millisecond)
			f.start(0)
			f.start(0)
			f.until("00:10:00.5")
			by := f.ledger.all("a")[0].By
			n := f.nodes[slices.IndexFunc(f.nodes, func(n *node) bool { return n.name == by })]
			if fault.On != "" {
				n.host.Inject(fault)
			} else {
				f.until("00:10:01.001")
				n.kill()
			}
			f.until("00:15:00")
			a, b := f.history("a"), f.history("b")
			switch {
			case len(a) != 1 || len(b) > 1 || a[0] != "ok 00:10:00" && fault.On != "":
				t.Errorf("%v, %v", a, b)
			case (a[0] == "ok 00:10:00") != (len(b) == 1):
				t.Errorf("a: %v, b: %v", a, b)
			}
			f.ledger.once(t)
		})
	}
}

func TestAfterPassthrough(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		s, err := sched.New(without(t), sched.Config{Group: "default"})
		noErr(t, err)
		noErr(t, s.Add(sched.Job{Name: "b", Schedule: sched.After("a"), Handler: f.ledger.record("local", failing(0, 0))}))
		noErr(t, s.Add(sched.Job{Name: "a", Schedule: minutely, Handler: f.ledger.record("local", func(_ context.Context, tick sched.Tick) error {
			if tick.Nominal.Minute() == 2 {
				return errNoDisk
			}
			return nil
		})}))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		f.until("00:03:30")
		cancel()
		noErr(t, <-ended)
		f.ledger.want(t, "b", "00:01:00", "00:03:00")
	})
}

func TestAfterIsChecked(t *testing.T) {
	s, err := sched.New(without(t), sched.Config{Group: "default"})
	noErr(t, err)
	add := func(name, before string) error {
		return s.Add(sched.Job{Name: name, Schedule: sched.After(before), Handler: failing(0, 0)})
	}
	noErr(t, add("b", "a"))
	noErr(t, add("c", "b"))
	for name, before := range map[string]string{"a": "c", "d": "d", "e": ""} {
		if add(name, before) == nil {
			t.Errorf("%s after %q is accepted", name, before)
		}
	}
	for i := range 32 {
		noErr(t, add(fmt.Sprint("f", i), "f"))
	}
	if add("g", "f") == nil {
		t.Error("33 jobs after one are accepted")
	}
}

func ExampleAfter() {
	claims, err := etcdclaims.NewPassthrough(etcdclaims.Config{}) // without etcd, to be short
	if err != nil {
		panic(err)
	}
	scheduler, err := sched.New(claims, sched.Config{Group: "default"})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var loaded time.Time
	if err == nil {
		err = scheduler.Add(sched.Job{
			Name: "load", Schedule: calendar.Must(calendar.Every(time.Second, 0)),
			Handler: func(_ context.Context, tick sched.Tick) error { loaded = tick.Nominal; return nil },
		})
	}
	if err == nil {
		err = scheduler.Add(sched.Job{
			Name: "report", Schedule: sched.After("load"),
			Handler: func(_ context.Context, tick sched.Tick) error {
				fmt.Println("report of what was loaded:", tick.Nominal.Equal(loaded))
				stop()
				return nil
			},
		})
	}
	if err == nil {
		err = scheduler.Run(ctx)
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output: report of what was loaded: true
}

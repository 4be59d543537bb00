package sched_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// starting is a job that is due when it is registered, and else at no time of the test.
func starting(name, revision string) sched.Job {
	return sched.Job{
		Name: name, Revision: revision, RunOnStart: true, Tags: []string{"db"}, Overlap: sched.Allow{},
		Schedule: calendar.Must(calendar.Cron("TZ=UTC 30 2 29 2 *")),
	}
}

// A job that is registered while it is paused, by itself, with a tag or with the group, begins once no pause lasts
// any more, also under another owner, and once.
func TestStartAfterPause(t *testing.T) {
	type pauses struct {
		begin, end func(context.Context, *sched.Scheduler) error
	}
	for name, p := range map[string]pauses{
		"group": {
			func(ctx context.Context, s *sched.Scheduler) error { return s.PauseGroup(ctx, "") },
			func(ctx context.Context, s *sched.Scheduler) error { return s.ResumeGroup(ctx) },
		},
		"tag, by itself": {
			func(ctx context.Context, s *sched.Scheduler) error {
				return s.PauseTag(ctx, "db", "", sched.For(3*time.Minute))
			}, nil,
		},
		"job": {
			func(ctx context.Context, s *sched.Scheduler) error { return s.Pause(ctx, "a", "") },
			func(ctx context.Context, s *sched.Scheduler) error { return s.Resume(ctx, "a") },
		},
		"job, by itself": {
			func(ctx context.Context, s *sched.Scheduler) error {
				return s.Pause(ctx, "a", "", sched.For(3*time.Minute))
			}, nil,
		},
		"tag and group": {
			func(ctx context.Context, s *sched.Scheduler) error {
				return errors.Join(s.PauseTag(ctx, "db", ""), s.PauseGroup(ctx, "", sched.For(3*time.Minute)))
			},
			func(ctx context.Context, s *sched.Scheduler) error { return s.ResumeTag(ctx, "db") },
		},
	} {
		for _, dies := range []bool{false, true} {
			caseInFleet(t, name+map[bool]string{true: ", another owner"}[dies], func(t *testing.T, f *fleet) {
				f.do(starting("a", "1"), 0)
				n := f.start(0)
				f.until("00:01:00")
				ran := func(want int) {
					t.Helper()
					if d := f.ledger.all("a"); len(d) != want {
						t.Errorf("%v, want %d", d, want)
					}
				}
				ran(1)
				noErr(t, p.begin(t.Context(), f.console()))
				n.stop()
				f.jobs = nil
				f.do(starting("a", "2"), 0)
				n = f.start(0)
				f.until("00:02:00")
				if dies {
					n.kill()
					f.start(0)
				}
				f.until("00:03:55")
				ran(1)
				if p.end != nil {
					noErr(t, p.end(t.Context(), f.console()))
				}
				f.until("00:04:30")
				ran(2)
				f.owner().stop()
				f.start(0)
				f.until("00:06:00")
				ran(2)
			})
		}
	}
}

// An owner that does not hear of a pause begins no job that it registers in it.
func TestStartOfDeafOwner(t *testing.T) {
	for name, pause := range map[string]func(context.Context, *sched.Scheduler) error{
		"group": func(ctx context.Context, s *sched.Scheduler) error { return s.PauseGroup(ctx, "") },
		"tag":   func(ctx context.Context, s *sched.Scheduler) error { return s.PauseTag(ctx, "db", "") },
	} {
		caseInFleet(t, name, func(t *testing.T, f *fleet) {
			f.reports(0)
			n := f.start(0)
			deaf := n.deafens()
			f.until("00:01:00")
			deaf.Store(true)
			noErr(t, pause(t.Context(), f.console()))
			noErr(t, n.sched.Add(sched.Job{
				Name: "a", Schedule: calendar.Must(calendar.Every(time.Hour, 0)), RunOnStart: true, Tags: []string{"db"},
				Handler: f.ledger.record("me", func(context.Context, sched.Tick) error { return nil }),
			}))
			f.until("00:03:00")
			if d := f.ledger.all("a"); len(d) > 0 {
				t.Errorf("%v in a pause", d)
			}
		})
	}
}

// A job that is added in a pause begins once, also if the pause ends while the owner reads or registers the job.
func TestStartAfterPauseThatEndsInRegistration(t *testing.T) {
	for _, after := range []time.Duration{50, 150, 250, 350, 450} {
		after *= time.Millisecond
		caseInFleet(t, after.String(), func(t *testing.T, f *fleet) {
			f.reports(0)
			n := f.start(0)
			f.until("00:01:00")
			noErr(t, f.console().PauseGroup(t.Context(), ""))
			f.until("00:01:30")
			n.host.Inject(claimtest.Fault{Times: -1, DelayRequest: 200 * time.Millisecond})
			a := starting("a", "1")
			a.Handler = f.ledger.record("me", func(context.Context, sched.Tick) error { return nil })
			noErr(t, n.sched.Add(a))
			time.Sleep(after)
			noErr(t, f.console().ResumeGroup(t.Context()))
			f.until("00:02:30")
			if d := f.ledger.all("a"); len(d) != 1 {
				t.Errorf("%v, want one run", d)
			}
		})
	}
}

// A new owner knows the pauses of many jobs before it registers jobs, so no registration is refused: it reads all jobs
// once.
func TestStartOfNewOwnerAfterPause(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.start(0)
		f.until("00:01:10")
		noErr(t, f.console().PauseGroup(t.Context(), ""))
		noErr(t, f.console().ResumeGroup(t.Context()))
		f.do(starting("a", "1"), 0)
		n := f.start(0) // has more jobs, so the owner hands over
		var loads atomic.Int64
		n.host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, Saw: func(req any) {
			r, _ := req.(*pb.TxnRequest)
			for _, op := range r.GetSuccess() {
				if g := op.GetRequestRange(); bytes.HasSuffix(g.GetKey(), []byte("/spec/")) && len(g.GetRangeEnd()) > 0 {
					loads.Add(1)
				}
			}
		}})
		f.until("00:01:40")
		if d := f.ledger.all("a"); len(d) != 1 || loads.Load() != 1 {
			t.Errorf("%v, with %d reads of all jobs; want one run, and one read", d, loads.Load())
		}
	})
}

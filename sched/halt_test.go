package sched_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// A pause of the group or of a tag is that of its jobs, also of those that come later, and of an owner that
// comes later. Its ticks are left out, and none is due when it ends.
func TestPauseTogether(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.do(sched.Job{Name: "a", Schedule: minutely, Tags: []string{"db", "slow"}}, 0)
		f.do(sched.Job{Name: "b", Schedule: minutely, Tags: []string{"db"}}, 0)
		f.do(sched.Job{Name: "c", Schedule: minutely}, 0)
		f.do(sched.Job{Name: "after", Schedule: sched.After("c"), Tags: []string{"db"}, Overlap: sched.BufferAll{}}, 0)
		n := f.start(0)
		f.until("00:01:10")
		noErr(t, f.console().PauseTag(t.Context(), "db", "migration"))
		later := report("later")
		later.Tags = []string{"db"}
		f.define(later)
		f.until("00:02:10")
		i := f.inspect("b")
		if p := i.Paused; p == nil || p.Scope != "tag db" || p.Note != "migration" || !i.Next.IsZero() || !slices.Equal(i.Tags, []string{"db"}) {
			t.Errorf("%+v", i)
		}
		x, err := f.console().Explain(t.Context(), "b", clock("00:02:00"))
		if noErr(t, err); !strings.HasPrefix(x, "not admitted: the job is paused with tag db by operator since ") {
			t.Error(x)
		}
		if at := n.sched.Stats().PausedSince; !at.Equal(clock("00:01:10")) {
			t.Errorf("paused since %v", at)
		}
		noErr(t, f.console().PauseGroup(t.Context(), "deploy", sched.For(90*time.Second)))
		noErr(t, second(f.console().RunNow(t.Context(), "a"))) // requests are served
		n.stop()
		f.start(0)
		f.until("00:03:10")
		noErr(t, f.console().ResumeTag(t.Context(), "db"))
		wantIs(t, f.console().ResumeTag(t.Context(), "db"), sched.ErrUnchanged)
		if i := f.inspect("b"); i.Paused == nil || i.Paused.Scope != "the group" || !i.Paused.Until.Equal(clock("00:03:40")) {
			t.Errorf("%+v", i)
		}
		pauses, err := f.console().PausedJobs(t.Context())
		if noErr(t, err); len(pauses) != 1 || pauses[0].Scope != "the group" || pauses[0].Note != "deploy" {
			t.Errorf("%+v", pauses)
		}
		f.until("00:03:50")
		if i := f.inspect("b"); i.Paused != nil || !i.Next.Equal(clock("00:04:00")) || i.Problem != "" {
			t.Errorf("%+v", i)
		}
		x, err = f.console().Explain(t.Context(), "b", clock("00:03:00"))
		if noErr(t, err); !strings.HasPrefix(x, "not run: the job was paused with the group by operator since ") &&
			!strings.HasPrefix(x, "not run: the job was paused with tag db") {
			t.Error(x)
		}
		f.until("00:04:10")
		f.ledger.want(t, "a", "00:01:00", "00:02:10", "00:04:00")
		f.ledger.want(t, "b", "00:01:00", "00:04:00")
		f.ledger.want(t, "later", "00:04:00")
		f.ledger.want(t, "c", "00:01:00", "00:02:00", "00:04:00")
		f.ledger.want(t, "after", "00:01:00", "00:04:00")
		f.wantHistory("after", "ok 00:01:00", "skipped 00:02:00", "ok 00:04:00")
		for _, d := range f.ledger.all("b") {
			if d.Missed != 0 {
				t.Errorf("%v", d)
			}
		}
	})
}

// An owner whose watch is silent admits nothing after a pause of the group or a tag, not even a tick that
// would begin at once.
func TestPauseTogetherOfDeafOwner(t *testing.T) {
	for _, spread := range []bool{false, true} {
		t.Run(fmt.Sprintf("spread %t", spread), func(t *testing.T) {
			t.Parallel()
			inFleet(t, func(t *testing.T, f *fleet) {
				f.cfg.Spread = spread
				f.do(sched.Job{Name: "a", Schedule: minutely, Tags: []string{"t"}, CatchUp: sched.Latest{}}, 0)
				f.do(sched.Job{Name: "b", Schedule: minutely}, 0)
				f.do(sched.Job{Name: "many", Schedule: calendar.Must(calendar.Every(time.Second, 0)), Overlap: sched.Allow{}, Tags: []string{"t"}}, 0)
				deaf := f.start(0).deafens()
				f.until("00:01:59.9")
				deaf.Store(true)
				noErr(t, f.console().PauseTag(t.Context(), "t", ""))
				ran := len(f.ledger.all("many"))
				f.until("00:02:30")
				f.ledger.want(t, "a", "00:01:00")
				f.ledger.want(t, "b", "00:01:00", "00:02:00")
				if now := len(f.ledger.all("many")); now != ran {
					t.Errorf("%d ticks after the pause", now-ran)
				}
				deaf.Store(false)
			})
		})
	}
}

// A pause of many jobs that cannot be read pauses the group, is replaced by no call, and is named by all.
func TestPauseTogetherUnreadable(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		f.start(0)
		f.until("00:00:10")
		key := f.keyOf("a", "now/halt/"+keyspace.Digest("later"))
		noErr(t, second(f.etcd.Put(t.Context(), key, `{"v":2}`)))
		f.until("00:01:10")
		f.ledger.want(t, "a")
		s := f.console()
		for _, err := range []error{s.ResumeGroup(t.Context()), s.ResumeTag(t.Context(), "later"), s.PauseTag(t.Context(), "later", "")} {
			wantErr(t, err, "the value of "+key+" cannot be read")
		}
		if p, err := s.PausedJobs(t.Context()); err != nil || len(p) != 1 || p[0].By != "(not readable)" {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// slowly is a schedule whose next computation takes a second.
type slowly struct {
	calendar.Schedule
	next *atomic.Bool
}

func (s slowly) Next(at time.Time) time.Time {
	if s.next.CompareAndSwap(true, false) {
		time.Sleep(time.Second)
	}
	return s.Schedule.Next(at)
}

// A pause of the group that the owner hears while it plans holds for the ticks that are planned already.
func TestPauseTogetherWhileOwnerPlans(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.cfg.Spread = true
		slow := slowly{minutely, new(atomic.Bool)}
		f.do(sched.Job{Name: "a", Schedule: slow, Revision: "1", Overlap: sched.BufferAll{}}, 0)
		f.do(sched.Job{Name: "b", Schedule: minutely}, 0)
		f.start(0)
		f.until("00:01:59.5")
		slow.next.Store(true)
		f.until("00:02:00.5")
		noErr(t, f.console().PauseGroup(t.Context(), ""))
		f.until("00:03:30")
		noErr(t, f.console().ResumeGroup(t.Context()))
		f.until("00:04:10")
		f.ledger.want(t, "a", "00:01:00", "00:04:00")
		f.ledger.want(t, "b", "00:01:00", "00:04:00")
	})
}

// Pauses of tags are limited. A pause in whose stead another would be forgotten must have ended.
func TestPauseTagLimit(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		f.start(0)
		f.until("00:00:10")
		for i := range 100 {
			noErr(t, f.console().PauseTag(t.Context(), fmt.Sprint("t", i), ""))
		}
		wantErr(t, f.console().PauseTag(t.Context(), "more", ""), "100 tags are paused, which is the limit")
		noErr(t, f.console().ResumeTag(t.Context(), "t7"))
		noErr(t, f.console().PauseTag(t.Context(), "more", ""))
		if keys := f.under("/now/halt/"); len(keys) != 100 {
			t.Errorf("%d pauses", len(keys))
		}
		noErr(t, f.console().ResumeTag(t.Context(), "t8"))
		host := f.server.Host(t)
		slow, err := sched.New(claimtest.NewClient(t, host, etcdclaims.Config{Prefix: prefix, TTL: ttl}), f.cfg)
		noErr(t, err)
		host.Inject(claimtest.Fault{On: steps.Take, Times: 1, DelayRequest: time.Second})
		ended := make(chan error)
		go func() { ended <- slow.PauseTag(t.Context(), "late", "") }()
		time.Sleep(100 * time.Millisecond) // it has read that t8 is not paused
		noErr(t, f.console().PauseTag(t.Context(), "t8", ""))
		wantErr(t, <-ended, "100 tags are paused, which is the limit")
		f.until("00:01:10")
		f.ledger.want(t, "a", "00:01:00")
		if f.console().PauseTag(t.Context(), "", "") == nil || f.console().PauseGroup(t.Context(), "", sched.For(-1)) == nil {
			t.Error("an empty tag or a negative time is accepted")
		}
	})
}

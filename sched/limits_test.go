package sched_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// limited is a job that runs each tick that was missed, with limits.
func limited(name string, limits map[string]int) sched.Job {
	job := eachTick(name)
	job.Limits = limits
	return job
}

// noSlots fails the test if a slot or a run is left in etcd.
func (f *fleet) noSlots() {
	f.Helper()
	if left := append(f.under("/now/slot/"), f.under("/now/run/")...); len(left) > 0 {
		f.Errorf("left: %v", left)
	}
}

// Runs of jobs with a limit are bounded in all processes, and those that wait keep no other job from running.
func TestLimits(t *testing.T) {
	for _, spread := range []bool{false, true} {
		for _, overlap := range []sched.Overlap{sched.BufferAll{}, sched.Allow{}} {
			caseInFleet(t, fmt.Sprintf("spread %v %T", spread, overlap), func(t *testing.T, f *fleet) {
				f.cfg.Spread, f.cfg.Limit = spread, 3
				for i := range 4 {
					job := limited(fmt.Sprint("db", i), map[string]int{"db": 2})
					job.Schedule, job.Overlap = calendar.Must(calendar.Every(5*time.Minute, 0)), overlap
					f.do(job, 70*time.Second)
				}
				f.do(eachTick("other"), time.Second)
				for range 3 {
					f.start(0)
				}
				f.until("00:19:30")
				var all []deed
				for i := range 4 {
					name := fmt.Sprint("db", i)
					f.ledger.want(t, name, "00:05:00", "00:10:00", "00:15:00")
					all = append(all, f.ledger.all(name)...)
				}
				if most := atMost(all); most != 2 {
					t.Errorf("%d runs at once, want 2", most)
				}
				others := f.ledger.all("other")
				for _, d := range others {
					if late := d.From.Sub(d.Nominal); late > time.Second {
						t.Errorf("%v began %v late", d, late)
					}
				}
				if len(others) != 19 {
					t.Errorf("%d other runs", len(others))
				}
				f.noSlots()
			})
		}
	}
}

// For each number, so many runs are in progress of jobs that have it or a lower one, whichever process has
// which number.
func TestLimitNumbers(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.cfg.Spread = true
		for i := range 3 {
			low, high := limited(fmt.Sprint("low", i), map[string]int{"db": 1}), limited(fmt.Sprint("high", i), map[string]int{"db": 3})
			f.do(low, 30*time.Second)
			f.do(high, 30*time.Second)
		}
		f.start(0)
		f.until("00:10:30")
		for i := range 3 { // a deployment with another number
			f.jobs[2*i+1].Limits = map[string]int{"db": 2}
		}
		f.start(0)
		f.until("00:20:00")
		var low, all []deed
		for _, d := range f.ledger.all("") {
			if all = append(all, d); strings.HasPrefix(d.Job, "low") {
				low = append(low, d)
			}
		}
		if n, m := atMost(low), atMost(all); n != 1 || m != 3 {
			t.Errorf("%d low ones at once, %d of all; want 1 of 3", n, m)
		}
		if len(low) < 20 {
			t.Errorf("only %d low ones", len(low))
		}
	})
}

// A tick that waits for a slot with a low number delays none that can have another slot.
func TestLimitNumbersDelayNoOther(t *testing.T) {
	for _, spread := range []bool{false, true} {
		caseInFleet(t, fmt.Sprint("spread ", spread), func(t *testing.T, f *fleet) {
			f.cfg.Spread = spread
			for i, j := range []struct {
				name  string
				limit int
				takes time.Duration
			}{{"low", 1, time.Hour}, {"b", 3, 5 * time.Minute}, {"c", 3, 5 * time.Minute}, {"waits", 1, time.Second}, {"high", 3, time.Second}} {
				job := limited(j.name, map[string]int{"db": j.limit})
				job.Schedule = calendar.Must(calendar.Cron(fmt.Sprintf("TZ=UTC %d 0 * * *", i+1)))
				f.do(job, j.takes)
			}
			f.start(0)
			f.until("00:04:30")
			text, err := f.console().Explain(t.Context(), "waits", clock("00:04:00"))
			if says := "; 1 of 1 slots of the limit db are taken: by low"; err != nil || !strings.HasSuffix(text, says) {
				t.Errorf("%q, %v; want %q", text, err, says)
			}
			f.until("00:30:00")
			high := f.ledger.all("high")
			if len(high) != 1 || high[0].From.Sub(clock("00:07:00")) > time.Second {
				t.Errorf("%v, want a run when the second slot is free, at 00:07", high)
			}
			if waits := f.ledger.all("waits"); len(waits) > 0 {
				t.Errorf("%v, while the slot was taken", waits)
			}
		})
	}
}

// Several limits are taken together: a run holds none while it waits for another.
func TestSeveralLimits(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.cfg.Spread = true
		f.do(limited("ab", map[string]int{"a": 1, "b": 1}), 20*time.Second)
		f.do(limited("ba", map[string]int{"a": 1, "b": 1}), 20*time.Second)
		f.do(limited("a", map[string]int{"a": 1}), 5*time.Second)
		f.do(limited("b", map[string]int{"b": 1}), 5*time.Second)
		f.start(0)
		f.start(0)
		f.until("00:10:59")
		for _, name := range []string{"ab", "ba", "a", "b"} {
			if n := len(f.ledger.all(name)); n != 10 {
				t.Errorf("%d runs of %s", n, name)
			}
		}
		for _, limit := range []string{"a", "b"} {
			if n := atMost(slices.Concat(f.ledger.all("ab"), f.ledger.all("ba"), f.ledger.all(limit))); n != 1 {
				t.Errorf("%d runs with the limit %s at once", n, limit)
			}
		}
		f.noSlots()
	})
}

// Of those that wait for a place, the tick of the lowest Priority begins first, and then the oldest one.
func TestPriority(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit int // of the process
	}{{"limit of the fleet", 0}, {"limit of the process", 1}} {
		caseInFleet(t, tt.name, func(t *testing.T, f *fleet) {
			f.cfg.Limit = tt.limit
			daily := func(first string) calendar.Schedule {
				return calendar.Must(calendar.Cron("TZ=UTC " + first + " 0 * * *"))
			}
			for _, j := range []struct {
				name, minute string
				priority     int
			}{{"first", "1", 9}, {"late", "2", 5}, {"old", "3", 0}, {"new", "4", 0}, {"urgent", "5", -1}} {
				job := limited(j.name, nil)
				if job.Schedule, job.Priority = daily(j.minute), j.priority; tt.limit == 0 {
					job.Limits = map[string]int{"db": 1}
				}
				f.do(job, 5*time.Minute)
			}
			f.start(0)
			f.until("00:40:00")
			var order []string
			for _, d := range f.ledger.all("") {
				order = append(order, d.Job)
			}
			if want := []string{"first", "urgent", "old", "new", "late"}; !slices.Equal(order, want) {
				t.Errorf("%v, want %v", order, want)
			}
		})
	}
}

// The Priority of a tick that waits is that of the present definition of its job, in a process that has started since, too.
func TestPriorityOfDefinition(t *testing.T) {
	for _, change := range []string{"defined anew", "another process"} {
		caseInFleet(t, change, func(t *testing.T, f *fleet) {
			f.kinds = map[string]kindHandler{"report": func(context.Context, sched.Tick, json.RawMessage) error {
				time.Sleep(time.Second)
				return nil
			}}
			once := func(minute int) string { return fmt.Sprintf("TZ=UTC %d 0 * * *", minute) }
			long := limited("long", map[string]int{"db": 1})
			long.Schedule = calendar.Must(calendar.Cron(once(1)))
			f.do(long, 10*time.Minute)
			first := f.start(0)
			define := func(name string, minute, priority int, version int64) int64 {
				d := report(name)
				d.Schedule, d.Limits, d.Priority, d.Version = once(minute), map[string]int{"db": 1}, priority, version
				d.CatchUp, d.Overlap = sched.All{Max: 10}, sched.BufferAll{}
				return f.define(d).Version
			}
			define("a", 2, 5, 0)
			was := 0
			if change == "defined anew" {
				was = 9
			}
			version := define("b", 3, was, 0)
			f.until("00:05:00")
			if change == "defined anew" {
				define("b", 3, 0, version)
			} else {
				f.start(0)
				f.until("00:06:00")
				first.stop()
			}
			f.until("00:40:00")
			a, b := f.ledger.all("a"), f.ledger.all("b")
			if len(a) != 1 || len(b) != 1 || !b[0].From.Before(a[0].From) {
				t.Errorf("%v and %v; want b before a", a, b)
			}
		})
	}
}

// A tick that waits for a slot explains why, and is late after its StartDeadline.
func TestWaitForSlot(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		once := calendar.Must(calendar.Cron("TZ=UTC 1 0 * * *"))
		first, second := limited("first", map[string]int{"db": 1}), limited("second", map[string]int{"db": 1})
		first.Schedule, second.Schedule = once, once
		second.Priority, second.StartDeadline, second.Overdue = 1, 5*time.Minute, 2*time.Minute
		var overdue []string
		f.cfg.Hooks.Overdue = func(_ string, _ time.Time, why string) { overdue = append(overdue, why) }
		f.do(first, 10*time.Minute)
		f.do(second, 0)
		f.start(0)
		f.until("00:03:30")
		const want = "admitted, and waits to begin: 0 runs of the job are in progress; " +
			"1 of 1 slots of the limit db are taken: by first"
		if text, err := f.console().Explain(t.Context(), "second", clock("00:01:00")); err != nil || text != want {
			t.Errorf("%q, %v", text, err)
		}
		if !slices.Equal(overdue, []string{want}) {
			t.Errorf("overdue: %q", overdue)
		}
		if i := f.inspect("second"); i.Limits["db"] != 1 || i.Priority != 1 {
			t.Errorf("%+v", i)
		}
		f.until("00:07:00")
		if got := f.history("second"); !slices.Equal(got, []string{"late 00:01:00"}) {
			t.Error(got)
		}
	})
}

// The slot of a process that died is free when its claim has ended, and not before; one that stands still loses
// its context first.
func TestSlotOfDeadProcess(t *testing.T) {
	for name, fault := range map[string]func(n *node){
		"dies":   (*node).kill,
		"is cut": func(n *node) { n.host.Cut() },
	} {
		for _, guarantee := range []sched.Guarantee{sched.AtMostOnce, sched.AtLeastOnce} {
			caseInFleet(t, name+" "+guarantee.String(), func(t *testing.T, f *fleet) {
				f.cfg.Spread = guarantee == sched.AtMostOnce // otherwise the owner is at fault
				a, b := limited("a", map[string]int{"db": 1}), limited("b", map[string]int{"db": 1})
				a.Schedule = calendar.Must(calendar.Cron("TZ=UTC 1 0 * * *"))
				b.Schedule = calendar.Must(calendar.Cron("TZ=UTC 2 0 * * *"))
				a.Guarantee = guarantee
				a.Handler = func(ctx context.Context, tick sched.Tick) error {
					if tick.Attempt > 1 {
						return nil
					}
					<-ctx.Done()
					return context.Cause(ctx)
				}
				f.do(a, 0)
				f.do(b, time.Second)
				f.start(0)
				f.start(0)
				f.until("00:01:30")
				by := f.ledger.all("a")[0].By
				n := f.nodes[slices.IndexFunc(f.nodes, func(n *node) bool { return n.name == by })]
				f.until("00:01:55")
				fault(n)
				f.until("00:04:00")
				all := f.ledger.all("b")
				if len(all) != 1 {
					t.Fatalf("%v", all)
				}
				began := f.ledger.all("a")[0]
				if name == "is cut" && (!errors.Is(began.Err, etcdclaims.ErrLost) || began.Until.After(all[0].From)) {
					t.Errorf("ended at %v with %v, and the other began at %v", began.Until, began.Err, all[0].From)
				}
				if since := all[0].From.Sub(clock("00:01:55")); since < ttl-ttl/3 || since > ttl+5*time.Second {
					t.Errorf("the other began after %v", since)
				}
				f.noSlots()
			})
		}
	}
}

// No slot is given twice, and none stays taken, whichever requests and replies are lost.
func TestSlotsUnderFaults(t *testing.T) {
	for _, on := range []claimtest.Kind{claimtest.Acquire, claimtest.Other} {
		for name, fault := range map[string]claimtest.Fault{
			"request lost": {LoseRequest: true}, "reply lost": {LoseReply: true}, "reply late": {DelayReply: 4 * time.Second},
		} {
			caseInFleet(t, fmt.Sprint(on, " ", name), func(t *testing.T, f *fleet) {
				f.cfg.Spread = true
				for i := range 3 {
					job := limited(fmt.Sprint(i), map[string]int{"db": 1})
					job.Guarantee = sched.AtLeastOnce
					f.do(job, 2*time.Second)
				}
				f.start(0)
				f.start(0)
				f.until("00:01:30")
				for i := range 12 {
					fault.On, fault.Times, fault.Skip = on, 2, i%3
					f.nodes[i%2].host.Inject(fault)
					time.Sleep(30 * time.Second)
				}
				for _, n := range f.nodes {
					n.host.RemoveFaults()
				}
				f.until("00:10:50")
				if most := atMost(f.ledger.all("")); most != 1 {
					t.Errorf("%d runs at once", most)
				}
				for i := range 3 {
					if got := f.ledger.nominals(fmt.Sprint(i)); got[len(got)-1] != "00:10:00" || len(got) < 10 {
						t.Errorf("%d: %v", i, got)
					}
				}
				f.noSlots()
			})
		}
	}
}

// Of two processes that take a slot at a time one gets it, and the tick of the other begins as soon as it is free.
func TestSlotOfTwoAtATime(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.cfg.Spread = true
		for _, name := range []string{"a", "b"} {
			job := limited(name, map[string]int{"db": 1})
			job.Overlap, job.RunsOn = sched.Allow{}, []string{name}
			job.Schedule = calendar.Must(calendar.Every(time.Minute, 2*time.Second)) // not when processes read all keys
			f.do(job, 300*time.Millisecond)
		}
		for _, name := range []string{"a", "b"} {
			f.cfg.Labels = []string{name}
			f.start(0).host.Inject(claimtest.Fault{On: claimtest.Acquire, Times: -1, DelayRequest: 100 * time.Millisecond})
		}
		f.until("00:10:30")
		all := f.ledger.all("")
		if n := atMost(all); n != 1 || len(all) != 22 {
			t.Errorf("%d runs, %d at once", len(all), n)
		}
		for _, d := range all {
			if late := d.From.Sub(d.Nominal); late > 1500*time.Millisecond {
				t.Errorf("%v began %v late", d, late)
			}
		}
	})
}

// A slot is free when the record of its run is gone, by a program that knows no slots too.
func TestSlotWithoutRun(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		log := f.logged()
		f.do(limited("a", map[string]int{"db": 1}), 10*time.Second)
		f.start(0)
		f.until("00:01:05")
		left := f.under("/now/slot/")
		if len(left) != 1 {
			t.Fatal(left)
		}
		f.until("00:01:30")
		noErr(t, second(f.etcd.Put(t.Context(), left[0].name, left[0].value)))
		f.until("00:02:30")
		f.ledger.want(t, "a", "00:01:00", "00:02:00")
		noErr(t, second(f.etcd.Put(t.Context(), left[0].name, `{"v":2}`))) // of a later version: it may be taken
		f.until("00:03:30")
		f.ledger.want(t, "a", "00:01:00", "00:02:00")
		text, err := f.console().Explain(t.Context(), "a", clock("00:03:00"))
		if says := "are taken: by ?; the slot " + left[0].name + " counts as taken"; err != nil || !strings.Contains(text, says) {
			t.Errorf("%q, %v; want %q", text, err, says)
		}
		if n := log.FilterMessage("slot counts as taken: its value cannot be read").Len(); n != 1 {
			t.Errorf("logged %d times", n)
		}
		noErr(t, second(f.etcd.Delete(t.Context(), left[0].name)))
		f.until("00:03:50")
		f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00")
	})
}

// After the key of a slot was deleted by hand, the runs that both have the slot do not free those of others.
func TestSlotDeletedByHand(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.cfg.Spread = true
		for i := range 6 {
			job := limited(fmt.Sprint(i), map[string]int{"db": 1})
			job.Schedule = calendar.Must(calendar.Every(2*time.Minute, 0))
			f.do(job, 30*time.Second)
		}
		f.start(0)
		f.until("00:02:15")
		slots := f.under("/now/slot/")
		if len(slots) != 1 {
			t.Fatal(slots)
		}
		noErr(t, second(f.etcd.Delete(t.Context(), slots[0].name)))
		f.until("00:20:00")
		all := f.ledger.all("")
		later := slices.DeleteFunc(slices.Clone(all), func(d deed) bool { return d.From.Before(clock("00:03:00")) })
		if first, then := atMost(all), atMost(later); first != 2 || then != 1 || len(later) < 30 {
			t.Errorf("%d at once, then %d, in %d runs", first, then, len(later))
		}
	})
}

// A job runs in processes with its labels alone.
func TestRunsOn(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.cfg.Spread = true
		job := eachTick("train")
		job.RunsOn, job.Overdue, job.StartDeadline = []string{"gpu", "eu"}, 30*time.Second, 90*time.Second
		f.do(job, time.Second)
		f.do(eachTick("other"), time.Second)
		f.kinds = map[string]kindHandler{"report": nothingOf}
		f.cfg.Labels = []string{"eu"}
		f.start(0)
		f.cfg.Labels = []string{"eu", "gpu", "big"}
		f.start(0)
		d := report("defined")
		d.RunsOn = []string{"gpu"}
		f.define(d)
		f.until("00:03:30")
		f.ledger.want(t, "train", "00:01:00", "00:02:00", "00:03:00")
		f.ledger.want(t, "defined", "00:01:00", "00:02:00", "00:03:00")
		for _, d := range append(f.ledger.all("train"), f.ledger.all("defined")...) {
			if d.By != "node1" {
				t.Error(d)
			}
		}
		f.nodes[1].kill()
		f.until("00:04:50")
		i := f.inspect("train")
		if text, err := f.console().Explain(t.Context(), "train", clock("00:04:00")); err != nil || !i.Overdue.Equal(clock("00:04:00")) ||
			text != "admitted, and waits to begin: 0 runs of the job are in progress; it needs a process with the labels gpu, eu; "+
				"no process is known to have them (known processes of the group: 1)" {
			t.Errorf("%q, %v, %v", text, i.Overdue, err)
		}
		f.until("00:05:40")
		if got := f.history("train"); got[len(got)-1] != "late 00:04:00" {
			t.Error(got)
		}
		f.start(0)
		f.until("00:06:30")
		f.ledger.want(t, "train", "00:01:00", "00:02:00", "00:03:00", "00:05:00", "00:06:00")
	})
}

// An explanation names the processes that are known to have the labels of a job, and does not state what it cannot know.
func TestRunsOnBusy(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.cfg.Spread, f.cfg.Limit = true, 1
		for _, name := range []string{"long", "train"} {
			job := eachTick(name)
			job.RunsOn, job.Overdue = []string{"gpu"}, 30*time.Second
			if name == "long" {
				job.Schedule = calendar.Must(calendar.Cron("TZ=UTC 1 0 * * *"))
			}
			f.do(job, map[string]time.Duration{"long": 150 * time.Second, "train": time.Second}[name])
		}
		f.jobs[0].Priority = -1
		for _, labels := range [][]string{nil, {"gpu", "eu"}, {"eu"}} { // the owner, and two in line
			f.cfg.Labels = labels
			f.start(0)
		}
		f.until("00:02:45")
		const needs = "admitted, and waits to begin: 0 runs of the job are in progress; it needs a process with the labels gpu; "
		says := func(want string) {
			t.Helper()
			if text, err := f.console().Explain(t.Context(), "train", clock("00:02:00")); err != nil || text != strings.TrimSuffix(needs+want, "; ") {
				t.Errorf("%q, %v; want %q", text, err, needs+want)
			}
		}
		says("1 process has them, and has not begun it: node1")
		f.nodes[0].stop() // the next owner has the labels
		f.until("00:02:50")
		says("1 process has them, and has not begun it: node1")
		f.nodes[1].kill()
		f.until("00:03:25")
		says("no process is known to have them (known processes of the group: 1)")
		f.cfg.Labels = nil
		f.start(0) // waits in line
		f.until("00:03:28")
		says("no process is known to have them (known processes of the group: 2)")
		line, err := f.etcd.Get(t.Context(), prefix+"wait/", clientv3.WithPrefix())
		noErr(t, err)
		if len(line.Kvs) != 1 {
			t.Fatal(line.Kvs)
		}
		earlier := strings.Replace(string(line.Kvs[0].Value), `,"labels":[]`, "", 1) // as an earlier version writes it
		noErr(t, second(f.etcd.Put(t.Context(), string(line.Kvs[0].Key), earlier, clientv3.WithIgnoreLease())))
		says("")
	})
}

// Limits and labels that cannot be are refused, and so are labels without Spread.
func TestLimitsRefused(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		s := f.console()
		for says, change := range map[string]func(*sched.Job){
			`the limit "db" is 0; want 1 to 1000`: func(j *sched.Job) { j.Limits = map[string]int{"db": 0} },
			`the limit "db" is 1001`:              func(j *sched.Job) { j.Limits = map[string]int{"db": 1001} },
			"a name in Limits is empty":           func(j *sched.Job) { j.Limits = map[string]int{"": 1} },
			"5 Limits; the limit is 4": func(j *sched.Job) {
				j.Limits = map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}
			},
			"a label in RunsOn must be UTF-8":                     func(j *sched.Job) { j.RunsOn = []string{"a\n"} },
			"17 labels in RunsOn; the limit is 16":                func(j *sched.Job) { j.RunsOn = slices.Repeat([]string{"a"}, 17) },
			"RunsOn needs Config.Spread: without it the owner of": func(j *sched.Job) { j.RunsOn = []string{"a"} },
		} {
			job := eachTick("a")
			job.Handler = func(context.Context, sched.Tick) error { return nil }
			change(&job)
			wantErr(t, s.Add(job), says)
			if d := report("a"); !strings.Contains(says, "Spread") {
				d.Limits, d.RunsOn = job.Limits, job.RunsOn
				wantErr(t, d.Validate(), says)
			}
		}
		f.cfg.Labels = []string{""}
		_, err := sched.New(without(t), f.cfg)
		wantErr(t, err, "sched: config: a label in Labels is empty")
		f.cfg.Labels, f.kinds = nil, map[string]kindHandler{"report": nothingOf}
		f.start(0)
		d := report("defined")
		d.RunsOn = []string{"gpu"}
		f.define(d)
		f.until("00:02:00")
		if is := f.inspect("defined").Problem; !strings.Contains(is, "RunsOn needs Config.Spread") {
			t.Error(is)
		}
	})
}

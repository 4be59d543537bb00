package sched_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// The thirty semantics, nine to twelve: ticks that were missed.

func TestSemantic09CatchUp(t *testing.T) {
	for _, tt := range []struct {
		name    string
		policy  sched.CatchUp
		want    []string // run, when somebody is there again
		missed  []int    // told to these
		history []string
	}{
		{"skip", sched.SkipMissed{}, []string{"00:08:00"}, []int{0}, []string{"ok 00:01:00", "ok 00:02:00", "missed 00:07:00", "ok 00:08:00"}},
		{"latest", nil, []string{"00:07:00", "00:08:00"}, []int{4, 0}, []string{"ok 00:01:00", "ok 00:02:00", "ok 00:07:00", "ok 00:08:00"}},
		{"all", sched.All{}, []string{"00:03:00", "00:04:00", "00:05:00", "00:06:00", "00:07:00", "00:08:00"}, []int{0, 0, 0, 0, 0, 0}, nil},
		{"all, at most 2", sched.All{Max: 2}, []string{"00:06:00", "00:07:00", "00:08:00"}, []int{3, 0, 0}, nil},
		{"all of a while", sched.All{Window: 150 * time.Second}, []string{"00:05:00", "00:06:00", "00:07:00", "00:08:00"}, []int{2, 0, 0, 0}, nil},
		{"all of nothing", sched.All{Window: 10 * time.Second}, []string{"00:08:00"}, []int{0}, []string{"ok 00:01:00", "ok 00:02:00", "missed 00:07:00", "ok 00:08:00"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				f.do(sched.Job{Name: "a", Schedule: minutely, CatchUp: tt.policy, Overlap: sched.BufferAll{}}, 5*time.Millisecond)
				first := f.start(0)
				f.until("00:02:30")
				first.stop()
				f.until("00:07:30")
				f.start(0)
				f.until("00:08:30")
				f.ledger.want(t, "a", append([]string{"00:01:00", "00:02:00"}, tt.want...)...)
				for i, d := range f.ledger.all("a")[min(2, len(f.ledger.all("a"))):] {
					if i >= len(tt.missed) {
						break
					}
					if d.Missed != tt.missed[i] {
						t.Errorf("%v was told of %d missed, want %d", d, d.Missed, tt.missed[i])
					}
				}
				if got := f.history("a"); tt.history != nil && !slices.Equal(got, tt.history) {
					t.Errorf("recorded %v, want %v", got, tt.history)
				}
			})
		})
	}
}

// However long nobody was there, a bounded number of ticks is run, what is dropped
// is counted, and the schedule goes on.
func TestSemantic10BoundedEnumeration(t *testing.T) {
	for name, schedule := range map[string]calendar.Schedule{
		"every": calendar.Must(calendar.Every(time.Second, 0)), "cron": calendar.Must(calendar.Cron("* * * * * *")),
	} {
		for _, away := range []time.Duration{time.Hour, 100 * 24 * time.Hour} {
			t.Run(fmt.Sprint(name, " ", away), func(t *testing.T) {
				inFleet(t, func(t *testing.T, f *fleet) {
					f.do(sched.Job{Name: "all", Schedule: schedule, CatchUp: sched.All{Max: 3}, Overlap: sched.BufferAll{}}, 0)
					f.do(sched.Job{Name: "latest", Schedule: schedule}, 0)
					first := f.start(0)
					f.until("00:00:10.500")
					first.stop()
					before := time.Now()
					f.start(away)
					time.Sleep(5 * time.Second)
					if took := time.Since(before); took > 10*time.Second {
						t.Errorf("it took %v", took)
					}
					dropped := min(int(away/time.Second)-3, 100_000)
					for job, caughtUp := range map[string]int{"all": 3, "latest": 1} {
						missed, ran := 0, 0
						for _, d := range f.ledger.all(job) {
							missed = max(missed, d.Missed)
							if d.Nominal.After(before.Add(time.Minute)) {
								ran++
							}
						}
						if missed < dropped-2 || missed > dropped+3 || ran < caughtUp+3 || ran > caughtUp+6 {
							t.Errorf("%s: %d missed, want about %d; %d run since", job, missed, dropped, ran)
						}
					}
				})
			})
		}
	}
}

// A tick that cannot start by its StartDeadline is not run; the mark moves on.
func TestSemantic11LatenessDeadline(t *testing.T) {
	t.Run("nobody was there", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely, StartDeadline: 10 * time.Second}, 0)
			first := f.start(0)
			f.until("00:01:30")
			first.stop()
			f.until("00:03:11")
			f.start(0)
			f.until("00:04:30")
			f.ledger.want(t, "a", "00:01:00", "00:04:00")
			if got := f.history("a"); !slices.Equal(got, []string{"ok 00:01:00", "late 00:03:00", "ok 00:04:00"}) {
				t.Errorf("%v", got)
			}
		})
	})
	t.Run("in time", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely, StartDeadline: 10 * time.Second}, 0)
			first := f.start(0)
			f.until("00:01:30")
			first.stop()
			f.until("00:03:08")
			f.start(0)
			f.until("00:04:30")
			f.ledger.want(t, "a", "00:01:00", "00:03:00", "00:04:00")
		})
	})
	t.Run("begun before", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely, StartDeadline: 10 * time.Second, Guarantee: sched.AtLeastOnce}, 30*time.Second)
			f.start(0)
			f.start(0)
			f.until("00:01:05")
			dead := f.owner()
			dead.kill()
			f.until("00:01:50")
			f.ledger.want(t, "a", "00:01:00")
			first := f.ledger.all("a")[0]
			got := f.entries("a")
			if len(got) != 1 {
				t.Fatalf("%v", got)
			}
			if e := got[0]; e.Outcome != sched.OutcomeLost || e.Attempt != 1 || e.Owner != dead.name || e.Fence != first.Fence || e.Began.IsZero() ||
				!strings.Contains(e.Error, "late") {
				t.Errorf("%+v", e)
			}
		})
	})
	t.Run("while it waited", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "a", Schedule: minutely, StartDeadline: 10 * time.Second, Overlap: sched.BufferOne{}}, 80*time.Second)
			f.start(0)
			f.until("00:04:00.500")
			f.ledger.want(t, "a", "00:01:00", "00:03:00")
			if got := f.history("a"); !slices.Equal(got, []string{"late 00:02:00", "ok 00:01:00"}) {
				t.Errorf("%v", got)
			}
		})
	})
}

// A backfill runs the ticks of a stretch of time, whatever was run before.
func TestSemantic12Backfill(t *testing.T) {
	ten := time.Date(1999, 12, 31, 10, 0, 0, 0, time.UTC)
	for name, overlap := range map[string]sched.Overlap{"one after the other": nil, "beside each other": sched.Allow{}} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				f.do(sched.Job{Name: "a", Schedule: minutely, Overlap: sched.BufferOne{}, History: 1000}, time.Second)
				f.start(0)
				f.start(0)
				f.until("00:01:30")
				before := f.inspect("a").High
				id, err := f.console().Backfill(t.Context(), "a", ten, ten.Add(100*time.Minute), overlap)
				if err != nil {
					t.Fatal(err)
				}
				f.until("00:01:50")
				if high := f.inspect("a").High; high != before {
					t.Errorf("the mark was moved from %v to %v", before, high)
				}
				f.until("00:01:55")
				f.owner().stop() // a backfill outlives its owner
				f.until("00:06:30")
				f.ledger.once(t)
				filled := map[time.Time]int{}
				var scheduled []string
				var last time.Time
				for _, d := range f.ledger.all("a") {
					if !d.Manual {
						scheduled = append(scheduled, d.Nominal.Format(time.TimeOnly))
						continue
					}
					if d.Err == nil {
						filled[d.Nominal]++
					}
					if want := id + "/" + d.Nominal.Format(time.RFC3339); d.ID() != want {
						t.Errorf("it is %s, not %s", d.ID(), want)
					}
					if overlap == nil && d.From.Before(last) {
						t.Errorf("%v began before the last had ended", d)
					}
					last = d.Until
				}
				for at := ten; at.Before(ten.Add(100 * time.Minute)); at = at.Add(time.Minute) {
					if filled[at] != 1 && !interrupted(f, at) {
						t.Errorf("%v was run %d times", at, filled[at])
					}
				}
				if want := []string{"00:01:00", "00:02:00", "00:03:00", "00:04:00", "00:05:00", "00:06:00"}; !slices.Equal(scheduled, want) {
					t.Errorf("scheduled ticks ran at %v", scheduled)
				}
			})
		})
	}
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		f.start(0)
		time.Sleep(time.Second)
		for name, err := range map[string]error{
			"nothing":      second(f.console().Backfill(t.Context(), "a", ten, ten, nil)),
			"skip":         second(f.console().Backfill(t.Context(), "a", ten, ten.Add(time.Hour), sched.Skip{})),
			"no such job":  second(f.console().Backfill(t.Context(), "b", ten, ten.Add(time.Hour), nil)),
			"no such name": second(f.console().Backfill(t.Context(), "", ten, ten.Add(time.Hour), nil)),
		} {
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		none, err := sched.New(without(t), sched.Config{Group: "default"})
		if err != nil {
			t.Fatal(err)
		}
		wantIs(t, second(none.Backfill(t.Context(), "a", ten, ten.Add(time.Hour), nil)), etcdclaims.ErrPassthrough)
	})
}

// interrupted reports whether it is recorded that a run was stopped with its
// process.
func interrupted(f *fleet, nominal time.Time) bool {
	return slices.ContainsFunc(f.entries("a"), func(e sched.Entry) bool {
		return e.Nominal.Equal(nominal) && e.Outcome == sched.OutcomeInterrupted
	})
}

package sched_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testetcd/deafness"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// The group's owner is an Acquire of the core, so a process whose watches hear
// nothing owns the group within TTL + 1 s + one renewal interval of the death of
// the owner, and goes on admitting ticks.
func TestDeafProcessTakesOver(t *testing.T) {
	t.Parallel()
	for how, fault := range deafness.Kinds() {
		if how != deafness.EveryEvent && how != deafness.CreateReply && !testetcd.Long() {
			continue
		}
		caseInFleet(t, how, func(t *testing.T, f *fleet) {
			f.do(sched.Job{Name: "j", Schedule: calendar.Must(calendar.Every(time.Second, 0))}, 0)
			first := f.start(0)
			time.Sleep(5 * time.Second)
			second := f.start(0)
			second.host.Inject(fault)
			time.Sleep(20 * time.Second)
			first.kill()
			died := time.Now()
			for f.owner() != second {
				time.Sleep(100 * time.Millisecond)
				if time.Since(died) > 5*time.Minute {
					t.Fatal("nobody owns the group")
				}
			}
			if d := time.Since(died); d > ttl+time.Second+ttl/3+200*time.Millisecond {
				t.Errorf("taken over after %v", d)
			}
			owned := time.Now()
			time.Sleep(20 * time.Second)
			ran := 0
			for _, d := range f.ledger.all("j") {
				if d.By == second.name && d.Nominal.After(owned) {
					ran++
				}
			}
			if ran < 10 {
				t.Errorf("%d ticks ran in the 20 s after", ran)
			}
		})
	}
}

// An owner whose watches stop delivering, in any way and from their beginning, takes up
// what others ask of it by its next read, and so does a process that begins its ticks.
func TestDeafProcessHearsByReading(t *testing.T) {
	t.Parallel()
	const bound = 5*time.Second + 1500*time.Millisecond // the interval of reads, and a pause before the next try
	for how, fault := range deafness.Kinds() {
		caseInFleet(t, how, func(t *testing.T, f *fleet) {
			rarely := calendar.Must(calendar.Every(24*time.Hour, 12*time.Hour))
			f.do(sched.Job{Name: "asked", Schedule: rarely}, 0)
			f.do(sched.Job{Name: "long", Schedule: rarely}, time.Hour)
			f.do(sched.Job{Name: "often", Schedule: calendar.Must(calendar.Every(time.Second, 0))}, 0)
			n := f.start(0)
			time.Sleep(7 * time.Second)
			n.host.Inject(fault)
			n.host.Cut()
			if how == deafness.Cancel { // the watch goes on before the oldest revision there is
				f.compact()
				n.host.Break()
			} else {
				time.Sleep(8 * time.Second) // a read fails, so another watch begins
			}
			n.host.Heal()
			time.Sleep(20 * time.Second)
			within := func(what string, met func() bool) {
				t.Helper()
				began := time.Now()
				for !met() {
					if time.Since(began) > 30*time.Second {
						t.Fatalf("%s: unheard for 30 s", what)
					}
					time.Sleep(50 * time.Millisecond)
				}
				if d := time.Since(began); d > bound {
					t.Errorf("%s: heard after %v", what, d)
				}
			}
			ctx := context.Background()
			noErr(t, second(f.console().RunNow(ctx, "asked")))
			within("RunNow", func() bool { return len(f.ledger.all("asked")) == 1 })
			noErr(t, second(f.console().RunNow(ctx, "long")))
			within("RunNow of a long job", func() bool { return len(f.ledger.all("long")) == 1 })
			noErr(t, f.console().Cancel(ctx, "long", "test"))
			within("Cancel", func() bool { return !f.ledger.all("long")[0].Until.IsZero() })
			noErr(t, f.console().Pause(ctx, "often", "test"))
			time.Sleep(bound)
			ran := len(f.ledger.all("often"))
			time.Sleep(3 * time.Second)
			if n := len(f.ledger.all("often")) - ran; n > 0 {
				t.Errorf("%d ticks of a paused job", n)
			}
			noErr(t, f.console().Resume(ctx, "often"))
			within("Resume", func() bool { return len(f.ledger.all("often")) > ran })
			n.host.RemoveFaults()
		})
	}
}

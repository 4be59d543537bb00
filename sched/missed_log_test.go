package sched_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/sched"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// The ticks that a CatchUp gives up are logged once per admission, with their number.
func TestMissedTicksAreLogged(t *testing.T) {
	for _, c := range []struct {
		policy sched.CatchUp
		want   string
	}{
		{sched.Latest{}, "warn ticks missed 59"},
		{sched.All{Max: 10}, "warn ticks missed 50"},
		{sched.All{}, ""},
		{sched.SkipMissed{}, "warn tick missed 60"},
	} {
		inFleet(t, func(t *testing.T, f *fleet) {
			core, logs := observer.New(zap.WarnLevel)
			f.cfg.Logger = zap.New(core)
			f.do(sched.Job{Name: "a", Schedule: minutely, CatchUp: c.policy, Overlap: sched.BufferAll{}}, 0)
			f.start(0)
			f.until("00:01:30")
			f.nodes[0].stop()
			f.until("01:01:30")
			f.start(0)
			f.until("01:05:30")
			var got []string
			for _, e := range logs.FilterField(zap.String("job", "a")).All() {
				got = append(got, fmt.Sprintf("%s %s %v", e.Level, e.Message, e.ContextMap()["missed"]))
			}
			if all := strings.Join(got, ", "); all != c.want {
				t.Errorf("%T: logged %q, want %q", c.policy, all, c.want)
			}
		})
	}
}

// Policies by which only the oldest missed tick runs are warned of, once for each job.
func TestAllWithSkipIsWarnedOf(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		core, logs := observer.New(zap.WarnLevel)
		f.cfg.Logger = zap.New(core)
		for name, j := range map[string]sched.Job{
			"default":    {CatchUp: sched.All{}},
			"skip":       {CatchUp: sched.All{Max: 2}, Overlap: sched.Skip{}},
			"one":        {CatchUp: sched.All{Max: 1}},
			"buffer all": {CatchUp: sched.All{}, Overlap: sched.BufferAll{}},
			"allow":      {CatchUp: sched.All{}, Overlap: sched.Allow{}},
			"latest":     {},
		} {
			j.Name, j.Schedule = name, minutely
			f.do(j, 0)
		}
		f.start(0)
		f.until("00:01:30")
		d := report("data")
		d.CatchUp, d.Overlap = sched.All{}, nil
		d = f.define(d)
		f.define(d) // the same again
		var got []string
		for _, e := range logs.All() {
			if strings.HasPrefix(e.Message, "CatchUp All with the Overlap Skip") {
				got = append(got, fmt.Sprint(e.ContextMap()["job"]))
			}
		}
		slices.Sort(got)
		if fmt.Sprint(got) != "[data default skip]" {
			t.Errorf("warned of %v", got)
		}
	})
}

package sched_test

import (
	"fmt"
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

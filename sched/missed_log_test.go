package sched_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// A passthrough scheduler logs nothing about ticks that run in time.
func TestPassthroughMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		s, err := sched.New(without(t), sched.Config{Group: "default", Logger: zap.New(core)})
		noErr(t, err)
		var l ledger
		noErr(t, s.Add(sched.Job{Name: "a", Schedule: minutely, Handler: l.record("me", nothing)}))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+time.Second)
		defer cancel()
		noErr(t, s.Run(ctx))
		logs = logs.FilterField(zap.String("job", "a"))
		if n := len(l.all("a")); n != 5 || logs.Len() != 0 {
			t.Errorf("%d runs, logged %v", n, logs.All())
		}
	})
}

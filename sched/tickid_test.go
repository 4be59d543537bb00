package sched_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
)

// The IDs of ticks do not repeat, also if a job is removed, forgotten and defined again: an
// effect that has them as idempotency keys would be left out.
func TestTickIDAfterForget(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var ids []string
		f.kinds = map[string]kindHandler{"k": func(_ context.Context, tick sched.Tick, _ json.RawMessage) error {
			ids = append(ids, tick.ID())
			return nil
		}}
		f.start(0)
		f.until("00:00:10")
		for range 3 {
			f.define(sched.Definition{Name: "a", Schedule: "@reboot", Kind: "k"})
			time.Sleep(10 * time.Second)
			noErr(t, f.console().Undefine(t.Context(), "a", sched.AnyVersion))
			noErr(t, f.console().Forget(t.Context(), "a"))
			time.Sleep(10 * time.Second)
		}
		slices.Sort(ids)
		if n := len(slices.Compact(slices.Clone(ids))); n != 3 || len(ids) != 3 {
			t.Errorf("%d runs with %d different IDs, want 3: %v", len(ids), n, ids)
		}
	})
}

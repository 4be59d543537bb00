package sched_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A payload comes back as it was defined, and so can be defined again. JSON in etcd escapes
// some characters, which makes it longer.
func TestDefinePayloadBack(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		payloads := f.reports(0)
		f.start(0)
		d := report("a")
		d.Payload = json.RawMessage(`{"<&>":"` + strings.Repeat("<&>", 5000) + "\u2028" + `\\u003c\n\u00e9"}`)
		f.define(d)
		stored, err := f.console().Definition(t.Context(), "a")
		if noErr(t, err); string(stored.Payload) != string(d.Payload) {
			t.Errorf("payload of %d bytes, %.100s", len(stored.Payload), stored.Payload)
		}
		stored.Timeout = time.Minute
		f.define(stored)
		text, err := json.Marshal(stored)
		noErr(t, err)
		var back sched.Definition
		if noErr(t, json.Unmarshal(text, &back)); string(back.Payload) != string(d.Payload) {
			t.Errorf("payload of %d bytes after JSON", len(back.Payload))
		}
		f.until("00:01:30")
		if got := payloads()[0]; got != string(d.Payload) {
			t.Errorf("the handler got %d bytes, %.100s", len(got), got)
		}
	})
}

// A payload of RunNow or Backfill reaches each attempt, in whichever process, and replaces that of a
// definition.
func TestRunNowPayload(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		payloads := f.reports(0)
		var mu sync.Mutex
		var got []string
		handler := func(ctx context.Context, tick sched.Tick) error {
			mu.Lock()
			got = append(got, fmt.Sprintf("%d %s", tick.Attempt, tick.Payload))
			mu.Unlock()
			if tick.Attempt == 1 {
				return errNoDisk
			}
			select {
			case <-time.After(5 * time.Second):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		again := sched.Retry{Max: 1, Backoff: time.Second}
		f.do(sched.Job{Name: "a", Schedule: tenMinutely, Guarantee: sched.AtLeastOnce, Retry: again, Handler: handler}, 0)
		f.do(sched.Job{Name: "b", Schedule: sched.After("a")}, 0)
		n := f.start(0)
		f.until("00:00:05")
		d := report("d")
		d.Overlap = sched.BufferAll{}
		f.define(d)
		f.until("00:00:10")
		ask := json.RawMessage(`{"month": "<3>"}`)
		noErr(t, second(f.console().RunNow(t.Context(), "a", sched.Payload(ask))))
		noErr(t, second(f.console().RunNow(t.Context(), "d", sched.Payload(ask))))
		noErr(t, second(f.console().RunNow(t.Context(), "d", nil, sched.Payload(ask), sched.Payload(nil))))
		f.until("00:00:14")
		n.kill() // in the second attempt
		noErr(t, second(f.console().Backfill(t.Context(), "d", clock("00:01:00"), clock("00:03:00"), nil, sched.Payload(json.RawMessage(`7`)))))
		f.start(0)
		f.until("00:00:50")
		mu.Lock()
		defer mu.Unlock()
		if want := []string{`1 {"month":"<3>"}`, `2 {"month":"<3>"}`, `3 {"month":"<3>"}`}; !slices.Equal(got, want) {
			t.Errorf("payloads %q, want %q", got, want)
		}
		ran := payloads()
		if slices.Sort(ran); !slices.Equal(ran, []string{"7", "7", `{"month":"<3>"}`, `{"to":"acme"}`}) {
			t.Errorf("payloads %q", ran)
		}
		f.ledger.want(t, "b", "00:00:10")
	})
}

// Requests with the longest payloads fit into the transactions of the owner.
func TestLongPayloads(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		handle := func(_ context.Context, tick sched.Tick) error {
			if len(tick.Payload) != 16<<10 {
				return errNoDisk
			}
			return nil
		}
		f.do(sched.Job{Name: "a", Schedule: tenMinutely, Overlap: sched.Allow{}, History: 200, Handler: handle}, 0)
		f.start(0)
		f.until("00:00:05")
		f.owner().stop()
		longest := json.RawMessage(`"` + strings.Repeat("<", 16<<10-2) + `"`)
		for range 40 {
			noErr(t, second(f.console().RunNow(t.Context(), "a", sched.Payload(longest))))
		}
		for range 5 {
			noErr(t, second(f.console().Backfill(t.Context(), "a", clock("00:10:00"), clock("01:10:00"), sched.Allow{}, sched.Payload(longest))))
		}
		core, logs := observer.New(zap.WarnLevel)
		f.cfg.Logger = zap.New(core)
		f.start(0)
		f.until("00:01:00")
		ok := 0
		for _, e := range f.entries("a") {
			if e.Outcome == sched.OutcomeOK {
				ok++
			}
		}
		if ok != 40+5*6 {
			t.Errorf("%d runs", ok)
		}
		for _, l := range logs.All() {
			t.Errorf("%s %v", l.Message, l.ContextMap())
		}
	})
}

func TestPayloadIsChecked(t *testing.T) {
	s, err := sched.New(without(t), sched.Config{Group: "default"})
	noErr(t, err)
	for says, bad := range map[string]json.RawMessage{
		"is not valid JSON":                          json.RawMessage("{"),
		"the Payload has 16385 bytes; the limit is ": json.RawMessage(strings.Repeat("1", 16<<10+1)),
	} {
		_, err := s.RunNow(t.Context(), "a", sched.Payload(bad))
		wantErr(t, err, says)
		_, err = s.Backfill(t.Context(), "a", clock("00:01:00"), clock("00:03:00"), nil, sched.Payload(bad))
		wantErr(t, err, says)
	}
}

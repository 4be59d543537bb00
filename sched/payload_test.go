package sched_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
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

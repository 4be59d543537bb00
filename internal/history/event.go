package history

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// event is one record of a history, and one line of a stored one.
type event struct {
	Seq     int64     `json:"seq"`
	At      time.Time `json:"at"`
	Kind    verb      `json:"kind"`
	Call    int64     `json:"call,omitempty"` // of a return: the number of its call
	Process string    `json:"process,omitempty"`
	Key     string    `json:"key,omitempty"`
	Fence   int64     `json:"fence,omitempty"`
	Text    string    `json:"text,omitempty"`
}

// verb is the kind of an event.
type verb string

const (
	// Calls.
	didAcquire verb = "acquire"
	didRelease verb = "release"
	didEffect  verb = "effect"
	didTake    verb = "take"
	// Returns.
	didGranted verb = "granted"
	didDone    verb = "done"
	didRefused verb = "refused"
	didLost    verb = "lost"
	didFailed  verb = "failed"
	didUnknown verb = "unknown"
	// Moments.
	didChecked verb = "checked"
	didEnded   verb = "ended"
	didDied    verb = "died"
	didLog     verb = "log"
)

func (v verb) isCall() bool {
	return v == didAcquire || v == didRelease || v == didEffect || v == didTake
}

func (v verb) isReturn() bool {
	switch v {
	case didGranted, didDone, didRefused, didLost, didFailed, didUnknown:
		return true
	}
	return false
}

// String formats the event for people, with the call that a return belongs to.
func (e event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d %s", e.Seq, e.At.Format("15:04:05.000000"))
	if e.Kind == didLog {
		return b.String() + " | " + e.Text
	}
	if e.Process != "" {
		b.WriteString(" " + e.Process)
	}
	b.WriteString(" " + string(e.Kind))
	if e.Key != "" {
		fmt.Fprintf(&b, " %q", e.Key)
	}
	if e.Fence != 0 || e.Kind == didGranted {
		fmt.Fprintf(&b, " @%d", e.Fence)
	}
	if e.Call != 0 {
		fmt.Fprintf(&b, " (call #%d)", e.Call)
	}
	if e.Text != "" {
		b.WriteString(": " + e.Text)
	}
	return b.String()
}

// Write writes the history as JSON, one record a line.
func (h *History) Write(w io.Writer) error {
	enc := json.NewEncoder(w)
	for _, e := range h.snapshot() {
		if err := enc.Encode(e); err != nil {
			return fmt.Errorf("write history: %w", err)
		}
	}
	return nil
}

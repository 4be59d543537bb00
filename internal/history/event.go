package history

import (
	"bufio"
	"encoding/json"
	"errors"
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

func (v verb) isKnown() bool {
	return v.isCall() || v.isReturn() || v == didChecked || v == didEnded || v == didDied || v == didLog
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

// WriteTo writes the history as JSON, one record per line, for [Read].
func (h *History) WriteTo(w io.Writer) (int64, error) {
	count := &countingWriter{w: w}
	buf := bufio.NewWriter(count)
	enc := json.NewEncoder(buf)
	for _, e := range h.snapshot() {
		if err := enc.Encode(e); err != nil {
			return count.n, fmt.Errorf("write history: %w", err)
		}
	}
	if err := buf.Flush(); err != nil {
		return count.n, fmt.Errorf("write history: %w", err)
	}
	return count.n, nil
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// Read reads a history that WriteTo wrote, to check it again. It returns an error
// if records are missing in between, since the missing ones might break a rule.
// Records that are missing at the end are noticed only if a call has no return.
func Read(r io.Reader) (*History, error) {
	h := New()
	open := map[int64]event{} // by number
	for dec := json.NewDecoder(r); ; {
		var e event
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			return h, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read history: after record %d: %w", len(h.events), err)
		}
		if err := fits(e, int64(len(h.events))+1, open); err != nil {
			return nil, fmt.Errorf("read history: %w", err)
		}
		h.events = append(h.events, e)
	}
}

// fits returns what is wrong with an event at its place, or nil.
func fits(e event, want int64, open map[int64]event) error {
	switch {
	case e.Seq != want:
		return fmt.Errorf("record %d follows record %d", e.Seq, want-1)
	case !e.Kind.isKnown():
		return fmt.Errorf("record %d is of unknown kind %q", e.Seq, e.Kind)
	case e.Kind.isCall():
		open[e.Seq] = e
	case e.Kind.isReturn():
		call, ok := open[e.Call]
		acquired := call.Kind == didAcquire
		if !ok || call.Key != e.Key || call.Process != e.Process ||
			acquired && e.Kind == didDone || !acquired && e.Kind == didGranted {
			return fmt.Errorf("record %d returns from call %d, which is not open, or another's", e.Seq, e.Call)
		}
		delete(open, e.Call)
	}
	return nil
}

// Package history records the calls that processes make to acquire, use and
// release claims, with their results, and checks them: at most one process counts a key
// as its own, fences rise, every accepted write was its owner's, and all calls return.
// It uses [porcupine] to search for a sequential order of all
// calls that explains their results. See [Rule] for the rules.
//
//	h := history.New()
//	call := h.Acquire("worker 1", "job")
//	claim, err := claims.TryAcquire(ctx, "job")
//	call.Acquired(claim, err)
//	...
//	call = h.Effect("worker 1", claim.Token())
//	_, err = claim.Txn(ctx).Then(put).Commit()
//	call.Returned(err)
//	...
//	h.Verify(t, history.Checks{})
//
// [porcupine]: https://github.com/anishathalye/porcupine
package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
)

// A History records the calls of the processes of one test and the results that
// they received, for [History.Verify] to check.
//
// Records are numbered, and checks go by these numbers, not by times: in virtual
// time many things happen at one instant. Record a call in the goroutine that
// makes it, right before and right after it. A late record makes a call look
// longer than it was, which hides faults. A late [History.Ended] makes a term look
// longer than it was, which reports faults that did not happen.
//
// The test chooses the names of processes. Only what is recorded is checked: a
// history without effects does not show whether fences are compared.
//
// All methods are safe for concurrent use, inside and outside a synctest bubble.
type History struct {
	mu     sync.Mutex
	events []event // the one at i has the number i+1
}

// New returns an empty history.
func New() *History { return &History{} }

// A Call is a recorded call that has not returned yet. Call exactly one of its
// methods when it returns; a second one panics. A call without a return is a
// violation, unless its process died.
type Call struct {
	h    *History
	call event
	once sync.Once
}

// Acquire records that the process starts to acquire the key, by any method. Do
// not record acquisitions with Reentrant one by one: all handles of a term are
// one owner. Record the first Acquire and the last Release.
func (h *History) Acquire(process, key string) *Call {
	return h.begin(event{Kind: didAcquire, Process: process, Key: key})
}

// Release records that the process starts to give up a term, by Release, or by
// Complete or Fail of work. The process stops believing in the term at this
// record. It holds the key again only if the call Failed.
//
// Of several releases of one term, the first that did not fail counts: a second
// Claim.Release returns nil whatever the outcome of the first.
func (h *History) Release(process string, t fencing.Token) *Call {
	return h.begin(event{Kind: didRelease, Process: process, Key: t.Key, Fence: t.Fence})
}

// Effect records that the process starts a write that etcd accepts only from the
// owner: by Claim.Txn, or under the conditions of Claim.Guard.
//
// Do not use it for resources that compare fences themselves, such as SQL
// databases. They may accept an owner whose term has ended, until they have seen a
// newer one.
func (h *History) Effect(process string, t fencing.Token) *Call {
	return h.begin(event{Kind: didEffect, Process: process, Key: t.Key, Fence: t.Fence})
}

// Take records that the test starts to take the key away from its holder: by deleting
// it, revoking its lease, forcing its release, or restoring a snapshot. So does
// resuming an etcd leader that was paused for longer than a TTL: it may revoke leases
// that were renewed meanwhile. The holder may count its term as held for [Checks.Grace]
// after Take returned, and without limit if Take is Unknown.
func (h *History) Take(key string) *Call {
	return h.begin(event{Kind: didTake, Key: key})
}

// Taken records a Take that took no time. Use it only if nothing else can have
// happened between the record and the taking.
func (h *History) Taken(key string) { h.Take(key).Done() }

// Granted records that the key was acquired with this fence. From this record on the
// process counts as the owner.
func (c *Call) Granted(fence int64) { c.end(event{Kind: didGranted, Fence: fence}) }

// Done records that the call succeeded.
func (c *Call) Done() { c.end(event{Kind: didDone}) }

// Refused records that etcd refused the call and changed nothing, because the
// term was not the owner, or no longer. For an acquisition it records that the key
// was not granted.
func (c *Call) Refused() { c.end(event{Kind: didRefused}) }

// Lost records that the call changed nothing because the client itself considers
// the term over. The owner according to etcd is not checked.
func (c *Call) Lost() { c.end(event{Kind: didLost}) }

// Failed records that the call changed nothing, for a reason unrelated to
// ownership: a condition of the caller's own, no space, no leader.
func (c *Call) Failed() { c.end(event{Kind: didFailed}) }

// Unknown records that the outcome is unknown: the call may have been carried out,
// or not, or may still be carried out at any later time.
func (c *Call) Unknown() { c.end(event{Kind: didUnknown}) }

// Returned records the error that a method of package etcdclaims returned:
//
//   - nil: Done. For an acquisition use Acquired instead.
//   - ErrUnknown: Unknown
//   - ErrLost, with a reason that comes from etcd (ReasonDeleted,
//     ReasonSuperseded, ReasonRevoked): Refused
//   - ErrLost with another reason, and ErrReleased: Lost
//   - any other: Failed
//
// It does not see the response of a transaction. If that did not succeed, call
// Failed.
func (c *Call) Returned(err error) {
	e := event{Kind: didFailed}
	var lost *etcdclaims.LostError
	switch {
	case err == nil:
		e.Kind = didDone
	case errors.Is(err, etcdclaims.ErrUnknown):
		e.Kind = didUnknown
	case errors.As(err, &lost) && reportedByEtcd(lost.Reason):
		e.Kind = didRefused
	case errors.Is(err, etcdclaims.ErrLost), errors.Is(err, etcdclaims.ErrReleased):
		e.Kind = didLost
	}
	if err != nil {
		e.Text = err.Error()
	}
	c.end(e)
}

// Acquired records the results of an acquiring method.
func (c *Call) Acquired(cl *etcdclaims.Claim, err error) {
	if err != nil {
		c.Returned(err)
		return
	}
	c.Granted(cl.Fence())
}

func reportedByEtcd(r etcdclaims.Reason) bool {
	return r == etcdclaims.ReasonDeleted || r == etcdclaims.ReasonSuperseded || r == etcdclaims.ReasonRevoked
}

// Checked records that Claim.Check has just returned nil. The term must be the
// owner according to etcd at this moment. No other goroutine may be releasing the
// claim meanwhile.
func (h *History) Checked(process string, t fencing.Token) {
	h.add(event{Kind: didChecked, Process: process, Key: t.Key, Fence: t.Fence})
}

// Ended records that the process has just learned, without a release, that its
// term is over. Call it in Hooks.TermEnded, which runs where the loss is noticed. A
// goroutine that waits for Claim.Done may record too late, which matters if a
// successor does not wait for the end of a lease: record Ended yourself before an
// acquisition with Supersede.
func (h *History) Ended(process string, t fencing.Token) {
	h.add(event{Kind: didEnded, Process: process, Key: t.Key, Fence: t.Fence})
}

// Died records that the process was killed. It has no term any more. The
// outcome of its open calls is unknown, whatever is recorded for them later,
// except that a fence that is recorded as Granted was granted. Later records with
// this name belong to a new process.
func (h *History) Died(process string) { h.add(event{Kind: didDied, Process: process}) }

// Logf adds a line for human readers, such as the begin or end of a fault. It is
// not checked.
func (h *History) Logf(format string, args ...any) {
	h.add(event{Kind: didLog, Text: fmt.Sprintf(format, args...)})
}

// begin records a call.
func (h *History) begin(e event) *Call { return &Call{h: h, call: h.add(e)} }

// end records the return of a call.
func (c *Call) end(e event) {
	acquired := c.call.Kind == didAcquire
	if acquired && e.Kind == didDone || !acquired && e.Kind == didGranted {
		panic(fmt.Sprintf("history: %s cannot end with %s", c.call.Kind, e.Kind))
	}
	first := false
	c.once.Do(func() { first = true })
	if !first {
		panic(fmt.Sprintf("history: %s returned twice", c.call))
	}
	e.Call, e.Process, e.Key = c.call.Seq, c.call.Process, c.call.Key
	if e.Fence == 0 {
		e.Fence = c.call.Fence
	}
	c.h.add(e)
}

// add gives the event its number and time.
func (h *History) add(e event) event {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.Seq, e.At = int64(len(h.events))+1, time.Now()
	h.events = append(h.events, e)
	return e
}

// snapshot returns what was recorded so far. Events are never changed.
func (h *History) snapshot() []event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events[:len(h.events):len(h.events)]
}

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

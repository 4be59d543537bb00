package claimtest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
)

// A History records what the clients of one test were told, in the order in
// which they were told it, for [History.Verify] to judge.
//
// That order is of the records, numbered one after the other, and not of their
// times: in virtual time much happens at one instant. A record must therefore
// be made by the goroutine that makes the call, right before and right after
// it. Whoever records late makes calls look longer than they were, which hides
// faults; with Ended it makes beliefs look longer, which invents some.
//
// Processes are names of the test's own choosing. What is not recorded is not
// checked: a history without effects says nothing about fences being compared.
//
// All methods are safe for concurrent use, inside of a synctest bubble and
// outside.
type History struct {
	mu     sync.Mutex
	events []event // the one at i has the number i+1
}

// NewHistory returns an empty history.
func NewHistory() *History { return &History{} }

// A Call is one recorded call that has yet to return. Say how, exactly once:
// saying it again panics. A call that never returned is a violation, unless its
// process died.
type Call struct {
	h    *History
	call event
	once sync.Once
}

// Acquire records that the process is about to acquire the key, by whatever
// method. Acquisitions with Reentrant are not for a history: handles of one
// term are one owner, of which record the first Acquire and the last Release.
func (h *History) Acquire(process, key string) *Call {
	return h.begin(event{Kind: didAcquire, Process: process, Key: key})
}

// Release records that the process is about to give a term up: by Release, or
// by Complete or Fail of work. The process stops believing in it here, and goes
// on only if the call then Failed.
//
// Of several releases of one term the first that did not fail counts: a second
// Claim.Release returns nil whatever became of the first.
func (h *History) Release(process string, t fencing.Token) *Call {
	return h.begin(event{Kind: didRelease, Process: process, Key: t.Key, Fence: t.Fence})
}

// Effect records that the process is about to write something that etcd lets
// pass only for the owner: by Claim.Txn, or under the conditions of Claim.Held.
//
// It is not for resources that compare fences by themselves, as SQL databases
// do: they may rightly accept an owner whose term has ended while no newer one
// has come to them.
func (h *History) Effect(process string, t fencing.Token) *Call {
	return h.begin(event{Kind: didEffect, Process: process, Key: t.Key, Fence: t.Fence})
}

// Take records that the test is about to take the key away behind its holder's
// back: to delete it, to revoke its lease, to force its release, to restore a
// snapshot, to wake a leader of etcd that slept for longer than a TTL and may
// revoke what was renewed meanwhile. Who held it may go on believing for
// Checks.Grace after Take returned, and for ever if it is Unknown.
func (h *History) Take(key string) *Call {
	return h.begin(event{Kind: didTake, Key: key})
}

// Taken is a Take that took no time: nothing else can have happened between the
// record and the deed, before or after.
func (h *History) Taken(key string) { h.Take(key).Done() }

// Granted records that the key was acquired, with this fence. The process
// believes from here on that it is the owner.
func (c *Call) Granted(fence int64) { c.end(event{Kind: didGranted, Fence: fence}) }

// Done records that the call did what it was to do.
func (c *Call) Done() { c.end(event{Kind: didDone}) }

// Refused records that etcd refused the call, which changed nothing, because
// the term was not, or no longer, the owner. Of an acquisition, that it was not
// granted.
func (c *Call) Refused() { c.end(event{Kind: didRefused}) }

// Lost records that nothing was changed because the term is over by the
// client's own account: what etcd has is another matter, and is not judged.
func (c *Call) Lost() { c.end(event{Kind: didLost}) }

// Failed records that nothing was changed, for a reason that says nothing about
// ownership: a condition of the caller's own, no space, no leader.
func (c *Call) Failed() { c.end(event{Kind: didFailed}) }

// Unknown records that the outcome is unknown: it may have been done, it may
// not, and it may yet be, at any later time.
func (c *Call) Unknown() { c.end(event{Kind: didUnknown}) }

// Returned records what a method of package etcdclaims returned:
//
//   - nil: Done. Not for an acquisition, see Acquired
//   - ErrUnknown: Unknown
//   - ErrLost, with a reason that the client has from etcd (ReasonDeleted,
//     ReasonSuperseded, ReasonRevoked): Refused
//   - ErrLost with another reason, and ErrReleased: Lost
//   - any other: Failed
//
// The response of a transaction is for the caller to read: one that did not
// succeed has Failed.
func (c *Call) Returned(err error) {
	e := event{Kind: didFailed}
	var lost *etcdclaims.LostError
	switch {
	case err == nil:
		e.Kind = didDone
	case errors.Is(err, etcdclaims.ErrUnknown):
		e.Kind = didUnknown
	case errors.As(err, &lost) && toldByEtcd(lost.Reason):
		e.Kind = didRefused
	case errors.Is(err, etcdclaims.ErrLost), errors.Is(err, etcdclaims.ErrReleased):
		e.Kind = didLost
	}
	if err != nil {
		e.Text = err.Error()
	}
	c.end(e)
}

// Acquired records what an acquiring method returned.
func (c *Call) Acquired(cl *etcdclaims.Claim, err error) {
	if err != nil {
		c.Returned(err)
		return
	}
	c.Granted(cl.Fence())
}

func toldByEtcd(r etcdclaims.Reason) bool {
	return r == etcdclaims.ReasonDeleted || r == etcdclaims.ReasonSuperseded || r == etcdclaims.ReasonRevoked
}

// Checked records that Claim.Check returned nil just now: at this very moment
// the term is to be the owner by etcd's account too. Nobody may be releasing
// it meanwhile.
func (h *History) Checked(process string, t fencing.Token) {
	h.add(event{Kind: didChecked, Process: process, Key: t.Key, Fence: t.Fence})
}

// Ended records that the term ended by its process's own account just now:
// without a release, it was lost. Hooks.Lost is told where it happens; a
// goroutine that waits for Claim.Done can come late, which matters where a
// successor does not wait for the end of a lease: before an acquisition with
// Supersede record Ended yourself.
func (h *History) Ended(process string, t fencing.Token) {
	h.add(event{Kind: didEnded, Process: process, Key: t.Key, Fence: t.Fence})
}

// Died records that the process was killed: it believes nothing any more, and
// the outcome of its open calls is unknown, whatever is recorded of them later,
// except that a fence that was Granted was. What begins under its name from here
// on is another process's.
func (h *History) Died(process string) { h.add(event{Kind: didDied, Process: process}) }

// Logf adds a line for people: a fault that begins or ends, say. It is not
// judged.
func (h *History) Logf(format string, args ...any) {
	h.add(event{Kind: didLog, Text: fmt.Sprintf(format, args...)})
}

// begin records a call.
func (h *History) begin(e event) *Call { return &Call{h: h, call: h.add(e)} }

// end records the return of a call.
func (c *Call) end(e event) {
	acquired := c.call.Kind == didAcquire
	if acquired && e.Kind == didDone || !acquired && e.Kind == didGranted {
		panic(fmt.Sprintf("claimtest: %s cannot end with %s", c.call.Kind, e.Kind))
	}
	first := false
	c.once.Do(func() { first = true })
	if !first {
		panic(fmt.Sprintf("claimtest: %s returned twice", c.call))
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

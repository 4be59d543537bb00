package acquire

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/ownwait"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Call is what an acquiring call wants, and what it has learnt so far. One goroutine uses it.
type Call struct {
	TTL         time.Duration
	Manual      bool // the claim has a lease of its own
	Reentrant   bool
	Supersede   bool
	MaxHold     time.Duration
	MinHold     time.Duration
	Progress    time.Duration
	If          []clientv3.Cmp
	Then        []clientv3.Op
	Concern     []string // what If and Then concern, nil if that may be anything
	Note        []byte   // nil: none
	Suspectable bool
	Lazy        bool // its release is not waited for
	Prefers     bool
	Preference  int
	Labels      []string         // of its process, for readers; nil: not known
	Beside      beside.Companion // the key that is claimed together with it, or nil

	Kind any           // how it wants the key, comparable: calls of one kind can share an answer
	Mode protocol.Mode // what it knows of how the key is had
	From ownwait.Site  // who calls

	// Until is when it ends, whatever its context allows. Zero: never.
	Until time.Time
	// Hooked is its context for the hooks, nil if none follows it. InLine is since when it is in line; zero: it is not.
	Hooked context.Context
	InLine time.Time

	ask *ask // what it has asked for itself and others, or nil
}

// Waits notes that the call is in line from now on.
func (o *Call) Waits() {
	if o.InLine.IsZero() {
		o.InLine = clock.Mono()
	}
}

// HasOps reports whether it has conditions or operations of its caller.
func (o *Call) HasOps() bool { return len(o.If)+len(o.Then) > 0 }

// Grantable reports whether a releaser can hand the key to a waiter of the call: it wants nothing
// but a claim.
func (o *Call) Grantable() bool {
	return o.Beside == nil && o.Mode.Keys().Mark == "" && o.Note == nil && !o.HasOps()
}

// asks is what the call asks for beside the key.
func (o *Call) asks() protocol.Ask {
	ask := protocol.Ask{Concern: o.Concern}
	if o.HasOps() {
		in := txn.Of(o.If, o.Then, nil)
		ask.If, ask.Then = in.Compare, in.Success
	}
	if o.Note != nil {
		ask.Note = protocol.NewNote(1, o.Note)
	}
	return ask
}

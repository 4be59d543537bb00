package etcdclaims

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"go.uber.org/zap"
)

// Hooks are called for events of a client's claims, on the goroutine that caused
// the event. A hook must return quickly and must not call the client. A nil hook
// is skipped.
type Hooks struct {
	// Acquired is called for each new term.
	Acquired func(fencing.Token)
	// Released is called for each term that its holder gave up.
	Released func(fencing.Token)
	// Lost is called for each term that ended in any other way.
	Lost func(*LostError)
	// Zombie is called for each handler that did not return within the drain
	// after its context ended. Its claim is being moved to a new term without
	// an owner. Once that is stored, writes under the handler's fence are
	// refused.
	Zombie func(Zombie)
	// Suspected is called when it is known whether a suspicion was right; see
	// [Suspectable].
	Suspected func(Suspicion)
	// Renewed is called for each verified renewal of a session.
	Renewed func(Renewal)
	// Observe is called when a call begins to acquire a key, with the call's
	// context. It returns an Observer for the call and its claim, or nil.
	// TryAcquireAll and TryAcquireEach call it for each key. It is not
	// called for Locks, nor for calls whose key or options are invalid.
	Observe func(ctx context.Context, call Call) Observer
	// Requested is called after each request to etcd, except watches and the one
	// request for etcd's version. A request may carry the calls of several callers.
	Requested func(Request)
	// Opened is called by New. Code that Opened starts may call the client
	// later. The returned function is called by Close, if it is not nil.
	Opened func(*Client) (closed func())
}

// Zombie describes a handler that did not return within its drain.
type Zombie struct {
	Token fencing.Token
	Told  error         // why its context ended
	Drain time.Duration // how long it had to return
}

// Suspicion describes a client that did not answer, whose claims this client has taken.
type Suspicion struct {
	Instance string // of the suspected client; see Client.Instance
	Claims   int    // how many claims were taken from it
	// Wrong reports whether the suspected client answered later. Otherwise all its
	// leases have ended.
	Wrong bool
}

// Renewal describes one verified renewal of a session.
type Renewal struct {
	// TTL is the lease time that etcd granted.
	TTL time.Duration
	// Margin is how much longer the session's claims would have lasted without
	// this renewal, measured when its last answer arrived.
	Margin time.Duration
	// Took is the time from the first request to the last answer.
	Took time.Duration
	// Claims is the number of claims on the session's lease.
	Claims int
}

// reportLost reports that the claim was lost, to the log and the hook.
func (t *term) reportLost(l *LostError) {
	c := t.s.c
	if l.Reason != ReasonShutdown {
		c.log.Info("claim lost", zap.String("key", l.Token.Key), zap.Int64("fence", l.Token.Fence), zap.Stringer("reason", l.Reason), zap.NamedError("cause", l.Err))
	}
	if hook := c.cfg.Hooks.Lost; hook != nil {
		hook(l)
	}
}

package etcdclaims

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/term"
	"go.uber.org/zap"
)

// Hooks are functions that a [Client] calls on events, for metrics, traces and logs.
// Nil functions are not called. Package etcdclaims/telemetry provides hooks for
// OpenTelemetry. A passthrough client calls no hooks.
//
// CallBegan returns a context, which the client passes to the other hooks of the same
// call, and to those of the term that the call begins. Hooks keep in it what belongs to
// one call, such as a span. They get its values without its deadline and its end. The
// values are kept for as long as the claim. To add hooks to those of a Config, call both
// in each hook. Pass the context that the first CallBegan returns to the second one.
//
// CallBegan and CallEnded are called on the goroutine of the caller, every other hook on
// the goroutine that caused the event. Hooks must be safe for concurrent use. TermBegan
// returns before another hook is called for the same term.
//
// A hook must return quickly, because it can delay calls and renewals. It must not call
// the client. The client does not recover a panic of a hook. On a goroutine of the
// client, such a panic ends the process. If a hook panics in an acquiring call, and the
// caller recovers, the key can stay held until the client is closed.
type Hooks struct {
	// CallBegan is called when a call begins to acquire a key, with the context of the
	// call. It returns the context for the other hooks, which must not be nil.
	// TryAcquireAll and TryAcquireEach call it for each key. It is not called for package locks,
	// nor for calls whose key or options are invalid. Default: the context of the call.
	CallBegan func(ctx context.Context, call Call) context.Context
	// CallEnded is called once for each CallBegan, before the call returns.
	CallEnded func(ctx context.Context, call Call)
	// TermBegan is called when a call has acquired its key, before CallEnded. It is not
	// called if the call shares a claim of its client; see Reentrant.
	TermBegan func(ctx context.Context, term TermInfo)
	// TermEnded is called once for each TermBegan, when the claim was released or lost.
	TermEnded func(ctx context.Context, term TermInfo)
	// Zombie is called for each handler that did not return within its drain after its
	// context ended. Its claim is being moved to a new term without an owner. Once that is
	// stored, writes under the handler's fence are refused. It can be called after
	// TermEnded.
	Zombie func(ctx context.Context, term TermInfo, drain time.Duration)
	// ReleaseFailed is called when the request of a release with [LazyRelease] failed, after TermEnded. err matches
	// ErrUnknown if the reply was lost, and ErrLost if the key no longer belonged to the claim. After any error but
	// ErrLost the client repeats the request until the key is free. ReleaseFailed is called at most once for a term.
	// It is not called if the session has ended, because the key is then free.
	ReleaseFailed func(ctx context.Context, term TermInfo, err error)
	// Context returns work with the values that the work under a claim needs, such as its
	// span. ctx is that of the term. Claim.Context, Claim.Bind, Run and the like call it
	// for the contexts that they make.
	Context func(ctx, work context.Context) context.Context
	// Trace returns a text that the next holder of the key gets as TermInfo.Trace, if the
	// key is handed over to it. An empty text, or one of more than 256 bytes, is not
	// passed on. It is called while the claim is released, if callers may be in line.
	Trace func(ctx context.Context) string

	// Renewed is called for each verified renewal of a session.
	Renewed func(Renewal)
	// Suspected is called when it is known whether a suspicion was right, see
	// [Suspectable]. instance is the client that did not answer, see Client.Instance.
	// claims is the number of claims that this client has taken from it. wrong reports
	// whether the other client answered later. Otherwise all its leases have ended.
	Suspected func(instance string, claims int, wrong bool)
	// Requested is called after each request to etcd, except watches and the one
	// request for etcd's version. A request may carry the calls of several callers.
	Requested func(Request)
	// Opened is called by New. Code that Opened starts may call the client
	// later. The returned function is called by Close, if it is not nil.
	Opened func(*Client) (closed func())
}

// Call describes a call that acquires a key, for [Hooks].
type Call struct {
	Key  string
	Wait bool // it waits in line: Acquire, Begin, Run and the like

	// For CallEnded:

	Waited time.Duration // how long it stood in line; 0 if it did not have to wait
	Err    error         // nil if it has a claim
}

// TermInfo describes the term of a claim, for [Hooks].
type TermInfo struct {
	Token   fencing.Token
	Attempt int // number of the attempt, as Info.Attempt

	// For TermBegan:

	TookOver bool // whether the last owner died, for claims with an Attempt
	// Trace is what Hooks.Trace returned at the previous holder. It is empty unless the
	// key was handed over, and can be empty then too, if another client hands it over.
	Trace string

	// For TermEnded and Zombie:

	Held time.Duration // how long the claim was held
	// Outcome is how the work of package work ended: "done", "failed", "dead", or "free" if
	// it was given back. It is empty for other claims, and if the claim was lost. The record
	// is not guaranteed: if its outcome is unknown, the call that ended the work returned ErrUnknown.
	Outcome string
	// Err is what Claim.Err returns: ErrReleased, or a *LostError. For Zombie it is the
	// reason for which the context of the handler ended.
	Err error
}

// Renewal describes one verified renewal of a session, for [Hooks].
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

// Request describes a request to etcd, for [Hooks].
type Request struct {
	// Kind is the method of etcd's gRPC interface: "txn", "range", "put", "delete_range",
	// "lease_grant", "lease_keep_alive", "lease_revoke", or "lease_time_to_live".
	Kind string
	Took time.Duration
	Err  error // nil if etcd carried it out; a transaction whose conditions failed was carried out
}

// maxTraceBytes bounds the text that is passed on to the next holder.
const maxTraceBytes = 256

// events reports what happens to a client. Nothing else knows which hooks there are.
type events struct {
	hooks   Hooks
	log     *zap.Logger
	follows bool   // some hook follows calls and terms, which then have a context for it
	closed  func() // what Opened returned, or nil
}

func eventsFor(h Hooks, log *zap.Logger) events {
	follows := h.CallBegan != nil || h.CallEnded != nil || h.TermBegan != nil || h.TermEnded != nil ||
		h.Zombie != nil || h.ReleaseFailed != nil || h.Context != nil || h.Trace != nil
	return events{hooks: h, log: log, follows: follows}
}

// callBegan returns the context of a call for its hooks, or nil if none follows it.
func (e *events) callBegan(ctx context.Context, call Call) context.Context {
	if !e.follows {
		return nil
	}
	if hook := e.hooks.CallBegan; hook != nil {
		ctx = hook(ctx, call)
	}
	return context.WithoutCancel(ctx) // a claim outlives the call
}

// callEnded reports the end of a call. inLine is since when the call was in line, or zero.
func (e *events) callEnded(hooked context.Context, call Call, inLine time.Time, err error) {
	hook := e.hooks.CallEnded
	if hooked == nil || hook == nil {
		return
	}
	if call.Err = err; !inLine.IsZero() {
		call.Waited = time.Since(inLine)
	}
	hook(hooked, call)
}

// hookedCalls are the contexts of calls for many keys, for their hooks.
type hookedCalls []context.Context

// callsBegan is callBegan for each of the keys that has no error yet.
func (e *events) callsBegan(ctx context.Context, keys []string, errs []error) hookedCalls {
	if !e.follows {
		return nil
	}
	all := make(hookedCalls, len(keys))
	for i, key := range keys {
		if errs[i] == nil {
			all[i] = e.callBegan(ctx, Call{Key: key})
		}
	}
	return all
}

// of returns the context of the i-th call, or nil.
func (all hookedCalls) of(i int) context.Context {
	if all == nil {
		return nil
	}
	return all[i]
}

// termBegan reports a new term. Its end is reported once, and after that, whichever is
// noticed first.
func (e *events) termBegan(t *term.Term, hooked context.Context, tookOver bool, trace string) {
	if hook := e.hooks.TermBegan; hook != nil {
		hook(hooked, TermInfo{Token: t.Token(), Attempt: t.Number(), TookOver: tookOver, Trace: trace})
	}
	if !t.Follow(hooked) {
		e.endOf(t, hooked)
	}
}

// TermLost reports the end of a term that was lost.
func (e *events) TermLost(t *term.Term, why claimerr.Loss) {
	if why.Reason != claimerr.Shutdown {
		token := t.Token()
		e.log.Info("claim lost", zap.String("key", token.Key), zap.Int64("fence", token.Fence),
			zap.Stringer("reason", why.Reason), zap.NamedError("cause", why.Err))
	}
	e.TermEnded(t)
}

// TermEnded reports the end of a term, after it has ended.
func (e *events) TermEnded(t *term.Term) { e.endOf(t, e.of(t)) }

func (e *events) endOf(t *term.Term, hooked context.Context) {
	hook := e.hooks.TermEnded
	if hooked == nil || hook == nil {
		return
	}
	after, outcome := t.Ended()
	info := TermInfo{Token: t.Token(), Attempt: t.Number(), Held: after, Err: t.Err()}
	if info.Err == ErrReleased { //nolint:errorlint // as finish was given it
		info.Outcome = outcome
	}
	hook(hooked, info)
}

// ReleaseFailed reports a release that no caller waited for.
func (e *events) ReleaseFailed(t *term.Term, err error) {
	if err = errtext.Call("release", t.Token().Key, err); !errors.Is(err, ErrLost) {
		e.log.Warn("lazy release failed; retrying", t.Fields(zap.Error(err))...)
	} else {
		e.log.Warn("claim was lost before its lazy release", t.Fields(zap.Error(err))...)
	}
	if hook, hooked := e.hooks.ReleaseFailed, e.of(t); hook != nil && hooked != nil {
		held, _ := t.Ended()
		hook(hooked, TermInfo{Token: t.Token(), Attempt: t.Number(), Held: held, Err: t.Err()}, err)
	}
}

// of returns the context of a term for its hooks. It is nil if none follows the term, or
// not yet: a call that shares a claim can have the term before termBegan.
func (e *events) of(t *term.Term) context.Context {
	if !e.follows {
		return nil
	}
	return t.Hooked()
}

// zombie reports a handler that did not return within its drain.
func (e *events) zombie(t *term.Term, why error, drain, held time.Duration) {
	e.log.Warn("handler outlived its drain", t.Fields()...)
	hook, hooked := e.hooks.Zombie, e.of(t)
	if hook == nil {
		return
	}
	if hooked == nil { // of a call that shared the claim, which was lost before termBegan
		hooked = context.Background()
	}
	hook(hooked, TermInfo{Token: t.Token(), Attempt: t.Number(), Held: held, Err: why}, drain)
}

// Context returns the context of work under a term.
func (e *events) Context(t *term.Term, work context.Context) context.Context {
	if hook, hooked := e.hooks.Context, e.of(t); hook != nil && hooked != nil {
		return hook(hooked, work)
	}
	return work
}

// Trace returns what the next holder is passed on.
func (e *events) Trace(t *term.Term) string {
	if hook, hooked := e.hooks.Trace, e.of(t); hook != nil && hooked != nil {
		if text := hook(hooked); len(text) <= maxTraceBytes {
			return text
		}
	}
	return ""
}

// renewed reports a renewal.
func (e *events) renewed(s *lease.Session, r lease.Renewal) {
	if hook := e.hooks.Renewed; hook != nil {
		now := s.Now()
		age, _ := now.Since(r.Before.T0)
		took, _ := now.Since(r.T0)
		hook(Renewal{TTL: r.TTL, Margin: max(r.Before.Hard-age, 0), Took: took, Claims: s.Size()})
	}
}

// judged reports whether a suspicion was wrong.
func (e *events) judged(instance string, claims int, wrong bool) {
	if hook := e.hooks.Suspected; hook != nil {
		hook(instance, claims, wrong)
	}
}

// requested reports how a request ended that was sent at t0.
func (e *events) requested(kind string, t0 time.Time, err error) {
	if hook := e.hooks.Requested; hook != nil {
		hook(Request{Kind: kind, Took: time.Since(t0), Err: err})
	}
}

// clientOpened reports a new client.
func (e *events) clientOpened(c *Client) {
	if hook := e.hooks.Opened; hook != nil {
		e.closed = hook(c)
	}
}

// clientClosed reports that the client is closed.
func (e *events) clientClosed() {
	if e.closed != nil {
		e.closed()
	}
}

package etcdclaims

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/clock"
)

// Call describes a call that acquires a key.
type Call struct {
	Key  string
	Wait bool // it waits in line: Acquire, Begin, Run and the like
	Work bool // it begins work, which has a record
}

// Observer follows one call that acquires a key and the claim that the call
// makes, for metrics and traces. [Hooks].Observe makes one. Its methods follow
// the rules of Hooks: they must return quickly, and must not call the client.
// They may be called on several goroutines at the same time.
type Observer interface {
	// Acquired is called when the call has acquired the key, before it returns.
	// It is not called if the call shares a claim of its client (Reentrant).
	Acquired(Acquisition)
	// Returned is called once, when the call returns. Waited is how long the
	// call stood in line; it is 0 if the call did not have to wait. Err is nil if
	// the call has a claim.
	Returned(waited time.Duration, err error)
	// Context returns ctx with values for the work that is done under the claim,
	// such as a trace span. Claim.Context, Claim.Bind, Run and the like call it
	// for the contexts that they make.
	Context(ctx context.Context) context.Context
	// Trace returns a text that the next holder of the key gets as
	// Acquisition.Trace if the key is handed over to it. An empty text, or one
	// of more than 256 bytes, is not passed on. It is called while the claim is
	// being released to a caller that waits in line.
	Trace() string
	// Ended is called once after Acquired, when the claim has ended.
	Ended(TermEnd)
}

// Acquisition describes a new term, for an [Observer].
type Acquisition struct {
	Token    fencing.Token
	Attempt  int  // number of the work's attempt; 0 for a claim without a record
	TookOver bool // whether the last owner of the work died
	// Trace is what the previous holder's Observer returned. It is empty unless the key
	// was handed over, and can be empty then too, if another client hands it over.
	Trace string
}

// TermEnd describes the end of a term, for an [Observer].
type TermEnd struct {
	Held time.Duration // how long the claim was held
	// Work is the state in which work was recorded: StateDone, StateFailed,
	// StateDead, or StateFree if it was given back. It is empty for a claim
	// without a record, and if the claim was lost. The record is not guaranteed:
	// if its outcome is unknown, the call that ended the work returned ErrUnknown.
	Work State
	// Err is ErrReleased, or a *LostError.
	Err error
}

// Request describes a request to etcd, for [Hooks].
type Request struct {
	Kind RequestKind
	Took time.Duration
	Err  error // nil if etcd carried it out; a transaction whose conditions failed was carried out
}

// RequestKind is the method of etcd's gRPC interface that a request calls.
type RequestKind string

// The kinds of requests.
const (
	RequestTxn       RequestKind = "txn"
	RequestRange     RequestKind = "range"
	RequestPut       RequestKind = "put"
	RequestDelete    RequestKind = "delete_range"
	RequestGrant     RequestKind = "lease_grant"
	RequestKeepAlive RequestKind = "lease_keep_alive"
	RequestRevoke    RequestKind = "lease_revoke"
	RequestLeaseTTL  RequestKind = "lease_time_to_live"
)

// maxTraceBytes bounds the text that is passed on to the next holder.
const maxTraceBytes = 256

// observeCall returns what follows a call, or nil.
func (c *Client) observeCall(ctx context.Context, call Call) Observer {
	if c.cfg.Hooks.Observe == nil {
		return nil
	}
	return c.cfg.Hooks.Observe(ctx, call)
}

// observeEach returns what follows the calls for those of the keys that are asked
// for, at the places of the keys; nil if nothing does.
func (c *Client) observeEach(ctx context.Context, keys []string, asked []int) []Observer {
	if c.cfg.Hooks.Observe == nil {
		return nil
	}
	all := make([]Observer, len(keys))
	for _, i := range asked {
		all[i] = c.cfg.Hooks.Observe(ctx, Call{Key: keys[i]})
	}
	return all
}

// observerOf returns the i-th observer of observeEach.
func observerOf(all []Observer, i int) Observer {
	if all == nil {
		return nil
	}
	return all[i]
}

// observed reports the end of a call.
func (o *acquireOptions) observed(err error) {
	if o.observer == nil {
		return
	}
	var waited time.Duration
	if !o.inLine.IsZero() {
		waited = time.Since(o.inLine)
	}
	o.observer.Returned(waited, err)
}

// waits notes that the call is in line from now on.
func (o *acquireOptions) waits() {
	if o.inLine.IsZero() {
		o.inLine = clock.Mono()
	}
}

// observe makes the attempt's observer follow the term. The end of the term is
// reported once, and after its beginning, whichever is noticed first.
func (t *term) observe(a *attempt) {
	if a.observer == nil {
		return
	}
	a.observer.Acquired(Acquisition{Token: t.token(), Attempt: t.attempt(), TookOver: a.overtakes, Trace: a.trace})
	t.s.mu.Lock()
	ended := t.phase == phaseEnded
	if !ended {
		t.observer = a.observer
	}
	t.s.mu.Unlock()
	if ended {
		a.observer.Ended(t.ending())
	}
}

// observeEnd reports the end of a term, after it has ended.
func (t *term) observeEnd() {
	if t.observer != nil {
		t.observer.Ended(t.ending())
	}
}

// ending describes the end of a term that has ended.
func (t *term) ending() TermEnd {
	e := TermEnd{Held: t.endedAt - t.heldSince, Err: t.ended()}
	if e.Err == ErrReleased { //nolint:errorlint // as finish was given it
		e.Work = t.outcome
	}
	return e
}

// trace returns what the next holder is passed on.
func (t *term) trace() string {
	o := t.observing()
	if o == nil {
		return ""
	}
	text := o.Trace()
	if len(text) > maxTraceBytes {
		return ""
	}
	return text
}

// observedContext returns ctx with what the term's observer adds to it.
func (t *term) observedContext(ctx context.Context) context.Context {
	if o := t.observing(); o != nil {
		return o.Context(ctx)
	}
	return ctx
}

// observing returns what follows the term. A call that shares the claim can have
// the term before that is known.
func (t *term) observing() Observer {
	if t.s.c.cfg.Hooks.Observe == nil {
		return nil
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.observer
}

// uptime is how long ago the client was made.
func (c *Client) uptime() time.Duration { return time.Since(c.made) }

package beside

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/core"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Host is what a client does for keys beside its claims, besides what it does for whatever is built
// on it.
type Host interface {
	core.Client

	// Watch begins a watch of a key.
	Watch(ctx context.Context, key string) (news clientv3.WatchChan, stop context.CancelFunc)

	// LeaseGone reports whether there is no such lease, and with it no key that was on it.
	LeaseGone(ctx context.Context, id clientv3.LeaseID) (bool, error)

	// TTL is that of claims without an option.
	TTL() time.Duration
	Clock() clock.Clock
	// IO is the context of requests that no caller waits for. Open ends when Close is called.
	IO() context.Context
	Open() context.Context
	// OnReleased has Close call f when the claims are released.
	OnReleased(f func(ctx context.Context))
	// Releasing gives a deadline to a release whose context has ended.
	Releasing(ctx context.Context) (context.Context, context.CancelFunc)

	// Fail names the call and the key of an error, once.
	Fail(call, key string, err error) error
	// Explain adds what an outage is known to come from.
	Explain(err error) error
	// IsPassing reports whether what failed, and changed nothing, may succeed later.
	IsPassing(err error) bool
	// Own returns the client's own claim on the key, "" if it has none, and the error of a call
	// that it excludes.
	Own(key string) (claim string, held error)
	// HeldBy returns the error of a call that a claim excludes, for one that acquires or not, nil if
	// the key may be free by now.
	HeldBy(ctx context.Context, key string, own *mvccpb.KeyValue, acquires bool) error
	// Waited returns the error of a call whose context ended while it waited for a claim, nil if none is known.
	Waited(ctx context.Context, key string, own *mvccpb.KeyValue) error
}

// Term is what a claim does for the key beside it.
type Term interface {
	// OwnedBy has the claim's own methods call those of owner.
	OwnedBy(owner Owner)
	// Check returns why operations cannot be sent, or why the claim is not held by the clocks that
	// cannot be stepped.
	Check(call string, ops []clientv3.Op) error
	// End releases the claim together with operations, as Claim.ReleaseWith does.
	End(ctx context.Context, e End) error
	// Leave gives up a claim whose end was refused. In the background e is tried once more, unless
	// it is nil, and then the claim is released without it.
	Leave(e *End, why error) error
	// Run calls fn while the claim is held, and then end, which gives the claim up. It
	// returns an error if fn must not count as successful.
	Run(ctx context.Context, fn func(context.Context) error, end func(far Far, err error) error) error
	// Within bounds a request by the claim's deadline.
	Within(ctx context.Context) (context.Context, context.CancelFunc)
}

// Owner ends a claim whose key is not the only one that must be changed then.
type Owner interface {
	Release(ctx context.Context) error
	ReleaseWith(ctx context.Context, ops ...clientv3.Op) error
	Run(ctx context.Context, fn func(context.Context) error) error
}

// End is how a claim ends together with the key beside it.
type End struct {
	Call    string        // as errors name it
	Own     clientv3.Op   // changes the key beside the claim
	Ops     []clientv3.Op // of the caller; they may concern any key
	Deletes bool          // Own deletes the key beside the claim, which nothing else does
	Outcome string        // as observers see it
	// Unsettled is called when the outcome is settled in the background, and settled when a request
	// cannot arrive any more.
	Unsettled func() (settled func())
}

// Far is how far a handler has come.
type Far int

// How far handlers come.
const (
	NotCalled Far = iota
	Called        // and it panicked, or left by Goexit
	Returned
)

var (
	hostOf func(claims any) Host
	termOf func(claim any) Term
)

// Provide sets how HostOf and TermOf find what they return. It is called once, before main.
func Provide(host func(claims any) Host, term func(claim any) Term) { hostOf, termOf = host, term }

// HostOf returns the host of a *etcdclaims.Client.
func HostOf(claims any) Host { return hostOf(claims) }

// TermOf returns the term of a *etcdclaims.Claim, nil without etcd.
func TermOf(claim any) Term { return termOf(claim) }

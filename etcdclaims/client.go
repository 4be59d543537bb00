package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/outage"
	"github.com/etcdclaims/claims/internal/ownwait"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/registry"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/store"
	"github.com/etcdclaims/claims/internal/suspicion"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Client acquires claims. Make one per process and share it: its claims share
// leases, their renewal, and one watch.
//
// A lease that has carried nothing for two of its TTLs is revoked. An idle
// client therefore costs etcd only the watch, and its next claim takes two
// more round trips.
//
// Callers share round trips. The gRPC metadata in a caller's context is sent
// with its requests. A request is shared only by callers with equal metadata.
// Other values of the context might not reach credentials and interceptors.
// Requests that the client sends on its own account, such as
// renewals and undoing, carry no metadata of callers.
//
// A nil *Client, and the zero Client, refuse every call with ErrNoClient. For development
// without etcd see [NewPassthrough].
type Client struct {
	etcd  *clientv3.Client // nil: passthrough
	cfg   Config
	log   *zap.Logger
	store *store.Store
	clock clock.Clock
	stats stats
	made  time.Time

	events events

	outage      *outage.Outage    // and the calls that may wait for etcd
	dependents  attach.Dependents // what is built on the client, for Close to end
	ownWaits    *ownwait.Watcher
	doubts      atomic.Int64 // how often claims may have been lost without news of it
	watchStream atomic.Int64 // numbers its streams of watches
	watches     waiterWatches

	valueEnd string // of the values of claims

	// io is the context of requests that the client sends on its own account; stop ends
	// it. wg counts the goroutines under it.
	io       context.Context
	stop     context.CancelFunc
	sessions atomic.Int64 // numbers them

	// open ends, with ErrClosed as its cause, when Close is called; closing is
	// its Done.
	open    context.Context
	shut    context.CancelCauseFunc
	closing <-chan struct{}

	keys    registry.Registry[*term, taking] // what the client holds
	waiters waiters                          // attempts that wait for a notice
	local   localLine                        // callers that wait for this client's own claims
	asks    asks                             // TryAcquires that are about to be sent

	peers *suspicion.Peers // that it asks whether they live, and that ask it

	// ARCHITECTURE.md has the order in which mutexes are taken. None is held across a
	// request, a hook or a caller's function.

	mu         sync.Mutex
	live       []*session
	opening    map[time.Duration]*opening
	grants     int // sessions that are being opened
	closed     bool
	watching   bool
	wg         sync.WaitGroup
	runs       map[*run]struct{} // handlers of Run and TryRun
	cleanups   []*cleanup        // that have not been started yet
	workers    int               // goroutines that work on cleanups
	unfinished int               // cleanups that are not done yet
	kept       sync.Map          // what packages built on the client keep on it, by their names

	closeOnce  sync.Once
	closedDown chan struct{} // closed when Close is done
	closeErr   error
	onReleased []func(context.Context) // called by Close when the claims are released
}

// New returns a client that stores its claims in etcd. It does no I/O. It does
// not take over etcd: close that yourself, after the Client.
//
// An error describes the field of cfg that is invalid. A nil etcd is an error, too; see
// [NewPassthrough].
func New(etcd *clientv3.Client, cfg Config) (*Client, error) {
	if etcd == nil {
		return nil, errNoEtcd
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := newClient(etcd, cfg)
	layout, timing := protocol.Layout{Prefix: cfg.Prefix, Instance: uuid.NewString()}, cfg.timing(seconds(cfg.TTL))
	c.valueEnd = valueEnd(cfg.Owner, layout.Instance)
	c.outage = outage.New(outage.Config{
		Etcd: etcd, Log: c.log, Instance: layout.Instance, Patience: outage.PatienceOf(timing.renew),
		AtStake: c.atStake, Unanswered: func() { c.doubts.Add(1) }, Passing: isPassing,
		Probe: func(ctx context.Context) { _ = c.store.ReadEpoch(ctx) }, Go: built{c}.Go,
	})
	c.ownWaits = ownwait.New(c.log.With(zap.String("instance", layout.Instance)), c.keys.Made)
	c.store = store.New(store.Config{
		IO: c.io, Etcd: etcd, Log: c.log, Layout: layout, Timeout: min(max(timing.attempt, time.Second), 5*time.Second),
		Ops: defaultOpLimit, Bytes: maxRequestBytes / 2,
		Observe: c.outage.ObserveTxn, ObserveOther: c.outage.Observe, Requested: c.events.requested, OnRewind: c.rewound,
	})
	c.peers = c.newPeers()
	c.events.clientOpened(c)
	return c, nil
}

// rewound gives up all claims: etcd's revision went back.
func (c *Client) rewound(err error) {
	c.log.Error("etcd went back to an older revision; all claims given up", zap.Error(err))
	for _, s := range c.liveSessions() {
		s.die(ReasonSessionDead, err)
	}
}

// newClient returns a client that is not connected to etcd yet.
func newClient(etcd *clientv3.Client, cfg Config) *Client {
	c := &Client{
		etcd: etcd, cfg: cfg, log: cfg.Logger, clock: clock.For(etcd), made: clock.Mono(), events: eventsFor(cfg.Hooks),
		opening: make(map[time.Duration]*opening),
		keys:    registry.New[*term, taking](),
		runs:    make(map[*run]struct{}),

		waiters:    waiters{byID: make(map[string]*waiter)},
		watches:    newWaiterWatches(),
		closedDown: make(chan struct{}),
		outage:     new(outage.Outage),
	}
	c.io, c.stop = context.WithCancel(context.Background())
	c.open, c.shut = context.WithCancelCause(context.Background())
	c.closing = c.open.Done()
	return c
}

// Instance returns the identity of this client, a UUID that is new with each
// New. It is empty for a passthrough client.
func (c *Client) Instance() string {
	if !c.connects() {
		return ""
	}
	return c.store.Layout.Instance
}

// Etcd returns the etcd client that was given to New. It is for packages that
// are built on claims and keep keys of their own. It is nil for a passthrough
// client.
func (c *Client) Etcd() *clientv3.Client {
	if c == nil {
		return nil
	}
	return c.etcd
}

// Prefix returns Config.Prefix, with its final slash. It is empty for a nil
// client. A caller's operations must not change keys under it, except in the
// subtrees sched/ and queue/.
func (c *Client) Prefix() string {
	if c == nil {
		return ""
	}
	return c.cfg.Prefix
}

// Owner returns Config.Owner, the label of the client's claims. It is empty
// for a nil client.
func (c *Client) Owner() string {
	if c == nil {
		return ""
	}
	return c.cfg.Owner
}

// OwnKey returns the etcd key that exists while key is claimed, for use in
// conditions. Its CreateRevision is 0 while the key is free. Its ModRevision
// is the Revision of the claim. OwnKey of a nil client is empty.
//
// For a key with Slots or Shared it is the etcd key of a record, which can exist while
// no caller holds the key. For the claim on one slot pass its SlotKey.
func (c *Client) OwnKey(key string) string {
	if c.refusal() != nil {
		return ""
	}
	return protocol.Layout{Prefix: c.cfg.Prefix}.Own(key)
}

// Owns reports whether the token is that of the current owner of its key,
// which may be any client. It reads from etcd; ctx bounds the read.
//
// The answer may be outdated when it arrives. To be safe, make the write
// itself conditional with Claim.Txn or Claim.Guard.
func (c *Client) Owns(ctx context.Context, t fencing.Token) (bool, error) {
	if err := c.checkKey(t.Key); err != nil {
		return false, err
	}
	if c.Passthrough() {
		return true, nil
	}
	if t.Fence <= 0 {
		return false, nil
	}
	l := c.store.Layout
	resp, err := c.read(ctx, clientv3.OpGet(l.Own(t.Key)), clientv3.OpGet(l.Epoch()), clientv3.OpGet(l.Sharers(t.Key), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	if err != nil {
		return false, callError("look up the owner of", t.Key, err)
	}
	own := txn.First(resp, 0)
	// A raised epoch ends all that was before it, as it does in every guard.
	if err := c.store.LearnEpoch(txn.Kvs(resp, 1), resp.Header.Revision); err != nil {
		return false, err
	}
	if own == nil || protocol.IsShared(own) && txn.Count(resp, 2) == 0 {
		return false, nil // the last holders of a shared key have died
	}
	return c.store.Epoch().Fence(own.ModRevision) == t.Fence, nil
}

// read carries out reads at one revision, trying again while that is sensible.
func (c *Client) read(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return retry.InParts(ops, func(ops ...clientv3.Op) (*clientv3.TxnResponse, error) { return c.readWhole(ctx, ops...) })
}

// readWhole is read by one request. That is for no key, so no other shares its round trip: a
// reply that is too large leaves the outcome of none unknown.
func (c *Client) readWhole(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	if err := c.open.Err(); err != nil {
		return nil, ErrClosed
	}
	if err := txn.ContextError(ctx); err != nil {
		return nil, notAttempted(err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	for try := 0; ; try++ {
		resp, err := c.store.Do(ctx, txn.Request{In: txn.Then(ops...)})
		if err == nil {
			return resp, nil
		}
		if errors.Is(err, ErrRewound) && c.store.Ready(ctx) == nil {
			continue // the epoch was raised since
		}
		// A read changes nothing: an unknown outcome is a failure.
		if err = txn.Failed(err); !isPassing(err) || !retry.PauseUnless(ctx, c.closing, try) {
			return nil, c.ended(c.outage.Explain(txn.WithCause(ctx, err)))
		}
	}
}

// bounded gives a call that does not wait for others a deadline of its own.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.bound())
}

func (c *Client) bound() time.Duration { return max(seconds(c.cfg.TTL)/2, 5*time.Second) }

// ended adds that the client was closed, if it was. What an error says beside that, such as that
// its outcome is unknown, stays.
func (c *Client) ended(err error) error {
	select {
	case <-c.closing:
	default:
		return err
	}
	switch {
	case err == nil:
		return ErrClosed
	case errors.Is(err, ErrClosed):
		return err
	}
	return fmt.Errorf("%w (%w)", ErrClosed, err)
}

// spawn runs f on a goroutine that Close waits for.
func (c *Client) spawn(f func()) { c.wg.Go(f) }

package etcdclaims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/life"
	"github.com/etcdclaims/claims/internal/line"
	"github.com/etcdclaims/claims/internal/outage"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/store"
	"github.com/etcdclaims/claims/internal/suspicion"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
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
	// What New sets does not change. The other fields have mutexes of their own.

	cfg   Config
	log   *zap.Logger
	made  time.Time
	clock clock.Clock
	life  *life.Life

	events     events
	dependents attach.Dependents // what is built on the client, for Close to end
	runs       runs              // handlers of Run and TryRun
	kept       sync.Map          // what packages built on the client keep on it, by their names
	closing    closing

	// Of a client with etcd; otherwise nil:

	etcd   *clientv3.Client
	store  *store.Store
	outage *outage.Outage   // and the calls that may wait for etcd
	pool   *lease.Pool      // its sessions
	terms  *term.Terms      // what it holds
	line   *line.Line       // callers that acquire and wait
	peers  *suspicion.Peers // that it asks whether they live, and that ask it
}

// newClient returns a client without etcd.
func newClient(cfg Config) *Client {
	c := &Client{
		cfg: cfg, log: cfg.Logger, made: clock.Mono(), events: eventsFor(cfg.Hooks, cfg.Logger), life: life.New(),
		closing: newClosing(), outage: new(outage.Outage),
	}
	c.runs.life, c.runs.outlived = c.life, func(t *term.Term, why error, drain time.Duration) {
		c.events.zombie(t, why, drain, c.uptime()-t.Holding.Since)
	}
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
	resp, err := c.read(ctx, clientv3.OpGet(l.Own(t.Key)), clientv3.OpGet(l.Epoch()),
		clientv3.OpGet(l.Sharers(t.Key), clientv3.WithPrefix(), clientv3.WithCountOnly()))
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
	if err := c.life.Open.Err(); err != nil {
		return nil, ErrClosed
	}
	if err := txn.ContextError(ctx); err != nil {
		return nil, fmt.Errorf("not attempted: %w", err)
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
		if err = txn.Failed(err); !claimerr.IsPassing(err) || !retry.PauseUnless(ctx, c.life.Open.Done(), try) {
			return nil, c.life.Explain(c.outage.Explain(txn.WithCause(ctx, err)))
		}
	}
}

// bounded gives a call that does not wait for others a deadline of its own.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.cfg.bound())
}

// uptime is how long ago the client was made.
func (c *Client) uptime() time.Duration { return time.Since(c.made) }

// Passthrough reports whether the client was made by [NewPassthrough].
func (c *Client) Passthrough() bool { return c.refusal() == nil && c.etcd == nil }

// refusal returns ErrNoClient unless the client was made by New or NewPassthrough.
func (c *Client) refusal() error {
	if c == nil || c.log == nil {
		return ErrNoClient
	}
	return nil
}

// connects reports whether the client was made by New.
func (c *Client) connects() bool { return c != nil && c.store != nil }

// unconnected returns why a call that needs etcd is refused by a client that was not made by New.
func (c *Client) unconnected() error { return cmp.Or(c.refusal(), ErrPassthrough) }

// layout is where the client keeps its keys.
func (c *Client) layout() protocol.Layout {
	if c.Passthrough() {
		return protocol.Layout{}
	}
	return c.store.Layout
}

// checkKey returns why a call on a key is refused, or nil.
func (c *Client) checkKey(key string) error {
	if err := c.refusal(); err != nil {
		return err
	}
	return validKey(key)
}

// checkClaimed is checkKey for calls that claim the key, or keep something in the place of its
// claim.
func (c *Client) checkClaimed(key string) error {
	if err := c.checkKey(key); err != nil {
		return err
	}
	return foreignKey(key)
}

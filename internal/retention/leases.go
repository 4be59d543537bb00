// Package retention keeps keys for a time after their owners are gone. The keys are on leases of their
// own, which many keys share. A lease is current for a slice, a tenth of the retention, and lasts a
// slice longer than the retention.
//
// A key that has an owner stays on its lease: if it were put anew, it would lose its revision. The
// client renews the lease for as long as it holds claims whose keys are on it, once in a slice. So such
// a key lasts as long as its owner does, and a retention longer. No search for what owners left behind is
// needed.
package retention

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Host is what leases use of a client.
type Host interface {
	Leases() core.Leases
	Store() core.Store
	Clock() clock.Clock
	// IO is the context of requests that no caller waits for. Open ends when Close is called.
	IO() context.Context
	Open() context.Context
	// Go runs f, and reports whether the client is open: otherwise it does not run f.
	Go(f func(ctx context.Context)) bool
	// OnReleased has Close call f when the claims are released.
	OnReleased(f func(ctx context.Context))
	// Explain adds what an outage is known to come from.
	Explain(err error) error
	// IsPassing reports whether what failed may succeed later.
	IsPassing(err error) bool
}

// Owner has a claim whose key is on a lease. Err returns an error once the claim has ended.
type Owner interface{ Err() error }

// Leases are those of one retention.
type Leases struct {
	host  Host // this and the next four are set by NewLeases
	log   *zap.Logger
	what  string        // is on them, for errors
	lasts time.Duration // negative: for ever
	kept  bool          // renewed while claims are held whose keys are on them

	mu       sync.Mutex               // of the rest
	current  map[time.Duration]*Lease // to put keys on, by how much longer they last
	granting map[time.Duration]*grant // on their way to be current
	older    []*Lease                 // to be kept yet
	owners   map[Owner]*Lease
	pruned   int // how many owners there were when those that have ended were last removed
	keeping  bool
}

// NewLeases returns leases that last for a time after they are used, for ever if it is negative. With
// kept they are renewed while they have owners. Errors say what is on them.
func NewLeases(host Host, log *zap.Logger, what string, lasts time.Duration, kept bool) *Leases {
	return &Leases{
		host:     host,
		log:      log,
		what:     what,
		lasts:    lasts,
		kept:     kept,
		current:  make(map[time.Duration]*Lease),
		granting: make(map[time.Duration]*grant),
		owners:   make(map[Owner]*Lease),
	}
}

func (h *Leases) slice() time.Duration { return max(h.lasts/10, time.Second) }

// keysPerLease is how many keys a lease has at most: ending one with 100,000 keys stalls
// etcd for 327 ms, with 10,000 for 25.
const keysPerLease = 8192

// longest is as long as for ever.
const longest = 100 * 365 * 24 * time.Hour

// longer is how much longer than the retention a lease must last for a key that must outlast d: few
// different durations, so that keys share leases.
func (h *Leases) longer(d time.Duration) time.Duration {
	if d <= h.lasts/2 {
		return 0
	}
	for n := h.lasts; n < longest; n *= 2 {
		if n >= d {
			return n
		}
	}
	return longest
}

// Get returns a lease that lasts for the retention at least, and for a half of it
// after d. Its caller is a writer until it calls Leave.
func (h *Leases) Get(ctx context.Context, d time.Duration) (*Lease, error) {
	if h.lasts < 0 {
		return new(Lease).Enter(), nil
	}
	longer := h.longer(d)
	if longer >= longest {
		return new(Lease).Enter(), nil
	}
	waiting := ctx
	for {
		h.mu.Lock()
		l, g := h.usable(longer).Enter(), h.granting[longer]
		if l == nil && g == nil {
			g = &grant{done: make(chan struct{})}
			h.granting[longer] = g
			h.mu.Unlock()
			return h.open(ctx, longer, g)
		}
		h.mu.Unlock()
		if l != nil {
			return l, nil
		}
		if waiting == ctx {
			var cancel context.CancelFunc
			waiting, cancel = context.WithTimeout(ctx, h.host.Store().Timeout())
			defer cancel()
		}
		select {
		case <-g.done:
			if g.err != nil {
				return nil, g.err
			}
		case <-waiting.Done():
			return nil, h.unanswered(waiting)
		}
	}
}

// grant is that of a lease that several callers wait for. In an outage all of them get
// the same failure, instead of trying one after the other.
type grant struct {
	done chan struct{}
	err  error // why it was not granted, unless its caller gave up: then another tries. Set before done is closed
}

// usable returns the lease to put keys on, or nil if another is due; the lock is
// held.
func (h *Leases) usable(longer time.Duration) *Lease {
	l := h.current[longer]
	if l == nil || l.keys.Load() < keysPerLease && !h.isPast(l) {
		return l
	}
	h.retire(longer, l)
	return nil
}

// isPast reports whether the slice is over in which the lease is used.
func (h *Leases) isPast(l *Lease) bool {
	sure, wall := h.host.Clock().Now().Since(l.from)
	return max(sure, wall) >= h.slice()
}

// retire has a lease be used no more; the lock is held.
func (h *Leases) retire(longer time.Duration, l *Lease) {
	if h.kept {
		h.older = append(h.older, l)
	}
	delete(h.current, longer)
}

// open grants the lease that others wait for, too.
func (h *Leases) open(ctx context.Context, longer time.Duration, g *grant) (*Lease, error) {
	l, err := h.grant(ctx, h.lasts+h.slice()+longer)
	if ctx.Err() == nil {
		g.err = err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	defer close(g.done)
	delete(h.granting, longer)
	if err != nil {
		return nil, err
	}
	h.current[longer] = l.Enter()
	if h.kept && !h.keeping {
		if h.keeping = h.host.Go(func(context.Context) { h.keep() }); h.keeping {
			h.host.OnReleased(h.close)
		}
	}
	return l, nil
}

func (h *Leases) grant(ctx context.Context, ttl time.Duration) (*Lease, error) {
	// One request that fails is not the end. A call that acquires ends after three.
	ctx, cancel := context.WithTimeout(ctx, 2*h.host.Store().Timeout())
	defer cancel()
	l := &Lease{from: h.host.Clock().Now()}
	// A lease whose reply was lost ends by itself.
	again := func(err error) bool { return txn.MayBeDone(err) || txn.IsTransient(err) }
	err := retry.Do(ctx, again, func() (err error) {
		l.id, err = h.host.Leases().Grant(ctx, ttl)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("etcd has not granted a lease for %s: %w", h.what, txn.Denied(txn.WithCause(ctx, err)))
	}
	return l, nil
}

// unanswered is the error of a context that has ended while a lease was waited for.
func (h *Leases) unanswered(ctx context.Context) error {
	err := context.Cause(ctx)
	if err == nil || errors.Is(err, attach.ErrClosed) || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	return h.host.Explain(fmt.Errorf("etcd has not answered: %w", err))
}

// Gone handles an answer that a lease does not exist: true means that it was this one,
// which was revoked. Another lease then replaces it.
func (h *Leases) Gone(err error, l *Lease) bool {
	if l == nil || l.id == clientv3.NoLease || !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return false
	}
	resp, err := h.host.Leases().TimeToLive(h.host.IO(), l.id)
	if err != nil || resp.TTL > 0 {
		return false
	}
	h.drop(l)
	return true
}

// drop forgets a lease.
func (h *Leases) drop(l *Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.current, func(_ time.Duration, c *Lease) bool { return c == l })
	h.older = slices.DeleteFunc(h.older, func(o *Lease) bool { return o == l })
}

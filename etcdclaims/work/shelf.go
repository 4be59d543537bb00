package work

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Records of work outlive their owners, so they are on leases of their own, which
// many records share. A lease is used for a slice, a tenth of the retention, and
// lasts a slice longer than the retention.
//
// The record of work that is under way is put on such a lease by the claiming
// transaction itself. The client renews the lease for as long as it holds work
// whose record is on it, once in a slice. So the record lasts as long as its owner
// does, and a retention longer: an orphan is forgotten without a search for orphans. A
// record that were rewritten instead would lose its revision,
// which is the fence.

// shelf is a lease that records are on.
type shelf struct {
	id   clientv3.LeaseID // NoLease: for ever
	from clock.Reading    // before it was granted
	puts atomic.Int64     // records put on it, less those known to have left

	// A lease that a record may yet be put on is never revoked. One that callers are about
	// to use is renewed, too: the record that they put may be of work under way.
	writers atomic.Int64
	unsure  atomic.Bool // an outcome is unknown, and stays so
}

// enter adds a writer, or more of those that there are. get adds one under the mutex of the
// shelves, so that a lease that is not current any more gets no new ones.
func (s *shelf) enter() *shelf {
	if s != nil {
		s.writers.Add(1)
	}
	return s
}

// leave ends what enter began. put reports whether there is one record more on the lease.
// The record of a term is counted with the term, before its writer leaves.
func (s *shelf) leave(put bool) {
	if s == nil {
		return
	}
	if put {
		s.puts.Add(1)
	}
	s.writers.Add(-1)
}

// doubt notes that a record may yet be put on the lease.
func (s *shelf) doubt() {
	if s != nil {
		s.unsure.Store(true)
	}
}

// shelves are the leases of one retention.
type shelves struct {
	c         *Runner
	retention time.Duration // negative: for ever
	kept      bool          // renewed while work is under way whose record is on it

	mu       sync.Mutex                       // of the rest
	current  map[time.Duration]*shelf         // to put records on, by how much longer they last
	granting map[time.Duration]*grantingShelf // on their way to be current
	older    []*shelf                         // to be kept yet
	keeping  bool
}

func (h *shelves) init(c *Runner, retention time.Duration, kept bool) {
	h.c, h.retention, h.kept = c, retention, kept
	h.current = make(map[time.Duration]*shelf)
	h.granting = make(map[time.Duration]*grantingShelf)
}

func (h *shelves) slice() time.Duration { return max(h.retention/10, time.Second) }

// recordsPerLease is how many records a lease has at most: ending one with 100,000 keys stalls
// etcd for 327 ms, with 10,000 for 25.
const recordsPerLease = 8192

// longestRetention is as long as for ever.
const longestRetention = 100 * longest

// longer is how much longer than the retention a lease must last for a record that
// must outlast d: few different durations, so that records share leases.
func (h *shelves) longer(d time.Duration) time.Duration {
	if d <= h.retention/2 {
		return 0
	}
	for n := h.retention; n < longestRetention; n *= 2 {
		if n >= d {
			return n
		}
	}
	return longestRetention
}

// get returns a lease that lasts for the retention at least, and for a half of it
// after d. Its caller is a writer until it calls leave.
func (h *shelves) get(ctx context.Context, d time.Duration) (*shelf, error) {
	if h.retention < 0 {
		return new(shelf).enter(), nil
	}
	longer := h.longer(d)
	if longer >= longestRetention {
		return new(shelf).enter(), nil
	}
	waiting := ctx
	for {
		h.mu.Lock()
		s, o := h.usable(longer).enter(), h.granting[longer]
		if s == nil && o == nil {
			o = &grantingShelf{done: make(chan struct{})}
			h.granting[longer] = o
			h.mu.Unlock()
			return h.open(ctx, longer, o)
		}
		h.mu.Unlock()
		if s != nil {
			return s, nil
		}
		if waiting == ctx {
			var cancel context.CancelFunc
			waiting, cancel = context.WithTimeout(ctx, h.c.host.Store().Timeout())
			defer cancel()
		}
		select {
		case <-o.done:
			if o.err != nil {
				return nil, o.err
			}
		case <-waiting.Done():
			return nil, h.c.unanswered(waiting)
		}
	}
}

// grantingShelf is a lease that several callers wait for. In an outage all of them get
// the same failure, instead of trying one after the other.
type grantingShelf struct {
	done chan struct{}
	err  error // why it was not granted, unless its caller gave up: then another tries
}

// usable returns the lease to put records on, or nil if another is due; the lock is
// held.
func (h *shelves) usable(longer time.Duration) *shelf {
	s := h.current[longer]
	if s == nil {
		return nil
	}
	if sure, wall := h.c.host.Clock().Now().Since(s.from); max(sure, wall) < h.slice() && s.puts.Load() < recordsPerLease {
		return s
	}
	if h.kept {
		h.older = append(h.older, s)
	}
	delete(h.current, longer)
	return nil
}

// open grants the lease that others wait for, too.
func (h *shelves) open(ctx context.Context, longer time.Duration, o *grantingShelf) (*shelf, error) {
	s, err := h.grant(ctx, h.retention+h.slice()+longer)
	if ctx.Err() == nil {
		o.err = err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	defer close(o.done)
	delete(h.granting, longer)
	if err != nil {
		return nil, err
	}
	h.current[longer] = s.enter()
	if h.kept && !h.keeping {
		if h.keeping = h.c.host.Go(func(context.Context) { h.keep() }); h.keeping {
			h.c.host.OnReleased(h.close)
		}
	}
	return s, nil
}

func (h *shelves) grant(ctx context.Context, ttl time.Duration) (*shelf, error) {
	c := h.c
	ctx, cancel := context.WithTimeout(ctx, 2*c.host.Store().Timeout()) // one request that fails is not the end; TryBegin ends after 3
	defer cancel()
	s := &shelf{from: c.host.Clock().Now()}
	// A lease whose reply was lost ends by itself.
	again := func(err error) bool { return txn.MayBeDone(err) || txn.IsTransient(err) }
	err := retry.Do(ctx, again, func() error {
		id, err := c.host.Leases().Grant(ctx, ttl)
		s.id = id
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("etcd has not granted a lease for the records of work: %w", txn.Denied(txn.WithCause(ctx, err)))
	}
	return s, nil
}

// gone handles an answer that a lease does not exist: true means that it was this one,
// which was revoked. Another lease then replaces it.
func (h *shelves) gone(err error, s *shelf) bool {
	if s == nil || s.id == clientv3.NoLease || !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return false
	}
	resp, err := h.c.host.Leases().TimeToLive(h.c.host.IO(), s.id)
	if err != nil || resp.TTL > 0 {
		return false
	}
	h.drop(s)
	return true
}

// drop forgets a lease.
func (h *shelves) drop(s *shelf) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for longer, current := range h.current {
		if current == s {
			delete(h.current, longer)
		}
	}
	h.older = slices.DeleteFunc(h.older, func(o *shelf) bool { return o == s })
}

// keep renews, once in a slice, the leases with records of work under way.
func (h *shelves) keep() {
	timer := time.NewTimer(h.slice())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-h.c.host.Open().Done():
			return
		}
		h.keepOnce()
		timer.Reset(h.slice())
	}
}

func (h *shelves) keepOnce() {
	h.mu.Lock()
	for longer, s := range h.current {
		if sure, wall := h.c.host.Clock().Now().Since(s.from); max(sure, wall) >= h.slice() {
			delete(h.current, longer)
			h.older = append(h.older, s)
		}
	}
	all := slices.Clone(h.older)
	h.mu.Unlock()
	written := make(map[*shelf]bool) // read before the terms, which the writers may become
	for _, s := range all {
		written[s] = s.writers.Load() > 0
	}
	used := h.c.live.shelves()
	for _, s := range all {
		kept := used[s] || written[s]
		if kept && h.renew(s) {
			continue
		}
		if !kept && !h.clear(h.c.host.Open(), s) {
			continue
		}
		h.drop(s)
	}
}

// renew reports whether the lease is there yet, as far as is known.
func (h *shelves) renew(s *shelf) bool {
	for try := 0; ; try++ {
		err := h.c.host.Leases().KeepAlive(h.c.host.Open(), s.id)
		switch {
		case err == nil:
			return true
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			h.c.log.Warn("records of work under way were forgotten: their lease was revoked", zap.String("lease", fmt.Sprintf("%x", s.id)))
			return false
		case !h.c.host.IsPassing(err) || try > 20:
			return true // there is time until the next slice
		}
		if !retry.Pause(h.c.host.Open(), try) {
			return true
		}
	}
}

// clear revokes a lease that nothing is on. One with records ends by itself, and
// they with it. It reports false if it does not know.
func (h *shelves) clear(ctx context.Context, s *shelf) bool {
	if s.unsure.Load() || s.writers.Load() > 0 {
		return true
	}
	resp, err := h.c.host.Leases().TimeToLive(ctx, s.id, clientv3.WithAttachedKeys())
	if err != nil {
		return false
	}
	if resp.TTL <= 0 || len(resp.Keys) > 0 {
		return true
	}
	err = h.c.host.Leases().Revoke(ctx, s.id)
	return err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound)
}

// close revokes, when the client's claims are given up, the leases that nothing is
// on.
func (h *shelves) close(ctx context.Context) {
	if !h.kept {
		return
	}
	h.mu.Lock()
	all := slices.AppendSeq(h.older, maps.Values(h.current))
	h.older = nil
	clear(h.current)
	h.mu.Unlock()
	for _, s := range all {
		h.clear(ctx, s)
	}
}

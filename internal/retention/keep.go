package retention

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// A lease that a key may yet be put on is never revoked. One that callers are about
// to use is renewed, too: the key that they put may be that of a claim.

// Own has the lease kept for as long as the owner's claim lasts, whose key is on it. The owner's
// writer leaves after that.
func (h *Leases) Own(l *Lease, by Owner) {
	l.Count(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owners[by] = l; len(h.owners) > 2*h.pruned+64 {
		h.prune() // those whose claims were lost
	}
}

// Disown ends what Own began.
func (h *Leases) Disown(by Owner) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.owners, by)
}

// prune removes owners whose claims have ended; the lock is held.
func (h *Leases) prune() {
	maps.DeleteFunc(h.owners, func(by Owner, _ *Lease) bool { return by.Err() != nil })
	h.pruned = len(h.owners)
}

// owned returns the leases with owners.
func (h *Leases) owned() map[*Lease]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prune()
	owned := make(map[*Lease]bool)
	for _, l := range h.owners {
		owned[l] = true
	}
	return owned
}

// keep renews, once in a slice, the leases with owners.
func (h *Leases) keep() {
	for retry.Sleep(h.host.Open(), h.slice()) {
		h.keepOnce()
	}
}

func (h *Leases) keepOnce() {
	h.mu.Lock()
	for longer, l := range h.current {
		if h.isPast(l) {
			h.retire(longer, l)
		}
	}
	all := slices.Clone(h.older)
	h.mu.Unlock()
	written := make(map[*Lease]bool) // read before the owners, which the writers may become
	for _, l := range all {
		written[l] = l.writers.Load() > 0
	}
	owned := h.owned()
	for _, l := range all {
		kept := owned[l] || written[l]
		if kept && h.renew(l) {
			continue
		}
		if !kept && !h.clear(h.host.Open(), l) {
			continue
		}
		h.drop(l)
	}
}

// renew reports whether the lease is there yet, as far as is known.
func (h *Leases) renew(l *Lease) bool {
	for try := 0; ; try++ {
		err := h.host.Leases().KeepAlive(h.host.Open(), l.id)
		switch {
		case err == nil:
			return true
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			id := zap.String("lease", fmt.Sprintf("%x", l.id))
			h.log.Warn(h.what+" under way were forgotten: their lease was revoked", id)
			return false
		case !h.host.IsPassing(err) || try > 20:
			return true // there is time until the next slice
		}
		if !retry.Pause(h.host.Open(), try) {
			return true
		}
	}
}

// clear revokes a lease that nothing is on. One with keys ends by itself, and
// they with it. It reports false if it does not know.
func (h *Leases) clear(ctx context.Context, l *Lease) bool {
	if l.unsure.Load() || l.writers.Load() > 0 {
		return true
	}
	resp, err := h.host.Leases().TimeToLive(ctx, l.id, clientv3.WithAttachedKeys())
	if err != nil {
		return false
	}
	if resp.TTL <= 0 || len(resp.Keys) > 0 {
		return true
	}
	err = h.host.Leases().Revoke(ctx, l.id)
	return err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound)
}

// close revokes, when the client's claims are given up, the leases that nothing is
// on.
func (h *Leases) close(ctx context.Context) {
	h.mu.Lock()
	all := slices.AppendSeq(h.older, maps.Values(h.current))
	h.older = nil
	clear(h.current)
	h.mu.Unlock()
	for _, l := range all {
		h.clear(ctx, l)
	}
}

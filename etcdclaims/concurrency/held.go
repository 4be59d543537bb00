package concurrency

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/errtext"
)

// Held is what a Mutex, an RWMutex or an Election holds. If an RWMutex has several readers, it is
// that of the last one.
type Held struct {
	mu     sync.Mutex          // no other is taken while it is held
	claims []*etcdclaims.Claim // the last one is the newest
}

// Claim returns the claim that is held, or nil. It may be lost.
func (h *Held) Claim() *etcdclaims.Claim {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.claims); n > 0 {
		return h.claims[n-1]
	}
	return nil
}

// Token returns the key and the fence, for what is written under the claim. It is zero if nothing is held.
func (h *Held) Token() fencing.Token {
	if claim := h.Claim(); claim != nil {
		return claim.Token()
	}
	return fencing.Token{}
}

// Context returns a context that ends with the claim; see [etcdclaims.Claim.Context]. It has ended if
// nothing is held.
func (h *Held) Context() context.Context {
	if claim := h.Claim(); claim != nil {
		return claim.Context()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrLockReleased)
	return ctx
}

// add adds a claim. Those that are lost can go.
func (h *Held) add(claim *etcdclaims.Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claims = append(slices.DeleteFunc(h.claims, func(c *etcdclaims.Claim) bool { return c == claim || c.Err() != nil }), claim)
}

// take removes the newest claim, and returns it, or nil.
func (h *Held) take() (claim *etcdclaims.Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.claims); n > 0 {
		claim, h.claims = h.claims[n-1], h.claims[:n-1]
	}
	return claim
}

// unlock releases the last claim.
func (h *Held) unlock(ctx context.Context, s *Session, key string) error {
	claim := h.take()
	if claim == nil {
		return errtext.Call("unlock", key, ErrLockReleased)
	}
	err := claim.Release(ctx)
	if errors.Is(err, etcdclaims.ErrLost) {
		return s.expired(err)
	}
	return err
}

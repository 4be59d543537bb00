// Package ownwait warns of handlers that wait for a key which their own client holds. Such a handler may
// wait for itself, or for a handler that waits for it. Both wait for ever, and look like a slow holder.
package ownwait

import (
	"context"
	"sync"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/clock"
	"go.uber.org/zap"
)

const (
	// ownWait is how long such a call waits until that is logged.
	ownWait = 5 * time.Second
	// ownWaitAgain is the least time between two such lines about one key.
	ownWaitAgain = time.Minute
	// mostTold is how many keys are remembered as told.
	mostTold = 64
)

// Claim is a claim of the client.
type Claim struct {
	Token fencing.Token
	Key   string // that callers wait for
	From  Site   // the call that made it
}

// Watcher watches the calls of a client that wait. No other mutex is taken while its own is held.
type Watcher struct {
	log    *zap.Logger
	claims func() []Claim

	mu   sync.Mutex
	told map[string]time.Time // when calls were logged that wait for their own client, by the key
}

// New returns a watcher of the client that has the claims.
func New(log *zap.Logger, claims func() []Claim) *Watcher { return &Watcher{log: log, claims: claims} }

// due reports whether the next line about a key may be logged.
func (w *Watcher) due(key string) bool {
	now := clock.Mono()
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.told[key]; ok && now.Sub(last) < ownWaitAgain {
		return false
	}
	if w.told == nil || len(w.told) >= mostTold {
		w.told = make(map[string]time.Time)
	}
	w.told[key] = now
	return true
}

// Watch logs a call that still waits for the key after ownWait, if its context is that
// of a handler under another claim of this client and this client holds the key. It ends with
// the returned function.
func (w *Watcher) Watch(ctx context.Context, key string, from Site) (end func()) {
	holds, ok := fencing.FromContext(ctx)
	if !ok {
		return func() {}
	}
	t := time.AfterFunc(ownWait, func() { w.warn(holds, key, from) })
	return func() { t.Stop() }
}

func (w *Watcher) warn(holds fencing.Token, key string, from Site) {
	var holding, held *Claim
	for _, c := range w.claims() {
		if c.Token == holds {
			holding = &c
		}
		if c.Key == key {
			held = &c
		}
	}
	if holding == nil || held == nil || !w.due(key) {
		return
	}
	w.log.Warn("handler waits for a claim of its own client; it may wait for itself",
		zap.String("key", key), zap.Stringer("acquired", held.From), zap.Stringer("caller", from),
		zap.String("holds", holds.Key), zap.Stringer("holdsFrom", holding.From), zap.Duration("waiting", ownWait))
}

package etcdclaims

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/clock"
	"go.uber.org/zap"
)

// A handler that waits for a key which its own client holds may wait for itself, or for a
// handler that waits for it. Both wait for ever, and look like a slow holder.

const (
	// ownWait is how long such a call waits until that is logged.
	ownWait = 5 * time.Second
	// ownWaitAgain is the least time between two such lines about one key.
	ownWaitAgain = time.Minute
)

// site is the stack of the call that made a claim: the first frames, which are looked up only
// when they are logged.
type site [6]uintptr

// siteOf returns the callers of the function that calls it.
func siteOf() (s site) {
	runtime.Callers(3, s[:])
	return s
}

// String returns the file and the line of the first caller outside this package and the
// wrappers of its Run.
func (s site) String() string {
	where := ""
	for frames, more := runtime.CallersFrames(s[:]), s[0] != 0; more; {
		var f runtime.Frame
		if f, more = frames.Next(); f.File == "" {
			break
		}
		where = f.File + ":" + strconv.Itoa(f.Line)
		wrapper := func(pkg string) bool { return strings.HasPrefix(f.Function, modulePath+pkg+".") }
		if !wrapper("etcdclaims") && !wrapper("etcdclaims/work") && !wrapper("middleware") {
			break
		}
	}
	return where
}

const modulePath = "github.com/etcdclaims/claims/"

// ownWaits is when calls were logged that wait for their own client. No other mutex is taken
// while its own is held.
type ownWaits struct {
	mu   sync.Mutex
	told map[string]time.Time // by the key that they wait for
}

// due reports whether the next line about a key may be logged.
func (w *ownWaits) due(key string) bool {
	now := clock.Mono()
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.told[key]; ok && now.Sub(last) < ownWaitAgain {
		return false
	}
	if w.told == nil || len(w.told) >= 64 {
		w.told = make(map[string]time.Time)
	}
	w.told[key] = now
	return true
}

// watchOwnWait logs a call that still waits for the key after ownWait, if its context is that
// of a handler under another claim of this client and this client holds the key. It ends with
// the returned function.
func (c *Client) watchOwnWait(ctx context.Context, key string, o *acquireOptions) (end func()) {
	holds, ok := fencing.FromContext(ctx)
	if !ok {
		return func() {}
	}
	t := time.AfterFunc(ownWait, func() { c.warnOfOwnWait(holds, key, o.from) })
	return func() { t.Stop() }
}

func (c *Client) warnOfOwnWait(holds fencing.Token, key string, from site) {
	var holding, held *term
	for _, t := range c.keys.all() {
		if t.Token() == holds {
			holding = t
		}
		if t.Mode.Keys().User == key {
			held = t
		}
	}
	if holding == nil || held == nil || !c.ownWaits.due(key) {
		return
	}
	c.log.Warn("handler waits for a claim of its own client; it may wait for itself", zap.String("instance", c.store.layout.Instance),
		zap.String("key", key), zap.Stringer("acquired", held.from), zap.Stringer("caller", from),
		zap.String("holds", holds.Key), zap.Stringer("holdsFrom", holding.from), zap.Duration("waiting", ownWait))
}

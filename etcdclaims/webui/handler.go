package webui

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/attach"
	"go.uber.org/zap"
)

//go:embed assets
var assets embed.FS

const (
	// idleAfter is how long after the last request nothing is read or watched any more.
	idleAfter = time.Minute
	// beat is how often the loop checks which snapshots are due.
	beat = 250 * time.Millisecond
)

// Handler serves the page. It is safe for concurrent use. End it with Close. Close of the
// client does that, too.
type Handler struct {
	claims  *etcdclaims.Client
	works   *work.Runner
	cfg     Config
	log     *zap.Logger
	origins *http.CrossOriginProtection

	board     board
	snapshots snapshots
	tabs      tabs
	groups    groups
	queues    queues
	trials    trials
	sightings sightings
	samples   samples

	ctx     context.Context // of what runs in the background
	stop    context.CancelFunc
	forget  func() // of the client
	wg      sync.WaitGroup
	readNow chan struct{} // capacity 1: a snapshot is due

	away atomic.Bool // etcd did not answer when its status was last read

	mu      sync.Mutex // running, lastUse; no other mutex is taken while it is held
	running bool       // the loop
	lastUse time.Time
}

// New returns a handler for the claims under the client's prefix. It sends nothing
// before the first request. It does not take over the client.
//
// The handler can be mounted on any path that ends in a slash, with or without
// http.StripPrefix: all links are relative.
//
// With a passthrough client the page shows that there is no etcd. New returns an error
// if the configuration is invalid, etcdclaims.ErrNoClient for a nil client, and
// etcdclaims.ErrClosed for a closed one.
func New(claims *etcdclaims.Client, cfg Config) (*Handler, error) {
	if err := claims.Unreachable(); errors.Is(err, etcdclaims.ErrNoClient) {
		return nil, fmt.Errorf("webui: %w", err)
	}
	cfg, origins, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = attach.Logger(claims, zap.NewNop)
	}
	works, err := work.New(claims, work.Config{})
	if err != nil {
		return nil, fmt.Errorf("webui: %w", err)
	}
	h := &Handler{claims: claims, works: works, cfg: cfg, log: cfg.Logger, origins: origins, readNow: make(chan struct{}, 1)}
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.board.init(h)
	h.snapshots.init(h)
	h.tabs.init(cfg.MaxTabs)
	h.groups.init(h)
	h.queues.init(h)
	h.forget = attach.Of(claims).OnClose(func(context.Context) { h.end() })
	if h.ctx.Err() != nil {
		return nil, fmt.Errorf("webui: %w", etcdclaims.ErrClosed)
	}
	return h, nil
}

// Close ends the watch, reads in progress, and the event streams of all tabs, so that
// http.Server.Shutdown need not wait for them. It is idempotent. Later requests are
// answered with 503.
func (h *Handler) Close() {
	defer h.forget()
	h.end()
}

func (h *Handler) end() {
	h.mu.Lock()
	h.stop()
	h.mu.Unlock()
	h.wg.Wait()
	h.queues.close()
}

// use notes a request, and starts the loop unless it runs. It returns false if the
// handler is closed.
func (h *Handler) use() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return false
	}
	h.lastUse = time.Now()
	if !h.running {
		h.running = true
		h.wg.Go(h.loop)
	}
	return true
}

// spawn runs f in the background, where Close waits for it, unless the handler is
// closed.
func (h *Handler) spawn(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return false
	}
	h.wg.Go(f)
	return true
}

// inUse reports whether the loop runs.
func (h *Handler) inUse() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running
}

// loop reads again what tabs show, until the handler is idle.
func (h *Handler) loop() {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-tick.C:
		case <-h.readNow:
		}
		live := h.tabs.topics()
		if len(live) > 0 {
			h.board.start()
			h.snapshots.refresh(live)
		}
		h.sample(time.Now())
		if h.idle(len(live) > 0) {
			h.board.stop() // a request since idle has returned has started another loop: then nothing is stopped
			h.snapshots.clear()
			return
		}
	}
}

// idle reports whether the loop must end, because there are no tabs and was no request
// for a while.
func (h *Handler) idle(tabs bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if tabs {
		h.lastUse = time.Now()
	}
	h.running = time.Since(h.lastUse) <= idleAfter
	return !h.running
}

// changed notes a change of ownership of a key, or of all if it is empty.
func (h *Handler) changed(key string) {
	h.tabs.claimChanged(key)
	stale := h.snapshots.invalidate(keyTopic(key))
	if of := ofKey(key); of != "" && h.snapshots.invalidate(keyTopic(of)) {
		stale = true
	}
	if stale {
		signal(h.readNow)
	}
}

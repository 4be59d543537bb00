package retention

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errExplained = errors.New("explained")

// host is a client whose etcd has leases.
type host struct {
	t         *testing.T
	open      context.Context
	wg        sync.WaitGroup
	released  func(ctx context.Context)
	oneAnswer time.Duration // how long a grant takes
	refuse    error         // of a grant

	mu     sync.Mutex // guards the rest
	asked  int
	leases map[clientv3.LeaseID]*granted
}

type granted struct {
	ttl  time.Duration
	ends time.Time
	keys [][]byte
}

// store knows how long a request may take.
type store struct{ core.Store }

func (store) Timeout() time.Duration { return 5 * time.Second }

// virtually runs the test in virtual time.
func virtually(t *testing.T, f func(t *testing.T, h *host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &host{t: t, leases: make(map[clientv3.LeaseID]*granted)}
		ctx, end := context.WithCancel(context.Background())
		h.open = ctx
		defer h.wg.Wait()
		defer end()
		f(t, h)
	})
}

// get returns a lease.
func (h *host) get(ls *Leases, d time.Duration) *Lease {
	l, err := ls.Get(context.Background(), d)
	if err != nil {
		h.t.Error(err)
		return new(Lease)
	}
	return l
}

// put puts a key on a lease.
func (h *host) put(l *Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leases[l.ID()].keys = append(h.leases[l.ID()].keys, []byte("key"))
}

// has reports whether there is the lease.
func (h *host) has(l *Lease) bool { return h.find(l.ID(), func(*granted) {}) == nil }

// find calls f for a lease that has not lapsed.
func (h *host) find(id clientv3.LeaseID, f func(g *granted)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g := h.leases[id]; g != nil && time.Now().Before(g.ends) {
		f(g)
		return nil
	}
	return rpctypes.ErrLeaseNotFound
}

func (h *host) Leases() core.Leases                    { return h }
func (h *host) Store() core.Store                      { return store{} }
func (h *host) Clock() clock.Clock                     { return clock.Clock{Boot: func() time.Duration { return 0 }} }
func (h *host) IO() context.Context                    { return context.Background() }
func (h *host) Open() context.Context                  { return h.open }
func (h *host) OnReleased(f func(ctx context.Context)) { h.released = f }
func (h *host) Explain(err error) error                { return fmt.Errorf("%w: %w", errExplained, err) }
func (h *host) IsPassing(error) bool                   { return false }

func (h *host) Go(f func(ctx context.Context)) bool {
	h.wg.Go(func() { f(h.open) })
	return true
}

func (h *host) Grant(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	retry.Sleep(ctx, h.oneAnswer)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked++; ctx.Err() != nil || h.refuse != nil {
		return clientv3.NoLease, errors.Join(ctx.Err(), h.refuse)
	}
	id := clientv3.LeaseID(len(h.leases) + 1)
	h.leases[id] = &granted{ttl: ttl, ends: time.Now().Add(ttl)}
	return id, nil
}

func (h *host) KeepAlive(_ context.Context, id clientv3.LeaseID) error {
	return h.find(id, func(g *granted) { g.ends = time.Now().Add(g.ttl) })
}

func (h *host) Revoke(_ context.Context, id clientv3.LeaseID) error {
	return h.find(id, func(g *granted) { g.ends = time.Now() })
}

func (h *host) TimeToLive(_ context.Context, id clientv3.LeaseID, _ ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	out := &clientv3.LeaseTimeToLiveResponse{ID: id, TTL: -1}
	_ = h.find(id, func(g *granted) { out.TTL, out.Keys = int64(time.Until(g.ends)/time.Second)+1, g.keys })
	return out, nil
}

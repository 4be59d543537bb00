package scenarios_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
)

// A hold is a lock that was acquired.
type hold struct {
	token   fencing.Token         // zero if writes carry no fence
	guard   []clientv3.Cmp        // that the lock is held, as a condition in etcd
	check   func() error          // before a write; nil error if the holder does not ask
	lost    <-chan struct{}       // nil if the holder does not ask
	release func(context.Context) // as well as it can be
}

// A lockKind is a way to lock. open returns the acquiring function of a process that
// runs on the host.
type lockKind struct {
	name string
	safe bool // in all workloads, whatever happens
	open func(t *testing.T, host *claimtest.Host) func(ctx context.Context, name string) (*hold, error)
}

var (
	plainMutex   = lockKind{"Mutex", false, openMutex(false)}
	checkedMutex = lockKind{"Mutex, Session.Done checked", false, openMutex(true)}
	checkedClaim = lockKind{"claim, Check alone", true, openClaim(false)}
	fencedClaim  = lockKind{"claim with its fence", true, openClaim(true)}
)

var errSessionDone = errors.New("the session is over")

// openMutex locks as Jepsen's client does: each acquisition has a lease of its own,
// which is kept alive in the background and revoked at the end.
func openMutex(checked bool) func(*testing.T, *claimtest.Host) func(context.Context, string) (*hold, error) {
	return func(t *testing.T, host *claimtest.Host) func(context.Context, string) (*hold, error) {
		t.Helper()
		etcd := host.Etcd(t)
		return func(ctx context.Context, name string) (*hold, error) {
			granted, err := etcd.Grant(ctx, int64(lease/time.Second))
			if err != nil {
				return nil, err
			}
			session, err := concurrency.NewSession(etcd, concurrency.WithLease(granted.ID))
			if err != nil {
				return nil, err
			}
			mutex := concurrency.NewMutex(session, name)
			if err := mutex.Lock(ctx); err != nil {
				_ = session.Close()
				return nil, err
			}
			h := &hold{guard: []clientv3.Cmp{mutex.IsOwner()}, check: func() error { return nil }}
			if checked {
				h.lost = session.Done()
				h.check = func() error {
					select {
					case <-session.Done():
						return errSessionDone
					default:
						return nil
					}
				}
			}
			h.release = func(ctx context.Context) {
				_ = mutex.Unlock(ctx)
				_ = session.Close()
			}
			return h, nil
		}
	}
}

func openClaim(fenced bool) func(*testing.T, *claimtest.Host) func(context.Context, string) (*hold, error) {
	return func(t *testing.T, host *claimtest.Host) func(context.Context, string) (*hold, error) {
		t.Helper()
		claims := claimtest.NewClient(t, host, etcdclaims.Config{TTL: lease, AllowShortTTL: true})
		return func(ctx context.Context, name string) (*hold, error) {
			claim, err := claims.Acquire(ctx, name)
			if err != nil {
				return nil, err
			}
			h := &hold{guard: claim.Guard(), check: claim.Check, lost: claim.Done(), release: func(ctx context.Context) { _ = claim.Release(ctx) }}
			if fenced {
				h.token = claim.Token()
			}
			return h, nil
		}
	}
}

// holds are the times in which processes held a lock, by its name.
type holds struct {
	mu    sync.Mutex
	spans map[string][][2]time.Time
}

// follow records a hold from now until it is released or its holder learns that it is
// lost. The returned function is for the release.
func (s *holds) follow(name string, h *hold) (released func()) {
	begin := time.Now()
	var once sync.Once
	end := make(chan struct{})
	add := func() {
		once.Do(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.spans[name] = append(s.spans[name], [2]time.Time{begin, time.Now()})
			close(end)
		})
	}
	go func() {
		select {
		case <-h.lost:
			add()
		case <-end:
		}
	}()
	return add
}

// overlaps returns how many holds there were, and how many of them began while another
// was not over. A history of a mutex without overlaps is linearizable: each
// acquisition can count from its return, and each release from its call.
func (s *holds) overlaps() (all, overlapping int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, spans := range s.spans {
		all += len(spans)
		for i, a := range spans {
			for j, b := range spans {
				if i != j && !b[0].After(a[0]) && b[1].After(a[0]) && (b[0] != a[0] || j < i) {
					overlapping++
					break
				}
			}
		}
	}
	return all, overlapping
}

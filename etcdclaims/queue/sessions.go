package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// sessions are the sessions of a Queue: one for each lease duration in use, and those that are
// not usable any more, until they have no items.
type sessions struct {
	q      *store
	tidy   func() // has doubtful items given back
	mu     sync.Mutex
	closed bool
	byTTL  map[time.Duration]*session
	all    map[*session]struct{}     // not lost or closed, as far as known
	open   map[time.Duration]*shared // being opened
}

func (s *sessions) init(q *store, tidy func()) {
	s.q, s.tidy, s.byTTL, s.open = q, tidy, map[time.Duration]*session{}, map[time.Duration]*shared{}
	s.all = map[*session]struct{}{}
}

// get returns the usable session with the lease duration. It opens one if necessary. Callers
// wait for the one that opens it, and fail with it: in an outage all of them take as long
// as one.
func (s *sessions) get(ctx context.Context, ttl time.Duration) (*session, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, errClosed
		}
		if have := s.byTTL[ttl]; have != nil && have.usable() {
			have.use()
			s.mu.Unlock()
			return have, s.q.ensureSpec(ctx)
		}
		opening, busy := s.open[ttl]
		if !busy {
			opening = newShared()
			s.open[ttl] = opening
			s.mu.Unlock()
			made, err := s.make(ctx, ttl)
			s.mu.Lock()
			delete(s.open, ttl)
			opening.end(ctx, err)
			late := s.closed
			if err == nil && !late {
				s.byTTL[ttl], s.all[made] = made, struct{}{}
				s.q.spawn(made.watch)
				s.q.spawn(made.compareOften)
			}
			s.mu.Unlock()
			switch {
			case err == nil && late:
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
				defer cancel()
				_ = made.close(ctx) // nothing is under it
				return nil, errClosed
			case err != nil:
				return nil, err
			}
			return made, nil
		}
		s.mu.Unlock()
		if err := opening.wait(ctx, nil); err != nil {
			return nil, err
		}
	}
}

// live returns a usable session with any lease duration. It opens one if necessary.
func (s *sessions) live(ctx context.Context) (*session, error) {
	s.mu.Lock()
	for _, have := range s.byTTL {
		if have.usable() {
			have.use()
			s.mu.Unlock()
			return have, s.q.ensureSpec(ctx)
		}
	}
	s.mu.Unlock()
	return s.get(ctx, s.q.cfg.TTL)
}

// make opens a session: its claim, and its entry in worker/, by which others find what
// it leaves behind. The entry is put by the transaction that makes the claim.
func (s *sessions) make(ctx context.Context, ttl time.Duration) (*session, error) {
	q := s.q
	q.specOK.Store(false) // while this process had no session, others may have made the queue anew
	id, claim, err := s.acquire(ctx, ttl)
	if err != nil {
		return nil, err
	}
	made := &session{
		q: q, all: s, id: id, ttl: ttl, claim: claim, gen: claim.Revision(), seen: claim.Revision(),
		leases: map[lease]struct{}{}, used: clock.Mono(),
	}
	made.io, made.endIO = context.WithCancelCause(context.Background())
	made.batch()
	return made, nil
}

// mostRevoked is how often another lease is tried, which takes about three seconds.
const mostRevoked = 10

// acquire makes the claim of a session, while the spec is as it was read: from then on
// Reconfigure finds the session. If the claim's lease is revoked as it is made, the claim is
// tried again with another one, a few times.
func (s *sessions) acquire(ctx context.Context, ttl time.Duration) (id string, claim *etcdclaims.Claim, err error) {
	q := s.q
	for try := 0; ; try++ {
		rev, err := q.agreeOnSpec(ctx)
		if err != nil {
			return "", nil, err
		}
		id := uuid.NewString()
		claim, err := q.claims.TryAcquire(ctx, q.keys.SessionKey(id), option.OwnKey{}, etcdclaims.TTL(ttl),
			etcdclaims.If(unmoved(q.keys.Spec(), rev)),
			etcdclaims.Then(clientv3.OpPut(q.keys.Worker(id), item.Encode(q.entry(ttl, 0)))))
		switch {
		case errors.Is(err, etcdclaims.ErrRefused): // the spec was changed, or deleted by hand
			if !retry.Pause(ctx, try) {
				return "", nil, context.Cause(ctx)
			}
		case !errors.Is(err, rpctypes.ErrLeaseNotFound):
			return id, claim, err
		case try >= mostRevoked:
			return "", nil, fmt.Errorf("%w: the lease of the session was revoked again and again", etcdclaims.ErrLost)
		case !retry.Pause(ctx, try):
			return "", nil, fmt.Errorf("%w: the lease of the session was revoked (%w)", etcdclaims.ErrLost, context.Cause(ctx))
		}
	}
}

// retire takes an idle session out of use, so that it can be closed.
func (s *sessions) retire(idle *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || idle.idle() > 0 {
		return false
	}
	s.dropLocked(idle)
	return true
}

// drop takes a session out of use that is lost.
func (s *sessions) drop(lost *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(lost)
}

func (s *sessions) dropLocked(old *session) {
	delete(s.all, old)
	if s.byTTL[old.ttl] == old {
		delete(s.byTTL, old.ttl)
	}
}

// reconcile gives back items that were taken under any of the sessions without a lease.
func (s *sessions) reconcile(ctx context.Context) error {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.all))
	s.mu.Unlock()
	var errs []error
	for _, have := range all {
		if err := have.reconcile(ctx); err != nil && !errors.Is(err, etcdclaims.ErrLost) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// hear ends the deliveries whose items were cancelled. A watch is a hint: the comparison with etcd ends those
// of which it does not tell.
func (s *sessions) hear(events []*clientv3.Event) {
	for _, ev := range events {
		taken, ok := strings.CutPrefix(string(ev.Kv.Key), s.q.keys.Cancelled())
		if !ok || ev.Type != mvccpb.Event_PUT {
			continue
		}
		n, err := item.Decode[item.Notice](ev.Kv.Key, ev.Kv.Value)
		if err != nil {
			s.q.skip(err)
			continue
		}
		session, id, _ := strings.Cut(taken, "/")
		s.mu.Lock()
		for have := range s.all {
			if have.id == session {
				have.cancelled(id, n.Rev, cancelled(n))
			}
		}
		s.mu.Unlock()
	}
}

// close gives back all items, and then ends the sessions. Leases end first, so that no
// worker holds an item that others can have.
func (s *sessions) close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Keys(s.all))
	clear(s.all)
	clear(s.byTTL)
	s.mu.Unlock()
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	errs := make([]error, len(all))
	var wg sync.WaitGroup // each takes as long as all, if etcd does not answer
	for i, have := range all {
		wg.Go(func() { errs[i] = have.close(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// shared is a request that one caller makes, and for which others wait that need the same.
type shared struct {
	done chan struct{}
	err  error // why it failed; nil if those who wait have to look again
}

func newShared() *shared { return &shared{done: make(chan struct{})} }

// end is called by the one who made the request, with the context of its own call. All who
// wait get its error, unless that context ended.
func (s *shared) end(ctx context.Context, err error) {
	if ctx.Err() == nil {
		s.err = err
	}
	close(s.done)
}

// wait waits for the end of the request, but no longer than for ctx or the channel.
func (s *shared) wait(ctx context.Context, ended <-chan struct{}) error {
	select {
	case <-s.done:
		return s.err
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

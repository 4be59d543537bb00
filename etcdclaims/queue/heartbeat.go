package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/google/uuid"
)

// Heartbeat verifies in etcd that this worker still has the item, and makes its lease
// last for d from now on. Zero keeps the present duration. It returns the new end of the
// lease. The process renews the lease by itself, so Heartbeat is needed only to change
// the duration, or to verify the lease. With another duration the item moves to another
// session: its fence rises, and tokens made before are stale.
func (l *Delivery) Heartbeat(ctx context.Context, d time.Duration) (until time.Time, err error) {
	done, err := l.turn(ctx, nil)
	if err != nil {
		return time.Time{}, l.fail("heartbeat", err)
	}
	defer done()
	s, _, _ := l.snapshot()
	held := l.hold()
	if d < 0 {
		return time.Time{}, l.fail("heartbeat", fmt.Errorf("duration %v is negative", d))
	}
	if s != nil && (d == 0 || d == s.ttl) {
		if err := s.claim.Renew(ctx); err != nil {
			if errors.Is(err, etcdclaims.ErrLost) {
				l.finish(ErrExpired)
				err = fmt.Errorf("%w: %w", ErrExpired, err)
			}
			return time.Time{}, l.fail("heartbeat", err)
		}
		stands, err := l.q.stands(ctx, held)
		if err != nil {
			return time.Time{}, l.fail("heartbeat", err)
		}
		if !stands {
			_, err := l.refused(ctx, item.VerbHeartbeat, held, item.Gone, nil)
			return time.Time{}, err
		}
		return l.Deadline(), nil
	}
	d = cmp.Or(d, l.q.cfg.TTL)
	for {
		next, err := l.q.sessions.get(ctx, d)
		if err != nil {
			return time.Time{}, l.fail("heartbeat", err)
		}
		// A session that others of its duration have used may be about to be renewed.
		if err := next.claim.Renew(ctx); err != nil {
			if next.claim.Err() != nil {
				continue
			}
			return time.Time{}, l.fail("heartbeat", err)
		}
		if until, err = l.rehome(ctx, next, held); !errors.Is(err, errNotThere) {
			return until, err
		}
	}
}

// errNotThere is returned by rehome if the target session is over, and the item was not
// moved.
var errNotThere = errors.New("session is over")

// rehome moves the item to another session of this process, in one transaction under
// both.
func (l *Delivery) rehome(ctx context.Context, next *session, held item.Held) (until time.Time, err error) {
	if keyspace.Epoch(next.claim.Fence()) != held.Epoch {
		return time.Time{}, l.fail("heartbeat", ErrSuperseded)
	}
	move := item.Move{Held: held, To: next.id, Owner: l.q.claims.Owner(), Nonce: uuid.NewString()}
	if next.expect(l) != nil { // before it is there, so that it is not taken for nobody's
		return time.Time{}, errNotThere
	}
	var unsure error
	defer func() {
		if err == nil {
			return
		}
		if unsure != nil {
			// It may be under next, from where it is given back, and another worker takes it.
			l.leave()
			l.doubt("heartbeat", unsure)
		}
		next.forget(l)
		next.doubt()
	}()
	for try := 0; ; try++ {
		// The generation of the session keeps it from coming late, when items without a
		// lease have been given back, or the session is closed.
		resp, again, err := next.commit(ctx, move.Build())
		moved := int64(0)
		switch {
		case err == nil && resp == nil: // the generation was missing
		case err == nil && resp.Succeeded:
			moved = resp.Header.Revision
		case err == nil:
			// An earlier try may have been carried out.
			if unsure != nil {
				moved = move.Earlier(resp)
			}
			if moved == 0 && !again {
				_, err := l.refused(ctx, item.VerbHeartbeat, held, held.Refused(resp), unsure)
				return time.Time{}, err
			}
		case errors.Is(err, etcdclaims.ErrUnknown):
			unsure = err
		case errors.Is(err, etcdclaims.ErrLost) && unsure == nil:
			return time.Time{}, errNotThere
		case errors.Is(err, etcdclaims.ErrLost):
			return time.Time{}, l.fail("heartbeat", unsure)
		case !passing(err):
			return time.Time{}, l.fail("heartbeat", unsureOr(unsure, err))
		}
		if moved > 0 {
			return l.moved(next, move.Moved(moved))
		}
		if !retry.Pause(ctx, try) {
			return time.Time{}, l.fail("heartbeat", fmt.Errorf("%w (%w)", unsureOr(unsure, err), context.Cause(ctx)))
		}
	}
}

// moved makes the lease one of another session.
func (l *Delivery) moved(next *session, held item.Held) (time.Time, error) {
	l.mu.Lock()
	before := l.s
	l.s, l.held, l.leaving = next, held, false
	ended := l.err
	l.mu.Unlock()
	l.unsure = nil
	if before != nil && before != next {
		before.forget(l)
	}
	if ended != nil {
		return time.Time{}, l.fail("heartbeat", ended)
	}
	l.follow(next)
	return l.Deadline(), nil
}

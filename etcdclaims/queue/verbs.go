package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/keyspace"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Outcome is what became of an item that was not completed.
type Outcome struct {
	// Dead is set if the item went to the dead letters.
	Dead bool
	// Until is when the item is visible again. Zero if it is dead.
	Until time.Time
	// Attempts is how many attempts count so far.
	Attempts int
}

// What the verbs of a lease have in common: each is one transaction under the fence
// of the lease and the session of the process. A lost reply is resolved: the same
// request is sent again, which can be carried out only once, and if it is refused
// the history of etcd says which request ended the lease. Errors:
//
//   - ErrExpired: the lease ended by its own clock, or its process's session did,
//   - ErrSuperseded: the item waits again, or another worker has it,
//   - ErrCompleted: the item was completed by another, who had the handle,
//   - etcdclaims.ErrReleased: this lease was ended by a verb before,
//   - etcdclaims.ErrUnknown: the outcome could not be learnt before the lease ended,
//     ctx ended, or etcd compacted its history.
//
// Unless it is ErrUnknown, nothing was changed.

// Complete removes the item from the queue, together with operations of the caller's
// in the same transaction. They must not touch keys of the claims.
func (l *Lease) Complete(ctx context.Context, ops ...clientv3.Op) error {
	for try := 0; ; try++ {
		keep, err := l.tombstoneLease(ctx)
		if err != nil {
			return l.fail("complete", err)
		}
		err = l.verb(ctx, "complete", func(st state, rev int64, now time.Time) []clientv3.Op {
			key := l.q.keys.item(st.ID)
			gone := clientv3.OpDelete(key)
			if keep != clientv3.NoLease {
				c := content{Version: valueVersion, Topic: l.content.Topic, Seq: st.Seq, Given: true, Done: &tombstone{
					Fence: keyspace.Fence(l.ep, rev), Owner: st.Owner, Attempt: st.Attempts, At: now.UTC(),
				}}
				gone = clientv3.OpPut(key, encode(c), clientv3.WithLease(keep))
			}
			return append(append([]clientv3.Op{gone}, l.unplace(st)...), ops...)
		})
		if keep == clientv3.NoLease || !errors.Is(err, rpctypes.ErrLeaseNotFound) || try > 0 || l.Err() != nil {
			return err // with a new lease it is one of the caller's
		}
		l.q.retained.forget(keep) // somebody may have revoked it
	}
}

// tombstoneLease returns the lease on which the item's id is remembered, if it is.
func (l *Lease) tombstoneLease(ctx context.Context) (clientv3.LeaseID, error) {
	for try := 0; l.content.Given; try++ {
		id, err := l.q.retained.lease(ctx, l.q)
		if err == nil || !passing(err) {
			return id, err
		}
		if ended := l.Err(); ended != nil {
			return clientv3.NoLease, ended
		}
		if !pause(ctx, try) {
			return clientv3.NoLease, fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
	return clientv3.NoLease, nil
}

// unplace removes the note of where the item is, if there is one.
func (l *Lease) unplace(st state) []clientv3.Op {
	if !st.Moved {
		return nil
	}
	return []clientv3.Op{clientv3.OpDelete(l.q.keys.place(st.ID))}
}

// FailOption says how long a failed item waits.
type FailOption interface{ applyFail(*failOptions) }

type failOptions struct{ backoff etcdclaims.Backoff }

type failOption func(*failOptions)

func (f failOption) applyFail(o *failOptions) { f(o) }

// Backoff makes the item wait for base after its first failure, twice as long after
// each further one, and never longer than limit, with the last half of it random.
func Backoff(base, limit time.Duration) FailOption {
	return failOption(func(o *failOptions) { o.backoff = etcdclaims.ExponentialBackoff(base, limit) })
}

// BackoffFunc makes the item wait for as long as a function of the attempt says.
func BackoffFunc(f etcdclaims.Backoff) FailOption {
	return failOption(func(o *failOptions) { o.backoff = f })
}

// Fail records that the attempt failed, and why. The item waits for its back-off and
// becomes visible again, behind its equals; or it goes to the dead letters if it
// has had all its attempts, or if the cause is marked with etcdclaims.Permanent. A
// cause marked with etcdclaims.RetryAfter sets the back-off. Fail returns which it
// is.
func (l *Lease) Fail(ctx context.Context, cause error, opts ...FailOption) (Outcome, error) {
	if cause == nil {
		cause = errors.New("no cause was given")
	}
	o := failOptions{backoff: l.q.cfg.Backoff}
	for _, opt := range opts {
		if opt != nil {
			opt.applyFail(&o)
		}
	}
	now := time.Now()
	var out Outcome
	err := l.verb(ctx, "fail", func(st state, rev int64, _ time.Time) []clientv3.Op {
		st.ended(Attempt{Number: st.Attempts, Owner: st.Owner, Fence: keyspace.Fence(l.ep, rev), Ending: Failed, Error: cause.Error(), At: now.UTC()})
		out = Outcome{Attempts: st.Attempts}
		if st.Attempts >= st.Max || etcdclaims.IsPermanent(cause) {
			out.Dead = true
			return l.q.bury(st, "fail", keyspace.Fence(l.ep, rev), "failed: "+cause.Error(), now)
		}
		wait, given := etcdclaims.RetryDelay(cause)
		if !given {
			wait = o.backoff(st.Attempts)
		}
		st.Vesting = now.Add(max(wait, 0)).UTC()
		out.Until = st.Vesting
		return l.q.requeue(st, "fail", keyspace.Fence(l.ep, rev), now)
	})
	if err != nil {
		return Outcome{}, err
	}
	return out, nil
}

// Snooze makes the item visible again in exactly d. The attempt does not count.
func (l *Lease) Snooze(ctx context.Context, d time.Duration) (until time.Time, err error) {
	if d < 0 {
		return time.Time{}, l.fail("snooze", fmt.Errorf("duration %v is negative", d))
	}
	now := time.Now()
	until = now.Add(d).UTC()
	err = l.verb(ctx, "snooze", func(st state, rev int64, _ time.Time) []clientv3.Op {
		st.Attempts--
		st.Vesting = until
		return l.q.requeue(st, "snooze", keyspace.Fence(l.ep, rev), now)
	})
	return until, err
}

// Release gives the item back. It is visible at once, in the place that it had, and
// the attempt does not count.
func (l *Lease) Release(ctx context.Context) error {
	now := time.Now()
	return l.verb(ctx, "release", func(st state, rev int64, _ time.Time) []clientv3.Op {
		st.Attempts--
		return l.q.requeue(st, "release", keyspace.Fence(l.ep, rev), now)
	})
}

// Discard puts the item among the dead letters at once, with the reason.
func (l *Lease) Discard(ctx context.Context, reason string) error {
	now := time.Now()
	return l.verb(ctx, "discard", func(st state, rev int64, _ time.Time) []clientv3.Op {
		fence := keyspace.Fence(l.ep, rev)
		st.ended(Attempt{Number: st.Attempts, Owner: st.Owner, Fence: fence, Ending: Discarded, Error: reason, At: now.UTC()})
		return l.q.bury(st, "discard", fence, "discarded: "+reason, now)
	})
}

// requeue is the operations that make a taken item wait. The note that the queue has
// work stands: it is only removed while nothing is taken.
func (q *Queue) requeue(st state, verb string, fence int64, now time.Time) []clientv3.Op {
	st = st.waiting()
	return q.move(st, q.indexKey(st, now), verb, fence)
}

// bury is the operations that make an item a dead letter.
func (q *Queue) bury(st state, verb string, fence int64, why string, now time.Time) []clientv3.Op {
	st = st.waiting()
	st.Why, st.Died = cut(why), now.UTC()
	return q.move(st, q.keys.deadAt(st.Died, st.Seq), verb, fence)
}

// fail names the operation and the item in an error.
func (l *Lease) fail(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s item %q of queue %q: %w", verb, l.ID(), l.q.cfg.Name, err)
}

// verb ends the lease in etcd by one transaction, which deletes the taken key under
// its fence, and then locally.
func (l *Lease) verb(ctx context.Context, verb string, change func(st state, rev int64, now time.Time) []clientv3.Op) (err error) {
	done, err := l.turn(ctx)
	if err != nil {
		return l.fail(verb, err)
	}
	defer done()
	_, sid, st, rev, _ := l.snapshot()
	key := l.q.keys.takenBy(sid) + st.ID
	now := time.Now()
	ops := append([]clientv3.Op{clientv3.OpDelete(key)}, change(st, rev, now)...)
	if st.Slot > 0 {
		ops = append(ops, clientv3.OpDelete(l.q.keys.slot(st.Slot)))
	}
	var unsure error
	if l.tried == verb {
		unsure = l.unsure
	}
	l.leave()
	defer func() {
		switch {
		case err == nil:
		case unsure != nil:
			l.tried, l.unsure = verb, unsure
		case l.unsure == nil:
			l.stay()
		}
	}()
	for try := 0; ; try++ {
		via, cmps, err := l.via(ctx)
		if err != nil {
			return l.fail(verb, unsureOr(unsure, err))
		}
		cmps = append(cmps, unmoved(key, rev))
		resp, err := via.batcher.commit(ctx, cmps, ops, []clientv3.Op{clientv3.OpGet(key)})
		switch {
		case err == nil && resp.Succeeded:
			l.finish(fmt.Errorf("item was given up (%s): %w", verb, etcdclaims.ErrReleased))
			return nil
		case err == nil:
			return l.refused(ctx, verb, key, rev, resp, unsure)
		case errors.Is(err, etcdclaims.ErrUnknown):
			unsure = err
		case errors.Is(err, etcdclaims.ErrLost):
			if l.resumed() {
				continue // this process's session ended, not the lease: by another one
			}
			if unsure != nil {
				return l.refused(ctx, verb, key, rev, nil, unsure)
			}
			l.finish(ErrExpired)
			return l.fail(verb, fmt.Errorf("%w: %w", ErrExpired, err))
		case !passing(err):
			return l.fail(verb, unsureOr(unsure, err))
		}
		if !pause(ctx, try) {
			return l.fail(verb, fmt.Errorf("%w (%w)", unsureOr(unsure, err), context.Cause(ctx)))
		}
	}
}

// unsureOr returns the error that says that the outcome is unknown, if it is.
func unsureOr(unsure, err error) error {
	switch {
	case unsure == nil:
		return err
	case err == nil || errors.Is(err, etcdclaims.ErrUnknown):
		return unsure
	}
	return fmt.Errorf("%w (then: %w)", unsure, err)
}

func (l *Lease) resumed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s == nil
}

// via returns the session whose guard the lease's requests carry, and what they must
// require beyond it.
func (l *Lease) via(ctx context.Context) (*session, []clientv3.Cmp, error) {
	s, sid, _, _, err := l.snapshot()
	if err != nil {
		return nil, nil, err
	}
	if s != nil {
		return s, nil, nil
	}
	s, err = l.q.sessions.get(ctx, l.q.cfg.TTL)
	if err != nil {
		return nil, nil, err
	}
	if keyspace.Epoch(s.claim.Fence()) != l.ep {
		return nil, nil, ErrSuperseded
	}
	return s, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(l.q.claims.OwnKey(l.q.keys.sessionKey(sid))), ">", 0)}, nil
}

// refused says why a verb was refused, and whether that is because an earlier try of
// it was carried out.
func (l *Lease) refused(ctx context.Context, verb, key string, rev int64, resp *clientv3.TxnResponse, unsure error) error {
	if resp != nil {
		kvs := resp.Responses[0].GetResponseRange().Kvs
		switch {
		case len(kvs) == 0:
		case kvs[0].ModRevision == rev:
			l.finish(ErrExpired) // the item is still there, its session is not
			return l.fail(verb, ErrExpired)
		default:
			// It was moved here again, or somebody has overwritten it: then nobody has it.
			if s, _, _, _, _ := l.snapshot(); s != nil {
				defer s.doubt()
			}
		}
	}
	by, at, err := l.q.endOf(ctx, key, l.ID(), rev)
	if err != nil {
		if unsure == nil {
			l.finish(ErrSuperseded)
			return l.fail(verb, ErrSuperseded)
		}
		return l.fail(verb, fmt.Errorf("%w (looking it up: %w)", unsure, err))
	}
	if unsure != nil && by == verb {
		l.finish(fmt.Errorf("item was given up (%s): %w", verb, etcdclaims.ErrReleased))
		return nil
	}
	why := ErrSuperseded
	switch by {
	case l.tried:
		why = etcdclaims.ErrReleased // by this lease, whose caller could not be told
	case "complete":
		why = ErrCompleted
	}
	l.finish(why)
	return l.fail(verb, fmt.Errorf("%w at revision %d (%s)", why, at, by))
}

// Heartbeat makes sure that the item is still this worker's, and that its lease
// lasts for d from now on; 0 keeps the duration it has. It returns the new end. The
// process renews the lease by itself, so Heartbeat is for another duration, and for
// a worker that wants to know. With another duration the item moves to another
// session: its fence rises, and tokens made before are stale.
func (l *Lease) Heartbeat(ctx context.Context, d time.Duration) (until time.Time, err error) {
	done, err := l.turn(ctx)
	if err != nil {
		return time.Time{}, l.fail("heartbeat", err)
	}
	defer done()
	s, sid, st, rev, _ := l.snapshot()
	if d < 0 {
		return time.Time{}, l.fail("heartbeat", fmt.Errorf("duration %v is negative", d))
	}
	key := l.q.keys.takenBy(sid) + st.ID
	if s != nil && (d == 0 || d == s.ttl) {
		if err := s.claim.Renew(ctx); err != nil {
			if errors.Is(err, etcdclaims.ErrLost) {
				l.finish(ErrExpired)
				err = fmt.Errorf("%w: %w", ErrExpired, err)
			}
			return time.Time{}, l.fail("heartbeat", err)
		}
		resp, err := l.q.read(ctx, clientv3.OpGet(key))
		if err != nil {
			return time.Time{}, l.fail("heartbeat", err)
		}
		if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) == 0 || kvs[0].ModRevision != rev {
			return time.Time{}, l.refused(ctx, "heartbeat", key, rev, nil, nil)
		}
		return l.Deadline(), nil
	}
	if d == 0 {
		d = l.q.cfg.TTL
	}
	for {
		next, err := l.q.sessions.get(ctx, d)
		if err != nil {
			return time.Time{}, l.fail("heartbeat", err)
		}
		if until, err = l.rehome(ctx, next, key, sid, st, rev); !errors.Is(err, errNotThere) {
			return until, err
		}
	}
}

// errNotThere is returned by rehome if the session to which the item was to go is over,
// and the item did not go.
var errNotThere = errors.New("session is over")

// rehome moves the item to another session of this process, in one transaction under
// both.
func (l *Lease) rehome(ctx context.Context, next *session, key, sid string, st state, rev int64) (until time.Time, err error) {
	if keyspace.Epoch(next.claim.Fence()) != l.ep {
		return time.Time{}, l.fail("heartbeat", ErrSuperseded)
	}
	to := l.q.keys.takenBy(next.id) + st.ID
	st.Owner = l.q.claims.Owner()
	cmps := []clientv3.Cmp{
		unmoved(key, rev),
		clientv3.Compare(clientv3.CreateRevision(l.q.claims.OwnKey(l.q.keys.sessionKey(sid))), ">", 0),
	}
	value := encode(st)
	ops := []clientv3.Op{clientv3.OpPut(to, value)}
	if to != key { // else it was adopted by the process that had it
		ops = append(ops, clientv3.OpDelete(key))
	}
	if st.Slot > 0 {
		ops = append(ops, clientv3.OpPut(l.q.keys.slot(st.Slot), slotOwner(next.id, st.ID)))
	}
	next.add(l) // before it is there, so that it is not taken for nobody's
	defer func() {
		if err != nil {
			next.forget(l)
			next.doubt()
		}
	}()
	var unsure error
	for try := 0; ; try++ {
		// The generation of the session keeps it from coming late, when what is under the
		// session without a lease has been given back, or the session is closed.
		resp, again, err := next.commit(ctx, cmps, ops, []clientv3.Op{clientv3.OpGet(to)})
		moved := int64(0)
		switch {
		case err == nil && resp == nil: // the generation was missing
		case err == nil && resp.Succeeded:
			moved = resp.Header.Revision
		case err == nil:
			// An earlier try may have been carried out.
			if kvs := resp.Responses[0].GetResponseRange().Kvs; unsure != nil && len(kvs) > 0 && string(kvs[0].Value) == value {
				moved = kvs[0].ModRevision
			} else if !again {
				return time.Time{}, l.refused(ctx, "heartbeat", key, rev, nil, unsure)
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
			return l.moved(next, st, moved)
		}
		if !pause(ctx, try) {
			return time.Time{}, l.fail("heartbeat", fmt.Errorf("%w (%w)", unsureOr(unsure, err), context.Cause(ctx)))
		}
	}
}

// moved makes the lease one of another session.
func (l *Lease) moved(next *session, st state, rev int64) (time.Time, error) {
	l.mu.Lock()
	before := l.s
	l.s, l.sid, l.st, l.rev = next, next.id, st, rev
	ended := l.err
	l.mu.Unlock()
	if before != nil && before != next {
		before.forget(l)
	}
	if ended != nil {
		return time.Time{}, l.fail("heartbeat", ended)
	}
	l.follow(next)
	return l.Deadline(), nil
}

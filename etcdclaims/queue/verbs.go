package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Outcome describes what happened to an item that was not completed.
type Outcome struct {
	// Dead is set if the item went to the dead letters.
	Dead bool
	// Until is when the item is visible again. Zero if it is dead.
	Until time.Time
	// Attempts is how many attempts count so far.
	Attempts int
}

// Complete removes the item from the queue. It carries out operations of the caller in
// the same transaction. They must not touch keys of claims; operations that [Queue.Op]
// returned are allowed. Calls of several goroutines at the same time share a request; see
// also [Batch.CompleteAll]. Its errors are those of all verbs, see the package
// documentation.
func (l *Delivery) Complete(ctx context.Context, ops ...clientv3.Op) error {
	return l.complete(ctx, nil, ops...)
}

// complete is Complete, by a member of a crowd if crowd is not nil.
func (l *Delivery) complete(ctx context.Context, crowd *txn.Member, ops ...clientv3.Op) (err error) {
	l.completed(1)
	defer func() {
		if !errors.Is(err, etcdclaims.ErrUnknown) {
			l.completed(-1)
		}
	}()
	then := txn.Then(ops...).Success
	for try := 0; ; try++ {
		keep, err := l.tombstoneLease(ctx, crowd)
		if err != nil {
			return l.fail("complete", err)
		}
		_, err = l.verb(ctx, crowd, item.VerbComplete, len(ops) > 0, func(h item.Held) *pb.TxnRequest {
			return item.Complete{
				Held: h, Topic: l.content.Topic, Keep: int64(keep), Remember: l.remembered(), Result: l.Result(),
				Then: then, Now: l.q.now(),
			}.Build()
		})
		again := errors.Is(err, rpctypes.ErrLeaseNotFound) || // it may have been revoked
			errors.Is(err, rpctypes.ErrNoSpace) && !l.leaves() && !errors.Is(err, etcdclaims.ErrUnknown)
		if keep == clientv3.NoLease || !again || try > 0 || l.Err() != nil {
			return err // with a new lease it is one of the caller's
		}
		l.retention().forget(keep) // without space etcd grants no other: then no tombstone is put
	}
}

// Fail records that the attempt failed, and why. The item waits for its back-off, and
// then becomes visible again, behind the items of its priority that became visible
// before. It becomes a dead letter after its last attempt, or if the cause is marked with
// etcdclaims.Permanent. A cause marked with etcdclaims.RetryAfter sets the back-off. The
// option Priority changes the item's priority in the same transaction, also that of a
// dead letter. Fail returns what became of the item. Its errors are those of all verbs, see the package
// documentation.
func (l *Delivery) Fail(ctx context.Context, cause error, opts ...FailOption) (Outcome, error) {
	if cause == nil {
		cause = errors.New("no cause was given")
	}
	o := failOptions{backoff: l.q.cfg.Backoff}
	for _, opt := range opts {
		if opt != nil {
			opt.applyFail(&o)
		}
	}
	now := l.q.now()
	text := errtext.Text(cause)
	var out Outcome
	left, err := l.verb(ctx, nil, item.VerbFail, false, func(h item.Held) *pb.TxnRequest {
		fail := item.Fail{Held: h, Cause: text, Permanent: etcdclaims.IsPermanent(cause), Priority: o.priority, Now: now}
		out = Outcome{Dead: fail.Last(), Attempts: h.State.Attempts}
		if !out.Dead {
			wait, given := etcdclaims.RetryDelay(cause)
			if !given {
				wait = o.backoff(h.State.Attempts)
			}
			fail.Wait = wait
			out.Until = fail.Until()
		}
		return fail.Build()
	})
	switch {
	case err != nil:
		return Outcome{}, err
	case left == nil:
		return out, nil
	case !left.Died.IsZero():
		return Outcome{Dead: true, Attempts: left.Attempts}, nil
	}
	return Outcome{Until: left.Vesting, Attempts: left.Attempts}, nil
}

// Snooze makes the item visible again in exactly d. The attempt does not count.
func (l *Delivery) Snooze(ctx context.Context, d time.Duration) (until time.Time, err error) {
	if d < 0 {
		return time.Time{}, l.fail("snooze", fmt.Errorf("duration %v is negative", d))
	}
	now := l.q.now()
	until = now.Add(d).UTC()
	left, err := l.verb(ctx, nil, item.VerbSnooze, false, func(h item.Held) *pb.TxnRequest {
		return item.Snooze{Held: h, Until: until, Now: now}.Build()
	})
	switch {
	case err != nil:
		return time.Time{}, err
	case left != nil:
		return left.Vesting, nil
	}
	return until, nil
}

// Release gives the item back. It is visible at once, in the place that it had, and
// the attempt does not count.
func (l *Delivery) Release(ctx context.Context) error {
	now := l.q.now()
	_, err := l.verb(ctx, nil, item.VerbRelease, false, func(h item.Held) *pb.TxnRequest {
		return item.Release{Held: h, Now: now}.Build()
	})
	return err
}

// Discard puts the item among the dead letters at once, with the reason.
func (l *Delivery) Discard(ctx context.Context, reason string) error {
	return l.discard(ctx, reason, false)
}

// discard is Discard. empty means that the item has no content.
func (l *Delivery) discard(ctx context.Context, reason string, empty bool) error {
	now := l.q.now()
	_, err := l.verb(ctx, nil, item.VerbDiscard, false, func(h item.Held) *pb.TxnRequest {
		return item.Discard{Held: h, Reason: reason, Empty: empty, Now: now}.Build()
	})
	return err
}

// fail names the operation and the item in an error.
func (l *Delivery) fail(verb string, err error) error {
	if err == nil {
		return nil
	}
	return errtext.Wrap(fmt.Sprintf("%s item %q of queue %q", verb, l.ID(), l.q.cfg.Name), txn.Denied(l.q.explain(err)))
}

// verb ends the lease in etcd by one transaction, which deletes the taken key under
// its fence, and then locally. It returns how the item was left if only etcd's history
// shows it, as after a lost reply: an earlier call may have done it. Else it returns nil. foreign
// means that the request has operations of the caller's own. The first request is sent with those of the crowd.
func (l *Delivery) verb(
	ctx context.Context, crowd *txn.Member, verb string, foreign bool, request func(item.Held) *pb.TxnRequest,
) (left *item.State, err error) {
	done, err := l.turn(ctx, crowd)
	if err != nil {
		return nil, l.fail(verb, err)
	}
	defer done()
	held := l.hold()
	if held.Elsewhere {
		crowd.Leave() // it may have to wait for a session
	}
	in := request(held)
	unsure := l.unsure[verb]
	l.leave()
	defer func() {
		switch {
		case err == nil:
		case unsure != nil:
			l.doubt(verb, unsure)
		case l.unsure == nil:
			l.stay()
		}
	}()
	for try := 0; ; try++ {
		via, err := l.via(ctx)
		if err != nil {
			return nil, l.fail(verb, unsureOr(unsure, err))
		}
		var resp *pb.TxnResponse
		if foreign {
			err = via.check(ctx, in)
		}
		if err == nil {
			resp, err = via.share(ctx, via.verbs, txn.Request{Key: held.Key(), In: in, Crowd: crowd})
		}
		switch {
		case err == nil && resp.Succeeded:
			l.finish(errtext.Namesake("an earlier "+verb+" ended the lease", etcdclaims.ErrReleased))
			return nil, nil
		case err == nil:
			return l.refused(ctx, verb, held, held.Refused(resp), unsure)
		case errors.Is(err, rpctypes.ErrNoSpace):
			// etcd answers so to what it refuses, and to the request by which it has run out
			// of space, which it has carried out.
			switch stands, rerr := l.q.stands(ctx, held); {
			case rerr != nil:
				unsure = err
			case stands:
				return nil, l.fail(verb, unsureOr(unsure, rpctypes.ErrNoSpace))
			default:
				return l.refused(ctx, verb, held, item.Gone, err)
			}
		case errors.Is(err, etcdclaims.ErrUnknown):
			unsure = err
		case errors.Is(err, etcdclaims.ErrLost):
			if l.hold().Elsewhere {
				continue // this process's session ended, not the lease: by another one
			}
			if unsure != nil {
				return l.refused(ctx, verb, held, item.Gone, unsure)
			}
			l.finish(ErrExpired)
			return nil, l.fail(verb, fmt.Errorf("%w: %w", ErrExpired, err))
		case !passing(err):
			return nil, l.fail(verb, unsureOr(unsure, err))
		}
		if !retry.Pause(ctx, try) {
			return nil, l.fail(verb, fmt.Errorf("%w (%w)", unsureOr(unsure, err), context.Cause(ctx)))
		}
	}
}

// stands reports whether a worker's item is where it was.
func (q *store) stands(ctx context.Context, held item.Held) (bool, error) {
	resp, err := q.read(ctx, clientv3.OpGet(held.Key(), clientv3.WithKeysOnly()))
	if err != nil {
		return false, err
	}
	return held.Judge(txn.Kvs(resp, 0)) == item.Stands, nil
}

// unsureOr returns an ErrUnknown if the outcome is unknown.
func unsureOr(unsure, err error) error {
	switch {
	case unsure == nil:
		return err
	case err == nil || errors.Is(err, etcdclaims.ErrUnknown):
		return unsure
	}
	return fmt.Errorf("%w (then: %w)", unsure, err)
}

// via returns the session whose guard the lease's requests carry.
func (l *Delivery) via(ctx context.Context) (*session, error) {
	s, held, err := l.snapshot()
	if err != nil || s != nil {
		return s, err
	}
	s, err = l.q.sessions.get(ctx, l.q.cfg.TTL)
	if err != nil {
		return nil, err
	}
	if keyspace.Epoch(s.claim.Fence()) != held.Epoch {
		return nil, ErrSuperseded
	}
	return s, nil
}

// refused returns why a verb was refused. If that is because an earlier try of the verb
// was carried out, refused returns no error but how the item was left; the state is empty
// for verbs whose callers do not need it.
func (l *Delivery) refused(ctx context.Context, verb string, held item.Held, hold item.Standing, unsure error) (*item.State, error) {
	switch hold {
	case item.Stands:
		l.finish(ErrExpired) // the item is still there, its session is not
		return nil, l.fail(verb, ErrExpired)
	case item.Anew:
		if s, _, _ := l.snapshot(); s != nil {
			defer s.doubt()
		}
	}
	end, err := l.q.endOf(ctx, held.Key(), held.State.ID, held.Rev)
	if err != nil {
		if unsure == nil {
			l.finish(ErrSuperseded)
			return nil, l.fail(verb, ErrSuperseded)
		}
		return nil, l.fail(verb, fmt.Errorf("%w (looking it up: %w)", unsure, err))
	}
	mine := held.Mine(end)
	if unsure != nil && end.Verb == verb && mine {
		var left item.State
		if verb == item.VerbFail || verb == item.VerbSnooze {
			if left, err = l.q.left(ctx, end); err != nil {
				return nil, l.fail(verb, fmt.Errorf("%w (looking it up: %w)", unsure, err))
			}
		}
		l.finish(errtext.Namesake("an earlier "+verb+" ended the lease", etcdclaims.ErrReleased))
		return &left, nil
	}
	why := lost(end)
	if mine && l.unsure[end.Verb] != nil {
		why = etcdclaims.ErrReleased // by this lease, whose caller could not be told
	}
	l.finish(why)
	return nil, l.fail(verb, fmt.Errorf("%w at revision %d (%s)", why, end.Rev, cmp.Or(end.Verb, "its keys were deleted by hand")))
}

// remembered reports whether the item is remembered once it is completed.
func (l *Delivery) remembered() bool {
	return (l.content.Given || l.Result() != nil) && l.q.cfg.Retention >= 0
}

// leaves reports whether Complete fails rather than that nothing remains of the item.
func (l *Delivery) leaves() bool { return l.by() != "" || l.Result() != nil }

// retention returns the leases for the keys that remain of a completed item:
// its tombstone, or the note by which an adopted lease knows that it was the one that
// completed it. It is nil if nothing is left.
func (l *Delivery) retention() *retention {
	switch {
	case l.remembered():
		return &l.q.retained
	case l.by() != "":
		return &l.q.noted
	}
	return nil
}

// tombstoneLease returns the lease for the key that remains of a completed item.
// If etcd has no space for one the item's id is forgotten at once. But an adopted lease
// could not be distinguished from others then, and a result would be lost, so their Complete fails.
func (l *Delivery) tombstoneLease(ctx context.Context, crowd *txn.Member) (clientv3.LeaseID, error) {
	leases := l.retention()
	for try := 0; leases != nil; try++ {
		id, err := leases.lease(ctx, l.q.store, l)
		if errors.Is(err, rpctypes.ErrNoSpace) && !l.leaves() {
			l.q.log.Warn("completed item forgotten at once, etcd has no space for its id")
			return clientv3.NoLease, nil
		}
		if err == nil || !passing(err) {
			return id, err
		}
		if ended := l.Err(); ended != nil {
			return clientv3.NoLease, ended
		}
		crowd.Leave()
		if !retry.Pause(ctx, try) {
			return clientv3.NoLease, fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
	return clientv3.NoLease, nil
}

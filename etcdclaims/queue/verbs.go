package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
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
// returned are allowed. Its errors are those of all verbs, see the package
// documentation.
func (l *Delivery) Complete(ctx context.Context, ops ...clientv3.Op) error {
	for try := 0; ; try++ {
		keep, err := l.tombstoneLease(ctx)
		if err != nil {
			return l.fail("complete", err)
		}
		_, err = l.verb(ctx, "complete", func(st state, rev int64, now time.Time) []clientv3.Op {
			key := l.q.keys.item(st.ID)
			gone, placed := clientv3.OpDelete(key), l.unplace(st)
			switch {
			case keep != clientv3.NoLease && l.remembered():
				c := content{Version: valueVersion, Topic: l.content.Topic, Seq: st.Seq, Given: true, Done: &tombstone{
					Fence: keyspace.Fence(l.ep, rev), Owner: st.Owner, Attempt: st.Attempts, At: now.UTC(), By: l.by,
				}}
				gone = clientv3.OpPut(key, encode(c), clientv3.WithLease(keep))
			case keep != clientv3.NoLease:
				p := place{Version: valueVersion, Verb: "complete", Fence: keyspace.Fence(l.ep, rev), By: l.by}
				placed = []clientv3.Op{clientv3.OpPut(l.q.keys.place(st.ID), encode(p), clientv3.WithLease(keep))}
			}
			return append(append([]clientv3.Op{gone}, placed...), ops...)
		})
		again := errors.Is(err, rpctypes.ErrLeaseNotFound) || // it may have been revoked
			errors.Is(err, rpctypes.ErrNoSpace) && l.by == "" && !errors.Is(err, etcdclaims.ErrUnknown)
		if keep == clientv3.NoLease || !again || try > 0 || l.Err() != nil {
			return err // with a new lease it is one of the caller's
		}
		l.retention().forget(keep) // without space etcd grants no other: then no tombstone is put
	}
}

// unplace removes the note of where the item is, if there is one.
func (l *Delivery) unplace(st state) []clientv3.Op {
	if !st.Moved {
		return nil
	}
	return []clientv3.Op{clientv3.OpDelete(l.q.keys.place(st.ID))}
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
	left, err := l.verb(ctx, "fail", func(st state, rev int64, _ time.Time) []clientv3.Op {
		st.ended(Attempt{Number: st.Attempts, Owner: st.Owner, Fence: keyspace.Fence(l.ep, rev), Ending: attemptFailed, Error: text, At: now.UTC()})
		if o.priority != nil {
			st.Priority = *o.priority
		}
		out = Outcome{Attempts: st.Attempts}
		if st.Attempts >= st.Max || etcdclaims.IsPermanent(cause) {
			out.Dead = true
			return l.q.bury(st, l.place("fail", rev), "failed: "+text, now)
		}
		wait, given := etcdclaims.RetryDelay(cause)
		if !given {
			wait = o.backoff(st.Attempts)
		}
		st.Vesting = now.Add(max(wait, 0)).UTC()
		out.Until = st.Vesting
		return l.q.requeue(st, l.place("fail", rev), now)
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
	left, err := l.verb(ctx, "snooze", func(st state, rev int64, _ time.Time) []clientv3.Op {
		st.Attempts--
		st.Vesting = until
		return l.q.requeue(st, l.place("snooze", rev), now)
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
	_, err := l.verb(ctx, "release", func(st state, rev int64, _ time.Time) []clientv3.Op {
		st.Attempts--
		return l.q.uncover(st, l.place("release", rev), now)
	})
	return err
}

// Discard puts the item among the dead letters at once, with the reason.
func (l *Delivery) Discard(ctx context.Context, reason string) error {
	now := l.q.now()
	_, err := l.verb(ctx, "discard", func(st state, rev int64, _ time.Time) []clientv3.Op {
		p := l.place("discard", rev)
		st.ended(Attempt{Number: st.Attempts, Owner: st.Owner, Fence: p.Fence, Ending: attemptDiscarded, Error: reason, At: now.UTC()})
		return l.q.bury(st, p, "discarded: "+reason, now)
	})
	return err
}

// discardEmpty is Discard for an item without content. It puts a content that is marked as
// missing, because items are found by their contents. If one has been enqueued with the id
// meanwhile, nothing is left of this one.
func (l *Delivery) discardEmpty(ctx context.Context, reason string) error {
	now := l.q.now()
	_, err := l.verb(ctx, "discard", func(st state, rev int64, _ time.Time) []clientv3.Op {
		key, p := l.q.keys.item(st.ID), l.place("discard", rev)
		st.ended(Attempt{Number: st.Attempts, Owner: st.Owner, Fence: p.Fence, Ending: attemptDiscarded, Error: reason, At: now.UTC()})
		c := content{Version: valueVersion, Given: st.Given, Seq: st.Seq, Rank: rank(st.Priority, l.q.cfg.HigherFirst), Vesting: st.Vesting, Enqueued: st.Vesting, Missing: true}
		then := append(l.q.bury(st, p, "discarded: "+reason, now), clientv3.OpPut(key, encode(c)))
		return []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{absent(key)}, then, nil)}
	})
	return err
}

// place is the note about a verb of the lease.
func (l *Delivery) place(verb string, rev int64) place {
	return place{Verb: verb, Fence: keyspace.Fence(l.ep, rev), By: l.by}
}

// requeue is the operations that make a taken item wait. The note that the queue has
// work stays: it is only removed while nothing is taken.
func (q *Queue) requeue(st state, p place, now time.Time) []clientv3.Op {
	st = st.waiting()
	return q.move(st, q.indexKey(st, now), p)
}

// uncover is requeue for an item that is visible at once, in the place that it had: its vesting
// time was past by the clock of who made it visible, and need not be by this one.
func (q *Queue) uncover(st state, p place, now time.Time) []clientv3.Op {
	if st.Vesting.After(now) {
		now = st.Vesting
	}
	return q.requeue(st, p, now)
}

// bury is the operations that make an item a dead letter.
func (q *Queue) bury(st state, p place, why string, now time.Time) []clientv3.Op {
	st = st.waiting()
	st.Why, st.Died = cut(why), now.UTC()
	return q.move(st, q.keys.deadAt(st.Died, st.Seq), p)
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
// shows it, as after a lost reply: an earlier call may have done it. Else it returns nil.
func (l *Delivery) verb(ctx context.Context, verb string, change func(st state, rev int64, now time.Time) []clientv3.Op) (left *state, err error) {
	done, err := l.turn(ctx)
	if err != nil {
		return nil, l.fail(verb, err)
	}
	defer done()
	_, sid, st, rev, _ := l.snapshot()
	key := l.q.keys.takenBy(sid) + st.ID
	now := l.q.now()
	ops := append([]clientv3.Op{clientv3.OpDelete(key)}, change(st, rev, now)...)
	ops = append(ops, l.unnote(st.ID)...)
	if st.Slot > 0 {
		ops = append(ops, clientv3.OpDelete(l.q.keys.slot(st.Slot)))
	}
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
		via, cmps, err := l.via(ctx)
		if err != nil {
			return nil, l.fail(verb, unsureOr(unsure, err))
		}
		cmps = append(cmps, unmoved(key, rev))
		resp, err := via.share(ctx, via.verbs, key, cmps, ops, []clientv3.Op{clientv3.OpGet(key)})
		switch {
		case err == nil && resp.Succeeded:
			l.finish(errtext.Namesake("an earlier "+verb+" ended the lease", etcdclaims.ErrReleased))
			return nil, nil
		case err == nil:
			return l.refused(ctx, verb, key, rev, resp, unsure)
		case errors.Is(err, rpctypes.ErrNoSpace):
			// etcd answers so to what it refuses, and to the request by which it has run out
			// of space, which it has carried out.
			switch stands, rerr := l.q.stands(ctx, key, rev); {
			case rerr != nil:
				unsure = err
			case stands:
				return nil, l.fail(verb, unsureOr(unsure, rpctypes.ErrNoSpace))
			default:
				return l.refused(ctx, verb, key, rev, nil, err)
			}
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
			return nil, l.fail(verb, fmt.Errorf("%w: %w", ErrExpired, err))
		case !passing(err):
			return nil, l.fail(verb, unsureOr(unsure, err))
		}
		if !retry.Pause(ctx, try) {
			return nil, l.fail(verb, fmt.Errorf("%w (%w)", unsureOr(unsure, err), context.Cause(ctx)))
		}
	}
}

// stands reports whether a key is as it was put at a revision.
func (q *Queue) stands(ctx context.Context, key string, rev int64) (bool, error) {
	resp, err := q.read(ctx, clientv3.OpGet(key, clientv3.WithKeysOnly()))
	if err != nil {
		return false, err
	}
	kvs := txn.Kvs(resp, 0)
	return len(kvs) > 0 && kvs[0].ModRevision == rev, nil
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

func (l *Delivery) resumed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s == nil
}

// via returns the session whose guard the lease's requests carry, and what they must
// require beyond it.
func (l *Delivery) via(ctx context.Context) (*session, []clientv3.Cmp, error) {
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

// refused returns why a verb was refused. If that is because an earlier try of the verb
// was carried out, refused returns no error but how the item was left; the state is empty
// for verbs whose callers do not need it.
func (l *Delivery) refused(ctx context.Context, verb, key string, rev int64, resp *clientv3.TxnResponse, unsure error) (*state, error) {
	if resp != nil {
		kvs := txn.Kvs(resp, 0)
		switch {
		case len(kvs) == 0:
		case kvs[0].ModRevision == rev:
			l.finish(ErrExpired) // the item is still there, its session is not
			return nil, l.fail(verb, ErrExpired)
		default:
			// It was moved here again, or was overwritten: then no worker has it.
			if s, _, _, _, _ := l.snapshot(); s != nil {
				defer s.doubt()
			}
		}
	}
	end, err := l.q.endOf(ctx, key, l.ID(), rev)
	if err != nil {
		if unsure == nil {
			l.finish(ErrSuperseded)
			return nil, l.fail(verb, ErrSuperseded)
		}
		return nil, l.fail(verb, fmt.Errorf("%w (looking it up: %w)", unsure, err))
	}
	mine := end.by == l.by && end.verb != "heartbeat" && end.verb != "" // heartbeat finds its own by its nonce
	if unsure != nil && end.verb == verb && mine {
		var left state
		if verb == "fail" || verb == "snooze" {
			if left, err = l.q.left(ctx, end); err != nil {
				return nil, l.fail(verb, fmt.Errorf("%w (looking it up: %w)", unsure, err))
			}
		}
		l.finish(errtext.Namesake("an earlier "+verb+" ended the lease", etcdclaims.ErrReleased))
		return &left, nil
	}
	why := ErrSuperseded
	switch {
	case mine && l.unsure[end.verb] != nil:
		why = etcdclaims.ErrReleased // by this lease, whose caller could not be told
	case end.verb == "complete":
		why = ErrCompleted
	}
	l.finish(why)
	return nil, l.fail(verb, fmt.Errorf("%w at revision %d (%s)", why, end.rev, cmp.Or(end.verb, "its keys were deleted by hand")))
}

package queue

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// redriven is the operations that make a dead letter visible again.
func (q *Queue) redriven(f found, now time.Time) []clientv3.Op {
	st := f.st
	st.Attempts, st.Vesting = 0, now.UTC()
	return append([]clientv3.Op{clientv3.OpDelete(f.key)}, q.requeue(st, place{Verb: "redrive"}, now)...)
}

// RedriveAll redrives all dead letters, many with each request, and returns how many. They
// are visible in the order in which they died. After an error some have been redriven.
func (q *Queue) RedriveAll(ctx context.Context) (n int, err error) {
	if err := q.closed(); err != nil {
		return 0, q.fail("redrive", err)
	}
	for {
		some, err := q.redriveListed(ctx)
		n += some
		if some == 0 || !errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, etcdclaims.ErrUnknown) {
			return n, err
		}
		// What is left is listed anew.
	}
}

// redriveListed redrives the dead letters that there are now. It fails if etcd compacts the
// revision of the list meanwhile.
func (q *Queue) redriveListed(ctx context.Context) (n int, err error) {
	var some []found
	at := q.now() // a nanosecond later for each, so that their order stays
	for f, err := range q.listFrom(ctx, q.keys.dead(), q.keys.dead(), 0) {
		if err != nil {
			return n, err
		}
		at = at.Add(1)
		f.st.Vesting = at
		if some = append(some, f); len(some) < q.size.items(opsToRedrive) {
			continue
		}
		redriven, err := q.redriveSome(ctx, some)
		if n += redriven; err != nil {
			return n, err
		}
		some = nil
	}
	redriven, err := q.redriveSome(ctx, some)
	return n + redriven, err
}

// redriveSome redrives dead letters, as many with each request as fit. Those that it refuses
// were moved, or have no content: Redrive, which reads it, decides.
func (q *Queue) redriveSome(ctx context.Context, letters []found) (n int, err error) {
	for try := 0; len(letters) > 0; {
		s, err := q.sessions.get(ctx, q.cfg.TTL)
		if err != nil {
			return n, q.fail("redrive", err)
		}
		some := fitting(letters[:min(len(letters), q.size.items(opsToRedrive))], redrivenSize)
		ops := txn.Ops{q.activate()}
		moves := make([]txn.Op, len(some))
		for i, f := range some {
			key := q.keys.item(f.ID)
			// A content that marks a missing one was put with the dead letter. A place that was not
			// may be of a later version, which nobody overwrites.
			cmps := []clientv3.Cmp{
				unmoved(f.key, f.rev), unmoved(q.keys.place(f.ID), f.rev),
				clientv3.Compare(clientv3.CreateRevision(key), ">", 0), clientv3.Compare(clientv3.ModRevision(key), "<", f.rev),
			}
			moves[i] = ops.Add(clientv3.OpTxn(cmps, q.redriven(f, f.st.Vesting), nil))
		}
		resp, again, err := s.commit(ctx, nil, ops, nil)
		var moved func(i int) (bool, error)
		switch {
		case err == nil && !again && resp.Succeeded:
			moved = func(i int) (bool, error) { return txn.ReplyIn(resp).Inner(moves[i]).Succeeded, nil }
		case err == nil, q.size.refused(err, len(ops)+opsToRedrive):
		case errors.Is(err, etcdclaims.ErrUnknown):
			moved = func(i int) (bool, error) {
				done, verr := q.changed(ctx, s, some[i], "redrive")
				if verr != nil {
					return false, q.fail("redrive", errors.Join(err, verr))
				}
				return done, nil
			}
		case errors.Is(err, etcdclaims.ErrLost), passing(err):
		default:
			return n, q.fail("redrive", err)
		}
		if moved != nil {
			redriven, err := q.redriveRest(ctx, some, moved)
			if n += redriven; err != nil {
				return n, err
			}
			letters, try = letters[len(some):], 0
			continue
		}
		if !retry.Pause(ctx, try) {
			return n, q.fail("redrive", context.Cause(ctx))
		}
		try++
	}
	return n, nil
}

// redriveRest redrives one by one the dead letters that a request did not move, and returns how
// many of all were redriven.
func (q *Queue) redriveRest(ctx context.Context, some []found, moved func(i int) (bool, error)) (n int, err error) {
	for i, f := range some {
		done, err := moved(i)
		if err == nil && !done {
			done, err = q.redriveOne(ctx, f.ID)
		}
		if err != nil {
			return n, err
		}
		if done {
			n++
		}
	}
	return n, nil
}

// redriveOne redrives a dead letter alone, and reports whether it did: another process can be
// faster.
func (q *Queue) redriveOne(ctx context.Context, id string) (bool, error) {
	err := q.Redrive(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// redrivenSize bounds what a request needs to redrive a dead letter.
func redrivenSize(f found) int { return len(encode(f.st)) + 1024 }

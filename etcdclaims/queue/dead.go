package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// DeadLetters yields the dead letters, oldest first, without payloads; Look returns an
// item with its payload. It reads page by page. An error is the last value.
func (q *Queue) DeadLetters(ctx context.Context) iter.Seq2[Info, error] {
	return q.list(ctx, q.keys.Dead())
}

// Taken yields the items that workers have, in the order of sessions, without payloads.
func (q *Queue) Taken(ctx context.Context) iter.Seq2[Info, error] {
	return q.list(ctx, q.keys.Taken())
}

// list reads the keys under a prefix, as of one revision. What cannot be read is
// skipped and counted.
func (q *Queue) list(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for f, err := range q.listFrom(ctx, prefix, prefix, 0) {
			if !yield(f.Info, err) {
				return
			}
		}
	}
}

// listFrom is list from a key on, as of a revision; 0 is the present one.
func (q *Queue) listFrom(ctx context.Context, prefix, from string, rev int64) iter.Seq2[found, error] {
	return func(yield func(found, error) bool) {
		op := clientv3.OpGet(from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithRev(rev))
		for page, err := range list(ctx, q.claims, op, pageSize) {
			if err != nil {
				yield(found{}, q.fail("list", err))
				return
			}
			for _, kv := range page.Kvs {
				f, err := q.describe(found{}, kv)
				if err != nil {
					q.skip(err)
					continue
				}
				if !yield(f, nil) {
					return
				}
			}
		}
	}
}

// Redrive makes a dead letter visible again, as if it had not been begun. Its
// history stays.
//
// Errors: ErrNotFound if there is no such dead letter, or if its payload is lost.
// Info.Why has that reason. Cancel that item, and enqueue it again.
func (q *Queue) Redrive(ctx context.Context, id string) error {
	return q.redrive(ctx, q.act(ctx, audit.Redrive, id, ""), id)
}

func (q *Queue) redrive(ctx context.Context, act *audit.Act, id string) error {
	return q.change(ctx, act, "redrive", item.VerbRedrive, id, func(f found) (*pb.TxnRequest, error) {
		if f.Where != Dead {
			return nil, fmt.Errorf("%w among the dead letters: it is %s", ErrNotFound, f.Where)
		}
		if f.empty {
			return nil, fmt.Errorf("%w with a payload: it has none any more", ErrNotFound)
		}
		return item.Redrive{Keys: q.keys, Entry: f.entry, Now: q.now()}.Build(), nil
	})
}

// Purge removes the dead letters that died before t, and returns how many. After an error
// some may have been removed. The number does not include those of a request whose reply
// was lost.
func (q *Queue) Purge(ctx context.Context, t time.Time) (n int, err error) {
	if err := q.closed(); err != nil {
		return 0, q.fail("purge", err)
	}
	act := q.act(ctx, audit.Purge, "", "")
	act.Detail("before %s", keyspace.TimeText(t))
	n, unsure, err := q.purge(ctx, act, t)
	if unsure && n == 0 && err == nil { // a request whose reply was lost can have removed some
		return 0, act.End(ctx, nil)
	}
	return n, ended(ctx, act, n, err)
}

// ended ends an action on n items.
func ended(ctx context.Context, act *audit.Act, n int, err error) error {
	switch {
	case err != nil:
		act.Outcome(ctx, "items: %d, and then an error", n)
	case n == 0: // others moved what it found
		act.Withdraw(ctx)
	default:
		act.Outcome(ctx, "items: %d", n)
	}
	return act.End(ctx, err)
}

func (q *Queue) purge(ctx context.Context, act *audit.Act, t time.Time) (n int, unsure bool, err error) {
	for try, success := 0, clock.Mono(); ; {
		s, err := q.sessions.get(ctx, q.cfg.TTL)
		if err != nil {
			return n, unsure, q.fail("purge", err)
		}
		some, err := q.purgeSome(ctx, s, act, q.keys.Dead()+keyspace.Instant(t))
		n += some
		switch {
		case err == nil && some == 0:
			return n, unsure, nil
		case err == nil:
			try, success = 0, clock.Mono()
		case !tryAgain(ctx, err, success, try):
			return n, unsure, q.fail("purge", err)
		default: // a late request finds nothing that it removes
			try, unsure = try+1, true
		}
	}
}

// RedriveAll redrives all dead letters, many with each request, and returns how many. They
// are visible in the order in which they died. After an error some have been redriven.
func (q *Queue) RedriveAll(ctx context.Context) (n int, err error) {
	if err := q.closed(); err != nil {
		return 0, q.fail("redrive", err)
	}
	act := q.act(ctx, audit.RedriveAll, "", "")
	defer func() { err = ended(ctx, act, n, err) }()
	for {
		some, err := q.redriveListed(ctx, act)
		n += some
		if some == 0 || !errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, etcdclaims.ErrUnknown) {
			return n, err
		}
		// What is left is listed anew.
	}
}

// redriveListed redrives the dead letters that there are now. It fails if etcd compacts the
// revision of the list meanwhile.
func (q *Queue) redriveListed(ctx context.Context, act *audit.Act) (n int, err error) {
	var some []found
	at := q.now() // a nanosecond later for each, so that their order stays
	for f, err := range q.listFrom(ctx, q.keys.Dead(), q.keys.Dead(), 0) {
		if err != nil {
			return n, err
		}
		at = at.Add(1)
		f.entry.State.Vesting = at
		if some = append(some, f); len(some) < q.size.items(opsToRedrive) {
			continue
		}
		redriven, err := q.redriveSome(ctx, act, some)
		if n += redriven; err != nil {
			return n, err
		}
		some = nil
	}
	redriven, err := q.redriveSome(ctx, act, some)
	return n + redriven, err
}

// redriveSome redrives dead letters, as many with each request as fit. Those that it refuses
// were moved, or have no content: Redrive, which reads it, decides. So it is with a second key of a
// letter, if that comes first.
func (q *Queue) redriveSome(ctx context.Context, act *audit.Act, letters []found) (n int, err error) {
	letters = distinct(letters, func(f found) string { return f.ID })
	for try := 0; len(letters) > 0; {
		s, err := q.sessions.get(ctx, q.cfg.TTL)
		if err != nil {
			return n, q.fail("redrive", err)
		}
		some := fitting(letters[:min(len(letters), q.size.items(opsToRedrive))], redrivenSize)
		all := item.RedriveAll{Keys: q.keys}
		for _, f := range some {
			all.Letters = append(all.Letters, f.entry)
		}
		resp, again, err := s.commit(ctx, act.With(all.Build()))
		var moved func(i int) (bool, error)
		switch {
		case err == nil && !again && resp.Succeeded:
			done := all.Judge(resp)
			moved = func(i int) (bool, error) { return done[i], nil }
		case err == nil, q.size.refusedItems(err, len(some), opsToRedrive):
		case errors.Is(err, etcdclaims.ErrUnknown):
			moved = func(i int) (bool, error) {
				done, verr := q.changed(ctx, s, some[i], item.VerbRedrive)
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
			redriven, err := q.redriveRest(ctx, act, some, moved)
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
func (q *Queue) redriveRest(ctx context.Context, act *audit.Act, some []found, moved func(i int) (bool, error)) (n int, err error) {
	for i, f := range some {
		q.lanes.noteKey(f.PartitionKey)
		done, err := moved(i)
		if err == nil && !done {
			if err = q.redrive(ctx, act, f.ID); errors.Is(err, ErrNotFound) {
				continue // another process was faster
			}
			done = err == nil
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

// redrivenSize bounds what a request needs to redrive a dead letter.
func redrivenSize(f found) int { return len(item.Encode(f.entry.State)) + 1024 }

package queue

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/keyspace"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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

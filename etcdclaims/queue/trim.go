package queue

import (
	"context"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	trimEvery = 5 * time.Minute // dead letters past their retention
	// trimStep is how far the time of the trims advances at most from one to the next: a
	// keeper whose clock is a month ahead must not remove a month of dead letters at once.
	trimStep = 2 * trimEvery
)

// trimming is the value of the key trimmed.
type trimming struct {
	Version int       `json:"v"`
	At      time.Time `json:"at"` // the time by which the keeper trimmed last
}

// trim removes dead letters past their retention, oldest first. It goes by the keeper's clock, but no
// further than trimStep ahead of the last trim, or of the oldest dead letter. So the
// retention can last longer after a time without a keeper.
func (q *store) trim(ctx context.Context, s *session) error {
	if q.cfg.DeadRetention < 0 {
		return nil
	}
	from, err := q.oldestDead(ctx)
	if err != nil || from.IsZero() {
		return err
	}
	resp, err := q.read(ctx, clientv3.OpGet(q.keys.Trimmed()))
	if err != nil {
		return err
	}
	now := q.now().UTC()
	if last := txn.Kvs(resp, 0); len(last) > 0 {
		if mark, err := item.Decode[trimming](last[0].Key, last[0].Value); err == nil && mark.At.After(from) {
			from = mark.At
		}
	}
	if limit := from.Add(trimStep).UTC(); now.After(limit) {
		q.log.Info("dead letters trimmed slowly: the last trim was long ago, or this clock is ahead", zap.Duration("behind", now.Sub(limit)))
		now = limit
	}
	mark := clientv3.OpPut(q.keys.Trimmed(), item.Encode(trimming{Version: item.Version, At: now}))
	if _, err := s.send(ctx, txn.Then(mark)); err != nil {
		return err
	}
	before := q.keys.Dead() + keyspace.Instant(now.Add(-q.cfg.DeadRetention))
	for {
		n, err := q.purgeSome(ctx, s, nil, before)
		if err != nil || n == 0 {
			return err
		}
	}
}

// oldestDead returns when the oldest dead letter died; zero if there are none. Keys that are
// not of dead letters say nothing of that.
func (q *store) oldestDead(ctx context.Context) (time.Time, error) {
	all := clientv3.OpGet(q.keys.Dead(), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	for page, err := range retry.List(ctx, core.Of(q.claims).KV(), requestTimeout, all, 1, pageSize) {
		if err != nil {
			return time.Time{}, err
		}
		for _, kv := range page.Kvs {
			if died, err := item.VestingOf(strings.TrimPrefix(string(kv.Key), q.keys.Dead())); err == nil {
				return died, nil
			}
		}
	}
	return time.Time{}, nil
}

// purgeSome removes some dead letters whose keys are before end, for an operator unless act is nil.
func (q *store) purgeSome(ctx context.Context, s *session, act *audit.Act, end string) (int, error) {
	if end <= q.keys.Dead() {
		return 0, nil
	}
	most := int64(q.size.items(opsToPurge))
	resp, err := get(ctx, q.claims, q.keys.Dead(), clientv3.WithRange(end), clientv3.WithLimit(most))
	if err != nil || len(resp.Kvs) == 0 {
		return 0, err
	}
	purge := item.Purge{Keys: q.keys, Letters: resp.Kvs}
	done, err := audit.Send(act, func(act *audit.Act) (*pb.TxnResponse, error) { return s.send(ctx, act.With(purge.Build())) })
	switch {
	case q.size.refusedItems(err, len(resp.Kvs), opsToPurge):
		return q.purgeSome(ctx, s, act, end)
	case err != nil:
		return 0, err
	}
	return purge.Judge(done), nil
}

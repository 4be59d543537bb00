package audit

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The bounds of the records. A lease would not do for the age: a change of etcd's leader begins it anew.
const (
	MaxAge = 90 * 24 * time.Hour
	Most   = 10_000
	// mostTrimmed is how many records one action removes at most. A clock that is a year ahead must not
	// remove them all.
	mostTrimmed = 100
)

// trim removes the oldest records beyond the bounds. The next action makes up for one that fails.
func (a *Act) trim(ctx context.Context) {
	ctx, cancel := a.beside(ctx)
	defer cancel()
	oldest := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(mostTrimmed)}
	resp, err := a.kv.Get(ctx, Under(a.prefix), oldest...)
	if err != nil {
		return
	}
	if end := beyond(resp.Kvs, int(resp.Count), Under(a.prefix)+keyspace.Instant(a.record.At.Add(-MaxAge))); end != "" {
		_, _ = a.kv.Delete(ctx, Under(a.prefix), clientv3.WithRange(end))
	}
}

// beyond returns the key before which the records are beyond the bounds, or "". It is given the oldest of them, the number
// of all, and the key before which they are too old.
func beyond(oldest []*mvccpb.KeyValue, all int, old string) string {
	n := max(0, all-Most)
	for n < len(oldest) && string(oldest[n].Key) < old {
		n++
	}
	if n = min(n, len(oldest)); n == 0 {
		return ""
	}
	return string(oldest[n-1].Key) + "\x00"
}

// Newest returns the newest records since a time, at most n, newest first. Their order is that of the clocks of the
// processes that wrote them.
func Newest(ctx context.Context, kv clientv3.KV, prefix string, n int, since time.Time) ([]Record, error) {
	from, end := Under(prefix)+keyspace.Instant(since), keyspace.RangeEnd(Under(prefix))
	resp, err := kv.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(int64(n)),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
	if err != nil {
		return nil, err
	}
	all := make([]Record, 0, len(resp.Kvs))
	for kv := range slices.Values(resp.Kvs) {
		all = append(all, read(prefix, kv))
	}
	slices.SortStableFunc(all, func(a, b Record) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.Revision, a.Revision)) })
	return all, nil
}

// perRead is how many records are read by one request at most.
const perRead = 500

// Since returns the records of actions after a revision, and how many records there are in all. It leaves out those that
// were put back from a backup, whose actions were before it. A revision that etcd has not reached is of another
// etcd: then all others count.
func Since(ctx context.Context, kv clientv3.KV, prefix string, rev int64) (acts []Record, kept int64, err error) {
	resp, err := retry.Get(ctx, kv, besideTime, clientv3.OpGet(Under(prefix), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	if err != nil {
		return nil, 0, err
	}
	if resp.Header.Revision < rev {
		rev = 0
	}
	after := clientv3.OpGet(Under(prefix), clientv3.WithPrefix(), clientv3.WithMinModRev(rev+1))
	for page, err := range retry.List(ctx, kv, besideTime, after, perRead, perRead) {
		if err != nil {
			return nil, 0, err
		}
		for _, kv := range page.Kvs {
			if r := read(prefix, kv); r.Revision == kv.CreateRevision {
				acts = append(acts, r)
			}
		}
	}
	return acts, resp.Count, nil
}

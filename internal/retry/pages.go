package retry

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// pageBytes is about how large a page should be: values of different kinds differ in
// size by a factor of a thousand.
const pageBytes = 1 << 20

// Page is a part of a range.
type Page struct {
	Kvs  []*mvccpb.KeyValue
	Rev  int64 // that the page is of
	More bool  // it is not the last one
}

// Pages yields the keys of a range page by page, in their order, or from the last to the first
// if op says so; op has no other order. read carries out one request. The first page has at most
// first keys, and another page at most most keys, or fewer if the keys of the page before were
// large. A reply that is over a limit of the client or of a proxy is asked for again with half as
// many keys. The first page may be empty. An error is the last value.
//
// All pages are of the revision of op. If that is 0 they are of the revision of the first page,
// unless etcd compacts it meanwhile: the others are then of a later one.
func Pages(op clientv3.Op, first, most int64, read func(op clientv3.Op) (*clientv3.GetResponse, error)) iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		fixed, rev := op.Rev() != 0, op.Rev()
		for limit := first; ; {
			clientv3.WithLimit(limit)(&op)
			clientv3.WithRev(rev)(&op)
			resp, err := read(op)
			switch {
			case txn.IsReplyTooLarge(err) && limit > 1:
				limit, most = limit/2, max(most/2, 1)
				continue
			case errors.Is(err, rpctypes.ErrCompacted) && !fixed && rev != 0:
				rev = 0
				continue
			case err != nil:
				yield(Page{}, err)
				return
			case rev == 0:
				rev = resp.Header.Revision
			}
			if !yield(Page{resp.Kvs, rev, resp.More}, nil) || !resp.More || len(resp.Kvs) == 0 {
				return
			}
			last := resp.Kvs[len(resp.Kvs)-1].Key
			if op.IsSortSet() {
				op.WithRangeBytes(last)
			} else {
				op.WithKeyBytes(append(last[:len(last):len(last)], 0))
			}
			limit = pageAfter(resp.Kvs, most)
		}
	}
}

// pageAfter returns how many keys the page after one with kvs should have.
func pageAfter(kvs []*mvccpb.KeyValue, most int64) int64 {
	bytes := 1
	for _, kv := range kvs {
		bytes += len(kv.Key) + len(kv.Value)
	}
	return min(max(pageBytes*int64(len(kvs))/int64(bytes), 8), most)
}

// List yields the pages of a range, as Pages does. A request is tried again for at most limit.
func List(ctx context.Context, kv clientv3.KV, limit time.Duration, op clientv3.Op, first, most int64) iter.Seq2[Page, error] {
	return Pages(op, first, most, func(op clientv3.Op) (*clientv3.GetResponse, error) { return get(ctx, kv, limit, op) })
}

func get(ctx context.Context, kv clientv3.KV, limit time.Duration, op clientv3.Op) (*clientv3.GetResponse, error) {
	resp, err := Within(ctx, limit, func(ctx context.Context) (clientv3.OpResponse, error) { return kv.Do(ctx, op) })
	return resp.Get(), err
}

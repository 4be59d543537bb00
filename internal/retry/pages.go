package retry

import (
	"iter"

	"github.com/etcdclaims/claims/internal/wire"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// pageBytes is about how large a page should be: values of different kinds differ in
// size by a factor of a thousand.
const pageBytes = 1 << 20

// Pages yields the keys from one key to the end of a range, page by page. read carries out one
// request. The first page has at most first keys, and another page at most most keys, or fewer if
// the values of the page before were large. A reply that is over a limit of the client or of a
// proxy is asked for again with half as many keys. An error is the last value.
func Pages(from, end string, first, most int64, read func(from clientv3.Op) (kvs []*mvccpb.KeyValue, more bool, err error)) iter.Seq2[[]*mvccpb.KeyValue, error] {
	return func(yield func([]*mvccpb.KeyValue, error) bool) {
		for limit := first; ; {
			kvs, more, err := read(clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(limit)))
			if wire.IsReplyTooLarge(err) && limit > 1 {
				limit, most = limit/2, max(most/2, 1)
				continue
			}
			if !yield(kvs, err) || err != nil || !more {
				return
			}
			from = string(kvs[len(kvs)-1].Key) + "\x00"
			bytes := 0
			for _, kv := range kvs {
				bytes += len(kv.Value)
			}
			limit = min(max(pageBytes*int64(len(kvs))/int64(bytes+1), 8), most)
		}
	}
}

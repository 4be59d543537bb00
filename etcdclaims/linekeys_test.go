package etcdclaims_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcd walks over each key that a range had since the last compaction. So the line of a key, and the claims that share
// it, have few keys, however often it was claimed: clients use the same again, also after waits that were given up.
func TestAKeyHasFewKeys(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][][]etcdclaims.AcquireOption{
		"exclusive":        {nil, nil, nil},
		"slots":            {{etcdclaims.Slots(2)}, {etcdclaims.Slots(2)}, {etcdclaims.Slots(2)}, {etcdclaims.Slots(2)}},
		"readers, writers": {{etcdclaims.Shared()}, nil, {etcdclaims.Shared()}, nil},
		"preferred":        {{etcdclaims.Prefer(1)}, {etcdclaims.Prefer(2)}, {etcdclaims.Prefer(1)}},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			const turns = 40
			first, err := w.Raw.Put(t.Context(), w.Prefix+"first", "")
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for i, o := range opts {
				c, patience := w.peer(), 100*sec
				if i == 0 {
					patience = sec / 4 // it gives up
				}
				for range 2 {
					all.Go(func() {
						for range turns {
							ctx, cancel := context.WithTimeout(t.Context(), patience)
							claim, err := c.Acquire(ctx, "k", o...)
							cancel()
							if err == nil {
								time.Sleep(sec / 10)
								err = claim.Release(t.Context())
							}
							if err != nil && (i > 0 || !errors.Is(err, context.DeadlineExceeded)) {
								t.Error(err)
							}
						}
					})
				}
			}
			all.Wait()
			last, err := w.Raw.Put(t.Context(), w.Prefix+"last", "")
			if err != nil {
				t.Fatal(err)
			}
			puts, keys := 0, map[string]bool{}
			history := w.Raw.Watch(t.Context(), w.Prefix, clientv3.WithPrefix(), clientv3.WithFilterDelete(),
				clientv3.WithRev(first.Header.Revision))
			for rev := int64(0); rev < last.Header.Revision; {
				for _, ev := range (<-history).Events {
					rev = ev.Kv.ModRevision
					if key := string(ev.Kv.Key); strings.HasPrefix(key, w.Prefix+"wait/") || strings.HasPrefix(key, w.Own("k")) {
						keys[key] = true
						puts++
					}
				}
			}
			if most := 6*len(opts) + 1; puts < turns || len(keys) > most {
				t.Errorf("%d claims and places had %d keys, at most %d are right", puts, len(keys), most)
			}
		})
	}
}

package etcdclaims_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
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

// Who ends all claims that share a key ends none that its client has made anew, which can have the same key in etcd.
func TestForcedSharersAreThoseThatWereRead(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		b, host := w.client(etcdclaims.Config{Owner: "b", TTL: 15 * sec})
		one := tryClaim(t, a, "k", etcdclaims.Shared())
		host.SetLatency(sec/10, sec/10, 0)
		forced := make(chan error, 1)
		recordGone := w.deletion(w.Own("k"))
		go func() { forced <- admin.ForceRelease(t.Context(), b, "k", "stuck") }()
		<-recordGone
		time.Sleep(sec / 4) // it reads who shares the key
		release(t, one)
		two := tryClaim(t, a, "k", etcdclaims.Shared())
		if err := <-forced; err != nil {
			t.Error(err)
		}
		time.Sleep(20 * sec)
		if err := two.Check(); err != nil {
			t.Errorf("the claim that was made anew: %v", err)
		}
		release(t, two)
	})
}

// A restore that nobody has noticed brings shared claims back. Their client shares the key under other names.
func TestSharedAfterUnseenRestore(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, b := w.peer(), w.peer()
		keeps := tryClaim(t, b, "k", etcdclaims.Shared())
		one, two := tryClaim(t, a, "k", etcdclaims.Shared()), tryClaim(t, a, "k", etcdclaims.Shared())
		snapshot := w.Server.Snapshot(t)
		release(t, one)
		release(t, two)
		w.restoreUnseen(snapshot, 100)
		again := tryClaim(t, a, "k", etcdclaims.Shared())
		ctx, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		waits, err := a.Acquire(ctx, "k", etcdclaims.Shared())
		if err != nil {
			t.Fatal(err)
		}
		for _, cl := range []*etcdclaims.Claim{again, waits, keeps} {
			_ = cl.Release(t.Context()) // of what it is told is not the question here
		}
	})
}

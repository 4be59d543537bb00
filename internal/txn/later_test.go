package txn_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A delayed request is sent with the next one, or after the Lag, and then before others of its key.
func TestLater(t *testing.T) {
	t.Parallel()
	do := func(t *testing.T, b *txn.Batcher, r txn.Request) {
		t.Helper()
		if _, err := b.Do(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	for name, tt := range map[string]struct {
		then func(t *testing.T, b *txn.Batcher)
		want [][]string
		took time.Duration
	}{
		"alone": {
			then: func(*testing.T, *txn.Batcher) {},
			want: [][]string{{"a", "b"}}, took: txn.Lag + took,
		},
		"with another": {
			then: func(t *testing.T, b *txn.Batcher) { do(t, b, get("c")) },
			want: [][]string{{"a", "b", "c"}}, took: took,
		},
		"before another of its key": {
			then: func(t *testing.T, b *txn.Batcher) { do(t, b, get("b")) },
			want: [][]string{{"a", "b"}, {"b"}}, took: took,
		},
		"before one that concerns its key": {
			then: func(t *testing.T, b *txn.Batcher) {
				r := get("c")
				r.Also = []string{"b"}
				do(t, b, r)
			},
			want: [][]string{{"a", "b"}, {"c"}}, took: took,
		},
		"before one without a key that concerns it": {
			then: func(t *testing.T, b *txn.Batcher) {
				r := get("")
				r.Also = []string{"a"}
				r.In = get("any").In
				do(t, b, r)
			},
			want: [][]string{{"a", "b"}, {"any"}}, took: took,
		},
		"beside one without a key": {
			then: func(t *testing.T, b *txn.Batcher) {
				r := get("any")
				r.Key = ""
				do(t, b, r)
			},
			want: [][]string{{"any"}, {"a", "b"}}, took: txn.Lag + took,
		},
		"before one of several": {
			then: func(t *testing.T, b *txn.Batcher) {
				b.Each(t.Context(), 1, func(int) (txn.Request, bool) { return get("a"), true }, func(_ int, _ *clientv3.TxnResponse, err error) {
					if err != nil {
						t.Error(err)
					}
				})
			},
			want: [][]string{{"a", "b"}, {"a"}}, took: took,
		},
		"hurried": {
			then: func(_ *testing.T, b *txn.Batcher) { b.Hurry() },
			want: [][]string{{"a", "b"}}, took: took,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
				begin := time.Now()
				one, two := b.Later(get("a")), b.Later(get("b"))
				tt.then(t, b)
				for _, d := range []*txn.Delayed{one, two} {
					if _, err := d.Await(); err != nil {
						t.Error(err)
					}
				}
				if after := time.Since(begin); after > max(tt.took, 2*took) || after < tt.took {
					t.Errorf("%v after they were made, want %v", after, tt.took)
				}
				if got := e.sent(); !reflect.DeepEqual(got, tt.want) {
					t.Errorf("sent %v, want %v", got, tt.want)
				}
				time.Sleep(2 * txn.Lag)
				do(t, b, get("a"))
				if n := len(e.sent()); n != len(tt.want)+1 {
					t.Errorf("%d round trips: one was sent twice", n)
				}
			})
		})
	}
}

// A request waits for the outcome of a delayed one for its key that is under way, as long as that takes.
func TestLaterUnderWay(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		e.refuse = func(n int, _ *pb.TxnRequest) (*clientv3.TxnResponse, error) {
			if n == 0 {
				time.Sleep(3 * txn.Hanging)
			}
			return nil, nil //nolint:nilnil // it is carried out
		}
		b.Later(get("a"))
		b.Hurry()
		synctest.Wait()
		var wg sync.WaitGroup
		begin := time.Now()
		for range 2 {
			wg.Go(func() {
				if _, err := b.Do(t.Context(), get("a")); err != nil || time.Since(begin) < 3*txn.Hanging {
					t.Errorf("after %v: %v", time.Since(begin), err)
				}
			})
		}
		wg.Go(func() {
			if _, err := b.Do(t.Context(), get("b")); err != nil || time.Since(begin) > txn.Hanging+2*took {
				t.Errorf("of another key, after %v: %v", time.Since(begin), err)
			}
		})
		wg.Wait()
	})
}

// What was sent cannot be held. What is held is sent, before others of its key, or dropped.
func TestHold(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		do := func(key string) {
			if _, err := b.Do(t.Context(), get(key)); err != nil {
				t.Error(err)
			}
		}
		one, two, three := b.Later(get("a")), b.Later(get("b")), b.Later(get("c"))
		if !one.Hold() || one.Hold() || !two.Hold() {
			t.Error("it was not held, once")
		}
		do("a")
		one.Drop()
		if _, err := one.Await(); !errors.Is(err, txn.ErrDropped) {
			t.Errorf("the outcome is %v", err)
		}
		two.Resume()
		do("b")
		for _, d := range []*txn.Delayed{two, three} {
			if _, err := d.Await(); err != nil || d.Hold() {
				t.Errorf("another one: %v", err)
			}
		}
		if got, want := e.sent(), [][]string{{"c", "a"}, {"b"}, {"b"}}; !reflect.DeepEqual(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
		last := b.Later(get("a"))
		last.Hold()
		time.Sleep(2 * txn.Lag)
		if n := len(e.sent()); n != 3 {
			t.Errorf("%d round trips", n)
		}
	})
}

// Many are not delayed: they are sent when they fill half a round trip.
func TestLaterMany(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
		begin := time.Now()
		var all []*txn.Delayed
		for i := range txn.FullBatch {
			all = append(all, b.Later(get(fmt.Sprint(i))))
		}
		for _, d := range all {
			if _, err := d.Await(); err != nil {
				t.Fatal(err)
			}
		}
		if after := time.Since(begin); after > 2*took {
			t.Errorf("after %v, in %d round trips", after, len(e.sent()))
		}
	})
}

// The end of the batcher ends the wait.
func TestLaterEnds(t *testing.T) {
	t.Parallel()
	batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, end context.CancelFunc) {
		before := b.Later(get("a"))
		end()
		after := b.Later(get("b"))
		for _, d := range []*txn.Delayed{before, after} {
			if _, err := d.Await(); !errors.Is(err, context.Canceled) {
				t.Errorf("the outcome is %v", err)
			}
		}
		if n := len(e.sent()); n != 0 {
			t.Errorf("%d round trips", n)
		}
	})
}

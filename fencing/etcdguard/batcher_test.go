package etcdguard_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/internal/testclaims"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// crowd makes writes at once, while two that came before them are under way, and
// returns their errors.
func (w *world) crowd(kv clientv3.KV, n int, write func(i int) error) []error {
	w.Helper()
	slow := w.host.Inject(claimtest.Fault{On: claimtest.Other, Times: 2, DelayReply: time.Second})
	defer slow.Remove()
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			if _, err := kv.Put(w.Context(), fmt.Sprint("/first/", i), ""); err != nil {
				w.Error(err)
			}
		})
	}
	synctest.Wait()
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = write(i) })
	}
	synctest.Wait() // until all are in line
	wg.Wait()
	return errs
}

func (w *world) guarded() clientv3.KV {
	w.Helper()
	return etcdguard.NewKV(w.etcd, claim(w.T, w.claims, "k"))
}

func key(i int) string { return fmt.Sprint("/data/", i) }

func TestWritesShareRequests(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		kv := w.guarded()
		const n = 200
		for i := 0; i < n; i += 2 {
			if _, err := w.server.Admin().Put(t.Context(), key(i), "old"); err != nil {
				t.Fatal(err)
			}
		}
		before := len(w.host.Sent(claimtest.Other))
		for i, err := range w.crowd(kv, n, func(i int) error {
			if i%3 == 0 {
				resp, err := kv.Delete(t.Context(), key(i), clientv3.WithPrevKV())
				if err == nil && (resp.Header == nil || resp.Deleted != int64(1-i%2) || len(resp.PrevKvs) != 1-i%2) {
					err = fmt.Errorf("the response is %v", resp)
				}
				return err
			}
			resp, err := kv.Put(t.Context(), key(i), "new", clientv3.WithPrevKV())
			if err == nil && (resp.Header == nil || (resp.PrevKv != nil) != (i%2 == 0)) {
				err = fmt.Errorf("the response is %v", resp)
			}
			return err
		}) {
			if err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
		if sent := len(w.host.Sent(claimtest.Other)) - before; sent == 0 || sent > 2+n/40 {
			t.Errorf("%d requests for %d writes", sent, n)
		}
		for i := range n {
			want := "new"
			if i%3 == 0 {
				want = ""
			}
			if got := w.at(key(i)); got != want {
				t.Errorf("%d is %q, want %q", i, got, want)
			}
		}
	})
}

// What only one of them is guilty of, only that one is told.
func TestSharedRequestWithABadWrite(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		kv := w.guarded()
		for i, err := range w.crowd(kv, 50, func(i int) error {
			var opts []clientv3.OpOption
			if i == 7 {
				opts = append(opts, clientv3.WithLease(12345))
			}
			_, err := kv.Put(t.Context(), key(i), "v", opts...)
			return err
		}) {
			if bad := i == 7; bad != errors.Is(err, rpctypes.ErrLeaseNotFound) || !bad && err != nil || (w.at(key(i)) == "v") == bad || errors.Is(err, fencing.ErrUnknown) {
				t.Errorf("%d: %v, and there is %q", i, err, w.at(key(i)))
			}
		}
	})
}

// What a login is refused for may concern one request: each is asked by itself.
func TestSharedRequestUnauthenticated(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		kv := w.guarded()
		w.host.Inject(claimtest.Fault{On: claimtest.Other, Skip: 2, Times: 1, Err: status.Error(codes.Unauthenticated, "the token has expired")})
		for i, err := range w.crowd(kv, 10, func(i int) error {
			_, err := kv.Put(t.Context(), key(i), "v")
			return err
		}) {
			if err != nil || w.at(key(i)) != "v" {
				t.Errorf("%d: %v, and there is %q", i, err, w.at(key(i)))
			}
		}
	})
}

// Calls of one set of credentials do not wait for those of another.
func TestSharedRequestsOfManyCallers(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		kv := w.guarded()
		w.host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, DelayReply: time.Second})
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range 20 {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "caller", fmt.Sprint(i))
			wg.Go(func() {
				if _, err := kv.Put(ctx, key(i), ""); err != nil || time.Since(begin) > 1500*time.Millisecond {
					t.Errorf("%v after %v", err, time.Since(begin))
				}
			})
		}
		wg.Wait()
		w.host.RemoveFaults()
	})
}

// etcd wants no key twice in one transaction, nor a range over one: they go one
// after the other.
func TestSharedRequestsOfOneKey(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		kv := w.guarded()
		for i, err := range w.crowd(kv, 60, func(i int) (err error) {
			switch i % 4 {
			case 0:
				_, err = kv.Put(t.Context(), "/data/one", fmt.Sprint(i))
			case 1:
				_, err = kv.Delete(t.Context(), "/data/one")
			case 2:
				_, err = kv.Delete(t.Context(), "/data/", clientv3.WithPrefix())
			case 3:
				_, err = kv.Txn(t.Context()).Then(clientv3.OpTxn(nil, nil, nil), clientv3.OpPut(key(i), ""), clientv3.OpPut("/data/one", "")).Commit()
			}
			return err
		}) {
			if err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
		got, err := w.server.Admin().Get(t.Context(), "/data/one")
		if err != nil || len(got.Kvs) > 0 && got.Kvs[0].Version > 30 {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestSharedRequestIsStaleForAll(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		held := claim(t, w.claims, "k")
		kv := etcdguard.NewKV(w.etcd, held)
		var once sync.Once
		for i, err := range w.crowd(kv, 50, func(i int) error {
			once.Do(func() { w.server.Delete(t, testclaims.Key("", "k")) })
			_, err := kv.Put(t.Context(), key(i), "v")
			return err
		}) {
			if !errors.Is(err, fencing.ErrStale) || w.at(key(i)) != "" {
				t.Errorf("%d: %v, and there is %q", i, err, w.at(key(i)))
			}
		}
		if !errors.Is(held.Err(), etcdclaims.ErrLost) {
			t.Error(held.Err())
		}
	})
}

// Of a shared request that was lost, or whose reply was, everybody is told that
// the outcome is unknown.
func TestSharedRequestUnknown(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]claimtest.Fault{
		"request lost": {LoseRequest: true},
		"reply lost":   {LoseReply: true},
		"unavailable":  {LoseReply: true, Code: codes.Unavailable},
		"cancelled":    {LoseReply: true, Code: codes.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(t *testing.T, w *world) {
				kv := w.guarded()
				fault.On, fault.Skip, fault.Times = claimtest.Other, 2, -1
				w.host.Inject(fault)
				for i, err := range w.crowd(kv, 20, func(i int) error {
					_, err := kv.Put(t.Context(), key(i), "v")
					return err
				}) {
					if !errors.Is(err, fencing.ErrUnknown) || errors.Is(err, fencing.ErrStale) || (w.at(key(i)) == "v") != fault.LoseReply {
						t.Errorf("%d: %v, and there is %q", i, err, w.at(key(i)))
					}
				}
				w.host.RemoveFaults()
			})
		})
	}
}

// Who leaves before its write was sent knows that it was not; who leaves while it
// is under way does not; the others stay aboard.
func TestSharedRequestWhoseCallersLeave(t *testing.T) {
	t.Parallel()
	for _, sent := range []bool{false, true} {
		t.Run(fmt.Sprintf("sent %v", sent), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(t *testing.T, w *world) {
				kv := w.guarded()
				if sent {
					w.host.Inject(claimtest.Fault{On: claimtest.Other, Skip: 2, Times: -1, DelayReply: time.Second})
				}
				leave := map[bool]time.Duration{true: 1500 * time.Millisecond, false: 500 * time.Millisecond}[sent]
				why := errors.New("why")
				for i, err := range w.crowd(kv, 20, func(i int) error {
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					if i%2 == 0 {
						time.AfterFunc(leave, func() { cancel(why) })
					}
					_, err := kv.Put(ctx, key(i), "v")
					return err
				}) {
					left := i%2 == 0
					if left != errors.Is(err, why) || !left && err != nil || errors.Is(err, fencing.ErrUnknown) != (left && sent) || (w.at(key(i)) == "v") == (left && !sent) {
						t.Errorf("%d: %v, and there is %q", i, err, w.at(key(i)))
					}
				}
			})
		})
	}
}

// A server that allows fewer operations is not asked for more twice.
func TestSharedRequestOverALimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: claimtest.Start(t, testclaims.MaxTxnOps(8))}
		w.host = w.server.Host(t)
		w.etcd, w.claims = w.host.Etcd(t), claimtest.NewClient(t, w.host, etcdclaims.Config{})
		kv := w.guarded()
		for round := range 5 {
			before := len(w.host.Sent(claimtest.Other))
			for i, err := range w.crowd(kv, 64, func(i int) error {
				_, err := kv.Put(t.Context(), key(i), fmt.Sprint(round))
				return err
			}) {
				if err != nil || w.at(key(i)) != fmt.Sprint(round) {
					t.Errorf("%d: %v, and there is %q", i, err, w.at(key(i)))
				}
			}
			if sent := len(w.host.Sent(claimtest.Other)) - before; sent == 0 || round == 4 && sent > 2+64/4 {
				t.Errorf("%d requests once the limit is known", sent)
			}
		}
	})
}

// Transactions that exclude each other do so beside others, too: etcd judges all
// conditions that stand in one request before it carries anything out.
func TestTransactionsExcludeEachOther(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		kv := w.guarded()
		var wins atomic.Int32
		for _, err := range w.crowd(kv, 20, func(i int) error {
			me, other := fmt.Sprint("/data/", i%2), fmt.Sprint("/data/", 1-i%2)
			resp, err := kv.Txn(t.Context()).If(clientv3.Compare(clientv3.CreateRevision(other), "=", 0)).
				Then(clientv3.OpGet(other), clientv3.OpPut(me, "")).Commit()
			if err == nil && resp.Succeeded {
				wins.Add(1)
				if resp.Responses[0].GetResponseRange().Count > 0 {
					err = errors.New("what was absent is there")
				}
			}
			return err
		}) {
			if err != nil {
				t.Error(err)
			}
		}
		resp, err := w.server.Admin().Get(t.Context(), "/data/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || resp.Count != 1 || wins.Load() != 10 {
			t.Errorf("%d transactions succeeded, and %v keys are there (%v)", wins.Load(), resp.Count, err)
		}
	})
}

// etcd's Mutex works through a guarded KV as it does through a plain one.
func TestMutexThroughAGuardedKV(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		etcd := w.host.Etcd(t)
		etcd.KV = w.guarded()
		var locked atomic.Int32
		errs := w.crowd(etcd.KV, 8, func(int) error {
			s, err := concurrency.NewSession(etcd)
			if err != nil {
				return err
			}
			defer s.Close()
			err = concurrency.NewMutex(s, "/mutex/").TryLock(t.Context())
			if err == nil {
				locked.Add(1)
				<-time.After(time.Second)
			}
			return err
		})
		for _, err := range errs {
			if err != nil && !errors.Is(err, concurrency.ErrLocked) {
				t.Error(err)
			}
		}
		if n := locked.Load(); n != 1 {
			t.Errorf("%d of them have the lock", n)
		}
	})
}

// Large writes, which do not ride, do not keep small ones waiting.
func TestSharedRequestsDoNotStarve(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		kv := w.guarded()
		w.host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, DelayReply: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _ = kv.Delete(ctx, "/data/", clientv3.WithPrefix())
				}
			})
		}
		time.Sleep(500 * time.Millisecond)
		for i := range 10 {
			wg.Go(func() {
				begin := time.Now()
				if _, err := kv.Put(t.Context(), key(i), ""); err != nil || time.Since(begin) > 3*time.Second {
					t.Errorf("%v after %v", err, time.Since(begin))
				}
			})
		}
		time.Sleep(5 * time.Second)
		cancel()
		wg.Wait()
	})
}

// What is nobody's fault is asked once, not once for each.
func TestSharedRequestToAnEtcdThatIsBusy(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		kv := w.guarded()
		before := len(w.host.Sent(claimtest.Other))
		w.host.Inject(claimtest.Fault{On: claimtest.Other, Skip: 2, Times: -1, Err: rpctypes.ErrGRPCRequestTooManyRequests})
		for _, err := range w.crowd(kv, 60, func(i int) error {
			_, err := kv.Put(t.Context(), key(i), "")
			return err
		}) {
			if err == nil || errors.Is(err, fencing.ErrStale) {
				t.Error(err)
			}
		}
		if sent := len(w.host.Sent(claimtest.Other)) - before; sent == 0 || sent > 4 {
			t.Errorf("%d requests", sent)
		}
	})
}

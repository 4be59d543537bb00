package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// lazy is a client whose claims are released lazily.
type lazy struct {
	*etcdclaims.Client
	ended  atomic.Int32 // terms
	failed chan error   // what the hook was told
}

// lazyHooks are the hooks of the client.
func (l *lazy) hooks() etcdclaims.Hooks {
	l.failed = make(chan error, 100)
	return etcdclaims.Hooks{
		TermEnded: func(_ context.Context, term etcdclaims.TermInfo) {
			if errors.Is(term.Err, etcdclaims.ErrReleased) {
				l.ended.Add(1)
			}
		},
		ReleaseFailed: func(_ context.Context, term etcdclaims.TermInfo, err error) { l.failed <- err },
	}
}

func (w *world) lazy() *lazy {
	l := &lazy{}
	l.Client, _ = w.client(etcdclaims.Config{TTL: 15 * sec, Owner: "lazy", Hooks: l.hooks()})
	return l
}

// try claims a key to release it lazily.
func (l *lazy) try(tb testing.TB, key string, opts ...etcdclaims.AcquireOption) *etcdclaims.Claim {
	tb.Helper()
	return tryClaim(tb, l.Client, key, append(opts, etcdclaims.LazyRelease())...)
}

// released releases a claim without a request, and checks that it is over.
func (l *lazy) released(tb testing.TB, cl *etcdclaims.Claim) {
	tb.Helper()
	before, ended, begin := l.Stats().Requests, l.ended.Load(), time.Now()
	release(tb, cl)
	if n := l.Stats().Requests - before; n != 0 || time.Since(begin) != 0 {
		tb.Errorf("%d requests in %v", n, time.Since(begin))
	}
	for _, err := range []error{cl.Err(), cl.Check(), context.Cause(cl.Context()), cl.Note(tb.Context(), nil), cl.Renew(tb.Context())} {
		if !errors.Is(err, etcdclaims.ErrReleased) {
			tb.Errorf("got %v, want ErrReleased", err)
		}
	}
	if _, err := cl.Txn(tb.Context()).Commit(); !errors.Is(err, etcdclaims.ErrReleased) {
		tb.Errorf("Txn: %v", err)
	}
	if owns, err := cl.Owns(tb.Context()); owns || err != nil {
		tb.Errorf("it owns its key: %v, %v", owns, err)
	}
	if n := l.ended.Load() - ended; n != 1 || cl.Release(tb.Context()) != nil || l.Stats().Held != 0 {
		tb.Errorf("%d terms ended, %d are held", n, l.Stats().Held)
	}
}

// quiet checks that no release has failed, and no claim was lost.
func (l *lazy) quiet(tb testing.TB) {
	tb.Helper()
	select {
	case err := <-l.failed:
		tb.Errorf("the hook was told %v", err)
	default:
	}
	if lost := l.Stats().Lost; len(lost) > 0 {
		tb.Errorf("lost %v", lost)
	}
}

// there reports whether a key is held, as etcd has it.
func (w *world) there(key string) bool { return w.get("own/"+key) != "" }

// The key of a claim that was released lazily is deleted after the lag. Until then only other clients find it held.
func TestLazyReleaseAfterTheLag(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		l, other := w.lazy(), w.peer()
		tryClaim(t, other, "warm")
		l.released(t, l.try(t, "k", etcdclaims.Note([]byte("n"))))
		time.Sleep(txn.Lag - 1)
		if _, err := other.TryAcquire(t.Context(), "k"); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("before the lag is over: %v", err)
		}
		time.Sleep(time.Millisecond)
		if w.there("k") || w.get("note/k") != "" {
			t.Errorf("after the lag: %v", w.All())
		}
		w.Available("k", other)
		l.quiet(t)
		if n := l.Stats().Released; n != 1 {
			t.Errorf("%d released", n)
		}
		w.CloseClean(l.Client, other)
	})
}

// The deletion shares the round trip of the next request.
func TestLazyReleaseWithTheNextRequest(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		l := w.lazy()
		cl := l.try(t, "k0")
		before := l.Stats().Requests
		for i := range 10 {
			l.released(t, cl)
			cl = l.try(t, fmt.Sprintf("k%d", i+1))
			if w.there(fmt.Sprintf("k%d", i)) {
				t.Errorf("key %d is still held", i)
			}
		}
		if n := l.Stats().Requests - before; n != 10 {
			t.Errorf("%d requests in ten cycles", n)
		}
		release(t, cl)
		l.quiet(t)
		w.CloseClean(l.Client)
	})
}

// The same key again takes one request, which ends the old term and begins the new one.
func TestLazyReleaseOfTheSameKey(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(l *lazy, opts ...etcdclaims.AcquireOption) (*etcdclaims.Claim, error){
		"TryAcquire": func(l *lazy, opts ...etcdclaims.AcquireOption) (*etcdclaims.Claim, error) {
			return l.TryAcquire(context.Background(), "k", opts...)
		},
		"Acquire": func(l *lazy, opts ...etcdclaims.AcquireOption) (*etcdclaims.Claim, error) {
			return l.Acquire(context.Background(), "k", opts...)
		},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			l, other := w.lazy(), w.peer()
			cl := l.try(t, "k", etcdclaims.Note([]byte("old")))
			before := l.Stats().Requests
			for range 10 {
				l.released(t, cl)
				next, err := again(l, etcdclaims.LazyRelease())
				if err != nil || next.Fence() <= cl.Fence() {
					t.Fatalf("%v: %v after %v", err, next, cl.Token())
				}
				if cl = next; w.get("note/k") != "" {
					t.Error("the note of the old claim is still there")
				}
			}
			if n := l.Stats().Requests - before; n != 10 {
				t.Errorf("%d requests in ten cycles", n)
			}
			w.owned(cl, other)
			release(t, cl)
			time.Sleep(sec)
			l.quiet(t)
			w.CloseClean(l.Client, other)
		})
	}
}

// Whatever claims the key of the same client next, finds it free.
func TestLazyReleaseIsFreeForItsClient(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	all := func(opts ...etcdclaims.AllOption) func(l *lazy) (*etcdclaims.Claim, error) {
		return func(l *lazy) (*etcdclaims.Claim, error) {
			all, err := l.TryAcquireAll(ctx, []string{"j", "k"}, opts...)
			if err != nil {
				return nil, err
			}
			return all[1], all[0].Release(ctx)
		}
	}
	for name, again := range map[string]func(l *lazy) (*etcdclaims.Claim, error){
		"If": func(l *lazy) (*etcdclaims.Claim, error) {
			return l.TryAcquire(ctx, "k", etcdclaims.If(clientv3.Compare(clientv3.Version("/x"), "=", 0)))
		},
		"Then": func(l *lazy) (*etcdclaims.Claim, error) {
			return l.TryAcquire(ctx, "k", etcdclaims.Then(clientv3.OpPut("/x", "")))
		},
		"Manual": func(l *lazy) (*etcdclaims.Claim, error) { return l.TryAcquire(ctx, "k", etcdclaims.Manual()) },
		"Supersede": func(l *lazy) (*etcdclaims.Claim, error) {
			return l.TryAcquire(ctx, "k", etcdclaims.Supersede())
		},
		"Reentrant": func(l *lazy) (*etcdclaims.Claim, error) { return l.TryAcquire(ctx, "k", etcdclaims.Reentrant()) },
		"Slots":     func(l *lazy) (*etcdclaims.Claim, error) { return l.TryAcquire(ctx, "k", etcdclaims.Slots(2)) },
		"Shared":    func(l *lazy) (*etcdclaims.Claim, error) { return l.TryAcquire(ctx, "k", etcdclaims.Shared()) },
		"another session": func(l *lazy) (*etcdclaims.Claim, error) {
			return l.TryAcquire(ctx, "k", etcdclaims.TTL(20*sec))
		},
		"TryAcquireAll":          all(),
		"TryAcquireAll and If":   all(etcdclaims.If(clientv3.Compare(clientv3.Version("/x"), "=", 0))),
		"TryAcquireAll and Then": all(etcdclaims.Then(clientv3.OpPut("/x", ""))),
		"TryAcquireEach": func(l *lazy) (*etcdclaims.Claim, error) {
			all, errs := l.TryAcquireEach(ctx, []string{"k"})
			return all[0], errs[0]
		},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			l := w.lazy()
			l.released(t, l.try(t, "k"))
			cl, err := again(l)
			if err != nil {
				t.Fatal(err)
			}
			noErr(t, cl.Check())
			release(t, cl)
			if name == "Slots" {
				noErr(t, admin.Resize(ctx, l.Client, "k", 0))
			}
			l.quiet(t)
			w.CloseClean(l.Client)
		})
	}
}

// Callers in line get the key first. The client knows of a caller of its own, but not of one of another client.
func TestLazyReleaseYields(t *testing.T) {
	t.Parallel()
	virtualCase(t, "to a caller of its own", func(t *testing.T, w *world) {
		l := w.lazy()
		cl := l.try(t, "k")
		next := acquiring(t.Context(), l.Client, "k", etcdclaims.LazyRelease())
		time.Sleep(sec)
		release(t, cl)
		cl = w.within(time.Millisecond, next)
		l.released(t, cl)
		l.quiet(t)
		w.CloseClean(l.Client)
	})
	for name, opt := range map[string]etcdclaims.AcquireOption{
		"Note": etcdclaims.Note([]byte("n")), "Manual": etcdclaims.Manual(), "TTL": etcdclaims.TTL(20 * sec),
		"If": etcdclaims.If(clientv3.Compare(clientv3.Version("/x"), "=", 0)),
	} {
		virtualCase(t, "to a caller of its own in etcd's line, with "+name, func(t *testing.T, w *world) {
			l := w.lazy()
			cl := l.try(t, "k")
			next := acquiring(t.Context(), l.Client, "k", opt)
			time.Sleep(sec)
			release(t, cl)
			release(t, w.within(time.Millisecond, next))
			l.quiet(t)
			w.CloseClean(l.Client)
		})
	}
	virtualCase(t, "to one in line, after a hand-over", func(t *testing.T, w *world) {
		l, other := w.lazy(), w.peer()
		held := tryClaim(t, other, "k")
		got := acquiring(t.Context(), l.Client, "k", etcdclaims.LazyRelease())
		time.Sleep(sec)
		release(t, held)
		cl := w.within(time.Millisecond, got)
		next := acquiring(t.Context(), other, "k")
		time.Sleep(sec)
		release(t, cl)
		release(t, w.within(time.Millisecond, next))
		l.released(t, l.try(t, "k")) // and is delayed again, once the key was free
		l.quiet(t)
		w.CloseClean(l.Client, other)
	})
	virtualCase(t, "to one that joined before", func(t *testing.T, w *world) {
		l, other := w.lazy(), w.peer()
		cl := l.try(t, "k")
		next := acquiring(t.Context(), other, "k")
		time.Sleep(sec)
		l.released(t, cl)
		if _, err := l.TryAcquire(t.Context(), "k"); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("the caller in line was passed: %v", err)
		}
		release(t, w.within(time.Millisecond, next)) // the client has learnt of it
		l.quiet(t)
		w.CloseClean(l.Client, other)
	})
	virtualCase(t, "to one that joins meanwhile", func(t *testing.T, w *world) {
		l, other := w.lazy(), w.peer()
		tryClaim(t, other, "warm")
		time.Sleep(sec) // its watch has begun
		l.released(t, l.try(t, "k"))
		release(t, w.within(txn.Lag+time.Millisecond, acquiring(t.Context(), other, "k")))
		l.quiet(t)
		w.CloseClean(l.Client, other)
	})
	virtualCase(t, "to the first of two, and its own last", func(t *testing.T, w *world) {
		l, other := w.lazy(), w.peer()
		tryClaim(t, other, "warm")
		release(t, l.try(t, "warm too"))
		time.Sleep(sec) // their watches have begun
		l.released(t, l.try(t, "k"))
		next := acquiring(t.Context(), other, "k")
		time.Sleep(time.Millisecond)
		again := acquiring(t.Context(), l.Client, "k")
		release(t, w.within(time.Millisecond, next))
		release(t, w.within(time.Millisecond, again))
		l.quiet(t)
		w.CloseClean(l.Client, other)
	})
}

// Close and ReleaseAll send what is delayed at once.
func TestLazyReleaseAndClose(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		l, other := w.lazy(), w.peer()
		l.released(t, l.try(t, "k"))
		if _, err := l.ReleaseAll(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Millisecond)
		w.Available("k", other)
		l.released(t, l.try(t, "k"))
		begin := time.Now()
		noErr(t, l.Close(t.Context()))
		if after := time.Since(begin); after > txn.Lag/2 || w.there("k") {
			t.Errorf("closed after %v: %v", after, w.All())
		}
		l.quiet(t)
		w.CloseClean(other)
	})
}

// A reply that is lost is reported, and the key freed all the same.
func TestLossyLazyRelease(t *testing.T) {
	t.Parallel()
	lossy(t, steps.Free, func(t *testing.T, l *loss) {
		z := &lazy{}
		client, host := l.client(etcdclaims.Config{TTL: 15 * sec, Hooks: z.hooks()})
		z.Client = client
		cl := z.try(t, "k", etcdclaims.Note([]byte("n")))
		l.met = host.Inject(l.fault)
		z.released(t, cl)
		time.Sleep(20 * sec)
		if w := l.All(); l.there("k") || l.get("note/k") != "" {
			t.Errorf("it is still there: %v", w)
		}
		select {
		case err := <-z.failed:
			if !errors.Is(err, etcdclaims.ErrUnknown) {
				t.Errorf("the hook was told %v", err)
			}
		default:
			t.Error("the hook was not called")
		}
		z.quiet(t)
		l.Available("k", l.other)
		noErr(t, z.Close(t.Context()))
	})
}

// A lost message of the request that takes the key over leaves one claim.
func TestLossyLazyReleaseOfTheSameKey(t *testing.T) {
	t.Parallel()
	lossy(t, steps.Take, func(t *testing.T, l *loss) {
		z := &lazy{}
		client, host := l.client(etcdclaims.Config{TTL: 15 * sec, Hooks: z.hooks()})
		z.Client = client
		z.released(t, z.try(t, "k"))
		l.met = host.Inject(l.fault)
		cl, err := z.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Errorf("acquiring: %v", err)
			return
		}
		l.owned(cl, l.other)
		z.quiet(t)
		release(t, cl)
		l.Available("k", l.other)
		noErr(t, z.Close(t.Context()))
	})
}

// A claim that was taken away before its key was deleted is reported, unless its whole session was lost.
func TestLazyReleaseOfALostClaim(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		take func(t *testing.T, w *world, l *lazy, other *etcdclaims.Client)
		told bool
	}{
		"released by force": {func(t *testing.T, _ *world, _ *lazy, other *etcdclaims.Client) {
			noErr(t, admin.ForceRelease(t.Context(), other, "k", "test"))
		}, true},
		"released by force, and acquired again": {func(t *testing.T, _ *world, l *lazy, other *etcdclaims.Client) {
			noErr(t, admin.ForceRelease(t.Context(), other, "k", "test"))
			release(t, tryClaim(t, l.Client, "k"))
		}, true},
		"deleted": {func(t *testing.T, w *world, _ *lazy, _ *etcdclaims.Client) {
			if _, err := w.Raw.Delete(t.Context(), w.Own("k")); err != nil {
				t.Error(err)
			}
		}, true},
		"session lost": {func(t *testing.T, w *world, _ *lazy, _ *etcdclaims.Client) {
			resp, err := w.Raw.Get(t.Context(), w.Own("k"))
			if err != nil || len(resp.Kvs) != 1 {
				t.Fatalf("%v, %v", resp, err)
			}
			if _, err := w.Raw.Revoke(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease)); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Millisecond)
		}, false},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			l, other := w.lazy(), w.peer()
			tryClaim(t, other, "warm")
			release(t, l.try(t, "warm too"))
			time.Sleep(sec) // their watches have begun
			l.released(t, l.try(t, "k"))
			tt.take(t, w, l, other)
			w.Available("k", other)
			time.Sleep(2 * txn.Lag)
			select {
			case err := <-l.failed:
				if !tt.told || !errors.Is(err, etcdclaims.ErrLost) {
					t.Errorf("the hook was told %v", err)
				}
			default:
				if tt.told {
					t.Error("the hook was not called")
				}
			}
			l.quiet(t)
			release(t, l.try(t, "k"))
			w.CloseClean(l.Client, other)
		})
	}
}

// ReleaseFailed is called after TermEnded.
func TestLazyReleaseFailsAfterTheEnd(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		l, slow := &lazy{}, make(chan error, 1)
		hooks := l.hooks()
		hooks.TermEnded = func(context.Context, etcdclaims.TermInfo) {
			time.Sleep(sec)
			slow <- nil
		}
		hooks.ReleaseFailed = func(_ context.Context, term etcdclaims.TermInfo, _ error) {
			if len(slow) == 0 || term.Held < 0 {
				t.Errorf("before the end, held for %v", term.Held)
			}
			l.failed <- nil
		}
		l.Client, _ = w.client(etcdclaims.Config{TTL: 15 * sec, Hooks: hooks})
		cl := l.try(t, "k")
		if _, err := w.Raw.Delete(t.Context(), w.Own("k")); err != nil {
			t.Error(err)
		}
		release(t, cl)
		<-l.failed
		w.CloseClean(l.Client)
	})
}

// A process that stands still with a delayed release loses its key by the lease, and deletes nothing of the next owner.
func TestLazyReleaseOfAPausedProcess(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		l := &lazy{}
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec, Hooks: l.hooks()})
		l.Client = c
		other := w.peer()
		l.released(t, l.try(t, "k"))
		host.Cut()
		cl := w.within(17*sec, acquiring(t.Context(), other, "k"))
		host.Heal()
		time.Sleep(20 * sec)
		w.owned(cl, l.Client)
		release(t, cl)
		release(t, l.try(t, "k"))
		w.CloseClean(l.Client, other)
	})
}

// A release with metadata is sent with it, and so not later.
func TestLazyReleaseWithMetadata(t *testing.T) {
	t.Parallel()
	check := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if in, ok := req.(*pb.TxnRequest); ok {
			if md, _ := metadata.FromIncomingContext(ctx); strings.Contains(in.String(), "/alice/") && len(md.Get("token")) == 0 {
				return nil, rpctypes.ErrGRPCPermissionDenied
			}
		}
		return next(ctx, req)
	}
	virtually(t, func(t *testing.T, w *world) {
		l := w.lazy()
		cl, err := l.TryAcquire(as("alice"), "alice/k", etcdclaims.LazyRelease())
		noErr(t, err)
		noErr(t, cl.Release(as("alice")))
		time.Sleep(sec)
		if w.there("alice/k") {
			t.Error("it is still there")
		}
		l.quiet(t)
		w.CloseClean(l.Client)
	}, claimtest.Tweak(func(cfg *embed.Config) {
		cfg.GRPCAdditionalServerOptions = append(cfg.GRPCAdditionalServerOptions, grpc.ChainUnaryInterceptor(check))
	}))
}

// A thousand at once take a few round trips.
func TestLazyReleaseOfMany(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		l, other := w.lazy(), w.peer()
		var all []*etcdclaims.Claim
		for i := range 1000 {
			all = append(all, l.try(t, fmt.Sprintf("k%d", i)))
		}
		before, begin := l.Stats().Requests, time.Now()
		for _, cl := range all {
			release(t, cl)
		}
		if after := time.Since(begin); after > time.Millisecond {
			t.Errorf("they took %v", after)
		}
		time.Sleep(txn.Lag + 10*time.Millisecond)
		if n := l.Stats().Requests - before; n > 10 {
			t.Errorf("%d requests", n)
		}
		if n := w.Count("own/"); n != 0 {
			t.Errorf("%d keys are still held", n)
		}
		l.quiet(t)
		w.CloseClean(l.Client, other)
	})
}

// Options that need more than a deletion, or the line, exclude it.
func TestLazyReleaseExcludes(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c := w.peer()
		for _, opt := range []etcdclaims.AcquireOption{
			etcdclaims.Slots(2), etcdclaims.Shared(), etcdclaims.Manual(), etcdclaims.MinHold(sec), etcdclaims.Prefer(1),
		} {
			if _, err := c.TryAcquire(t.Context(), "k", opt, etcdclaims.LazyRelease()); err == nil {
				t.Error("two options that exclude each other were accepted")
			}
		}
		if n := c.Stats().Requests; n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// Run releases lazily, too, and so does the last handle of a claim with Reentrant. ReleaseWith waits.
func TestLazyReleaseByRunAndHandles(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		l, other := w.lazy(), w.peer()
		tryClaim(t, other, "warm")
		noErr(t, l.TryRun(t.Context(), "k", func(context.Context) error { return nil }, etcdclaims.LazyRelease()))
		if !w.there("k") {
			t.Error("Run did not release lazily")
		}
		one := l.try(t, "k", etcdclaims.Reentrant())
		two := l.try(t, "k", etcdclaims.Reentrant())
		release(t, one)
		noErr(t, two.Check())
		l.released(t, two)
		time.Sleep(2 * txn.Lag)
		w.Available("k", other)
		cl := l.try(t, "k")
		noErr(t, cl.ReleaseWith(t.Context(), clientv3.OpPut("/x", "")))
		if w.there("k") {
			t.Error("ReleaseWith did not wait")
		}
		l.quiet(t)
		w.CloseClean(l.Client, other)
	})
}

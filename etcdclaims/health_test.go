package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
)

// outageLog is what a client logs of outages.
type outageLog struct{ *observer.ObservedLogs }

func logged() (*zap.Logger, outageLog) {
	core, logs := observer.New(zapcore.InfoLevel)
	return zap.New(core), outageLog{logs}
}

func (l outageLog) unreachable() []observer.LoggedEntry {
	return l.FilterMessage("etcd unreachable").All()
}

func (l outageLog) back() []observer.LoggedEntry {
	return l.FilterMessage("etcd reachable again").All()
}

// outages are the ways in which etcd can be away.
var outages = map[string]struct{ begin, end func(*world, *claimtest.Host) }{
	"stopped": {
		func(w *world, _ *claimtest.Host) { w.Server.Stop(w.T) },
		func(w *world, _ *claimtest.Host) { w.Server.Restart(w.T) },
	},
	"refused": {
		func(_ *world, h *claimtest.Host) { h.Kill() },
		func(_ *world, h *claimtest.Host) { h.Heal() },
	},
	"cut": {
		func(_ *world, h *claimtest.Host) { h.Cut() },
		func(_ *world, h *claimtest.Host) { h.Heal() },
	},
	"no leader": {
		func(_ *world, h *claimtest.Host) {
			h.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, Err: rpctypes.ErrGRPCNoLeader})
		},
		func(_ *world, h *claimtest.Host) { h.RemoveFaults() },
	},
}

// An outage is logged once within a TTL, with what is at stake, and its end once.
func TestOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for how, outage := range outages {
		for _, ttl := range []time.Duration{5 * sec, 15 * sec, 60 * sec} {
			virtualCase(t, fmt.Sprint(how, ttl), func(t *testing.T, w *world) {
				log, logs := logged()
				c, host := w.client(etcdclaims.Config{TTL: ttl, Logger: log})
				tryClaim(t, c, "k")
				tryClaim(t, w.peer(), "other")
				ctx, cancel := context.WithCancel(context.Background())
				waits := acquiring(ctx, c, "other")
				time.Sleep(3 * sec)
				if h, err := c.Health(ctx); err != nil || !h.Reachable || h.Sessions != 1 || h.Claims != 1 || h.Waiting != 1 || h.Margin <= 0 || h.Margin > ttl || c.Unreachable() != nil {
					t.Errorf("before the outage: %+v, %v", h, err)
				}
				began := time.Now()
				outage.begin(w, host)
				time.Sleep(ttl)
				warned := logs.unreachable()
				if len(warned) != 1 {
					t.Fatalf("%d warnings within a TTL: %v", len(warned), warned)
				}
				if f := warned[0].ContextMap(); warned[0].Level != zap.WarnLevel || f["claims"] != int64(1) || fmt.Sprint(f["keys"]) != "[k]" || f["error"] == "" {
					t.Errorf("%v %v", warned[0].Level, f)
				}
				h, err := c.Health(ctx)
				wantIs(t, err, etcdclaims.ErrUnreachable)
				wantIs(t, c.Unreachable(), etcdclaims.ErrUnreachable)
				if late := h.Since.Sub(began); h.Reachable || late < 0 || late > ttl/3+sec || h.LastError == nil {
					t.Errorf("in the outage: %+v", h)
				}
				time.Sleep(testetcd.Fewer(4*time.Minute, time.Minute))
				returned := time.Now()
				outage.end(w, host)
				time.Sleep(3 * sec)
				back := logs.back()
				if len(back) != 1 || back[0].Level != zap.InfoLevel {
					t.Fatalf("%d lines on recovery", len(back))
				}
				if d := back[0].ContextMap()["outage"].(time.Duration); !near(d, returned.Sub(h.Since), 3*sec) {
					t.Errorf("outage of %v, it was %v", d, returned.Sub(h.Since))
				}
				if h, err := c.Health(ctx); err != nil || !h.Reachable || !h.Since.IsZero() || h.LastError != nil || h.Claims != 0 {
					t.Errorf("after the outage: %+v, %v", h, err)
				}
				noErr(t, c.Unreachable())
				if n := len(logs.unreachable()); n != 1 {
					t.Errorf("%d warnings", n)
				}
				cancel()
				<-waits
			})
		}
	}
}

// Requests that fail now and then are no outage, and neither is a caller that
// leaves early.
func TestNoOutage(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		log, logs := logged()
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec, Logger: log})
		tryClaim(t, c, "k")
		for range 20 {
			host.Inject(claimtest.Fault{On: claimtest.KeepAlive, LoseReply: true})
			host.Inject(claimtest.Fault{On: claimtest.Acquire, Code: codes.Unavailable})
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			_, _ = c.TryAcquire(ctx, "k2")
			cancel()
			time.Sleep(7 * sec)
		}
		host.RemoveFaults()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := c.Health(context.Background()) // the last fault is over
		noErr(t, err)
		for range 3 { // it asks etcd unless a renewal did within the last second
			if err != nil {
				break
			}
			time.Sleep(1100 * time.Millisecond)
			_, err = c.Health(ctx)
		}
		if errors.Is(err, etcdclaims.ErrUnreachable) || !errors.Is(err, context.Canceled) {
			t.Errorf("health with an ended context: %v", err)
		}
		if n := len(logs.unreachable()) + len(logs.back()); n != 0 {
			t.Errorf("%d lines: %v", n, logs.All())
		}
	})
}

// After a long outage every client works again within 3 s of etcd's return,
// though gRPC by then waits up to two minutes before it connects again.
func TestWorkGoesOnSoonAfterOutage(t *testing.T) {
	t.Parallel()
	outages := []time.Duration{30 * sec, 2 * time.Minute}
	if testetcd.Long() {
		outages = append(outages, 10*time.Minute)
	}
	for _, long := range outages {
		virtualCase(t, long.String(), func(t *testing.T, w *world) {
			ctx, cancel := context.WithCancel(context.Background())
			var mu sync.Mutex
			last := map[string]time.Time{}
			worked := func(who string) {
				mu.Lock()
				defer mu.Unlock()
				last[who] = time.Now()
			}
			var wg sync.WaitGroup
			every := func(who string, f func() error) {
				wg.Go(func() {
					for ctx.Err() == nil {
						if f() == nil {
							worked(who)
						}
						time.Sleep(250 * time.Millisecond)
					}
				})
			}
			const n = 4 // each call has a key of its own: a claim whose release was lost lives on with its lease
			var idle []*etcdclaims.Client
			for i := range n {
				c := w.peer()
				every(fmt.Sprint("TryAcquire ", i), func() error {
					cl, err := c.TryAcquire(ctx, fmt.Sprint("k", i, time.Now()))
					if err == nil {
						err = cl.Release(ctx)
					}
					return err
				})
				d := w.peer()
				every(fmt.Sprint("Run ", i), func() error {
					// A call whose first attempt was carried out waits until that one's lease has lapsed.
					ctx, cancel := context.WithTimeout(ctx, 8*sec)
					defer cancel()
					return d.Run(ctx, fmt.Sprint("run", i, time.Now()), func(context.Context) error { return nil })
				})
				e := w.peer() // waits for a session throughout the outage
				every(fmt.Sprint("Begin ", i), func() error {
					_, err := works(e).Begin(ctx, fmt.Sprint("work", i, time.Now()))
					return err
				})
				rest := w.peer()
				tryClaim(t, rest, fmt.Sprint("rest", i))
				idle = append(idle, rest)
			}
			time.Sleep(5 * sec)
			w.Server.Stop(t)
			time.Sleep(long)
			w.Server.Restart(t)
			returned := time.Now()
			time.Sleep(3 * sec)
			mu.Lock()
			for who, at := range last {
				if !at.After(returned) {
					t.Errorf("%s does not work within 3 s of etcd's return", who)
				}
			}
			if len(last) != 3*n {
				t.Errorf("%d worked before", len(last))
			}
			mu.Unlock()
			for _, c := range idle {
				if err := c.Unreachable(); err != nil {
					t.Error(err)
				}
			}
			cancel()
			wg.Wait()
		})
	}
}

// A revoked permission is the cause of what a holder loses and a waiter is told.
func TestRevokedPermissionIsTheCause(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a lease")
	}
	t.Parallel()
	s, root := authServer(t)
	addUser(t, root, "worker", etcdclaims.DefaultPrefix, clientv3.PermissionType(clientv3.PermReadWrite))
	ctx := t.Context()
	log, logs := logged()
	a, err := etcdclaims.New(clientAs(t, s, "worker"), etcdclaims.Config{TTL: 6 * sec, Logger: log})
	noErr(t, err)
	b, err := etcdclaims.New(clientAs(t, s, "worker"), etcdclaims.Config{TTL: 6 * sec})
	noErr(t, err)
	cl := tryClaim(t, a, "k")
	done := acquiring(ctx, b, "k")
	time.Sleep(sec)
	_, err = root.UserRevokeRole(ctx, "worker", "worker")
	noErr(t, err)
	isDenied := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, etcdclaims.ErrPermissionDenied) || !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("%s: %v", what, err)
		}
	}
	<-cl.Context().Done()
	isDenied("context", context.Cause(cl.Context()))
	<-cl.Done()
	lossOf(t, cl.Err(), etcdclaims.ReasonExpired)
	isDenied("holder", cl.Err())
	r := <-done
	wantIs(t, r.err, etcdclaims.ErrLost)
	isDenied("waiter", r.err)
	_, err = a.TryAcquire(ctx, "k")
	isDenied("TryAcquire", err)
	_, err = a.Acquire(ctx, "k")
	isDenied("Acquire", err)
	_, err = works(a).TryBegin(ctx, "k")
	isDenied("TryBegin", err)
	_, err = a.Lookup(ctx, "k")
	isDenied("Lookup", err)
	_, err = a.Health(ctx)
	isDenied("Health", err)
	if n := logs.FilterMessage("renewal refused").Len(); n != 1 {
		t.Errorf("%d lines say that the renewal was refused: %v", n, logs.All())
	}
	if n := len(logs.unreachable()); n != 0 || a.Unreachable() != nil {
		t.Errorf("an etcd that refuses is called unreachable")
	}
	_ = a.Close(context.Background())
	_ = b.Close(context.Background())
}

// A permission that comes back in time saves the claim.
func TestPermissionComesBack(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		cl := tryClaim(t, c, "k")
		refused := host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, Err: rpctypes.ErrGRPCPermissionDenied})
		time.Sleep(9 * sec)
		refused.Remove()
		time.Sleep(30 * sec)
		w.Ours(cl)
		host.Cut() // what ends it later is not that
		<-cl.Done()
		if err := cl.Err(); errors.Is(err, etcdclaims.ErrPermissionDenied) {
			t.Errorf("lost by an outage, it says %v", err)
		}
		host.Heal()
	})
}

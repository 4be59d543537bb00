package locks_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/concurrency"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Done and Ctx end with Orphan, and contexts that were derived from Ctx. The keys stay held until
// the lease lapses.
func TestSessionOrphan(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		s := session(t, w, concurrency.WithTTL(15))
		m := concurrency.NewMutex(s, "k")
		testclaims.NoErr(t, m.Lock(ctx))
		child, cancel := context.WithCancel(s.Ctx())
		defer cancel()
		s.Orphan()
		<-s.Done()
		<-child.Done()
		<-m.Context().Done()
		wantErrors(t, child.Err(), context.Canceled)
		wantErrors(t, m.Claim().Check(), etcdclaims.ErrLost)
		wantErrors(t, m.Lock(ctx), concurrency.ErrSessionExpired)
		wantErrors(t, m.Unlock(ctx), concurrency.ErrSessionExpired, etcdclaims.ErrLost)

		other := session(t, w, concurrency.WithTTL(15))
		at := time.Now()
		testclaims.NoErr(t, concurrency.NewMutex(other, "k").Lock(ctx))
		if d := time.Since(at); d < 9*time.Second || d > 16*time.Second {
			t.Errorf("had the key %v after Orphan", d)
		}
	})
}

// Close releases the keys, and revokes the lease with the keys of the caller on it. Close after
// Orphan does so, too.
func TestSessionClose(t *testing.T) {
	t.Parallel()
	for name, orphaned := range map[string]bool{"open": false, "orphaned": true} {
		testclaims.Case(t, name, func(t *testing.T, w *testclaims.World) {
			ctx := context.Background()
			s := session(t, w)
			testclaims.NoErr(t, concurrency.NewMutex(s, "k").Lock(ctx))
			_, err := s.Client().Put(ctx, "/mine", "", clientv3.WithLease(s.Lease()))
			testclaims.NoErr(t, err)
			if orphaned {
				s.Orphan()
			}
			testclaims.NoErr(t, s.Close())
			testclaims.NoErr(t, s.Close())
			w.Prefix = etcdclaims.DefaultPrefix
			w.NothingLeft()
			w.NoLeases()
			if testclaims.RawKV(t, w.Raw, "/mine") != nil {
				t.Error("a key on the lease is left")
			}
		})
	}
}

// The lease has the TTL that was asked for, 60 s by default, and is renewed.
func TestSessionTTL(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		opts []concurrency.SessionOption
		want int64
	}{
		"default":  {nil, 60},
		"not set":  {[]concurrency.SessionOption{concurrency.WithTTL(0)}, 60},
		"set":      {[]concurrency.SessionOption{concurrency.WithTTL(90)}, 90},
		"config":   {[]concurrency.SessionOption{concurrency.WithConfig(etcdclaims.Config{TTL: 20 * time.Second})}, 20},
		"together": {[]concurrency.SessionOption{concurrency.WithTTL(90), concurrency.WithConfig(etcdclaims.Config{TTL: time.Minute})}, 90},
	} {
		testclaims.Case(t, name, func(t *testing.T, w *testclaims.World) {
			s := session(t, w, tc.opts...)
			time.Sleep(10 * time.Minute)
			resp, err := w.Raw.TimeToLive(context.Background(), s.Lease())
			testclaims.NoErr(t, err)
			if resp.GrantedTTL != tc.want || resp.TTL < tc.want/2 || s.Ctx().Err() != nil {
				t.Errorf("the lease has %d of %d s; the context: %v", resp.TTL, resp.GrantedTTL, s.Ctx().Err())
			}
		})
	}
}

// What cannot be had is refused with the reason.
func TestSessionRefused(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		etcd := w.Server.Host(t).Etcd(t)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		for want, opt := range map[string]concurrency.SessionOption{
			"WithLease(2a)":    concurrency.WithLease(42),
			"TTL":              concurrency.WithTTL(1),
			"context canceled": concurrency.WithContext(ended),
			"ends in a slash":  concurrency.WithConfig(etcdclaims.Config{Prefix: "/x"}),
		} {
			if _, err := concurrency.NewSession(etcd, opt); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
		if _, err := concurrency.NewSession(nil); err == nil {
			t.Error("without etcd: no error")
		}
		s, err := concurrency.NewSession(etcd, concurrency.WithLease(clientv3.NoLease))
		testclaims.NoErr(t, err)
		testclaims.NoErr(t, s.Close())
	})
}

// The end of the context of WithContext ends the session, and with it what waits.
func TestSessionContext(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		holder := concurrency.NewMutex(session(t, w), "k")
		testclaims.NoErr(t, holder.Lock(context.Background()))
		ctx, cancel := context.WithCancel(context.Background())
		s := session(t, w, concurrency.WithContext(ctx))
		waiting := began(func() error { return concurrency.NewMutex(s, "k").Lock(context.Background()) })
		waits(t, waiting)
		cancel()
		<-s.Done()
		wantErrors(t, within(t, time.Second, waiting), concurrency.ErrSessionExpired, context.Canceled)
		if err := s.Close(); err == nil { // as with etcd's package, the lease lapses
			t.Error("no error")
		}
		_, err := concurrency.NewSession(s.Client(), concurrency.WithContext(ctx))
		wantErrors(t, err, context.Canceled)
	})
}

// Without etcd Ctx ends one drain before Done, and Done before another session has the key.
func TestSessionLost(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		host := w.Server.Host(t)
		s := on(t, host, concurrency.WithTTL(15))
		m := concurrency.NewMutex(s, "k")
		testclaims.NoErr(t, m.Lock(ctx))
		other := session(t, w, concurrency.WithTTL(15))
		next := began(func() error { return concurrency.NewMutex(other, "k").Lock(ctx) })
		host.Cut()
		at := time.Now()
		<-s.Ctx().Done()
		soft := time.Since(at)
		testclaims.NoErr(t, m.Claim().Check())
		<-s.Done()
		hard := time.Since(at)
		wantErrors(t, m.Claim().Check(), etcdclaims.ErrLost)
		select {
		case err := <-next:
			t.Fatalf("the other has the key before Done: %v", err)
		default:
		}
		if d := hard - soft; d < 2900*time.Millisecond || d > 3100*time.Millisecond {
			t.Errorf("Ctx ended after %v, Done after %v", soft, hard)
		}
		testclaims.NoErr(t, within(t, 5*time.Second, next))
		wantErrors(t, m.Unlock(ctx), concurrency.ErrSessionExpired, etcdclaims.ErrLost)
		host.Heal()
	})
}

// A lease that was revoked ends the session within a second, and Lock waits no longer.
func TestSessionRevoked(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		testclaims.NoErr(t, concurrency.NewMutex(session(t, w), "k").Lock(ctx))
		s := session(t, w)
		waiting := began(func() error { return concurrency.NewMutex(s, "k").Lock(ctx) })
		waits(t, waiting)
		_, err := w.Raw.Revoke(ctx, s.Lease())
		testclaims.NoErr(t, err)
		err = within(t, time.Second, waiting)
		wantErrors(t, err, concurrency.ErrSessionExpired, etcdclaims.ErrLost)
		var lost *etcdclaims.LostError
		if !errors.As(err, &lost) || lost.Reason != etcdclaims.ReasonRevoked {
			t.Errorf("%v", err)
		}
		<-s.Done()
		testclaims.NoErr(t, s.Close())
	})
}

// A session whose request to begin has lost its reply begins nevertheless, and leaves nothing.
func TestSessionBeginsWithALostReply(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		host := w.Server.Host(t)
		host.Inject(claimtest.Fault{On: claimtest.Acquire, LoseReply: true})
		testclaims.NoErr(t, on(t, host).Close())
		w.Prefix = etcdclaims.DefaultPrefix
		w.NothingLeft()
		w.NoLeases()
	})
}

// Between the end of Ctx and the deadline, what is held can be released, also by Close, which does not wait for
// the deadline.
func TestSessionClosedInTheDrain(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		ctx := context.Background()
		host := w.Server.Host(t)
		s := on(t, host)
		one, two := concurrency.NewMutex(s, "one"), concurrency.NewMutex(s, "two")
		testclaims.NoErr(t, one.Lock(ctx))
		testclaims.NoErr(t, two.Lock(ctx))
		host.Cut()
		<-s.Ctx().Done()
		host.Heal()
		at := time.Now()
		testclaims.NoErr(t, one.Unlock(ctx))
		testclaims.NoErr(t, s.Close())
		if d := time.Since(at); d > time.Second {
			t.Errorf("took %v", d)
		}
		other := session(t, w)
		for _, key := range []string{"one", "two"} {
			testclaims.NoErr(t, concurrency.NewMutex(other, key).TryLock(ctx))
		}
	})
}

// A queue of the session's client does not put off the end of a session that is lost.
func TestSessionWithAQueueIsLost(t *testing.T) {
	virtually(t, func(t *testing.T, w *testclaims.World) {
		host := w.Server.Host(t)
		s := on(t, host, concurrency.WithTTL(15))
		q, err := queue.New(s.Claims(), queue.Config{Name: "q"})
		testclaims.NoErr(t, err)
		_, err = q.Enqueue(t.Context(), queue.NewItem(nil))
		testclaims.NoErr(t, err)
		_, err = q.TryClaim(t.Context(), 1)
		testclaims.NoErr(t, err)
		m := concurrency.NewMutex(s, "k")
		testclaims.NoErr(t, m.Lock(t.Context()))
		host.Cut()
		<-s.Ctx().Done()
		began, left := time.Now(), m.Claim().Remaining()
		<-s.Done()
		if took := time.Since(began); took > left {
			t.Errorf("ended after %v, the claim's deadline was in %v", took, left)
		}
		host.Heal()
	})
}

package middleware_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testetcd/deafness"
	"github.com/etcdclaims/claims/middleware"
)

// Failed is called once in each outage, for a process that waits as for one that
// led before.
func TestSingletonTellsOfOutages(t *testing.T) {
	t.Parallel()
	inWorld(t, "", func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(context.Background())
		failures := make([][]error, 2) // that etcd is unreachable
		ended := make(chan struct{}, 2)
		for i, c := range []*etcdclaims.Client{w.Claims, w.Other} {
			go func() {
				defer func() { ended <- struct{}{} }()
				_ = middleware.Singleton(ctx, c, "leader", untilTold, middleware.SingletonConfig{Failed: func(err error) {
					if errors.Is(err, etcdclaims.ErrUnreachable) {
						failures[i] = append(failures[i], err)
					}
				}})
			}()
		}
		for n := 1; n <= 3; n++ {
			time.Sleep(time.Minute)
			w.Server.Stop(t)
			time.Sleep(2 * time.Minute)
			synctest.Wait() // Failed may be under way
			for i := range failures {
				if len(failures[i]) != n {
					t.Errorf("outage %d: process %d was told %v", n, i, failures[i])
				}
			}
			w.Server.Restart(t)
		}
		cancel()
		<-ended
		<-ended
	})
}

// The next leader leads within TTL + 1 s + one renewal interval of the death of
// the one before, though its watches hear nothing.
func TestSingletonWithDeafWatch(t *testing.T) {
	t.Parallel()
	for how, fault := range deafness.Kinds() {
		inWorld(t, how, func(t *testing.T, w *world) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			w.Host.Inject(fault)
			if _, err := w.Other.TryAcquire(ctx, "leader"); err != nil {
				t.Fatal(err)
			}
			leads := make(chan struct{})
			ended := make(chan error, 1)
			go func() {
				ended <- middleware.Singleton(ctx, w.Claims, "leader", untilTold, middleware.SingletonConfig{Started: func(fencing.Token) { close(leads) }})
			}()
			if how == deafness.Cancel { // the watch begins before the oldest revision there is
				time.Sleep(100 * time.Millisecond)
				resp, err := w.Server.Admin().Put(ctx, "/x", "")
				if err == nil {
					_, err = w.Server.Admin().Compact(ctx, resp.Header.Revision)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(7 * sec)
			died := time.Now()
			w.Near.Kill()
			<-leads
			if d := time.Since(died); d > 21*sec {
				t.Errorf("it leads after %v", d)
			}
			cancel()
			<-ended
		})
	}
}

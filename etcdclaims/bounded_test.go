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
)

// Without a deadline each call has one of its own, however many calls are made at
// once while etcd does not answer, and whatever they need of it first.
func TestCallsAreBoundedInAnOutage(t *testing.T) {
	t.Parallel()
	const callers = 40
	calls := map[string]func(w *world, c *etcdclaims.Client) []func() error{
		"TryBegin, the first of the client": func(_ *world, c *etcdclaims.Client) (all []func() error) {
			for i := range callers {
				all = append(all, func() error { _, err := works(c).TryBegin(context.Background(), key(i)); return err })
			}
			return all
		},
		"TryAcquire, the first of the client": func(_ *world, c *etcdclaims.Client) (all []func() error) {
			for i := range callers {
				all = append(all, func() error { _, err := c.TryAcquire(context.Background(), key(i)); return err })
			}
			return all
		},
		"Complete, the first of the client": func(w *world, c *etcdclaims.Client) (all []func() error) {
			for i := range callers {
				work, err := works(c).TryBegin(context.Background(), key(i))
				noErr(w, err)
				all = append(all, func() error { return work.Complete(context.Background()) })
			}
			return all
		},
		"Retry": func(w *world, c *etcdclaims.Client) (all []func() error) {
			work, err := works(w.peer()).TryBegin(context.Background(), "k")
			noErr(w, err)
			_, err = work.Fail(context.Background(), etcdclaims.Permanent(errors.New("x")))
			noErr(w, err)
			for range callers {
				all = append(all, func() error { _, err := works(c).Retry(context.Background(), "k"); return err })
			}
			return all
		},
		"ReleaseAll": func(w *world, c *etcdclaims.Client) []func() error {
			tryClaim(w, c, "k")
			return []func() error{func() error { _, err := c.ReleaseAll(context.Background()); return err }}
		},
		"ReleaseAll with MinHold": func(w *world, c *etcdclaims.Client) []func() error {
			tryClaim(w, c, "k", etcdclaims.MinHold(time.Minute))
			return []func() error{func() error { _, err := c.ReleaseAll(context.Background()); return err }}
		},
	}
	for name, prepare := range calls {
		virtualCase(t, name, func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			all := prepare(w, c)
			host.Cut()
			begin := time.Now()
			took, errs := make([]time.Duration, len(all)), make([]error, len(all))
			var wg sync.WaitGroup
			for i, call := range all {
				wg.Go(func() { errs[i] = call(); took[i] = time.Since(begin) })
			}
			done := make(chan struct{})
			go func() { wg.Wait(); close(done) }()
			select {
			case <-done:
			case <-time.After(5 * time.Minute):
				host.Heal()
				wg.Wait()
			}
			for i := range all {
				if took[i] > 20*sec || errs[i] == nil {
					t.Errorf("call %d: %v after %v", i, errs[i], took[i])
					break
				}
			}
			t.Log(fmt.Sprint(took[0], errs[0]))
		})
	}
}

// An error after the end of the caller's context matches that, too, also if etcd has
// not answered.
func TestReadEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		tryClaim(t, c, "warm")
		host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, LoseReply: true})
		for range 20 { // some of them end between two requests
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(2501*time.Millisecond, cancel)
			_, err := c.Lookup(ctx, "k")
			wantIs(t, err, context.Canceled)
		}
	})
}

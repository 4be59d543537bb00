package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/middleware"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// parliament has who led, and when.
type parliament struct {
	mu    sync.Mutex
	terms []term
}

type term struct {
	who      string
	fence    int64
	from, to time.Time // to is zero while it lasts
	why      error
}

func (p *parliament) config(who string) middleware.SingletonConfig {
	return middleware.SingletonConfig{
		Started: func(token fencing.Token) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.terms = append(p.terms, term{who: who, fence: token.Fence, from: time.Now()})
		},
		Stopped: func(token fencing.Token, why error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			i := slices.IndexFunc(p.terms, func(t term) bool { return t.fence == token.Fence })
			p.terms[i].to, p.terms[i].why = time.Now(), why
		},
	}
}

// check returns the terms, after checking that none overlaps with another, and
// that fences rise.
func (p *parliament) check(t *testing.T) []term {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 1; i < len(p.terms); i++ {
		before, after := p.terms[i-1], p.terms[i]
		if before.to.IsZero() || after.from.Before(before.to) || after.fence <= before.fence {
			t.Errorf("%+v and then %+v", before, after)
		}
	}
	return slices.Clone(p.terms)
}

// untilTold is a leader that stops when it is told to.
func untilTold(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// singleton starts one, which ends with the test at the latest.
func singleton(t *testing.T, p *parliament, who string, claims *etcdclaims.Client, fn func(context.Context) error, opts ...etcdclaims.AcquireOption) (stop func(), ended chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended = make(chan error, 1)
	go func() { ended <- middleware.Singleton(ctx, claims, "leader", fn, p.config(who), opts...) }()
	t.Cleanup(cancel)
	return cancel, ended
}

// A leader that is killed, frozen, cut off, put to sleep or deposed is replaced,
// in time, and never runs beside the next.
func TestSingletonIsReplaced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens func(t *testing.T, w *world)
		within  time.Duration
		heals   func(w *world)
	}{
		"killed":  {func(_ *testing.T, w *world) { w.Host.Kill() }, 16 * sec, func(w *world) { w.Host.Heal() }},
		"cut":     {func(_ *testing.T, w *world) { w.Host.Cut() }, 16 * sec, func(w *world) { w.Host.Heal() }},
		"asleep":  {func(_ *testing.T, w *world) { w.Host.Suspend(time.Minute) }, 17 * sec, func(*world) {}},
		"revoked": {func(t *testing.T, w *world) { t.Helper(); w.Revoke(t, "leader") }, sec, func(*world) {}},
		"forced": {func(t *testing.T, w *world) {
			t.Helper()
			if err := admin.ForceRelease(t.Context(), w.Other, "leader", "test"); err != nil {
				t.Error(err)
			}
		}, sec, func(*world) {}},
		"etcd restarts": {func(t *testing.T, w *world) { t.Helper(); w.Host.Cut(); w.Server.Restart(t) }, 18 * sec, func(w *world) { w.Host.Heal() }},
	} {
		inWorld(t, name, func(t *testing.T, w *world) {
			p := &parliament{}
			stopHere, endedHere := singleton(t, p, "here", w.Claims, untilTold)
			time.Sleep(sec)
			stopThere, endedThere := singleton(t, p, "there", w.Other, untilTold)
			time.Sleep(7 * sec)
			if terms := p.check(t); len(terms) != 1 || terms[0].who != "here" {
				t.Fatalf("terms %+v", terms)
			}
			began := time.Now()
			c.happens(t, w)
			time.Sleep(c.within + sec)
			terms := p.check(t)
			if len(terms) != 2 || terms[1].who != "there" || !errors.Is(terms[0].why, fencing.ErrLost) {
				t.Fatalf("terms %+v", terms)
			}
			if took := terms[1].from.Sub(began); took > c.within {
				t.Errorf("replaced after %v", took)
			}
			// The one that lost contests the key again, and leads when it is free.
			c.heals(w)
			time.Sleep(20 * sec)
			stopThere()
			if err := <-endedThere; !errors.Is(err, context.Canceled) {
				t.Errorf("ended: %v", err)
			}
			time.Sleep(sec)
			if terms := p.check(t); len(terms) != 3 || terms[2].who != "here" {
				t.Errorf("terms %+v", terms)
			}
			stopHere()
			<-endedHere
			p.check(t)
			w.Free(t, "leader")
		})
	}
}

// A leader that does not stop when told keeps its own process from leading again,
// and others only until its lease has lapsed; its fence is passed.
func TestSingletonZombie(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		p := &parliament{}
		thaw := make(chan struct{})
		running := 0
		stop, ended := singleton(t, p, "here", w.Claims, func(ctx context.Context) error {
			if running++; running > 1 {
				t.Error("two in one process")
			}
			defer func() { running-- }()
			<-thaw // not its context
			return ctx.Err()
		})
		time.Sleep(sec)
		_, endedThere := singleton(t, p, "there", w.Other, func(ctx context.Context) error { time.Sleep(sec); return nil })
		w.Host.Cut()
		time.Sleep(30 * sec)
		if err := <-endedThere; err != nil {
			t.Errorf("there: %v", err)
		}
		p.mu.Lock()
		if len(p.terms) != 2 || p.terms[1].who != "there" || p.terms[1].fence <= p.terms[0].fence {
			t.Errorf("terms %+v", p.terms)
		}
		p.mu.Unlock()
		w.Host.Heal()
		time.Sleep(30 * sec)
		close(thaw)
		time.Sleep(time.Minute)
		p.mu.Lock()
		if len(p.terms) != 3 || p.terms[2].who != "here" {
			t.Errorf("terms %+v", p.terms)
		}
		p.mu.Unlock()
		stop()
		<-ended
	})
}

// A leader that resigns hands the key to the next in line in the transaction that
// gives it up: there is no revision without a claim.
func TestSingletonHandsOver(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		watching, unwatch := context.WithCancel(context.Background())
		defer unwatch()
		events := w.Server.Admin().Watch(watching, testclaims.Key("", "leader"))
		p := &parliament{}
		drained := time.Time{}
		stop, ended := singleton(t, p, "here", w.Claims, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(2 * sec) // of 3 that it has
			drained = time.Now()
			return nil
		})
		time.Sleep(sec)
		stopThere, endedThere := singleton(t, p, "there", w.Other, untilTold)
		time.Sleep(sec)
		stop()
		if err := <-ended; err != nil {
			t.Errorf("a leader that drained: %v", err)
		}
		time.Sleep(sec)
		terms := p.check(t)
		if len(terms) != 2 || terms[1].who != "there" {
			t.Fatalf("terms %+v", terms)
		}
		if gap := terms[1].from.Sub(drained); gap > 10*time.Millisecond || gap < 0 {
			t.Errorf("nobody led for %v", gap)
		}
		stopThere()
		<-endedThere
		synctest.Wait()
		var seen []string
		for len(seen) < 3 {
			for _, ev := range (<-events).Events {
				if ev.Type == clientv3.EventTypePut {
					seen = append(seen, fmt.Sprint("put ", ev.Kv.ModRevision))
				} else {
					seen = append(seen, "deleted")
				}
			}
		}
		// The successor's claim is at the very revision of the release.
		if want := []string{fmt.Sprint("put ", terms[0].fence), fmt.Sprint("put ", terms[1].fence), "deleted"}; !slices.Equal(seen, want) {
			t.Errorf("the key was %q, want %q", seen, want)
		}
	})
}

// How it ends.
func TestSingletonReturns(t *testing.T) {
	t.Parallel()
	own := errors.New("own")
	inWorld(t, "done", func(t *testing.T, w *world) {
		for _, want := range []error{nil, own} {
			p := &parliament{}
			_, ended := singleton(t, p, "here", w.Claims, func(context.Context) error { return want })
			if err := <-ended; !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			if terms := p.check(t); len(terms) != 1 || !errors.Is(terms[0].why, want) {
				t.Errorf("terms %+v", terms)
			}
			w.Free(t, "leader")
		}
	})
	inWorld(t, "waiting", func(t *testing.T, w *world) {
		p := &parliament{}
		if _, err := w.Other.TryAcquire(t.Context(), "leader"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(sec, func() { cancel(own) })
		if err := middleware.Singleton(ctx, w.Claims, "leader", untilTold, p.config("here")); !errors.Is(err, own) || len(p.terms) > 0 {
			t.Errorf("got %v, %+v", err, p.terms)
		}
	})
	inWorld(t, "closed", func(t *testing.T, w *world) {
		p := &parliament{}
		_, ended := singleton(t, p, "here", w.Claims, untilTold)
		time.Sleep(sec)
		if err := w.Claims.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, etcdclaims.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
	inWorld(t, "key", func(t *testing.T, w *world) {
		if err := middleware.Singleton(t.Context(), w.Claims, "", untilTold, middleware.SingletonConfig{}); !errors.Is(err, middleware.ErrInvalidKey) {
			t.Errorf("got %v", err)
		}
		if !panics(func() { _ = middleware.Singleton(t.Context(), w.Claims, "k", nil, middleware.SingletonConfig{}) }) {
			t.Error("no panic")
		}
	})
	inWorld(t, "panic", func(t *testing.T, w *world) {
		p := &parliament{}
		if !panics(func() {
			_ = middleware.Singleton(t.Context(), w.Claims, "leader", func(context.Context) error { panic("own") }, p.config("here"))
		}) {
			t.Error("no panic")
		}
		if len(p.terms) != 1 || p.terms[0].to.IsZero() {
			t.Errorf("terms %+v", p.terms)
		}
		w.Free(t, "leader")
	})
	inWorld(t, "max hold", func(t *testing.T, w *world) {
		p := &parliament{}
		stop, ended := singleton(t, p, "here", w.Claims, untilTold, etcdclaims.MaxHold(10*sec))
		time.Sleep(time.Minute)
		stop()
		<-ended
		if n := len(p.check(t)); n < 6 || n > 10 {
			t.Errorf("%d terms", n)
		}
	})
	inWorld(t, "told why it does not lead", func(t *testing.T, w *world) {
		w.Host.Inject(claimtest.Fault{On: steps.Enqueue, Times: -1, Code: codes.PermissionDenied})
		refused := w.Host.Inject(claimtest.Fault{On: steps.Take, Times: 3, Code: codes.PermissionDenied})
		var failed []error
		began := time.Now()
		err := middleware.Singleton(t.Context(), w.Claims, "leader", func(context.Context) error { return nil }, middleware.SingletonConfig{
			Failed:  func(err error) { failed = append(failed, err) },
			Backoff: func(attempt int) time.Duration { return time.Duration(attempt) * sec },
		})
		if took := time.Since(began); err != nil || len(failed) != 3 || refused.Hits() != 3 || took < 6*sec || took > 7*sec {
			t.Errorf("%v after %v: %v", err, took, failed)
		}
	})
	t.Run("passthrough", func(t *testing.T) {
		led := false
		err := middleware.Singleton(t.Context(), without, "leader", func(ctx context.Context) error {
			token, ok := fencing.FromContext(ctx)
			led = ok && token.Fence == 0
			return own
		}, middleware.SingletonConfig{})
		if !errors.Is(err, own) || !led {
			t.Errorf("%v, %v", err, led)
		}
	})
}

// flapping are claims that are lost when they have lasted so long.
type flapping struct{ lasts []time.Duration }

func (f *flapping) Run(ctx context.Context, _ string, fn func(context.Context) error, _ ...middleware.AcquireOption) error {
	if len(f.lasts) == 0 {
		return attach.ErrClosed
	}
	lasts := f.lasts[0]
	f.lasts = f.lasts[1:]
	if lasts == 0 { // never led
		return errors.New("no answer")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lasts, fencing.ErrLost)
	defer cancel()
	_ = fn(ctx)
	return fencing.ErrLost
}

func (f *flapping) TryRun(ctx context.Context, key string, fn func(context.Context) error, opts ...middleware.AcquireOption) error {
	return f.Run(ctx, key, fn, opts...)
}

// Who leads for moments only backs off further each time; a minute is more than that.
func TestSingletonBacksOffWhileItFlaps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &flapping{lasts: []time.Duration{1, sec, 0, 59 * sec, time.Minute, 1, 0, time.Hour, 0}}
		var attempts []int
		err := middleware.Singleton(t.Context(), f, "leader", untilTold, middleware.SingletonConfig{
			Backoff: func(attempt int) time.Duration { attempts = append(attempts, attempt); return sec },
			Failed: func(err error) {
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("an error of two lines: %q", err)
				}
			},
		})
		if want := []int{1, 2, 3, 4, 1, 2, 3, 1, 2}; !errors.Is(err, attach.ErrClosed) || !slices.Equal(attempts, want) {
			t.Errorf("%v; backed off with %v, want %v", err, attempts, want)
		}
	})
}

// A leader that lost its key contests the key again, also if its function returns that
// another client is closed.
func TestSingletonWhoseFunctionUsesAClosedClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		terms := 0
		err := middleware.Singleton(t.Context(), &flapping{lasts: []time.Duration{sec, sec}}, "leader", func(ctx context.Context) error {
			terms++
			<-ctx.Done()
			return fmt.Errorf("another client: %w", attach.ErrClosed)
		}, middleware.SingletonConfig{})
		if !errors.Is(err, attach.ErrClosed) || terms != 2 {
			t.Errorf("%v after %d terms, want 2", err, terms)
		}
	})
}

// failing ends the context of its caller in an attempt, before or after that fails, or in the next one.
type failing struct {
	middleware.Claims
	end            context.CancelCauseFunc
	cause          error
	during, inLine bool
	calls          int
}

func (f *failing) Run(ctx context.Context, _ string, _ func(context.Context) error, _ ...middleware.AcquireOption) error {
	f.calls++
	if f.during || f.calls == 2 {
		f.end(f.cause)
	}
	if f.calls == 2 {
		return context.Cause(ctx)
	}
	return fencing.ErrUnknown
}

// A program without a logger still learns why its process never led, whenever its context ends.
func TestSingletonEndsWithItsReason(t *testing.T) {
	t.Parallel()
	cause := errors.New("told to end")
	for _, f := range []*failing{{during: true}, {inLine: true}, {}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		f.end, f.cause = cancel, cause
		err := middleware.Singleton(ctx, f, "k", func(context.Context) error { return nil }, middleware.SingletonConfig{
			Backoff: func(int) time.Duration { return time.Nanosecond },
			Failed: func(error) {
				if !f.inLine {
					cancel(cause)
				}
			},
		})
		if !errors.Is(err, cause) || errors.Is(err, fencing.ErrUnknown) ||
			err.Error() != `middleware: lead "k": told to end; last failure: outcome unknown` {
			t.Errorf("during %v, in line %v: %v", f.during, f.inLine, err)
		}
	}
}

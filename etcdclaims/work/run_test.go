package work_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

type givingBack struct{ error }

func (givingBack) GiveBack() bool { return true }

func (g givingBack) Unwrap() error { return g.error }

// Each way in which a function can return is an outcome of its work.
func TestRunOutcomes(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, tt := range map[string]struct {
		fn      func(ctx context.Context, w *work.Work) error
		want    work.State
		matches []error
		attempt int
	}{
		"nil":            {func(context.Context, *work.Work) error { return nil }, work.StateDone, nil, 1},
		"error":          {func(context.Context, *work.Work) error { return boom }, work.StateFailed, []error{boom, work.ErrBackoff}, 1},
		"Permanent":      {func(context.Context, *work.Work) error { return etcdclaims.Permanent(boom) }, work.StateDead, []error{boom, work.ErrDead}, 1},
		"RetryAfter":     {func(context.Context, *work.Work) error { return etcdclaims.RetryAfter(boom, time.Hour) }, work.StateFailed, []error{boom, work.ErrBackoff}, 1},
		"given back":     {func(context.Context, *work.Work) error { return givingBack{boom} }, "", []error{boom}, 0},
		"completed":      {func(ctx context.Context, w *work.Work) error { return w.CompleteWith(ctx, []byte("r")) }, work.StateDone, nil, 1},
		"released":       {func(ctx context.Context, w *work.Work) error { return w.Release(ctx) }, "", nil, 0},
		"claim released": {func(ctx context.Context, w *work.Work) error { return w.Claim.Release(ctx) }, "", nil, 0},
		"failed": {func(ctx context.Context, w *work.Work) error {
			_, err := w.Fail(ctx, etcdclaims.Permanent(boom))
			return err
		}, work.StateDead, nil, 1},
		"completed, then an error": {func(ctx context.Context, w *work.Work) error {
			return errors.Join(w.Complete(ctx), boom)
		}, work.StateDone, []error{boom}, 1},
	} {
		for way, run := range map[string]func(c *client, ctx context.Context) error{
			"TryRun": func(c *client, ctx context.Context) error { return c.Runner.TryRun(ctx, "k", tt.fn) },
			"Run":    func(c *client, ctx context.Context) error { return c.Runner.Run(ctx, "k", tt.fn) },
			"Work.Run": func(c *client, ctx context.Context) error {
				w, err := c.TryBegin(ctx, "k")
				if err != nil {
					return err
				}
				return w.Run(ctx, func(ctx context.Context) error { return tt.fn(ctx, w) })
			},
			"Claim.Run": func(c *client, ctx context.Context) error {
				w, err := c.TryBegin(ctx, "k")
				if err != nil {
					return err
				}
				return w.Claim.Run(ctx, func(ctx context.Context) error { return tt.fn(ctx, w) })
			},
		} {
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
				a, b, _ := twoOwners(t, etcd, config{})
				err := run(a, ctx)
				if (err == nil) != (tt.matches == nil) {
					t.Errorf("returned %v", err)
				}
				for _, m := range tt.matches {
					wantIs(t, err, m)
				}
				r, ok, rerr := b.Record(ctx, "k")
				if rerr != nil || r.State != tt.want || r.Attempt != tt.attempt || ok != (tt.want != "") {
					t.Errorf("recorded %+v, %v, %v", r, ok, rerr)
				}
				var outcome *work.Error
				if errors.As(err, &outcome) && (outcome.Record.State != r.State || !outcome.Record.NotBefore.Equal(r.NotBefore) || outcome.Err == nil) {
					t.Errorf("the error says %+v, the record %+v", outcome.Record, r)
				}
				if i := lookUp(t, b, "k"); i.Held {
					t.Errorf("it is held: %+v", i)
				}
			})
		}
	}
}

// Work that cannot be begun is not run, and the error says why.
func TestRunNotBegun(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{})
	never := func(context.Context, *work.Work) error { t.Error("it is run"); return nil }
	tryClaim(t, a, "held")
	wantIs(t, b.Runner.TryRun(ctx, "held", never), etcdclaims.ErrHeld)
	noErr(t, tryBegin(t, a, "done").Complete(ctx))
	wantIs(t, b.Runner.TryRun(ctx, "done", never), work.ErrDone)
	wantIs(t, b.Runner.Run(ctx, "done", never), work.ErrDone)
	noErr(t, failing(ctx, tryBegin(t, a, "failed"), errors.New("x")))
	wantIs(t, b.Runner.Run(ctx, "failed", never), work.ErrBackoff)
	if err := b.Runner.Run(ctx, "nil", nil); err == nil || !strings.Contains(err.Error(), `"nil"`) {
		t.Errorf("a nil function: %v", err)
	}
	ran := false
	none := newClient(t, nil, config{})
	noErr(t, none.Runner.Run(ctx, "k", func(_ context.Context, w *work.Work) error { ran = w.Attempt() == 1; return nil }))
	if !ran {
		t.Error("a passthrough client does not run it")
	}
}

// A panic is recorded with its value and stack, and goes on; Goexit is not a panic.
func TestRunPanics(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{})
	func() {
		defer func() {
			if v := recover(); v != "the value" {
				t.Errorf("the panic went on as %v", v)
			}
		}()
		_ = a.Runner.Run(ctx, "panic", func(context.Context, *work.Work) error { panic("the value") })
	}()
	r, _, err := b.Record(ctx, "panic")
	noErr(t, err)
	if r.State != work.StateFailed || r.Error != "panic: the value" || !strings.Contains(r.Stack, "TestRunPanics") || len(r.Stack) > 8<<10 {
		t.Errorf("recorded %+v", r)
	}
	func() {
		defer func() { _ = recover() }()
		_ = a.Runner.Run(ctx, "dead", func(context.Context, *work.Work) error { panic(etcdclaims.Permanent(errors.New("never"))) })
	}()
	if r, _, err := b.Record(ctx, "dead"); err != nil || r.State != work.StateDead {
		t.Errorf("a panic with a permanent error: %+v, %v", r, err)
	}
	left := make(chan struct{})
	go func() {
		defer close(left)
		_ = a.Runner.Run(ctx, "goexit", func(context.Context, *work.Work) error { runtime.Goexit(); return nil })
		t.Error("Goexit did not go on")
	}()
	<-left
	if r, _, err := b.Record(ctx, "goexit"); err != nil || r.State != work.StateFailed || strings.Contains(r.Error, "panic") || r.Stack != "" || r.Error == "" {
		t.Errorf("recorded of Goexit %+v, %v", r, err)
	}
	// The same holds for work whose result is remembered.
	func() {
		defer func() { _ = recover() }()
		_, _, _ = a.Once(ctx, "once", func(context.Context) ([]byte, error) { panic("in Once") })
	}()
	if r, _, err := b.Record(ctx, "once"); err != nil || r.Error != "panic: in Once" || r.Stack == "" {
		t.Errorf("recorded of Once %+v, %v", r, err)
	}
}

// Who is interrupted has not failed: by the caller or by Close. Who exceeds a
// deadline has.
func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		stop func(c *client, ctx context.Context) (context.Context, func())
		want work.State
	}{
		"by its caller": {func(_ *client, ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancel(ctx)
			return ctx, cancel
		}, ""},
		"by Close": {func(c *client, ctx context.Context) (context.Context, func()) {
			return ctx, func() { go func() { _ = c.Close(context.Background()) }() }
		}, ""},
		"by a deadline": {func(_ *client, ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithTimeout(ctx, 0)
			_ = cancel
			return ctx, func() {}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd := testetcd.Shared(t).Client(t)
			a, b, _ := twoOwners(t, etcd, config{})
			w := tryBegin(t, a, "k")
			ctx, stop := tt.stop(a, t.Context())
			err := w.Run(ctx, func(ctx context.Context) error { stop(); <-ctx.Done(); return context.Cause(ctx) })
			if err == nil {
				t.Error("no error")
			}
			if r, ok, err := b.Record(t.Context(), "k"); err != nil || ok {
				t.Errorf("recorded %+v, %v", r, err)
			}
		})
	}
	etcd := testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{})
	w := tryBegin(t, a, "k")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantIs(t, w.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }), work.ErrBackoff)
	if r, _, err := b.Record(t.Context(), "k"); err != nil || r.State != work.StateFailed || r.Attempt != 1 {
		t.Errorf("recorded %+v, %v", r, err)
	}
}

// Work that is lost while it runs is not recorded by the one who lost it.
func TestRunLost(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Shared(t).Client(t)
	for name, returns := range map[string]error{"nil": nil, "error": errors.New("boom")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, _ := twoOwners(t, etcd, config{})
			var next *work.Work
			err := a.Runner.Run(t.Context(), "k", func(ctx context.Context, _ *work.Work) error {
				vanish(t, etcd, b, "k")
				next = tryBegin(t, b, "k")
				<-ctx.Done()
				return returns
			})
			wantIs(t, err, etcdclaims.ErrLost)
			if returns != nil {
				wantIs(t, err, returns)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q has more than one line", err)
			}
			if r, _, rerr := b.Record(t.Context(), "k"); rerr != nil || r.State != work.StateClaimed || r.Claim != next.ID() {
				t.Errorf("recorded %+v, %v", r, rerr)
			}
			noErr(t, next.Complete(t.Context()))
		})
	}
}

// A handler whose end of work is under way when its drain is over, and is refused after that, is a
// zombie as any other that goes on.
func TestZombieBesideRefusedEnd(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, host := w.client(config{TTL: 15 * sec}) // its drain is 3 s
		ctx, cancel := context.WithCancel(context.Background())
		hang, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- a.Runner.TryRun(ctx, "k", func(ctx context.Context, wk *work.Work) error {
				<-ctx.Done()
				time.Sleep(2500 * ms)
				host.Inject(claimtest.Fault{On: claimtest.Ending, DelayRequest: sec})
				if err := wk.Complete(context.Background(), clientv3.OpPut("x", "y", clientv3.WithLease(77))); err == nil {
					t.Error("it was not refused")
				}
				<-hang
				return nil
			})
		}()
		time.Sleep(sec)
		cancel()
		b := w.peer()
		time.Sleep(6 * sec)
		_, err := b.TryAcquire(context.Background(), "k")
		wantIs(t, err, etcdclaims.ErrHeld)
		time.Sleep(16 * sec)
		w.Available("k", b.Client)
		if n := a.Stats().Zombies; n != 1 {
			t.Errorf("%d zombies", n)
		}
		close(hang)
		<-done
		time.Sleep(sec)
		w.Available("k", b.Client)
	})
}

// Close waits one drain for a handler, also for one that has ended its work itself.
func TestCloseAfterCompleteInHandler(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c := w.peer()
		ctx, completed, end := context.Background(), make(chan struct{}), make(chan struct{})
		ran := make(chan error, 1)
		go func() {
			ran <- c.Runner.TryRun(ctx, "k", func(ctx context.Context, job *work.Work) error {
				err := job.Complete(ctx)
				close(completed)
				<-end
				return err
			})
		}()
		<-completed
		time.Sleep(sec)
		time.AfterFunc(time.Hour, func() { close(end) })
		begun := time.Now()
		noErr(t, c.Close(ctx))
		if took := time.Since(begun); took > 10*sec {
			t.Errorf("Close took %v", took)
		}
		noErr(t, <-ran)
	})
}

package contract

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

var errHandler = errors.New("what the handler says")

var runCases = []Case{
	{"a handler runs while its key is held", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		for name, run := range map[string]func(context.Context, string, func(context.Context) error, ...etcdclaims.AcquireOption) error{
			"Run": a.Run, "TryRun": a.TryRun,
		} {
			ran := 0
			err := run(t.ctx, "k", func(ctx context.Context) error {
				ran++
				info := t.refused(b, "k")
				if token := tokenIn(ctx); token.Key != "k" || token.Fence != info.Fence || ctx.Err() != nil {
					t.Errorf("%s: the handler's token is %v, etcd's fence %d", name, token, info.Fence)
				}
				return errHandler
			})
			t.is(err, errHandler)
			if errors.Is(err, etcdclaims.ErrLost) || ran != 1 {
				t.Errorf("%s: the handler ran %d times, and ended with %v", name, ran, err)
			}
			t.ok(t.try(b, "k").Release(t.ctx))
		}
	}},

	{"no handler runs without its key", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		t.try(a, "k")
		never := func(context.Context) error {
			t.Error("the handler ran")
			return nil
		}
		t.holder(b.TryRun(t.ctx, "k", never))
		ctx, cancel := context.WithTimeout(t.ctx, 2*time.Second)
		defer cancel()
		t.is(b.Run(ctx, "k", never), context.DeadlineExceeded)
	}},

	{"handlers take turns", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		var room room
		errs := make(chan error, 6)
		for i := range cap(errs) {
			t.background(func() {
				errs <- []*etcdclaims.Client{a, b}[i%2].Run(t.ctx, "k", func(ctx context.Context) error {
					room.enter(tokenIn(ctx).Fence)
					room.leave()
					return nil
				})
			})
		}
		for range cap(errs) {
			t.ok(<-errs)
		}
		room.check(t, cap(errs))
	}},

	{"a handler is told, and its key released after it", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		ctx, cancel := context.WithCancel(t.ctx)
		defer cancel()
		err := a.TryRun(ctx, "k", func(ctx context.Context) error {
			cancel()
			t.wait(ctx.Done(), "the handler's context is over")
			time.Sleep(200 * time.Millisecond) // less than it is given to drain
			t.refused(b, "k")
			return ctx.Err()
		})
		t.is(err, context.Canceled)
		t.try(b, "k")
	}},

	{"a handler is told when its claim is lost", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		err := a.TryRun(t.ctx, "k", func(ctx context.Context) error {
			t.revoke(b, "k")
			t.wait(ctx.Done(), "the handler's context is over")
			t.is(context.Cause(ctx), etcdclaims.ErrLost)
			return errHandler
		})
		t.is(err, errHandler)
		t.is(err, etcdclaims.ErrLost)
	}},

	{"a panic releases the key", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		func() {
			defer func() {
				err, _ := recover().(error)
				t.is(err, errHandler)
			}()
			_ = a.TryRun(t.ctx, "k", func(context.Context) error { panic(errHandler) })
		}()
		t.try(b, "k")
	}},

	{"closing tells handlers and waits for them", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		started, returned, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		t.background(func() {
			ended <- a.TryRun(t.ctx, "k", func(ctx context.Context) error {
				close(started)
				<-ctx.Done()
				time.Sleep(200 * time.Millisecond)
				close(returned)
				return fmt.Errorf("told: %w", context.Cause(ctx))
			})
		})
		t.wait(started, "the handler runs")
		t.ok(a.Close(t.ctx))
		select {
		case <-returned:
		default:
			t.Error("closing did not wait for the handler")
		}
		t.is(<-ended, etcdclaims.ErrClosed)
		t.try(b, "k")
	}},
}

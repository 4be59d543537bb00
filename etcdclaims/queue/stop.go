package queue

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/retry"
	"go.uber.org/zap"
)

// stopBound is WorkerConfig.StopTimeout of the handlers of one worker. Without it neither
// happens.
type stopBound struct {
	soft   context.Context // ends when handlers must stop
	over   chan struct{}   // closed when they have had their Grace, too
	cancel func()
}

// boundStop counts from the end of stop, until cancel is called.
func (cfg WorkerConfig) boundStop(stop <-chan struct{}) *stopBound {
	ctx, cancel := context.WithCancel(context.Background())
	b := &stopBound{soft: context.Background(), over: make(chan struct{}), cancel: cancel}
	if cfg.StopTimeout == 0 {
		return b
	}
	soft, end := context.WithCancel(context.Background())
	b.soft = soft
	ended := make(chan struct{})
	b.cancel = func() { cancel(); <-ended; end() }
	go func() {
		defer close(ended)
		select {
		case <-stop:
		case <-ctx.Done():
		}
		if !retry.Sleep(ctx, cfg.StopTimeout) {
			return
		}
		end()
		if retry.Sleep(ctx, cfg.Grace) {
			close(b.over)
		}
	}()
	return b
}

// stopsBy reports whether the result of a handler that was stopped can come from that: then
// its attempt does not count.
func stopsBy(err error) bool {
	var snooze snoozeError
	var panicked *panicError
	_, again := etcdclaims.RetryDelay(err)
	return err != nil && !again && !etcdclaims.IsPermanent(err) &&
		!errors.As(err, &snooze) && !errors.As(err, &panicked) && !errors.Is(err, errGoexit)
}

// giveBack gives back the item of a handler that was stopped by StopTimeout.
func (w *worker) giveBack(stopping context.Context, l *Delivery) {
	w.giveBackAs("the worker stops", stopping, l, zap.Duration("stopTimeout", w.cfg.StopTimeout))
}

// giveBackAs gives back an item for a reason, unless its handler has ended the lease. If etcd does
// not answer for patience, a later request of the process does it, or its end.
func (w *worker) giveBackAs(why string, stopping context.Context, l *Delivery, more ...zap.Field) {
	if l.Err() != nil {
		w.finish(stopping, l, nil)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(stopping), patience)
	defer cancel()
	err := l.Release(ctx)
	if err == nil {
		w.q.log.Info("item given back, as "+why, append(l.fields(), more...)...)
	}
	w.settle(l, err)
}

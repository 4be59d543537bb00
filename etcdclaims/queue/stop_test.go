package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A handler whose queue is closed by its own process is told so, in the cause of its context
// and by the verbs, and it is no warning.
func TestCloseUnderHandler(t *testing.T) {
	virtually(t, func(w *world) {
		core, logs := observer.New(zap.InfoLevel)
		q := w.queue(queue.Config{Logger: zap.New(core)})
		w.enqueue(q, "a")
		ended := make(chan error, 1)
		stop := w.works(q, queue.WorkerConfig{Timeout: time.Hour, Handler: func(ctx context.Context, l *queue.Lease) error {
			<-ctx.Done()
			err := l.Complete(context.Background())
			for _, e := range []error{context.Cause(ctx), err, l.Err(), l.Check()} {
				w.wantErr(e, etcdclaims.ErrClosed)
				w.wantErr(e, etcdclaims.ErrLost)
				w.wantErr(e, queue.ErrExpired)
			}
			ended <- context.Cause(ctx)
			return err
		}})
		time.Sleep(sec)
		go stop()
		time.Sleep(sec)
		w.ok(q.Close(w.Context()))
		w.want((<-ended).Error(), "queue closed, its items are given back")
		time.Sleep(sec)
		w.want(w.look(w.queue(queue.Config{}), "a").Attempts, 0)
		if logs.FilterLevelExact(zap.WarnLevel).Len() > 0 || logs.FilterMessage("item given back, as the queue is closed").Len() != 1 {
			t.Errorf("logged: %v", logs.All())
		}
	})
}

// A lease that was lost is not one that was given back, also if the queue is closed later.
func TestLossBeforeClose(t *testing.T) {
	virtually(t, func(w *world) {
		late, host := w.process(queue.Config{})
		w.enqueue(late, "a")
		l := w.claim(late)
		host.Cut()
		time.Sleep(2 * ttl)
		host.Heal()
		w.ok(late.Close(w.Context()))
		w.wantErr(l.Err(), queue.ErrExpired)
		if errors.Is(l.Err(), etcdclaims.ErrClosed) {
			t.Errorf("lost with %v", l.Err())
		}
	})
}

package telemetry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"go.opentelemetry.io/otel/trace"
)

func TestQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		claims, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
		q, err := queue.New(claims, queue.Config{Name: "mail", MaxAttempts: 1})
		if err != nil {
			w.Fatal(err)
		}
		defer func() {
			if err := q.Close(context.Background()); err != nil {
				w.Error(err)
			}
		}()
		stop := w.tel.WatchQueue("mail", q, 10*sec)
		for _, item := range []queue.Item{
			queue.NewItem(nil, queue.Topic("good")), queue.NewItem(nil, queue.Topic("bad")), queue.NewItem(nil, queue.Delay(time.Hour)),
		} {
			if _, err := q.Enqueue(w.Context(), item); err != nil {
				w.Fatal(err)
			}
		}
		time.Sleep(3 * sec)
		w.expect(map[string]string{
			"etcdclaims.queue.item.count{queue.item.state=ready,messaging.destination.name=mail}": "2",
			"etcdclaims.queue.item.count{queue.item.state=later,messaging.destination.name=mail}": "1",
			"etcdclaims.queue.item.count{queue.item.state=taken,messaging.destination.name=mail}": "0",
			"etcdclaims.queue.dead.count{messaging.destination.name=mail}":                        "0",
			"etcdclaims.queue.oldest{messaging.destination.name=mail}":                            "3.0",
			"etcdclaims.queue.paused{messaging.destination.name=mail}":                            "0",
		})
		ctx, cancel := context.WithCancel(w.Context())
		returned := make(chan error)
		go func() {
			returned <- q.Work(ctx, queue.WorkerConfig{Concurrency: 2, Middleware: []queue.Middleware{w.tel.Worker}, Handler: func(ctx context.Context, l *queue.Lease) error {
				if !trace.SpanContextFromContext(ctx).IsValid() {
					w.Error("the handler has no span")
				}
				time.Sleep(2 * sec)
				if l.Topic() == "bad" {
					return errors.New("no")
				}
				return nil
			}})
		}()
		time.Sleep(5 * sec)
		w.expect(map[string]string{ // the counts of 8 s ago are good enough
			"etcdclaims.queue.dead.count{messaging.destination.name=mail}":                                                                               "0",
			"messaging.process.duration{messaging.destination.name=mail,messaging.operation.name=process,messaging.system=etcdclaims}":                   "1×2.0",
			"messaging.process.duration{error.type=_OTHER,messaging.destination.name=mail,messaging.operation.name=process,messaging.system=etcdclaims}": "1×2.0",
			"etcdclaims.queue.item.wait.duration{messaging.destination.name=mail}":                                                                       "2×3.0",
		})
		time.Sleep(5 * sec)
		if err := q.Pause(w.Context(), "maintenance"); err != nil {
			w.Fatal(err)
		}
		w.expect(map[string]string{
			"etcdclaims.queue.item.count{queue.item.state=ready,messaging.destination.name=mail}": "0",
			"etcdclaims.queue.dead.count{messaging.destination.name=mail}":                        "1",
			"etcdclaims.queue.oldest{messaging.destination.name=mail}":                            "0.0",
			"etcdclaims.queue.paused{messaging.destination.name=mail}":                            "1",
		})
		spans := w.ended()["process mail"]
		if len(spans) != 2 || spans[0].SpanKind() != trace.SpanKindConsumer {
			w.Errorf("%d spans", len(spans))
		}
		cancel()
		if err := <-returned; err != nil {
			w.Error(err)
		}
		stop()
		w.expect(map[string]string{"etcdclaims.queue.dead.count{messaging.destination.name=mail}": ""})
	})
}

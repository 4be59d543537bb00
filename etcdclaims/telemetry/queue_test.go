package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
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
			"etcdclaims.queue.items{queue.item.state=ready,messaging.destination.name=mail}": "2",
			"etcdclaims.queue.items{queue.item.state=later,messaging.destination.name=mail}": "1",
			"etcdclaims.queue.items{queue.item.state=taken,messaging.destination.name=mail}": "0",
			"etcdclaims.queue.dead_letters{messaging.destination.name=mail}":                 "0",
			"etcdclaims.queue.oldest{messaging.destination.name=mail}":                       "3.0",
			"etcdclaims.queue.paused{messaging.destination.name=mail}":                       "0.0",
		})
		ctx, cancel := context.WithCancel(w.Context())
		returned := make(chan error)
		go func() {
			returned <- q.Work(ctx, queue.WorkerConfig{Concurrency: 2, Middleware: []queue.Middleware{w.tel.Worker}, Handler: func(ctx context.Context, l *queue.Delivery) error {
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
			"etcdclaims.queue.dead_letters{messaging.destination.name=mail}":                                                                             "0",
			"messaging.process.duration{messaging.destination.name=mail,messaging.operation.name=process,messaging.system=etcdclaims}":                   "1×2.0",
			"messaging.process.duration{error.type=_OTHER,messaging.destination.name=mail,messaging.operation.name=process,messaging.system=etcdclaims}": "1×2.0",
			"etcdclaims.queue.item.wait.duration{messaging.destination.name=mail}":                                                                       "2×3.0",
		})
		time.Sleep(5 * sec)
		if err := q.Pause(w.Context(), "maintenance"); err != nil {
			w.Fatal(err)
		}
		time.Sleep(20 * sec)
		w.expect(map[string]string{
			"etcdclaims.queue.items{queue.item.state=ready,messaging.destination.name=mail}": "0",
			"etcdclaims.queue.dead_letters{messaging.destination.name=mail}":                 "1",
			"etcdclaims.queue.oldest{messaging.destination.name=mail}":                       "0.0",
			"etcdclaims.queue.paused{messaging.destination.name=mail}":                       "20.0",
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
		w.expect(map[string]string{"etcdclaims.queue.dead_letters{messaging.destination.name=mail}": ""})
	})
}

// An etcd that does not answer holds a collection up for a moment only, however many
// queues are watched.
func TestQueuesOfHungEtcd(t *testing.T) {
	inWorld(t, func(w *world) {
		claims, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		for i := range 6 {
			q, err := queue.New(claims, queue.Config{Name: fmt.Sprint("mail-", i)})
			if err != nil {
				w.Fatal(err)
			}
			defer q.Close(context.Background())
			defer w.tel.WatchQueue(q.Name(), q, 10*sec)()
		}
		collect := func(ctx context.Context) (time.Duration, error) {
			var all metricdata.ResourceMetrics
			begun := time.Now()
			err := w.reader.Collect(ctx, &all)
			return time.Since(begun), err
		}
		host.Cut()
		ctx, cancel := context.WithTimeout(w.Context(), sec)
		defer cancel()
		if took, err := collect(ctx); err == nil || took != sec {
			w.Errorf("a collection that ends early took %v: %v", took, err)
		}
		if took, err := collect(w.Context()); err == nil || took != 2*sec {
			w.Errorf("the first whole collection took %v: %v", took, err)
		}
		if took, err := collect(w.Context()); err == nil || took != 0 {
			w.Errorf("the next took %v: %v", took, err)
		}
		host.Heal()
		time.Sleep(30 * sec)
		if took, err := collect(w.Context()); err != nil || took > sec {
			w.Errorf("a collection after that took %v: %v", took, err)
		}
	})
}

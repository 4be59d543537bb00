package queue_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/fencing"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

type invoice struct {
	Number int     `json:"number"`
	Amount float64 `json:"amount"`
}

// inHex is a codec that is not JSON.
type inHex struct{}

func (inHex) Encode(s string) ([]byte, error) {
	if s == "" {
		return nil, errors.New("nothing to encode")
	}
	return []byte(hex.EncodeToString([]byte(s))), nil
}

func (inHex) Decode(payload []byte) (string, error) {
	b, err := hex.DecodeString(string(payload))
	return string(b), err
}

// seen is what handlers were called with.
type seen struct {
	mu  sync.Mutex
	all []string
}

func (s *seen) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, fmt.Sprintf(format, args...))
}

func (s *seen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.all, " ")
}

// The options of a Typed are those of each item, unless a call has others.
func TestTypedDefaults(t *testing.T) {
	virtually(t, func(w *world) {
		invoices := queue.Typed[invoice]{
			Queue: w.queue(queue.Config{}), Defaults: []queue.ItemOption{queue.Topic("invoice"), queue.MaxAttempts(7), queue.Priority(1)},
		}
		_, err := invoices.Enqueue(w.Context(), invoice{}, queue.ID("own"), queue.Priority(2))
		w.ok(err)
		_, err = invoices.EnqueueAll(w.Context(), []invoice{{}}, func(invoice) []queue.ItemOption { return []queue.ItemOption{queue.ID("all")} })
		w.ok(err)
		for id, priority := range map[string]int{"own": 2, "all": 1} {
			info := w.look(invoices.Queue, id)
			w.want(info.Topic, "invoice")
			w.want(info.Max, 7)
			w.want(info.Priority, priority)
		}
	})
}

// Values of two types go through one queue, each by its codec. The handler has the delivery, too.
func TestTypedValues(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		invoices, words := queue.Of[invoice](q), queue.Typed[string]{Queue: q, Codec: inHex{}}
		added, err := invoices.Enqueue(w.Context(), invoice{Number: 1, Amount: 2.5}, queue.ID("i1"), queue.Topic("invoice"))
		w.ok(err)
		w.want(added, true)
		added, err = invoices.Enqueue(w.Context(), invoice{Number: 99}, queue.ID("i1"), queue.Topic("invoice"))
		w.ok(err)
		w.want(added, false)
		n, err := words.EnqueueAll(w.Context(), []string{"a", "b", "a"}, func(s string) []queue.ItemOption {
			return []queue.ItemOption{queue.ID(s), queue.Topic("word")}
		})
		w.ok(err)
		w.want(n, 2)
		n, err = queue.Of[[]int](q).EnqueueAll(w.Context(), [][]int{{1, 2}, {3}}, nil)
		w.ok(err)
		w.want(n, 2)
		w.want(string(w.look(q, "i1").Payload)+" "+string(w.look(q, "a").Payload), `{"number":1,"amount":2.5} 61`)

		var got seen
		stop := w.works(q, queue.WorkerConfig{Concurrency: 1, Handlers: map[string]queue.Handler{
			"invoice": invoices.Handler(func(ctx context.Context, in invoice, l *queue.Delivery) error {
				if token, _ := fencing.FromContext(ctx); token != l.Token() {
					return errors.New("another token in the context")
				}
				got.add("%s:%v:%d", l.ID(), in, l.Attempt())
				if l.Attempt() == 1 {
					return errors.New("no luck")
				}
				next, err := words.Item("then", queue.ID("then"), queue.Topic("word"))
				if err != nil {
					return err
				}
				op, err := q.Op(next)
				if err != nil {
					return err
				}
				return l.Complete(ctx, op)
			}),
			"word": words.Handler(func(_ context.Context, word string, _ *queue.Delivery) error { got.add("%s", word); return nil }),
		}, Handler: queue.Of[[]int](nil).Handler(func(_ context.Context, ns []int, _ *queue.Delivery) error { got.add("%v", ns); return nil })})
		time.Sleep(10 * sec)
		stop()
		for _, want := range []string{"i1:{1 2.5}:1", "i1:{1 2.5}:2", "a", "b", "then", "[1 2]", "[3]"} {
			if strings.Count(" "+got.text()+" ", " "+want+" ") != 1 {
				t.Errorf("%s was not handled once: %s", want, got.text())
			}
		}
		w.want(w.look(q, "i1").Where, queue.Completed)
	})
}

// A payload that cannot be decoded costs one attempt, reaches no handler, and holds up no other
// item. Its reason is in the log and with the dead letter, which a later version handles.
func TestUndecodablePayload(t *testing.T) {
	virtually(t, func(w *world) {
		core, logs := observer.New(zap.WarnLevel)
		q := w.queue(queue.Config{Logger: zap.New(core)})
		invoices := queue.Of[invoice](q)
		raw := func(id, payload string) {
			_, err := q.Enqueue(w.Context(), queue.NewItem([]byte(payload), queue.ID(id), queue.MaxAttempts(5)))
			w.ok(err)
		}
		raw("text", "INV-7")
		raw("type", `{"number":"seven"}`)
		raw("none", "")
		raw("newer", `{"number":7,"currency":"EUR"}`)
		var got seen
		record := func(_ context.Context, in invoice, _ *queue.Delivery) error { got.add("%d", in.Number); return nil }
		stop := w.works(q, queue.WorkerConfig{Handler: invoices.Handler(record)})
		time.Sleep(time.Minute)
		stop()
		w.want(got.text(), "7")
		w.want(w.look(q, "newer").Where, queue.Completed)
		for id, want := range map[string]string{
			"text": "decode payload of 5 bytes as queue_test.invoice: invalid character 'I'",
			"type": "decode payload of 18 bytes as queue_test.invoice: json: cannot unmarshal string",
			"none": "decode payload of 0 bytes as queue_test.invoice: unexpected end of JSON input",
		} {
			info := w.look(q, id)
			if info.Where != queue.Dead || info.Attempts != 1 || !strings.HasPrefix(info.Why, "failed: "+want) || len(info.History) != 1 {
				t.Errorf("%s: %s after %d attempts: %s", id, info.Where, info.Attempts, info.Why)
			}
			logged := 0
			for _, e := range logs.FilterField(zap.String("item", id)).All() {
				if cause, _ := e.ContextMap()["error"].(string); strings.HasPrefix(cause, want) {
					logged++
				}
			}
			w.want(logged, 1)
		}

		n, err := q.RedriveAll(w.Context())
		w.ok(err)
		w.want(n, 3)
		stop = w.works(q, queue.WorkerConfig{Handler: queue.Typed[string]{Codec: anything{}}.Handler(
			func(_ context.Context, s string, _ *queue.Delivery) error { got.add("%s", s); return nil })})
		time.Sleep(10 * sec)
		stop()
		st, err := q.Stats(w.Context())
		w.ok(err)
		w.want(st.Ready+st.Later+st.Taken+st.Dead, 0)
		if !strings.Contains(got.text(), "INV-7") {
			t.Errorf("handled %s", got.text())
		}
	})
}

// anything is the codec of a later version.
type anything struct{}

func (anything) Encode(s string) ([]byte, error) { return []byte(s), nil }
func (anything) Decode(p []byte) (string, error) { return string(p), nil }

// A caller that claims by itself decodes, and the error makes its item a dead letter. So it does
// if the codec asks for another attempt: that would read the same bytes.
func TestDecodeErrorIsPermanent(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "a")
		l := w.claim(q)
		_, err := queue.Typed[string]{Codec: asksAgain{}}.Decode(l.Payload())
		w.want(etcdclaims.IsPermanent(err), true)
		out, err := l.Fail(w.Context(), err)
		w.ok(err)
		w.want(out.Dead, true)
		value, err := queue.Of[invoice](q).Decode([]byte(`{"number":3}`))
		w.ok(err)
		w.want(value, invoice{Number: 3})
	})
}

type asksAgain struct{ anything }

func (asksAgain) Decode([]byte) (string, error) {
	return "", etcdclaims.RetryAfter(errors.New("not now"), time.Hour)
}

// What cannot be enqueued is an error before any request, and one such value keeps the others out.
func TestUnencodableValue(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		invoices := queue.Of[invoice](q)
		_, err := invoices.Enqueue(w.Context(), invoice{Amount: math.NaN()})
		want := `enqueue: queue "q": value 1 of 1: encode payload of type queue_test.invoice: json: unsupported value: NaN`
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		n, err := queue.Typed[string]{Queue: q, Codec: inHex{}}.EnqueueAll(w.Context(), []string{"a", ""}, nil)
		if err == nil || n != 0 || !strings.Contains(err.Error(), "value 2 of 2: encode payload of type string: nothing to encode") {
			t.Errorf("enqueued %d, %v", n, err)
		}
		_, err = queue.Of[string](q).Enqueue(w.Context(), strings.Repeat("x", queue.MaxPayloadBytes))
		w.wantErr(err, etcdclaims.ErrTooLarge)
		if _, err = queue.Of[string](nil).Enqueue(w.Context(), "x"); err == nil {
			t.Error("enqueued without a queue")
		}
		if err := q.Work(w.Context(), queue.WorkerConfig{Handler: invoices.Handler(nil)}); err == nil {
			t.Error("a worker without a handler was accepted")
		}
		w.want(len(w.under("")), 0)
	})
}

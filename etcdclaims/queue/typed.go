package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/etcdclaims/claims/etcdclaims"
)

// Codec turns values into payloads and back. It must be safe for concurrent use. Decode
// must read what earlier versions of the program have encoded: items outlast a deploy.
type Codec[T any] interface {
	Encode(value T) ([]byte, error)
	// Decode must not keep the payload. An error means that no attempt can read it.
	Decode(payload []byte) (T, error)
}

// Typed enqueues and handles values of one type. Of makes one for JSON. It adds nothing to
// the items: a Queue and any number of Typed can share them, one for each topic, say. It
// is safe for concurrent use.
type Typed[T any] struct {
	// Queue is where Enqueue and EnqueueAll put the items. The other methods do not need it.
	Queue *Queue
	// Codec makes the payloads. Default: JSON, as encoding/json reads and writes it. That
	// ignores fields that T does not have, and leaves those out that the payload lacks.
	Codec Codec[T]
	// Defaults are options of each item, such as its Topic and MaxAttempts. The options of a call come after
	// them. Default: none.
	Defaults []ItemOption
}

// Of returns access to a queue whose payloads are values of T in JSON.
func Of[T any](q *Queue) Typed[T] { return Typed[T]{Queue: q} }

// jsonCodec is the default.
type jsonCodec[T any] struct{}

func (jsonCodec[T]) Encode(value T) ([]byte, error) { return json.Marshal(value) }

func (jsonCodec[T]) Decode(payload []byte) (value T, err error) {
	err = json.Unmarshal(payload, &value)
	return value, err
}

func (t Typed[T]) codec() Codec[T] {
	if t.Codec == nil {
		return jsonCodec[T]{}
	}
	return t.Codec
}

// Item returns an item with the value, as NewItem does. Pass it to Queue.Op to enqueue it in
// a transaction of your own. Item fails if the codec cannot encode the value.
func (t Typed[T]) Item(value T, opts ...ItemOption) (Item, error) {
	payload, err := t.codec().Encode(value)
	if err != nil {
		return Item{}, fmt.Errorf("encode payload of type %v: %w", reflect.TypeFor[T](), err)
	}
	return NewItem(payload, slices.Concat(t.Defaults, opts)...), nil
}

// Enqueue puts a value into the queue, as Queue.Enqueue does an item. A value that cannot be
// encoded is an error, and nothing is sent.
func (t Typed[T]) Enqueue(ctx context.Context, value T, opts ...ItemOption) (added bool, err error) {
	n, err := t.EnqueueAll(ctx, []T{value}, func(T) []ItemOption { return opts })
	return n == 1, err
}

// EnqueueAll puts values into the queue, as Queue.EnqueueAll does items. options returns the
// options of a value, such as its ID; nil means none. If one value cannot be encoded, none
// is enqueued.
func (t Typed[T]) EnqueueAll(ctx context.Context, values []T, options func(T) []ItemOption) (added int, err error) {
	if t.Queue == nil {
		return 0, errors.New("enqueue: Typed without a Queue")
	}
	items := make([]Item, len(values))
	for i, value := range values {
		var opts []ItemOption
		if options != nil {
			opts = options(value)
		}
		if items[i], err = t.Item(value, opts...); err != nil {
			return 0, t.Queue.fail("enqueue", fmt.Errorf("value %d of %d: %w", i+1, len(values), err))
		}
	}
	return t.Queue.EnqueueAll(ctx, items)
}

// Decode returns the value of a payload: of Delivery.Payload, or of a dead letter that
// Queue.Look returned. Its error is marked with etcdclaims.Permanent, because another attempt
// reads the same bytes. So Delivery.Fail makes such an item a dead letter.
func (t Typed[T]) Decode(payload []byte) (T, error) {
	value, err := t.codec().Decode(payload)
	if err != nil {
		err = fmt.Errorf("decode payload of %d bytes as %v: %w", len(payload), reflect.TypeFor[T](), err)
		err = etcdclaims.Permanent(err)
	}
	return value, err
}

// Handler returns a handler for WorkerConfig that calls f with the value of the item. An
// item whose payload cannot be decoded never reaches f. It becomes a dead letter at once,
// whatever attempts it has left, with the cause as its reason, and the worker logs it. Once
// a version of the program that can read it is running, Redrive brings it back.
func (t Typed[T]) Handler(f func(ctx context.Context, value T, l *Delivery) error) Handler {
	if f == nil {
		return nil // Work refuses it
	}
	return func(ctx context.Context, l *Delivery) error {
		value, err := t.Decode(l.Payload())
		if err != nil {
			return err
		}
		return f(ctx, value, l)
	}
}

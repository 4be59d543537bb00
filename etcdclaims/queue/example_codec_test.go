package queue_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// sealed encrypts payloads. What it adds is about 28 bytes.
type sealed[T any] struct{ aead cipher.AEAD }

// newSealed returns a codec for a key of 16, 24 or 32 bytes.
func newSealed[T any](key []byte) (sealed[T], error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealed[T]{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return sealed[T]{aead}, err
}

func (s sealed[T]) Encode(value T) ([]byte, error) {
	plain, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return s.aead.Seal(nil, nil, plain, nil), nil
}

func (s sealed[T]) Decode(payload []byte) (value T, err error) {
	plain, err := s.aead.Open(nil, nil, payload, nil)
	if err != nil {
		return value, err // the item becomes a dead letter
	}
	return value, json.Unmarshal(plain, &value)
}

// Payloads are encrypted: whoever reads etcd, its backups or the page for people on call does not see
// them.
func ExampleCodec() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-sealed/", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)
	q, err := queue.New(claims, queue.Config{Name: "payments"})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close(ctx)

	type Payment struct{ IBAN string }
	key := make([]byte, 32) // from your secret store, the same in all processes
	if _, err := rand.Read(key); err != nil {
		log.Fatal(err)
	}
	codec, err := newSealed[Payment](key)
	if err != nil {
		log.Fatal(err)
	}
	payments := queue.Typed[Payment]{Queue: q, Codec: codec}
	if _, err := payments.Enqueue(ctx, Payment{IBAN: "DE02120300000000202051"}, queue.ID("payment-1")); err != nil {
		log.Fatal(err)
	}
	batch, err := q.Claim(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	d := batch.Deliveries[0]
	payment, err := payments.Decode(d.Payload())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("legible in etcd:", bytes.Contains(d.Payload(), []byte("DE02")))
	fmt.Println("for the worker:", payment.IBAN)
	if err := d.Complete(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// legible in etcd: false
	// for the worker: DE02120300000000202051
}

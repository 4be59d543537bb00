package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/internal/retry"
)

const (
	setKey   = "set"
	thinking = 2 * time.Second // at most, between reading and writing
)

// addElement adds one element to a set that is one value in etcd: the workload that Jepsen
// calls lock-etcd-set. The set is read, and after a random time written back with the
// element, under a claim. With the fence in the write no element that was acknowledged can
// be lost.
func (w *worker) addElement(ctx context.Context, r *rand.Rand) error {
	wait, cancel := context.WithTimeout(ctx, between(r, 2*w.TTL, 6*w.TTL))
	defer cancel()
	claim, err := w.claims.Acquire(wait, setKey, suspectableIn(r, 2)...)
	if err != nil {
		return err
	}
	reading, cancel := context.WithTimeout(claim.Context(), callTimeout)
	defer cancel()
	resp, err := w.etcd.Get(reading, fencedSet)
	if err == nil {
		// Not the claim's context: a scenario that stops in time would show
		// nothing.
		retry.Sleep(ctx, between(r, 0, thinking))
		writing, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		err = w.attempt(kindSet, claim.Token(), func(intent entry) error {
			elements := intent.ID
			for _, kv := range resp.Kvs {
				elements = string(kv.Value) + " " + elements
			}
			_, err := claim.Txn(writing).Then(clientv3.OpPut(fencedSet, elements)).Commit()
			return err
		})
	}
	giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	return errors.Join(err, claim.Release(giving))
}

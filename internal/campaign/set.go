package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/retry"
)

// The workload that Jepsen calls lock-etcd-set: a set that is one value in etcd is read,
// and after a random time written back with one element more, all under a claim.
// With the fence in the write no element that was acknowledged can be lost.

const (
	fencedSetKey = "set-fenced"
	thinking     = 2 * time.Second // at most, between reading and writing
)

// addElement adds one element.
func (w *worker) addElement(ctx context.Context, r *rand.Rand) error {
	wait, cancel := context.WithTimeout(ctx, between(r, 2*w.TTL, 6*w.TTL))
	defer cancel()
	var opts []etcdclaims.AcquireOption
	if r.IntN(2) == 0 {
		opts = append(opts, etcdclaims.Suspectable())
	}
	claim, err := w.claims.Acquire(wait, fencedSetKey, opts...)
	if err != nil {
		return err
	}
	err = func() error {
		reading, cancel := context.WithTimeout(claim.Context(), callTimeout)
		defer cancel()
		resp, err := w.etcd.Get(reading, fencedSet)
		if err != nil {
			return err
		}
		var elements []string
		if len(resp.Kvs) > 0 {
			elements = strings.Fields(string(resp.Kvs[0].Value))
		}
		// Not the claim's context: a scenario that stops in time would show
		// nothing.
		retry.Sleep(ctx, between(r, 0, thinking))
		e := w.intend(kindSet, claim.Token())
		writing, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		added, err := claim.Txn(writing).Then(clientv3.OpPut(fencedSet, strings.Join(append(elements, e.ID), " "))).Commit()
		if err != nil {
			w.conclude(e, 0, err)
			return nil
		}
		w.conclude(e, added.Header.Revision, nil)
		return nil
	}()
	giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	return errors.Join(err, claim.Release(giving))
}

package main

import (
	"context"
	"errors"
	"fmt"
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
// Without it the claim alone must prevent that, and cannot always.

const (
	fencedSetKey = "set-fenced"
	plainSetKey  = "set-plain"

	thinking = 2 * time.Second // at most, between reading and writing
)

func (w *worker) addFenced(ctx context.Context, r *rand.Rand) error {
	return w.addElement(ctx, r, fencedSetKey, fencedSet, kindSet,
		func(ctx context.Context, claim *etcdclaims.Claim, put clientv3.Op) (int64, error) {
			resp, err := claim.Txn(ctx).Then(put).Commit()
			if err != nil {
				return 0, err
			}
			return resp.Header.Revision, nil
		})
}

func (w *worker) addPlain(ctx context.Context, r *rand.Rand) error {
	return w.addElement(ctx, r, plainSetKey, plainSet, kindPlain,
		func(ctx context.Context, claim *etcdclaims.Claim, put clientv3.Op) (int64, error) {
			if err := claim.Check(); err != nil {
				return 0, err
			}
			resp, err := w.etcd.Do(ctx, put)
			if err != nil {
				return 0, fmt.Errorf("%w: %w", etcdclaims.ErrUnknown, err)
			}
			return resp.Put().Header.Revision, nil
		})
}

func (w *worker) addElement(ctx context.Context, r *rand.Rand, key, set, kind string,
	write func(context.Context, *etcdclaims.Claim, clientv3.Op) (int64, error),
) error {
	wait, cancel := context.WithTimeout(ctx, between(r, 2*w.TTL, 6*w.TTL))
	defer cancel()
	var opts []etcdclaims.AcquireOption
	if kind == kindSet && r.IntN(2) == 0 { // only fenced writes may have it
		opts = append(opts, etcdclaims.Suspectable())
	}
	claim, err := w.claims.Acquire(wait, key, opts...)
	if err != nil {
		return err
	}
	err = func() error {
		reading, cancel := context.WithTimeout(claim.Context(), callTimeout)
		defer cancel()
		resp, err := w.etcd.Get(reading, set)
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
		e := w.intend(kind, claim.Token())
		writing, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		rev, err := write(writing, claim, clientv3.OpPut(set, strings.Join(append(elements, e.ID), " ")))
		w.conclude(e, rev, err)
		return nil
	}()
	giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	return errors.Join(err, claim.Release(giving))
}
